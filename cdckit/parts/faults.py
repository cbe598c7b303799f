"""What can be wrong with a record: one code each, and a sentence that helps."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


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
