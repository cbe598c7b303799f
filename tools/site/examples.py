"""
The examples of Markdown pages, run as they stand.

A block of `python` is run, all of one page in one set of names; a block of `text` right below it is what it
prints.

    python -m tools.site.examples docs/tasks/replay.md       run it, and write what is printed into the page
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLE = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", flags=re.DOTALL | re.MULTILINE)


class Example(NamedTuple):
    """One block of code: the line where it begins, what the page says that it prints, and what it printed."""

    line: int
    shown: str
    printed: str


def run(text: str, name: str) -> Iterator[Example]:
    """Run the examples of a page; those that write do it in a temporary folder of their own."""
    names: dict[str, Any] = {"__name__": name}
    for found in EXAMPLE.finditer(text):
        line = text.count("\n", 0, found.start(1))
        printed = io.StringIO()
        # The lines of an error are then those of the page.
        code = compile("\n" * line + found[1], name, "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        yield Example(line, found[2] or "", _tidy(printed.getvalue()))


def written(text: str, examples: list[Example]) -> str:
    """The page, with what was printed in place of what it said."""
    printed = iter(examples)

    def again(found: re.Match[str]) -> str:
        shows = next(printed).printed
        return f"```python\n{found[1]}```" + (
            f"\n\n```text\n{shows}```" if shows or found[2] is not None else ""
        )

    return EXAMPLE.sub(again, text)


def _tidy(printed: str) -> str:
    """Without spaces at the ends of lines, which no editor keeps, and without empty lines at the end."""
    lines = [line.rstrip() for line in printed.splitlines()]
    return "\n".join(lines).strip("\n") + "\n" if any(lines) else ""


def main(pages: list[str]) -> int:
    """Run the pages that are named, and write into each what its examples print."""
    for page in map(Path, pages):
        text = page.read_text()
        page.write_text(written(text, list(run(text, page.name))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
