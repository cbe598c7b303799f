"""The committed notebooks are executed, shown and clean; the tool that says so refuses what it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.notebooks import METADATA, ROOT, check, committed, find_problems, main, run, tidied


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.name)
def test_committed_notebook_has_nothing_wrong(path: Path) -> None:
    assert check(path) == []


def test_the_notebooks_are_found() -> None:
    """A check of no files would pass as well."""
    assert [path.name for path in committed()][:2] == ["00_your_own_data.ipynb", "01_tour.ipynb"]


def printed(text: str, source: str = "print(answer)", count: int | None = 2) -> Any:
    """A cell that printed *text*."""
    return new_code_cell(source, execution_count=count, outputs=[new_output("stream", text=text)])


def notebook(*cells: Any) -> Any:
    """A notebook as it should be, and *cells* behind it."""
    sound = [new_markdown_cell("# Why?"), new_code_cell("answer = 42", execution_count=1)]
    return new_notebook(metadata=nbformat.from_dict(METADATA), cells=[*sound, *cells])


def test_a_sound_notebook_passes() -> None:
    assert list(find_problems(notebook(printed("42\n")))) == []


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (printed("42\n", count=None), "not executed once from top to bottom"),
        (printed("42\n", count=7), "not executed once from top to bottom"),
        (printed(" \n"), "an output is empty"),
        (printed(f"read {ROOT}/data\n"), "this repository's place"),
        (printed("read /home/ada/data\n"), "a path of one machine"),
        (printed("at 10.20.30.40\n"), "an address"),
        (printed("[64.551s][warning][codecache] CodeCache is full.\n"), "a warning of Java's"),
        (printed("<object object at 0x7f00aa11>\n"), "the place of an object in memory"),
        (printed("x" * 300_000 + "\n"), "at most 300,000 are wanted"),
        (
            new_code_cell("print(answer)", execution_count=2, outputs=[]),
            "shows nothing",
        ),
        (
            new_code_cell(
                "1 / 0",
                execution_count=2,
                outputs=[new_output("error", ename="ZeroDivisionError", evalue="by zero\n1 / 0")],
            ),
            "it raised ZeroDivisionError: by zero",
        ),
        (
            new_code_cell(
                "table",
                execution_count=2,
                outputs=[new_output("display_data", data={"text/html": "<table>", "text/plain": ""})],
            ),
            "it shows HTML without a text form",
        ),
        (
            new_code_cell(
                "table",
                execution_count=2,
                outputs=[new_output("display_data", data={"text/html": '<p id="x7">', "text/plain": "a"})],
            ),
            "HTML with an id or a script",
        ),
        (
            new_code_cell(
                "print(answer)",
                execution_count=2,
                outputs=[new_output("stream", name="stderr", text="WARN NativeCodeLoader\n")],
            ),
            "standard error",
        ),
    ],
)
def test_what_is_wrong_is_said(cell: Any, said: str) -> None:
    assert any(said in problem for problem in find_problems(notebook(cell)))


def test_a_notebook_that_shows_nothing_is_refused() -> None:
    assert list(find_problems(notebook())) == ["No cell has an output, so nbval would compare nothing."]


def test_long_cells_are_for_the_library() -> None:
    """Half of the cells may have more than eight lines, not more than half; empty lines do not count."""
    long = "\n\n".join(["answer += 1"] * 9)
    two = [new_code_cell(long, execution_count=2), printed("51\n", count=3)]
    assert list(find_problems(notebook(*two))) == []
    three = [*two, new_code_cell(long, execution_count=4), new_code_cell(long, execution_count=5)]
    assert list(find_problems(notebook(*three))) == [
        "Its code cells have a median of 9 lines; at most 8 are wanted."
    ]


def test_helpers_come_after_the_first_table() -> None:
    """A reader sees something before there is code that only helps; printed text is no table."""
    helper = new_code_cell("def at(hour):\n    return hour", execution_count=3)
    shown = [new_output("display_data", data={"text/html": "<table>", "text/plain": "a"})]
    table = new_code_cell("table", execution_count=2, outputs=shown)
    assert list(find_problems(notebook(table, helper))) == []
    assert list(find_problems(notebook(printed("42\n"), helper))) == ["It defines at before its first table."]


def test_versions_and_dates_are_no_addresses() -> None:
    """Four numbers between three points are an address; the specification's `2.0.0` and a time are not."""
    assert list(find_problems(notebook(printed("4.0.0, 2013.02.08, 05:00:21.856962\n")))) == []


def test_tidying_drops_standard_error_and_timings_and_joins_streams() -> None:
    cell = new_code_cell(
        "print(answer)",
        execution_count=2,
        metadata={"execution": {"iopub.status.busy": "2024-01-01T00:00:00Z"}, "tags": ["keep"]},
        outputs=[
            new_output("stream", name="stdout", text="4"),
            new_output("stream", name="stderr", text="WARN NativeCodeLoader\n"),
            new_output("stream", name="stdout", text="2\n"),
        ],
    )
    tidy = tidied(notebook(cell)).cells[-1]
    assert [output.text for output in tidy.outputs] == ["42\n"]
    assert tidy.metadata == {"tags": ["keep"]}


@pytest.mark.slow
def test_cells_are_executed_from_top_to_bottom_in_a_fresh_kernel(tmp_path: Path) -> None:
    """What stood there before is forgotten, and standard error is dropped."""
    path = tmp_path / "old.ipynb"
    told = "import sys\nprint(answer)\nprint('so', file=sys.stderr)"
    nbformat.write(notebook(printed("7\n", told, count=9)), path)
    assert run(path) == []
    _, first, second = nbformat.read(path, as_version=4).cells
    assert [first.execution_count, second.execution_count] == [1, 2]
    assert [(output.name, output.text) for output in second.outputs] == [("stdout", "42\n")]


@pytest.mark.slow
def test_a_notebook_that_fails_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "failing.ipynb"
    nbformat.write(notebook(printed("42\n", "answer / 0")), path)
    before = path.read_bytes()
    assert any("it raised ZeroDivisionError" in problem for problem in run(path))
    assert path.read_bytes() == before


def test_the_program_fails_when_a_notebook_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.ipynb"
    nbformat.write(notebook(), path)
    assert main(["--check", str(path)]) == 1
    assert capsys.readouterr().out == "wrong.ipynb: No cell has an output, so nbval would compare nothing.\n"
