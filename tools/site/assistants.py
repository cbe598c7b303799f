"""For assistants: `llms.txt`, which names the pages, and one page with every name, made of the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cdckit
from tools.site import reference

REFERENCE = "llms-reference.txt"


def contents(docs: Path) -> str:
    """What the project is, and a link to each page, by its title."""
    titles = {
        page: page.read_text().partition("\n")[0].removeprefix("# ") for page in sorted(docs.rglob("*.md"))
    }
    links = [f"- [{title}]({page.relative_to(docs).with_suffix('.html')})" for page, title in titles.items()]
    about = (cdckit.__doc__ or "").strip().partition("\n\n")[0]
    names = f"- [Every name, with its signature]({REFERENCE})"
    return "\n".join(["# cdckit", "", f"> {' '.join(about.split())}", "", "## Pages", "", names, *links, ""])


def every_name(pages: Iterable[reference.Page]) -> str:
    """By subject each public name with its arguments and the first line of its docstring."""
    said, lines = reference.exported(), []
    for page in pages:
        lines += [f"## {page.title}", ""]
        lines += [
            f"- `{name}{_arguments(said[name])}`: {reference.summary(name, said[name])}"
            for name in page.members
        ]
        lines.append("")
    return "\n".join(lines)


def _arguments(what: Any) -> str:
    """How it is called; a value and a class without a signature of its own have none."""
    if not inspect.isfunction(what):
        return ""
    call = inspect.signature(what)
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in call.parameters.values()]
    return str(call.replace(parameters=plain, return_annotation=inspect.Signature.empty))
