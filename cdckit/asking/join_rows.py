"""Facts and versions of one key in one table, in the columns that both kinds of join read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.asking.lookups import Lookup
from cdckit.history import DELETED, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.parts.schemas import quoted
from cdckit.parts.values import comparable

LOOKUP, AT, UNTIL, KNOWN, FORGOTTEN, IS_DELETED, FACT = (
    *("lookup", "at", "until", "known", "forgotten", "deleted", "fact"),
)
"""The columns, beside the key and the versions: which lookup a version is of, null for a fact; when it begins
and ends in the world and in what was believed, of a fact the two times at which it asks."""


@dataclass(frozen=True)
class Asked:
    """
    Lookups that have one key of the facts in common.

    Args:
        lookups: What is asked.
        keys: For each lookup its fields, in the order of the facts' columns.
        columns: Those columns of the facts.
        versions: For each lookup the struct that a fact gets.
    """

    lookups: list[Lookup]
    keys: list[list[str]]
    columns: list[str]
    versions: list[Column]

    @property
    def key(self) -> list[str]:
        """The names of the key's columns in the table of rows."""
        return [key_column(index) for index in range(len(self.columns))]


def rows(facts: DataFrame, asked: Asked, time: str, known: Column | None) -> DataFrame:
    """A row for each fact and for each version of each lookup; *known* is the facts' moment of knowledge."""
    fact = F.struct(*(F.col(quoted(name)) for name in facts.columns))
    questions = facts.select(
        *_key(facts, asked.columns), F.col(quoted(time)).alias(AT), *_knowledge(known), fact.alias(FACT)
    )
    answers = [
        lookup.history.where(_lasts(lookup, beliefs=known is not None)).select(
            *_key(lookup.history, key),
            F.lit(place).alias(LOOKUP),
            F.col(VALID_FROM).alias(AT),
            F.col(VALID_TO).alias(UNTIL),
            F.coalesce(F.col(DELETED), F.lit(True)).alias(IS_DELETED),
            *(_beliefs() if known is not None else []),
            version.alias(version_column(place)),
        )
        for place, (lookup, key, version) in enumerate(
            zip(asked.lookups, asked.keys, asked.versions, strict=True)
        )
    ]
    return reduce(_with, [*answers, questions])


def _with(some: DataFrame, others: DataFrame) -> DataFrame:
    return some.unionByName(others, allowMissingColumns=True)


def _key(frame: DataFrame, names: Iterable[str]) -> list[Column]:
    return [
        comparable(F.col(quoted(name)), frame.schema[name].dataType).alias(key_column(index))
        for index, name in enumerate(names)
    ]


def _knowledge(known: Column | None) -> list[Column]:
    return [] if known is None else [known.alias(KNOWN)]


def _beliefs() -> list[Column]:
    return [F.col(SYSTEM_FROM).alias(KNOWN), F.col(SYSTEM_TO).alias(FORGOTTEN)]


def _lasts(lookup: Lookup, *, beliefs: bool) -> Column:
    """Which versions are in force at some instant, and believed at some: the others answer nothing."""
    lasts = _longer_than_nothing(VALID_FROM, VALID_TO)
    if beliefs:
        lasts = lasts & _longer_than_nothing(SYSTEM_FROM, SYSTEM_TO)
    # A deleted version is no answer; it is told from none at all where somebody asks for the reason.
    return lasts if lookup.reason is not None else lasts & ~F.col(DELETED)


def _longer_than_nothing(start: str, end: str) -> Column:
    return F.col(start).isNotNull() & (F.col(end).isNull() | (F.col(end) > F.col(start)))


def key_column(index: int) -> str:
    """The name of a part of the key."""
    return f"key_{index}"


def version_column(place: int) -> str:
    """The name of the column that holds the versions of a lookup."""
    return f"version_{place}"


def asked_by_key(
    lookups: Sequence[Lookup], keys: Sequence[Mapping[str, str]], versions: Sequence[Column]
) -> list[Asked]:
    """The lookups, together where they ask by the same columns of the facts."""
    found: dict[tuple[str, ...], Asked] = {}
    for lookup, key, version in zip(lookups, keys, versions, strict=True):
        columns = sorted(key)
        asked = found.setdefault(tuple(columns), Asked([], [], columns, []))
        asked.lookups.append(lookup)
        asked.keys.append([key[name] for name in columns])
        asked.versions.append(version)
    return list(found.values())
