"""
The page with which the notebooks open: `notebooks/README.md`, and a small picture of each of them.

    python -m tools.notebook_index              writes the page, and pictures that are missing
    python -m tools.notebook_index 10 41        draws the pictures of these notebooks anew as well

The page lists the notebooks with the question that each answers, and the scenarios of the five specifications
with the section that shows each (`tools.coverage`); a test fails when it is not what this program writes.
A picture is the last figure of its notebook, or else its largest table, or text, which needs a browser.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image

from tools.coverage import UNTESTED, Scenario, Specification, by_number, specifications
from tools.notebooks import FOLDER
from tools.readme_pictures import draw

PAGE = FOLDER / "README.md"
PICTURES = FOLDER / "pictures"
WIDTH, HEIGHT = 280, 140
WORDS_PER_MINUTE, LINES_PER_MINUTE = 220, 30

PARTS = {
    "0": ("Begin here", "What a change feed is, and how one's own data become a history."),
    "1": ("Ask a history", "What was, what changed, who said so, what was believed, how long it lasted."),
    "2": ("The data hub", "Messages, mappings, links, lists: the door of temporal message processing."),
    "3": ("RDSS and Databus", "Messages between repositories, and a database's changes in windows."),
    "4": ("Debezium", "The streams of the prototype of 2014, and change events of today's databases."),
    "5": ("Trust", "Whether what stands in the tables can be believed."),
    "6": ("All together", "What five doors say of one thing."),
}

QUESTIONS = {
    "00": "What did the departure board show at noon, and who said so?",
    "01": "What is in a message of Replicate, and what happens when it is wrong?",
    "02": "How do a CSV and a second table become one history?",
    "10": "What did the board say at any minute, and what changed in an hour?",
    "11": "Who said so, and what if somebody else had the last word?",
    "12": "What did we believe, and when did we know better?",
    "14": "How long, how many at once, and what followed what?",
    "20": "What does a message do to a table, and who said so?",
    "23": "What can a mapping say, and what becomes of a value that is not as it should be?",
    "33": "How does an application take part in an exchange of messages, and what if it dies in the middle?",
}
"""The question that a notebook answers, by its number, where its title does not say it in full."""

_format: Any = nbformat  # as in tools.notebooks


def page() -> str:
    """The whole page."""
    return "\n".join([*_index(by_number()), *_coverage(specifications()), ""])


def _index(notebooks: dict[str, Path]) -> Iterator[str]:
    yield "# The notebooks"
    yield ""
    yield "Each asks one question and answers it with data that come along; none needs a network."
    yield "Begin with [00_tour](00_tour.ipynb). If you have read one specification, go to its notebooks;"
    yield "[60_five_feeds_one_history](60_five_feeds_one_history.ipynb) has all of them together."
    yield "The outputs are those of the last run, and `make test` compares every one of them."
    for decade, numbers in groupby(sorted(notebooks), key=lambda number: number[0]):
        name, about = PARTS[decade]
        yield from ("", f"## {name}", "", about, "", "| | | |", "|---|---|---|")
        for number in numbers:
            path = notebooks[number]
            picture = f'<img src="pictures/{path.stem}.png" width="{WIDTH}" alt="{escape(title(path))}">'
            about = f"**[{path.stem}]({path.name})**<br>{QUESTIONS.get(number) or title(path)}"
            yield f"| {picture} | {about} | {told_minutes(path)} |"


def title(path: Path) -> str:
    """The first line of a notebook."""
    first: str = _format.read(path, as_version=4).cells[0].source.splitlines()[0]
    return first.removeprefix("# ")


def told_minutes(path: Path) -> str:
    """How long it takes to read a notebook, as it says itself."""
    found = re.search(r"\*About (\d+) minutes", _format.read(path, as_version=4).cells[0].source)
    return f"{found[1]} min" if found else ""


def minutes(path: Path) -> int:
    """What a notebook should say of that: its words, and its lines of code."""
    cells = _format.read(path, as_version=4).cells
    words = sum(len(cell.source.split()) for cell in cells if cell.cell_type == "markdown")
    lines = sum(len(cell.source.splitlines()) for cell in cells if cell.cell_type == "code")
    return max(1, round(words / WORDS_PER_MINUTE + lines / LINES_PER_MINUTE))


def _coverage(lists: Sequence[Specification]) -> Iterator[str]:
    count = sum(len(each.scenarios) for each in lists)
    shown = sum(len(each.shown) for each in lists)
    yield from ("", "## What of the five specifications is shown where", "")
    yield "A scenario is something that a specification says can happen, in our words."
    yield f"There are {count}; notebooks show {shown} of them, and of the others the line says why not."
    yield "`python -m tools.coverage` checks that every section named here is there, and shows something."
    for each in lists:
        told = f"{each.name}: {len(each.shown)} of {len(each.scenarios)}"
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


# Pictures -----------------------------------------------------------------------------------------------


def picture(path: Path) -> Image.Image:
    """The last figure of a notebook, or else its largest table, or else what it printed most of; small."""
    outputs = [
        output
        for cell in _format.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        if output.output_type in ("stream", "display_data", "execute_result")
    ]
    shown = [output.data for output in outputs if "data" in output]
    figures = [data["image/png"] for data in shown if "image/png" in data]
    if figures:
        return small(Image.open(BytesIO(base64.b64decode(figures[-1]))))
    tables = [data["text/html"] for data in shown if "text/html" in data]
    printed = max((output.text for output in outputs if "text" in output), key=len, default="")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "table.png"
        draw(max(tables, key=len) if tables else f"<pre>{escape(printed)}</pre>", target)
        drawn = Image.open(target)
        return small(drawn.crop((0, 0, min(drawn.width, 3 * WIDTH), drawn.height)))


def small(image: Image.Image) -> Image.Image:
    """As wide as the column of the page, cut below where it is high, in few colours."""
    whole = image.convert("RGB")
    scaled = whole.resize(
        (2 * WIDTH, round(2 * WIDTH * whole.height / whole.width)), Image.Resampling.LANCZOS
    )
    return scaled.crop((0, 0, scaled.width, min(scaled.height, 2 * HEIGHT))).quantize(48)


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code."""
    PICTURES.mkdir(exist_ok=True)
    for number, path in by_number().items():
        target = PICTURES / f"{path.stem}.png"
        if number in arguments or not target.exists():
            picture(path).save(target, optimize=True)
            print(target.relative_to(FOLDER.parent))
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
