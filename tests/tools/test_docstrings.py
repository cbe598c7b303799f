"""What docstrings name is there: parameters, keywords in calls, functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "cdckit"
Definition = ast.FunctionDef | ast.ClassDef


class Documented(NamedTuple):
    """A function, method or class, where it stands, and the parameters that a call of it has."""

    where: str
    name: str
    docstring: str
    parameters: frozenset[str] | None
    """None where it takes any, or what a class elsewhere says."""
    is_method: bool


@cache
def definitions() -> tuple[Documented, ...]:
    files = sorted(PACKAGE.rglob("*.py"))
    trees = ((ast.parse(each.read_text()), str(each.relative_to(PACKAGE))) for each in files)
    return tuple(found for tree, where in trees for found in _documented(tree, where, ""))


def _documented(scope: ast.AST, where: str, within: str) -> Iterator[Documented]:
    for each in ast.iter_child_nodes(scope):
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            name = f"{within}.{each.name}" if within else each.name
            docstring = ast.get_docstring(each) or ""
            yield Documented(f"{where} {name}", each.name, docstring, _parameters(each), bool(within))
            if isinstance(each, ast.ClassDef):
                yield from _documented(each, where, name)


def _parameters(definition: Definition) -> frozenset[str] | None:
    if isinstance(definition, ast.FunctionDef):
        given = definition.args
        if given.kwarg is not None:
            return None
        several = [given.vararg] if given.vararg is not None else []
        return frozenset(each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *several))
    own = [each for each in definition.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if own:
        return _parameters(own[0])
    fields = [each.target for each in definition.body if isinstance(each, ast.AnnAssign)]
    is_whole = all(isinstance(each, ast.Name) and each.id == "NamedTuple" for each in definition.bases)
    return frozenset(each.id for each in fields if isinstance(each, ast.Name)) if is_whole else None


def described_parameters(docstring: str) -> list[str]:
    """The names that stand below `Args:`, several of them in one line perhaps."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)+)", docstring + "\n", re.MULTILINE)
    lines = section.group(1).splitlines() if section else []
    heads = (re.match(r"    (\w+(?:, \w+)*):(?:$| )", line) for line in lines)
    return [name for head in heads if head is not None for name in head.group(1).split(", ")]


def calls(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """The calls in backticks: the name of what is called, and the keywords that it is given."""
    for text in re.findall(r"`([^`\n]+\))`", docstring):
        try:
            found = ast.parse(text.replace("…", "..."), mode="eval").body
        except SyntaxError:
            continue
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Name | ast.Attribute):
            name = found.func.id if isinstance(found.func, ast.Name) else found.func.attr
            yield name, [each.arg for each in found.keywords if each.arg is not None]


def exported_names() -> set[str]:
    """What a package hands on, and the methods and fields of whatever class."""
    names: set[str] = set()
    for path in PACKAGE.rglob("__init__.py*"):
        for each in ast.parse(path.read_text()).body:
            is_list = isinstance(each, ast.Assign) and isinstance(each.value, ast.List)
            if is_list and getattr(each.targets[0], "id", "") == "__all__":
                names |= set(ast.literal_eval(each.value))
    return names


def columns() -> set[str]:
    """Names that stand in texts of the package: columns of its tables among them."""
    texts = (
        each.value
        for path in PACKAGE.rglob("*.py")
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and "\n" not in each.value
    )
    return {name for text in texts for name in re.findall(r"\w+", text)}


def test_a_docstring_describes_the_parameters_that_there_are() -> None:
    wrong = [
        (each.where, name)
        for each in definitions()
        if each.parameters is not None
        for name in described_parameters(each.docstring)
        if name not in each.parameters
    ]
    assert wrong == []


def test_a_call_in_a_docstring_has_keywords_that_there_are() -> None:
    every = definitions()
    known: dict[str, set[str] | None] = {}
    for each in every:
        before = known.setdefault(each.name, set())
        known[each.name] = None if before is None or each.parameters is None else before | each.parameters
    wrong = [
        (each.where, name, keyword)
        for each in every
        for name, keywords in calls(each.docstring)
        for keyword in keywords
        if keyword not in (known.get(name) or {keyword})
    ]
    assert wrong == []


def test_what_users_read_names_no_function_that_is_not_handed_on() -> None:
    every, handed_on = definitions(), exported_names()
    known = handed_on | {each.name for each in every if each.is_method} | columns()
    known |= {name for each in every for name in each.parameters or ()}
    inner = {each.name for each in every if each.name.islower()} - known
    read = (each for each in every if each.where.split(" ")[1].split(".")[0] in handed_on)
    wrong = [
        (each.where, name)
        for each in read
        if not each.name.startswith("_")
        for name in re.findall(r"`(\w+)(?:\([^`]*\))?`", each.docstring)
        if name in inner
    ]
    assert wrong == []
