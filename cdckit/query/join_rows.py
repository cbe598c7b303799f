"""Facts and versions of one key in one table, in the columns that both kinds of join read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.history import DELETED, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.parts.schemas import quoted
from cdckit.parts.values import comparable
from cdckit.query.allen import is_period
from cdckit.query.lookups import Lookup

SOURCE = "source"
"""Of which source a version is; null for a fact."""

AT, UNTIL = "at", "until"
"""When a version begins and ends in the world; the first is the time at which a fact asks."""

KNOWN, FORGOTTEN = "known", "forgotten"
"""When a version begins and ends to be believed; the first is the moment of knowledge of a fact."""

IS_DELETED = "deleted"
"""Whether a version is deleted."""


@dataclass(frozen=True)
class Source:
    """
    Versions that one or more lookups look into.

    Args:
        history: Their table.
        key: Its fields, in the order of the facts' columns.
        columns: What the struct of a version holds.
    """

    history: DataFrame
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """
    Lookups that have one key of the facts in common.

    Args:
        columns: That key: columns of the facts.
        lookups: What is asked.
        sources: What they look into; what several share is there once.
        source_of: For each lookup the place of its source.
    """

    columns: tuple[str, ...]
    lookups: list[Lookup] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    source_of: list[int] = field(default_factory=list)

    @property
    def key(self) -> list[str]:
        """The names of the key's columns in the table of rows."""
        return [key_column(index) for index in range(len(self.columns))]

    def add(self, lookup: Lookup, source: Source) -> None:
        """One lookup more."""
        if source not in self.sources:
            self.sources.append(source)
        self.lookups.append(lookup)
        self.source_of.append(self.sources.index(source))

    def first_into(self, place: int) -> str:
        """Where the first lookup into a source puts what it finds: an error names the source so."""
        return self.lookups[self.source_of.index(place)].into

    def gives_reasons(self, place: int) -> bool:
        """Whether a lookup into a source asks why there is nothing."""
        pairs = zip(self.lookups, self.source_of, strict=True)
        return any(lookup.reason is not None for lookup, of in pairs if of == place)


def asked_by_key(
    lookups: Sequence[Lookup], keys: Sequence[Mapping[str, str]], columns: Sequence[Sequence[str]]
) -> list[Asked]:
    """
    The lookups, each with its key and the columns of its struct, together by the facts' columns.

    These stand in the order in which the first lookup names them, as an error tells the key.
    """
    found: dict[frozenset[str], Asked] = {}
    for lookup, key, held in zip(lookups, keys, columns, strict=True):
        asked = found.setdefault(frozenset(key), Asked(tuple(key)))
        source = Source(lookup.history, tuple(key[name] for name in asked.columns), tuple(held))
        asked.add(lookup, source)
    return list(found.values())


def rows(
    facts: DataFrame, asked: Asked, time: str, known: Column | None, carried: Iterable[Column]
) -> DataFrame:
    """
    A row for each fact and for each version of each source.

    Args:
        facts: The facts.
        asked: What is asked by one key of them.
        time: Their column that says when a fact was.
        known: Their moment of knowledge.
        carried: What a row has of its fact beside that (`side_by_side`).
    """
    questions = facts.select(
        *_key(facts, asked.columns), F.col(quoted(time)).alias(AT), *_knowledge(known), *carried
    )
    answers = [
        source.history.where(
            _counts(source, beliefs=known is not None, deleted=asked.gives_reasons(place))
        ).select(
            *_key(source.history, source.key),
            F.lit(place).alias(SOURCE),
            F.col(VALID_FROM).alias(AT),
            F.col(VALID_TO).alias(UNTIL),
            F.coalesce(F.col(DELETED), F.lit(True)).alias(IS_DELETED),
            *(_beliefs() if known is not None else []),
            F.struct(*(F.col(quoted(name)) for name in source.columns)).alias(version_column(place)),
        )
        for place, source in enumerate(asked.sources)
    ]
    # The facts come first: a union takes the metadata of a column from its first table.
    return reduce(_with, [questions, *answers])


def side_by_side(facts: DataFrame, asked: Asked, time: str) -> dict[str, str]:
    """
    For each column of the facts the column of `rows` that has it.

    The time is there already, and a part of the key is, if it is compared as it stands.  Where rows are
    sorted and buffered, their width costs time, and so does each look into a struct.
    """
    places = {name: fact_column(index) for index, name in enumerate(facts.columns)}
    for part, name in zip(asked.key, asked.columns, strict=True):
        column = F.col(quoted(name))
        if comparable(column, facts.schema[name].dataType) is column:
            places[name] = part
    return {**places, time: AT}


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


def _counts(source: Source, *, beliefs: bool, deleted: bool) -> Column:
    """Which versions are in force at some instant, and believed at some moment: the others answer nothing."""
    lasts = is_period(F.col(VALID_FROM), F.col(VALID_TO))
    if beliefs:
        lasts = lasts & is_period(F.col(SYSTEM_FROM), F.col(SYSTEM_TO))
    # A deleted version is no answer; where somebody asks for the reason, it is one.
    return lasts if deleted else lasts & ~F.col(DELETED)


def key_column(index: int) -> str:
    """The name of a part of the key."""
    return f"key_{index}"


def fact_column(index: int) -> str:
    """The name of the column that holds one of a fact."""
    return f"fact_{index}"


def version_column(place: int) -> str:
    """The name of the column that holds the versions of a source."""
    return f"version_{place}"
