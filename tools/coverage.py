"""
Which notebook shows which scenario of the five specifications.

    python -m tools.coverage        how many there are, how many are shown, and what is wrong with the lists

The scenarios are data, in `tools/scenarios`: a file for each specification, whose first line names it; then
a line for each scenario, in our words:

    section | scenario | notebook | heading                  its section of that notebook shows it
    section | scenario | not shown | test: reason            no notebook does; that test does (or "nothing")

A heading must be one of the notebook, with an output of code below it; a test must be there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from tools.notebooks import ROOT, committed

LISTS = Path(__file__).parent / "scenarios"
NOT_SHOWN = "not shown"
UNTESTED = "nothing"
_format: Any = nbformat  # as in tools.notebooks


class Scenario(NamedTuple):
    """One thing that a specification says can happen, and where it is shown."""

    section: str
    words: str
    notebook: str
    """The number of a notebook, or `NOT_SHOWN`."""
    heading: str
    """A heading of that notebook; of what is not shown, a test and the reason."""

    @property
    def is_shown(self) -> bool:
        return self.notebook != NOT_SHOWN


class Specification(NamedTuple):
    """A specification, and its scenarios in their order."""

    name: str
    scenarios: list[Scenario]

    @property
    def shown(self) -> list[Scenario]:
        return [each for each in self.scenarios if each.is_shown]


def specifications(folder: Path = LISTS) -> list[Specification]:
    """All lists, in the order of their files."""
    return [_read(path) for path in sorted(folder.glob("*.txt"))]


def _read(path: Path) -> Specification:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    parts = [[part.strip() for part in row.split("|")] for row in rows]
    wrong = [row for row, found in zip(rows, parts, strict=True) if len(found) != len(Scenario._fields)]
    if wrong:
        raise ValueError(f"{path.name}: not of the form section | scenario | notebook | heading: {wrong[0]}")
    return Specification(first.removeprefix("#").strip(), [Scenario(*found) for found in parts])


def headings(notebook: Path) -> dict[str, bool]:
    """By heading of a notebook, whether a cell with code and an output follows before the next one."""
    found: dict[str, bool] = {}
    last = ""
    for cell in _format.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^#+ (.+)$", cell.source, flags=re.MULTILINE):
                last = heading.strip()
                found[last] = False
        elif cell.outputs and last:
            found[last] = True
    return found


def by_number() -> dict[str, Path]:
    """The notebooks by the two digits with which their names begin."""
    return {path.name[:2]: path for path in committed()}


def find_problems(specifications: list[Specification]) -> Iterator[str]:
    """Say, one sentence each, what a list says that is not so."""
    paths = by_number()
    known = {number: headings(path) for number, path in paths.items()}
    for name, scenarios in specifications:
        twice = [words for words, count in Counter(each.words for each in scenarios).items() if count > 1]
        yield from (f"{name}: {words!r} stands twice." for words in twice)
        for each in scenarios:
            problem = _problem(each, known) if each.is_shown else _problem_of_test(each)
            if problem:
                yield f"{name}: {each.words!r} {problem}"


def _problem(scenario: Scenario, known: dict[str, dict[str, bool]]) -> str | None:
    has_output = known.get(scenario.notebook, {}).get(scenario.heading)
    if has_output is None:
        return f"is said to be in notebook {scenario.notebook}, which has no heading {scenario.heading!r}."
    return None if has_output else f"has no cell with an output below {scenario.heading!r}."


def _problem_of_test(scenario: Scenario) -> str | None:
    place, told, reason = scenario.heading.partition(": ")
    file, _, function = place.partition("::")
    path = ROOT / file
    if not told or not reason or not (file == UNTESTED or file.startswith("tests/")):
        return "is not shown, and its line names no test and reason."
    if file == UNTESTED:
        return None
    if not path.is_file() or (function and f"def {function}(" not in path.read_text(encoding="utf-8")):
        return f"is said to be tested by {place}, which is not there."
    return None


def main() -> int:
    """Run the program and return its exit code."""
    lists = specifications()
    for each in lists:
        print(f"{each.name}: {len(each.scenarios)} scenarios, {len(each.shown)} of them in notebooks")
    problems = list(find_problems(lists))
    print(*problems, sep="\n")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
