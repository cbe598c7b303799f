"""What pyproject.toml allows, environment.yml offers and requirements.txt pins."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = DECLARED["project"]
# The packages that the project is built around, by the names under which they are installed.
NAMED = ("pyspark", "jupyterlab", "pandas", "pyarrow", "fastavro", "great-expectations", "nbval", "pytest")


def stated(requirement: str) -> tuple[str, str]:
    """The name and the versions of a requirement: "pandas>=2.2,<3" is ("pandas", ">=2.2,<3")."""
    name, versions = re.fullmatch(r"([A-Za-z0-9_-]+)(.*)", requirement).groups()
    return name, versions


def declared() -> dict[str, str]:
    extras = [requirement for extra in PROJECT["optional-dependencies"].values() for requirement in extra]
    return dict(map(stated, [*PROJECT["dependencies"], *extras]))


def conda() -> dict[str, str]:
    listed = re.findall(r"^ +- ([^\n:]+)$", (ROOT / "environment.yml").read_text(), flags=re.MULTILINE)
    return dict(stated(entry) for entry in listed if not entry.startswith(("-e", "conda-forge")))


def pins(file: str = "requirements.txt") -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(
        line.split(" ;")[0].split("==") for line in lines if "==" in line and not line.startswith(" ")
    )


@pytest.mark.parametrize("name", NAMED)
def test_conda_offers_what_the_project_declares(name: str) -> None:
    """environment.yml names each package with the versions of pyproject.toml, and PySpark as it is pinned."""
    wanted = f"=={pins()['pyspark']}" if name == "pyspark" else declared()[name]
    assert conda()[name] == wanted


def test_conda_installs_every_extra_but_that_of_the_proofs() -> None:
    """The notebooks and the demo need them; `make soak` alone needs the last one."""
    [extras] = re.findall(r"-e \.\[(.*)\]", (ROOT / "environment.yml").read_text())
    assert set(extras.split(",")) == PROJECT["optional-dependencies"].keys() - {"soak"}


def test_conda_brings_python_and_java() -> None:
    """A machine with nothing but conda gets the interpreter and the JDK."""
    assert conda()["python"] == PROJECT["requires-python"]
    assert conda()["openjdk"] == "=17"
    assert "pip" in conda()


def test_everything_declared_is_pinned() -> None:
    """requirements.txt holds one version of everything that any extra asks for."""
    assert declared().keys() <= pins().keys()
    assert pins()["pyspark"] == "4.1.4"


def test_the_tools_of_the_site_are_pinned_beside_everything_else() -> None:
    """They come into the same environment, so what both files name has one version; and no extra has them."""
    site, everything = pins("docs/requirements.txt"), pins()
    assert dict(map(stated, DECLARED["dependency-groups"]["docs"])).keys() <= site.keys()
    assert {name: site[name] for name in site.keys() & everything.keys()} == {
        name: everything[name] for name in site.keys() & everything.keys()
    }
    assert not {"sphinx", "myst-nb", "furo"} & everything.keys()


def test_the_page_of_platforms_names_what_pip_would_choose() -> None:
    """Beside a platform's Spark all requirements but PySpark are typed, as pyproject.toml has them."""
    page = (ROOT / "docs/on-a-platform.md").read_text()
    [block] = re.findall(r"```text\n(pip install \"pandas.*?)```", page, flags=re.DOTALL)
    lines = [re.findall(r'"([^"]+)"', line) for line in block.splitlines() if "--no-deps" not in line]
    wanted, extras = PROJECT["dependencies"], PROJECT["optional-dependencies"]
    assert lines[0] == [each for each in wanted if not each.startswith("pyspark")]
    assert lines[1:] == [extras[name] for name in ("avro", "rdss", "gateway", "quality", "notebooks")]


@pytest.mark.parametrize("file", ["requirements.txt", "docs/requirements.txt"])
def test_the_pins_name_no_index(file: str) -> None:
    """Where packages come from is the machine's business."""
    text = (ROOT / file).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|@ file", text)
