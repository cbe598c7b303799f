"""Docstrings as Sphinx reads them: ours have Google's sections, and tables as Markdown writes them."""

from __future__ import annotations

import inspect
import re

SECTION = re.compile(r"^(Returns|Source):\n((?:(?: .*)?\n)*)", re.MULTILINE)
PARAGRAPH = re.compile(r"^(Cost): (.*\n(?:.*\S.*\n)*)", re.MULTILINE)
TABLE = re.compile(r"^( *)(\|.*\|)\n *\|(?: *:?-+:? *\|)+\n((?: *\|.*\|\n)+)", re.MULTILINE)


def as_rst(docstring: str) -> str:
    """What is left to napoleon are the sections that have names in them: Args, Raises, Attributes."""
    text = TABLE.sub(_table, docstring.rstrip("\n") + "\n")
    return PARAGRAPH.sub(_field, SECTION.sub(_field, text))


def _field(found: re.Match[str]) -> str:
    """A part as a field; napoleon would take the words before a colon in it for a type."""
    first, _, rest = inspect.cleandoc(found[2]).partition("\n")
    lines = [
        f":{found[1].lower()}: {first[:1].upper()}{first[1:]}",
        *(f"    {line}".rstrip() for line in rest.split("\n")),
        "",
    ]
    return "\n".join(lines) + "\n"


def _table(found: re.Match[str]) -> str:
    indent, header, body = found.groups()
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *body.splitlines()]:
        first, *others = (cell.strip() for cell in row.strip().strip("|").split("|"))
        lines += [f"   * - {first}", *(f"     - {cell}" for cell in others)]
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in [*lines, ""])
