"""
Suites: what a table promises, one sentence each, in the JSON that Great Expectations reads and writes.

A file may be put into the folder `gx/expectations` of a project of Great Expectations, and runs there: it has
the ids that are wanted of a suite that was saved, and each `description` is the sentence, which the pages
show beside a failure.  An expectation whose `meta` names the `engine` Spark is a query in Spark's SQL; the
tables beside the one that is checked are there views such as `cdckit_merged`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdckit.errors import InvalidArgument
from cdckit.files import expectations
from cdckit.parts.suggestions import nearest

SEVERITIES = ("info", "warning", "critical")
"""How much it matters that a sentence is broken, as Great Expectations has it: the last most."""


@dataclass(frozen=True)
class Sentence:
    """One expectation of a suite: which sort, about what, in words, and why."""

    type: str
    kwargs: Mapping[str, Any]
    says: str
    source: str
    severity: str


@dataclass(frozen=True)
class Suite:
    """
    What one kind of table promises.

    Args:
        name: What it is called.
        columns: Those that its sentences read.
        tables: The other tables that they read, by the names that SQL calls them.
        order_by: By which columns the rows that break a sentence are shown.
        sentences: In their order.
        stated: The JSON that it was read from.
    """

    name: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    order_by: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    stated: Mapping[str, Any]


def suite_names() -> list[str]:
    """
    The suites that come with cdckit.

    >>> [name for name in suite_names() if name.startswith("re")]
    ['records', 'rejects']
    """
    return sorted(path.stem for path in Path(expectations()).glob("*.json"))


def suite_of(given: str | Mapping[str, Any], *, function: str) -> Suite:
    """
    A suite by its name, or of the JSON that Great Expectations writes, as Python has it.

    Raises:
        InvalidArgument: There is none of that name, or it has no expectations.
    """
    if isinstance(given, str):
        known = suite_names()
        if given not in known:
            close = nearest(given, known)
            remedy = None if close is None else f"Probably {close!r} was meant."
            raise InvalidArgument(function, "suite", f"one of {', '.join(known)}", given, remedy=remedy)
        given = json.loads(Path(expectations(f"{given}.json")).read_text())
    if not isinstance(given, Mapping) or not given.get("expectations") or "name" not in given:
        needed = "the name of a suite, or a suite of Great Expectations as a mapping, name and expectations"
        raise InvalidArgument(function, "suite", needed, given)
    meta = given.get("meta") or {}
    return Suite(
        given["name"],
        tuple(meta.get("columns", ())),
        tuple(meta.get("tables", ())),
        tuple(meta.get("order_by", ())),
        tuple(map(_sentence, given["expectations"])),
        given,
    )


def _sentence(stated: Mapping[str, Any]) -> Sentence:
    said = stated.get("description") or stated.get("notes") or _default_notes(stated)
    says = said if isinstance(said, str) else " ".join(said)
    source = (stated.get("meta") or {}).get("source", "")
    return Sentence(stated["type"], stated["kwargs"], says, source, stated.get("severity", "critical"))


def _default_notes(stated: Mapping[str, Any]) -> str:
    """Words for an expectation that has none: its sort and its arguments, so that no two are alike."""
    said = ", ".join(f"{name} {value}" for name, value in stated["kwargs"].items() if value is not None)
    return f"{stated['type'].replace('_', ' ')}: {said}" if said else stated["type"].replace("_", " ")
