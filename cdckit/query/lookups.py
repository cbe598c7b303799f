"""Lookups of `as_of_join`, and the one sorted table in which it sees facts and versions together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
    business_fields,
    require_bitemporal,
    require_history,
)
from cdckit.parts.arguments import (
    both_sides,
    listed,
    quoted,
    require_alike,
    require_batch,
    require_columns,
    require_distinct,
    require_fields,
    require_flag,
    require_name,
    require_struct,
)
from cdckit.parts.values import comparable
from cdckit.query.intervals import is_period, key_column, key_columns, lasts, overlap_text

FUNCTION = "as_of_join"

DIRECTIONS = ("backward", "forward", "nearest")


@dataclass(frozen=True)
class Lookup:
    """
    A history that facts are looked up in, by what, and which of its versions a fact gets.

    Args:
        history: One row per version; for `as_of_join(…, known=…)` what `bitemporal` returned.
        on: What a fact and its versions have in common: the name of a field, a list of names (the
            same in both), or a mapping of fact column to field.  A field is a business field of the
            history or its `guid`.
        into: The name of the struct column that takes the version.
        fields: The business fields that the struct gets; all of them by default, none with `[]`.
        provenance: Whether the struct gets `field_provenance`, too.  It is often wider than all
            else together, and everything that the struct holds is shuffled and sorted.
        direction: Which version: with "backward" the one in force at the fact's time; with "forward" the
            first that begins then or later; with "nearest" that of the two that begins nearer to it, and of
            two as near the one in force.
        strictly: Whether a version that begins at the very instant of the fact does not count: backward
            finds what was in force just before, forward what begins after.
        tolerance: How far from the fact's time a version may begin, at most; a version that has been in
            force for longer is not found.  None for any length.
        reason: The name of a text column that says why nothing was found, null where something was:

            - "no version": no version of the key was there;
            - "deleted": only a deleted one (forward and nearest: in force then, or later);
            - "too old", "too far ahead": the version began beyond the tolerance, before or after;
            - "not yet known": nothing of the key was known at the moment of knowledge, but later was;
            - "no time": the fact has none, or no moment of knowledge.

            "not yet known" looks beyond the moment of knowledge on purpose: it is for a reader to
            judge what is missing, and no feature to learn from.

    >>> Lookup(history, on={"product": "number"}, into="sold", fields=["name"]).fields
    ['name']
    """

    history: DataFrame
    on: str | Sequence[str] | Mapping[str, str]
    into: str
    fields: Sequence[str] | None = None
    provenance: bool = False
    direction: str = "backward"
    strictly: bool = False
    tolerance: timedelta | None = None
    reason: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing but the version in force."""
        asks = self.strictly or self.tolerance is not None or self.reason is not None
        return self.direction == "backward" and not asks

    @property
    def made(self) -> dict[str, str]:
        """The names of the columns that it adds to the facts, by the argument that says them."""
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"into": self.into, **reason}


def checked_lookups(facts: DataFrame, lookups: Sequence[Lookup], *, beliefs: bool) -> list[Lookup]:
    """The lookups, with null for every end that is open; raises for those of no meaning."""
    if not lookups or not all(isinstance(lookup, Lookup) for lookup in lookups):
        raise InvalidArgument(FUNCTION, "lookups", "one or more Lookup", lookups)
    for lookup in lookups:
        _require_options(lookup)
    require_distinct(facts, "facts", function=FUNCTION)
    require_batch(facts, "facts", "join each batch in writeStream.foreachBatch(…)", function=FUNCTION)
    taken = {name.lower(): name for name in facts.columns}
    for argument, name in [each for lookup in lookups for each in lookup.made.items()]:
        if name.lower() in taken:
            needed = f"a name other than {', '.join(taken.values())}"
            raise InvalidArgument(FUNCTION, argument, needed, name)
        taken[name.lower()] = name
    # A table that several look into stays one.
    told = {id(lookup.history): _table(lookup, beliefs=beliefs) for lookup in lookups}
    return [replace(lookup, history=told[id(lookup.history)]) for lookup in lookups]


def _require_options(lookup: Lookup) -> None:
    require_name(lookup.into, "into", function=FUNCTION)
    require_flag(lookup.provenance, "provenance", function=FUNCTION)
    require_flag(lookup.strictly, "strictly", function=FUNCTION)
    if lookup.reason is not None:
        require_name(lookup.reason, "reason", function=FUNCTION)
    if lookup.direction not in DIRECTIONS:
        raise InvalidArgument(FUNCTION, "direction", f"one of {', '.join(DIRECTIONS)}", lookup.direction)
    tolerance = lookup.tolerance
    if tolerance is not None and (not isinstance(tolerance, timedelta) or tolerance < timedelta(0)):
        raise InvalidArgument(FUNCTION, "tolerance", "a timedelta of no time or more, or None", tolerance)


def checked_key(facts: DataFrame, lookup: Lookup) -> dict[str, str]:
    """The lookup's key as a mapping of fact column to field; raises unless both sides have it in one type."""
    history, on = lookup.history, lookup.on
    argument = f"history of {lookup.into!r}"
    require_distinct(history, argument, function=FUNCTION)
    require_batch(history, argument, "ask the table that keeps it", function=FUNCTION)
    ours, theirs = both_sides(on)
    require_fields(theirs, ["guid", *fields_of(history)], "on", function=FUNCTION)
    require_columns(facts, ours, function=FUNCTION)
    key = dict(zip(ours, theirs, strict=True))
    for column, name in key.items():
        require_alike(facts, column, history, name, f"in {lookup.into}", function=FUNCTION)
    return key


