"""Faults: what can be wrong with a record, as a catalogue of codes and as findings in rows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc


class Fault(StrEnum):
    """
    The faults of a door: a catalogue with one member for each.

    A member is its code, the `error_code` of rejects; its *sentence* says what is wrong and what to look at;
    it *heals* if what comes later can make the record usable.

    >>> class Door(Fault):
    ...     CUT = "CUT", "The record is cut."
    ...     EARLY = "EARLY", "The record waits for its schema.", True
    >>> Door.CUT.describe("It has 3 bytes."), Door.CUT == "CUT", Door.EARLY.heals
    ('The record is cut. It has 3 bytes.', True, True)
    """

    sentence: str
    heals: bool

    def __new__(cls, code: str, sentence: str, heals: bool = False) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.sentence, member.heals = sentence, heals
        return member

    def describe(self, finding: str = "") -> str:
        """The sentence, with what was found in this record."""
        return f"{self.sentence} {finding}".rstrip()


class FoundFault(Exception):
    """What is wrong with the record that is being read, and what was found in it; its reader catches it."""

    def __init__(self, fault: Fault, finding: str = "") -> None:
        self.fault, self.finding = fault, finding
        super().__init__(fault, finding)


ERROR_CODE, ERROR_DESCRIPTION = "error_code", "error_description"

Findings = dict[int, tuple[Fault, str]]
"""By the place of a row: what is wrong with it, and what was found there."""


def error_columns(findings: Findings, rows: int) -> tuple[pa.Array, pa.Array]:
    """`error_code` and `error_description` of so many rows, null but for the findings."""
    codes: list[str | None] = [None] * rows
    descriptions: list[str | None] = [None] * rows
    for row, (fault, finding) in findings.items():
        codes[row], descriptions[row] = fault.value, fault.describe(finding)
    return pa.array(codes, pa.string()), pa.array(descriptions, pa.string())


BYTES = ("key", "value", "headers")
"""The columns of a record that say what it says; the others say where and when."""


def keep_bytes(columns: Mapping[str, pa.Array], wrong: pa.Array) -> dict[str, pa.Array]:
    """
    The columns of records; their bytes only where something is *wrong*: rejects have them.

    >>> columns = {"value": pa.array([b"?", b"!"]), "offset": pa.array([1, 2])}
    >>> {name: column.to_pylist() for name, column in keep_bytes(columns, pa.array([True, False])).items()}
    {'value': [b'?', None], 'offset': [1, 2]}
    """
    some = pc.any(wrong).as_py()
    nothing = {name: pa.nulls(len(column), column.type) for name, column in columns.items() if name in BYTES}
    kept = {name: pc.if_else(wrong, columns[name], none) if some else none for name, none in nothing.items()}
    return {**columns, **kept}
