"""
Execute the notebooks, and keep what is committed of them fit to be compared.

    python -m tools.notebooks                            execute all and write their outputs back
    python -m tools.notebooks notebooks/01_tour.ipynb    execute these
    python -m tools.notebooks --check                    read the files as they are, execute nothing

A notebook without outputs passes nbval while comparing nothing, and one that shows a path or an
address passes on one machine only.  Both are refused here; a notebook that fails is not written.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tools.one_jvm import SharedJvm

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
KERNEL = "python3"
LARGEST = 300_000
SECONDS_PER_CELL = 600
MOST_LINES = 8
"""Of half of the code cells: what takes more belongs into the library."""

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": KERNEL},
    "language_info": {"name": "python"},
}
"""All that a committed notebook says about where it ran."""

_ONE_MACHINE_ONLY = {
    "a path of one machine": r"(?<![\w.:/])/(?:home|Users|root|tmp|private|var|opt|usr|mnt|srv)/",
    "a path of this repository's place": re.escape(str(ROOT)),
    "an address": r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])",
    "a warning of Java's": r"\[\d+[.,]\d+s\]\[(?:warning|error)\]",
    "the place of an object in memory": r"\bat 0x[0-9a-fA-F]{4,}",
}

WIDGET = "application/vnd.jupyter.widget-view+json"
"""Names the widget of one run; on a page its static form stands in its place."""

Notebook = Any
"""A notebook as `nbformat` reads it: nested dictionaries with attributes."""

_format: Any = nbformat  # it says that it is typed, and a part of it is


def executed(notebook: Notebook, folder: Path) -> Notebook:
    """Run the cells from top to bottom in a fresh kernel that stands in *folder*, up to the first error."""
    run = deepcopy(notebook)
    for cell in run.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        run,
        timeout=SECONDS_PER_CELL,
        kernel_name=KERNEL,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    os.environ["CDCKIT_PROGRESS"] = "0"  # how far Spark is differs from run to run
    with suppress(CellExecutionError):  # the error is an output now, where find_problems finds it
        client.execute()
    return run


def tidied(notebook: Notebook) -> Notebook:
    """
    The notebook without what differs from run to run and tells the reader nothing.

    Standard error goes, since it is Spark's start and not the cell's answer; all metadata but the
    cells' tags goes; the pieces in which a stream arrived are joined.
    """
    tidy = deepcopy(notebook)
    tidy.metadata = _format.from_dict(METADATA)
    for cell in tidy.cells:
        cell.metadata = _format.from_dict({k: v for k, v in cell.metadata.items() if k == "tags"})
        if cell.cell_type == "code":
            cell.outputs = list(_joined(cell.outputs))
    return tidy


def _joined(outputs: Sequence[Any]) -> Iterator[Any]:
    text = "".join(output.text for output in outputs if _is_stdout(output))
    if text:
        yield _format.v4.new_output("stream", name="stdout", text=text)
    for output in outputs:
        if output.output_type != "stream":
            if "metadata" in output:
                output.metadata = _format.from_dict({})
            if "data" in output:
                output.data.pop(WIDGET, None)
            yield output


def _is_stdout(output: Any) -> bool:
    return bool(output.output_type == "stream" and output.name == "stdout")


def find_problems(notebook: Notebook) -> Iterator[str]:
    """Say, one sentence each, why *notebook* is not fit to be committed.  Executes nothing."""
    code = [(number, cell) for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    if notebook != tidied(notebook):
        yield "It holds standard error or metadata: run python -m tools.notebooks."
    if not any(cell.outputs for _, cell in code):
        yield "No cell has an output, so nbval would compare nothing."
    counts = [cell.execution_count for _, cell in code]
    if counts != list(range(1, len(counts) + 1)):
        yield f"It was not executed once from top to bottom; the cells are numbered {counts}."
    for number, cell in code:
        for problem in _cell_problems(cell):
            yield f"Cell {number}: {problem}"
    if helpers := _helpers_before_table(cell for _, cell in code):
        yield f"It defines {', '.join(helpers)} before its first table."
    lines = median([sum(map(bool, map(str.strip, cell.source.splitlines()))) for _, cell in code] or [0])
    if lines > MOST_LINES:
        yield f"Its code cells have a median of {lines:g} lines; at most {MOST_LINES} are wanted."
    size = len(_format.writes(notebook).encode())
    if size > LARGEST:
        yield f"It has {size:,} bytes; at most {LARGEST:,} are wanted."


def _cell_problems(cell: Any) -> Iterator[str]:
    if _should_show(cell.source) and not cell.outputs:
        yield "it calls something that should show its result, and shows nothing."
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"it raised {output.ename}: {output.evalue.partition(chr(10))[0]}"
            continue
        shown = _text(output)
        if not shown.strip():
            yield "an output is empty."
        html = output.get("data", {}).get("text/html", "")
        if html and not output.data.get("text/plain", "").strip():
            yield "it shows HTML without a text form beside it."
        if re.search(r"<script|\sid=", html):
            yield "it shows HTML with an id or a script, which differ from run to run."
        for what, pattern in _ONE_MACHINE_ONLY.items():
            for found in re.findall(pattern, shown):
                yield f"its output shows {what}: {found}"


def _helpers_before_table(cells: Iterable[Any]) -> list[str]:
    """The functions and classes that a reader has to read before there is anything to see."""
    helpers: list[str] = []
    for cell in cells:
        nodes = ast.parse(cell.source).body
        helpers += [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        if any({"text/html", "image/png"} & output.get("data", {}).keys() for output in cell.outputs):
            break
    return helpers


def _should_show(source: str) -> bool:
    """Whether a cell does more than import, define, assign and assert."""
    return any(isinstance(node, ast.Expr) for node in ast.parse(source).body)


def _text(output: Any) -> str:
    """What of an output is text: a stream, or the texts of a result (a picture has one as well)."""
    if output.output_type == "stream":
        return str(output.text)
    return "\n".join(text for kind, text in output.data.items() if kind.startswith("text/"))


def check(path: Path) -> list[str]:
    """What is wrong with the notebook at *path*, as it lies there."""
    return list(find_problems(read(path)))


def run(path: Path) -> list[str]:
    """Execute the notebook at *path* and write it back, unless something is wrong with it."""
    notebook = tidied(executed(read(path), path.parent))
    problems = list(find_problems(notebook))
    if not problems:
        _format.write(notebook, path)
    return problems


def read(path: Path) -> Notebook:
    """The notebook at *path*."""
    return _format.read(path, as_version=4)


def committed() -> list[Path]:
    """The notebooks of this repository, in their order."""
    return sorted(FOLDER.glob("*.ipynb"))


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__.split("\n")[1])
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ without it")
    parser.add_argument("--check", action="store_true", help="read the files as they are, execute nothing")
    chosen = parser.parse_args(arguments)
    wrong = 0
    paths = chosen.notebooks or committed()
    # One alone starts Spark as it does for a reader.
    shared = SharedJvm() if len(paths) > 1 and not chosen.check else None
    for path in paths:
        if shared is not None:
            shared.make_ready(path.parent)
        problems = (check if chosen.check else run)(path)
        wrong += bool(problems)
        print(f"{path.name}: {'; '.join(problems) or 'good'}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
