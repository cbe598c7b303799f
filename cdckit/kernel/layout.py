"""The columns that go in, named by position since a business field may have any name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdckit.changes import ABSENT, DELETE, TRUNCATE, UPSERT
from cdckit.parts.schemas import quoted

OPERATIONS = (UPSERT, DELETE, ABSENT, TRUNCATE)
"""The operations travel as their places in this list; truncates only among changes with `SNAPSHOT`."""

SNAPSHOT = "snapshot"
"""The column that says whether a snapshot read the entity, or its source's log says it: see `places`."""

GUID = "guid"
MADE_OF = "cdckit.made_of"
"""In the metadata of a column `guid`: the key fields that it is made of, where it is no identity itself."""
KEYS = "cdckit.keys"
"""In the metadata of a column `guid` that is an identity itself: the key fields all the same."""

ARRIVED = "arrived"

TAKEN_ALONG = 1 << 30
"""From here on are the numbers of records that words have which a move took along: see `moves`."""

NO_PRIORITY = -(2**31)
"""The priority of such words: they say nothing of the row itself."""

WORD = 63
"""How many fields' flags one number holds: as many as stay positive."""


@dataclass(frozen=True)
class Layout:
    """
    Which columns stand for what.

    Args:
        fields: The names of the business fields, in order.
        keys: Which of the fields (by index) are key fields, in the order of the key.
        field_priorities: Which of the fields have a priority column of their own.
        by_guid: Whether the column `guid`, not the key fields, tells one entity from the next.
        entity: What the guids are made of beside the keys; None leaves them null.
        has_guid: Whether the column `guid` is there all the same, made of the key fields: then it need not
            be made, and one column tells entities apart.
    """

    fields: tuple[str, ...]
    keys: tuple[int, ...]
    field_priorities: frozenset[int]
    by_guid: bool
    entity: str | None
    has_guid: bool = False

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell one entity from the next."""
        return (GUID,) if self.by_guid or self.has_guid else tuple(value_column(index) for index in self.keys)

    def tells_apart(self, index: int) -> bool:
        """Whether the field at *index* tells one entity from the next, so that it never changes in one."""
        return not self.by_guid and index in self.keys


def value_column(index: int) -> str:
    """The column with the values of the field at *index*."""
    return f"value_{index}"


def priority_column(index: int) -> str:
    """The column with the priority of the field at *index*, null where it is the entity's."""
    return f"priority_{index}"


def carried_words(names: Sequence[str]) -> list[Sequence[str]]:
    """The fields whose flags share a number: the first 63, the next 63, ..."""
    return [names[start : start + WORD] for start in range(0, len(names), WORD)]


def carried_column(word: int) -> str:
    """The column whose bits say which of the fields of a *word* the message sent."""
    return f"carried_{word}"


def flat_columns(names: Sequence[str], priorities: Sequence[str], says_places: bool) -> list[str]:
    """What these columns are, as texts: a column made by functions is half a dozen calls into the JVM."""
    known = [name for name in OPERATIONS if says_places or name != TRUNCATE]
    codes = " ".join(f"WHEN '{name}' THEN {OPERATIONS.index(name)}" for name in known)
    columns = [
        f"CAST(CASE operation {codes} END AS byte) AS operation",
        "priority",
        "arrival.record_number AS record_number",
    ]
    for index, name in enumerate(names):
        columns.append(f"data.{quoted(name)} AS {quoted(value_column(index))}")
        if name in priorities:
            columns.append(f"field_priorities.{quoted(name)} AS {quoted(priority_column(index))}")
    for word, some in enumerate(carried_words(names)):
        columns.append(f"{_packed(some)} AS {quoted(carried_column(word))}")
    return columns


def _packed(names: Sequence[str]) -> str:
    """Whether each of these fields was carried, as the bits of one number: less to shuffle and to send."""
    bits = " | ".join(f"if(carried.{quoted(name)}, {1 << bit}L, 0L)" for bit, name in enumerate(names))
    # Of a change that has no data, no field would be sent, and each be null: the workers refuse it.
    return f"if(data IS NULL OR carried IS NULL, NULL, {bits})"
