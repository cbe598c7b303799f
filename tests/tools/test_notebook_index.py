"""The index of the notebooks says what they are, its links lead somewhere, and they open and end alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from tools.notebook_index import (
    PAGE,
    PICTURES,
    Scenario,
    Specification,
    find_problems,
    headings,
    page,
    specifications,
)
from tools.notebooks import FOLDER, ROOT, committed, read

LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")


def words(path: Path) -> list[str]:
    """The cells of a notebook that are text."""
    return [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]


def minutes(path: Path) -> float:
    """How long it takes to read a notebook: 220 words a minute, or 30 lines of code."""
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    lines = sum(len(source.splitlines()) for source in code)
    return len(" ".join(words(path)).split()) / 220 + lines / 30


def width_of(path: Path) -> int:
    with Image.open(path) as image:
        return image.width


def test_the_page_is_what_the_program_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.notebook_index"


def test_every_notebook_has_a_picture_that_is_small() -> None:
    pictures = {path.stem: path for path in PICTURES.glob("*.png")}
    assert sorted(pictures) == [path.stem for path in committed()]
    assert [name for name, path in pictures.items() if path.stat().st_size > 60_000] == []
    assert {width_of(path) for path in pictures.values()} == {560}


def test_what_the_page_links_to_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    linked = {*LINK.findall(text), *re.findall(r'src="([^"]+)"', text)}
    assert {"01_tour.ipynb", "pictures/01_tour.png"} <= linked
    assert [path for path in sorted(linked) if not (FOLDER / path).is_file()] == []
    named = set(re.findall(r"`(tests/[^`]+)`", text))
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.name)
def test_links_of_a_notebook_lead_somewhere(path: Path) -> None:
    """Also notebooks that are named without a link."""
    text = "\n".join(words(path))
    named = [f"{name}.ipynb" for name in re.findall(r"`(\d\d_\w+)`", text)]
    assert [link for link in [*LINK.findall(text), *named] if not (FOLDER / link).exists()] == []


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.name)
def test_notebooks_open_and_end_alike(path: Path) -> None:
    """A question, what one will know, ten minutes at most; then what remains, where to go on, the sources."""
    first, *_, last = words(path)
    assert re.match(r"# \S", first)
    assert "?" in first
    assert re.search(r"will know|the next four cells answer", first, re.IGNORECASE)
    how_long = re.search(
        r"\*About (\d+) minutes to read\. All notebooks: \[the index\]\(README\.md\)\.\*$", first
    )
    assert how_long
    assert int(how_long[1]) == pytest.approx(minutes(path), rel=0.3, abs=2)
    assert round(minutes(path)) <= 10
    assert re.search(r"^## What remains uncertain$", last, re.MULTILINE)
    assert re.search(r"^\*\*Next:\*\* .*\]\(\d\d_\w+\.ipynb\)", last, re.MULTILINE)
    assert re.search(r"^## Sources$", last, re.MULTILINE)


# Coverage -----------------------------------------------------------------------------------------------


def test_every_scenario_is_shown_where_its_list_says() -> None:
    assert list(find_problems(specifications())) == []


def test_all_five_specifications_are_listed_in_full() -> None:
    """Few scenarios would be easy to show; none of these lists has become shorter by mistake."""
    assert [len(each.scenarios) for each in specifications()] == [34, 35, 72, 77, 35]


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (("01", "A heading that is not there"), "has no heading"),
        (("99", "Sources"), "has no heading"),
        (("01", "Sources"), "no cell with an output"),
        (("not shown", "tests/tools/test_tiers.py"), "no test and reason"),
        (("not shown", "tests/no_such_test.py: too long"), "which is not there"),
        (("not shown", "tests/tools/test_tiers.py::test_no_such: too long"), "which is not there"),
    ],
)
def test_a_place_that_is_not_there_is_said(scenario: tuple[str, str], said: str) -> None:
    listed = Specification("S", [Scenario("s", "a thing", *scenario)])
    assert [said in problem for problem in find_problems([listed])] == [True]


def test_a_scenario_is_listed_once() -> None:
    twice = [Scenario("s", "a thing", "01", "A feed, as it arrives")] * 2
    assert list(find_problems([Specification("S", twice)])) == ["S: 'a thing' stands twice."]


def test_a_line_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("# S\nsection | scenario | 00\n")
    with pytest.raises(ValueError, match=r"1\.txt: not of the form .*: section \| scenario \| 00"):
        specifications(tmp_path)


def test_a_heading_shows_something_if_a_cell_below_it_has_an_output() -> None:
    found = headings(FOLDER / "01_tour.ipynb")
    assert found["A feed, as it arrives"]
    assert not found["Sources"]
