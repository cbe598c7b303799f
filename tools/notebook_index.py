"""
The page with which the notebooks open, `notebooks/README.md`; a test fails when it is another one.

    python -m tools.notebook_index              writes the page, and pictures that are missing
    python -m tools.notebook_index 10 41        draws the pictures of these notebooks anew as well

The page lists the notebooks with the question that each answers, and the scenarios of the five specifications
with the section that shows each.  These are data, in `tools/scenarios`: a file for each specification, whose
first line names it; then a line for each scenario, in our words:

    section | scenario | notebook | heading                  its section of that notebook shows it
    section | scenario | not shown | test: reason            no notebook does; that test does (or "nothing")

A heading must be one of the notebook, with an output of code below it; a test must be there.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from tools import pictures
from tools.notebooks import FOLDER, ROOT, committed, read

PAGE = FOLDER / "README.md"
PICTURES = FOLDER / "pictures"
LISTS = Path(__file__).parent / "scenarios"
NOT_SHOWN, UNTESTED = "not shown", "nothing"

PARTS = {
    "0": ("Begin here", "How your own data become a history, and what a change feed is."),
    "1": ("Ask a history", "What was, what changed, who said so, what was believed, how long it lasted."),
    "2": ("The data hub", "Messages of several systems by rules of their own: mappings, links, lists."),
    "3": ("RDSS and Databus", "Messages between repositories, and a database's changes in windows."),
    "4": ("Debezium", "Change events of today's databases, from Kafka; streams of the prototype of 2014."),
    "5": ("Trust", "Whether the tables can be believed."),
    "6": ("All together", "What five feeds say about one thing."),
}

QUESTIONS = {
    "00": "How do nightly lists, a CSV and a second table become a history?",
    "01": "What did the departure board show at noon, and who said so?",
    "02": "What is in a message of Replicate, and how is it read?",
    "10": "What did the board say at any minute, and what changed in an hour?",
    "11": "Who said so, and what became of everybody else's word?",
    "12": "What did we believe, and when did we know better?",
    "14": "How long, how many at once, and what followed what?",
    "33": "How does an application take part in an exchange of messages, and what if it dies in the middle?",
}
"""The question that a notebook answers, by its number, where its title does not say it in full."""


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
    def shown(self) -> int:
        return sum(each.is_shown for each in self.scenarios)


def specifications(folder: Path = LISTS) -> list[Specification]:
    """All lists, in the order of their files."""
    return [_specification(path) for path in sorted(folder.glob("*.txt"))]


def _specification(path: Path) -> Specification:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    scenarios = []
    for line in lines:
        parts = [part.strip() for part in line.split("|")]
        if not line or line.startswith("#"):
            continue
        if len(parts) != len(Scenario._fields):
            raise ValueError(f"{path.name}: not of the form section | scenario | notebook | heading: {line}")
        scenarios.append(Scenario(*parts))
    return Specification(first.removeprefix("#").strip(), scenarios)


def by_number() -> dict[str, Path]:
    """The notebooks by the two digits with which their names begin."""
    return {path.name[:2]: path for path in committed()}


# The page -----------------------------------------------------------------------------------------------


def page() -> str:
    """The whole page."""
    return "\n".join([*_index(by_number()), *_coverage(specifications()), ""])


def _index(notebooks: dict[str, Path]) -> Iterator[str]:
    yield "# The notebooks"
    yield ""
    yield "Each asks one question and answers it with data from this repository; none needs a network."
    yield "Begin with [00_your_own_data](00_your_own_data.ipynb) if you have nightly lists or tables,"
    yield "or with [01_tour](01_tour.ipynb) for a whole story."
    yield "If you know one of the specifications, go to its notebooks."
    yield "`make full` compares all outputs with those that you see, and `make test` all but those of five."
    for decade, numbers in groupby(sorted(notebooks), key=lambda number: number[0]):
        name, about = PARTS[decade]
        yield from ("", f"## {name}", "", about, "", "| | | |", "|---|---|---|")
        for number in numbers:
            path = notebooks[number]
            first = read(path).cells[0].source
            title = first.splitlines()[0].removeprefix("# ")
            minutes = re.search(r"\*About (\d+) minutes", first)
            picture = f'<img src="pictures/{path.stem}.png" width="{pictures.WIDTH}" alt="{escape(title)}">'
            about = f"**[{path.stem}]({path.name})**<br>{QUESTIONS.get(number) or title}"
            yield f"| {picture} | {about} | {f'{minutes[1]} min' if minutes else ''} |"


def _coverage(lists: Sequence[Specification]) -> Iterator[str]:
    count, shown = sum(len(each.scenarios) for each in lists), sum(each.shown for each in lists)
    yield from ("", "## Where each rule of the five specifications is shown", "")
    yield "A scenario is something that a specification says can happen, in our words."
    yield f"There are {count}; notebooks show {shown} of them, and the lines of the others say why not."
    yield "`python -m tools.notebook_index` checks that each section named here is there and shows something."
    for each in lists:
        told = f"{each.name}: {each.shown} of {len(each.scenarios)}"
        yield from ("", f"<details><summary><b>{escape(told, quote=False)}</b></summary>", "")
        yield from ("| section | scenario | shown in |", "|---|---|---|")
        for scenario in each.scenarios:
            yield f"| {scenario.section} | {scenario.words} | {_where(scenario)} |"
        yield from ("", "</details>")


def _where(scenario: Scenario) -> str:
    if scenario.is_shown:
        path = by_number()[scenario.notebook]
        return f"[{scenario.notebook}]({path.name}) {scenario.heading}"
    place, _, reason = scenario.heading.partition(": ")
    tested = "" if place == UNTESTED else f"; tested in `{place.partition('::')[0]}`"
    return f"*not shown:* {reason}{tested}"


# What the lists say -------------------------------------------------------------------------------------


def find_problems(specifications: list[Specification]) -> Iterator[str]:
    """Say, one sentence each, what a list says that is not so."""
    known = {number: headings(path) for number, path in by_number().items()}
    for name, scenarios in specifications:
        twice = [words for words, count in Counter(each.words for each in scenarios).items() if count > 1]
        yield from (f"{name}: {words!r} stands twice." for words in twice)
        for each in scenarios:
            problem = _problem(each, known) if each.is_shown else _problem_of_test(each)
            if problem:
                yield f"{name}: {each.words!r} {problem}"


def headings(notebook: Path) -> dict[str, bool]:
    """By heading of a notebook, whether a cell with code and an output follows before the next one."""
    found: dict[str, bool] = {}
    last = ""
    for cell in read(notebook).cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^#+ (.+)$", cell.source, flags=re.MULTILINE):
                last = heading.strip()
                found[last] = False
        elif cell.outputs and last:
            found[last] = True
    return found


def _problem(scenario: Scenario, known: dict[str, dict[str, bool]]) -> str | None:
    has_output = known.get(scenario.notebook, {}).get(scenario.heading)
    if has_output is None:
        return f"is said to be in notebook {scenario.notebook}, which has no heading {scenario.heading!r}."
    return None if has_output else f"has no cell with an output below {scenario.heading!r}."


def _problem_of_test(scenario: Scenario) -> str | None:
    place, _, reason = scenario.heading.partition(": ")
    file, _, function = place.partition("::")
    path = ROOT / file
    if not reason or not (file == UNTESTED or file.startswith("tests/")):
        return "is not shown, and its line names no test and reason."
    if file == UNTESTED or (path.is_file() and (f"def {function}(" if function else "") in path.read_text()):
        return None
    return f"is said to be tested by {place}, which is not there."


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code."""
    PICTURES.mkdir(exist_ok=True)
    for number, path in by_number().items():
        target = PICTURES / f"{path.stem}.png"
        if number in arguments or not target.exists():
            pictures.of_notebook(path).save(target, optimize=True)
            print(target.relative_to(FOLDER.parent))
    PAGE.write_text(page(), encoding="utf-8")
    problems = list(find_problems(specifications()))
    print(*problems, sep="\n", end="\n" if problems else "")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
