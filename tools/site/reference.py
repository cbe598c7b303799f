"""The reference: a page for each package that hands names on, made of its `__all__` and of docstrings."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import cdckit

INSIDE = ("cdckit.parts", "cdckit.merging")
"""Packages whose names are for the other packages, not for users."""


@dataclass(frozen=True)
class Page:
    """One page of the reference: what stands on top of it, and the full names of what it describes."""

    name: str
    title: str
    introduction: str
    members: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()
    """Names that are described elsewhere, with the full names under which they are."""


def packages() -> list[str]:
    """Every package or module from which users import names: it has `__all__`, and is not for the inside."""
    below = pkgutil.walk_packages(cdckit.__path__, "cdckit.")
    found = ["cdckit", *(each.name for each in below if each.ispkg or each.name.count(".") == 1)]
    outside = [name for name in found if not name.startswith(INSIDE)]
    return [name for name in outside if hasattr(importlib.import_module(name), "__all__")]


def exported() -> dict[str, Any]:
    """By full name, everything that is handed on but the packages themselves, the shortest names first."""
    found = {}
    for package in sorted(packages(), key=lambda name: (name.count("."), name)):
        handed_on = importlib.import_module(package)
        for name in sorted(handed_on.__all__, key=partial(_place, _docstring(handed_on))):
            found[f"{package}.{name}"] = getattr(handed_on, name)
    return {name: what for name, what in found.items() if not inspect.ismodule(what)}


def _place(text: str, name: str) -> int:
    """Where a text first speaks of a name; names that it leaves out come last."""
    spoken_of = re.search(rf"\b{name}\b", text)
    return spoken_of.start() if spoken_of else len(text)


def homes() -> dict[str, str]:
    """By full name, the full name under which it is described: the first one of a function or class."""
    first: dict[int, str] = {}
    found = {}
    for name, what in exported().items():
        named = inspect.isclass(what) or inspect.isfunction(what)
        found[name] = first.setdefault(id(what), name) if named else name
    return found


def pages() -> list[Page]:
    """The pages, in order of reading; each exported name is on one of them."""
    described = homes()
    found = []
    for package in packages():
        names = [name for name in described if name.rpartition(".")[0] == package]
        own = tuple(name for name in names if described[name] == name)
        also = tuple((name, described[name]) for name in names if described[name] != name)
        if own:
            page = package.partition(".")[2].replace(".", "-") or "every-day"
            found.append(Page(page, f"`{package}`", _docstring(importlib.import_module(package)), own, also))
    return found


def _module(name: str, what: Any) -> str:
    """Where it is defined; of a value, from where its package has it."""
    if inspect.isclass(what) or inspect.isfunction(what):
        return what.__module__
    package, _, own = name.rpartition(".")
    stub = pkgutil.get_data(package, "__init__.pyi") if package == "cdckit" else None
    for node in ast.walk(ast.parse(stub or inspect.getsource(importlib.import_module(package)))):
        if isinstance(node, ast.ImportFrom) and node.module and own in [each.name for each in node.names]:
            return node.module
    return package


def value_docstring(name: str) -> str:
    """The text below the line that gives an exported value its name; else its class, if that is ours."""
    what, own = exported()[name], name.rpartition(".")[2]
    source = inspect.getsource(importlib.import_module(_module(name, what)))
    for statement, below in pairwise(ast.parse(source).body):
        targets = ast.unparse(statement).partition("=")[0].partition(":")[0].split()
        if isinstance(statement, ast.Assign | ast.AnnAssign) and targets == [own]:
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    return inspect.cleandoc(text)
    kind = type(what)
    if any(kind is each for each in exported().values()):
        return f"A `{kind.__name__}`."
    return _docstring(kind) if kind.__module__.startswith("cdckit") else ""


def written(page: Page) -> str:
    """The page in MyST Markdown: sections by the modules that define the names, errors at the end."""
    said = exported()
    lines = [f"# {page.title}", "", page.introduction, ""]
    sections: dict[str, list[str]] = {}
    for name in page.members:
        sections.setdefault(_section(said[name]), []).append(name)
    for title in sorted(
        sections, key=lambda each: (each in ("Errors", "Values"), list(sections).index(each))
    ):
        lines += [f"## {title}", ""]
        for name in sections[title]:
            lines += _directive(name, said[name])
    if page.also:
        lines += ["## Names that are described elsewhere", ""]
        lines += [f"- `{name}` is {{py:obj}}`{home}`" for name, home in page.also]
    return "\n".join(lines) + "\n"


def _section(what: Any) -> str:
    if inspect.isclass(what) and issubclass(what, BaseException):
        return "Errors"
    if not (inspect.isclass(what) or inspect.isfunction(what)):
        return "Values"
    return _first_sentence(_docstring(importlib.import_module(what.__module__)))


def _directive(name: str, what: Any) -> list[str]:
    """What tells Sphinx to describe it."""
    kind, options = "autodata", []
    if inspect.isfunction(what):
        kind = "autofunction"
    elif inspect.isclass(what):
        kind, options = "autoclass", ["   :members:"]
        if issubclass(what, Enum):
            options.append("   :undoc-members:")
        if issubclass(what, BaseException):
            options = ["   :show-inheritance:"]
    return ["```{eval-rst}", f".. {kind}:: {name}", *options, "```", ""]


def index(listed: list[Page]) -> str:
    """The first page of the reference."""
    said = exported()
    about = "Every name that a program can import, from the docstrings, whose examples `make test` runs."
    lines = ["# Reference", "", about, ""]
    for page in listed:
        lines += [f"## [{page.title}]({page.name}.md)", "", _first_paragraph(page.introduction), ""]
        lines += ["| name | what it does |", "|---|---|"]
        for name in page.members:
            own = name.removeprefix("cdckit.")
            lines.append(f"| {{py:obj}}`{own} <{name}>` | {summary(name, said[name])} |")
        lines.append("")
    return with_contents("\n".join(lines), [page.name for page in listed])


def with_contents(text: str, entries: Iterable[str]) -> str:
    """A page with the pages below it, in their order."""
    return "\n".join([text, "", "```{toctree}", ":hidden:", "", *entries, "```", ""])


def summary(name: str, what: Any) -> str:
    """The first sentence of its docstring, fit for the cell of a table."""
    own = inspect.isclass(what) or inspect.isfunction(what)
    text = _first_sentence(_docstring(what) if own else value_docstring(name)) or "a value"
    return text.replace("|", "\\|")


def _docstring(what: ModuleType | Any) -> str:
    return inspect.cleandoc(what.__doc__ or "")


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:;])\s", _first_paragraph(text))[0].rstrip(".:;")