def _table(lookup: Lookup, *, beliefs: bool) -> DataFrame:
    if not beliefs:
        return require_history(lookup.history, *HISTORY_SCHEMA.fieldNames(), function=FUNCTION)
    if not {SYSTEM_FROM, SYSTEM_TO} <= set(lookup.history.columns):
        needed = (
            "a bitemporal table, since known is given: bitemporal(changes, …) makes one. (What has one time "
            "only, ask again without known; it may then tell what nobody knew.)"
        )
        raise InvalidArgument(FUNCTION, f"history of {lookup.into!r}", needed, lookup.history.columns)
    return require_bitemporal(lookup.history, *HISTORY_SCHEMA.fieldNames(), function=FUNCTION)


def fields_of(history: DataFrame) -> list[str]:
    """The business fields of a history or a bitemporal table."""
    return [name for name in business_fields(history).fieldNames() if name not in (SYSTEM_FROM, SYSTEM_TO)]


def version_columns(
    history: DataFrame,
    asked: Sequence[str] | None,
    *,
    provenance: bool,
    beliefs: bool = False,
    function: str,
) -> list[str]:
    """The columns of a version in the struct that has it: the fields that are *asked* for, or all."""
    known = fields_of(history)
    fields = known if asked is None else listed(asked)
    if fields:
        require_fields(fields, known, "fields", function=function)
    # Not `system_to_timestamp`: when a belief ended is known only afterwards.
    system = [SYSTEM_FROM] if beliefs else []
    columns = ["guid", VALID_FROM, VALID_TO, *system, *fields, SOURCE_MESSAGE]
    if provenance:
        require_struct(history, FIELD_PROVENANCE, function=function)
        columns.append(FIELD_PROVENANCE)
    return columns


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
    knowledge = [] if known is None else [known.alias(KNOWN)]
    beliefs = [] if known is None else [F.col(SYSTEM_FROM).alias(KNOWN), F.col(SYSTEM_TO).alias(FORGOTTEN)]
    key = key_columns(facts, asked.columns)
    questions = facts.select(*key, F.col(quoted(time)).alias(AT), *knowledge, *carried)
    answers = [
        source.history.where(
            _counts(source, beliefs=known is not None, deleted=asked.gives_reasons(place))
        ).select(
            *key_columns(source.history, source.key),
            F.lit(place).alias(SOURCE),
            F.col(VALID_FROM).alias(AT),
            F.col(VALID_TO).alias(UNTIL),
            F.coalesce(F.col(DELETED), F.lit(True)).alias(IS_DELETED),
            *beliefs,
            F.struct(*(F.col(quoted(name)) for name in source.columns)).alias(version_column(place)),
        )
        for place, source in enumerate(asked.sources)
    ]
    # The facts come first: a union takes the metadata of a column from its first table.
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), [questions, *answers])


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


def _counts(source: Source, *, beliefs: bool, deleted: bool) -> Column:
    """Which versions are in force at some instant, and believed at some moment: the others answer nothing."""
    answers = lasts()
    if beliefs:
        answers &= is_period(F.col(SYSTEM_FROM), F.col(SYSTEM_TO))
    # A deleted version is no answer; where somebody asks for the reason, it is one.
    return answers if deleted else answers & ~F.col(DELETED)


def fact_column(index: int) -> str:
    """The name of the column that holds one of a fact."""
    return f"fact_{index}"


def version_column(place: int) -> str:
    """The name of the column that holds the versions of a source."""
    return f"version_{place}"


_GROUP = "group"


def with_group(line: DataFrame, key: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """
    The rows with a number that all rows of a key have, and the columns that tell keys apart fastest.

    The first of these is the number.  Other keys may have it too, unless it is the whole key.
    """
    if len(key) > 1 or not isinstance(line.schema[key[0]].dataType, T.IntegralType):
        return line.withColumn(_GROUP, F.hash(*key)), [_GROUP, *key]
    return line, list(key)


def sorted_by_number(line: DataFrame, group: str, number: Column) -> DataFrame:
    """
    The rows of each partition about in the order of their group, and within it of a number.

    To sort by two columns, Spark compares row with row, each from anywhere in memory: that took most of
    the time of this join.  By one number it sorts without a look at the rows.  So they are sorted by a number
    first, which takes them near to their places, and the window's own sort has little left to do.
    """
    # The upper half is of the group, the lower of the number.
    upper, lower = (F.coalesce(each.cast("long"), F.lit(0)) for each in (F.col(group), number))
    return line.sortWithinPartitions(F.shiftleft(upper, 32).bitwiseOR(lower.bitwiseAND(F.lit((1 << 32) - 1))))


def carried(places: Mapping[str, str], asked: Asked) -> list[Column]:
    """The columns of facts that the rows do not have anyway."""
    there = (*asked.key, AT)
    return [F.col(quoted(name)).alias(place) for name, place in places.items() if place not in there]


def of_facts(facts: DataFrame, line: DataFrame, places: Mapping[str, str]) -> list[Column]:
    """The columns of facts, from the rows of facts."""
    return [
        _of_fact(line, places[each.name]).alias(each.name, metadata=each.metadata) for each in facts.schema
    ]


def _of_fact(line: DataFrame, name: str) -> Column:
    """A column of facts, nullable as all that workers make: no option of a lookup changes the schema."""
    if line.schema[name].nullable:
        return F.col(name)
    return F.when(F.col(SOURCE).isNull(), F.col(name))


def text_of_overlap(into: Column, line: DataFrame, asked: Asked) -> Column:
    """What to say of a version that begins while another one of its key is in force."""
    lookup = F.concat(F.lit("lookup '"), into, F.lit("'"))
    key = [(F.col(name), line.schema[name].dataType) for name in asked.key]
    return overlap_text(lookup, key, F.col(AT), function=FUNCTION)
