"""Histories in a join: what they are found by and what their structs hold; lookups, grouped by their key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame

from cdckit.model.history import (
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    SYSTEM_FROM,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
    is_bitemporal,
    require_bitemporal,
    require_history,
)
from cdckit.parts.argument_forms import DURATION
from cdckit.parts.arguments import (
    both_sides,
    listed,
    require_alike,
    require_batch,
    require_columns,
    require_distinct,
    require_fields,
    require_flag,
    require_name,
    require_struct,
    wrong_argument,
)
from cdckit.query.bitemporal import history_fields
from cdckit.query.intervals import key_column

DIRECTIONS = ("backward", "forward", "nearest")


@dataclass(frozen=True)
class JoinedHistory:
    """A history whose versions a join puts into a struct column: what a `Lookup` and a `Layer` have alike."""

    history: DataFrame
    into: str
    on: str | Sequence[str] | Mapping[str, str]
    fields: Sequence[str] | None = None
    provenance: bool = False

    def require_options(self) -> None:
        """Raise `InvalidArgument` for an *into* that is no name, or a *provenance* that is no flag."""
        require_name(self.into, "into")
        require_flag(self.provenance, "provenance")

    def require_rows(self) -> None:
        """Raise `InvalidArgument` for a stream, or columns that differ in case alone."""
        argument = f"history of {self.into!r}"
        require_distinct(self.history, argument)
        require_batch(self.history, argument, "ask the table that keeps it")

    def columns(self) -> list[str]:
        """The columns of a version in its struct: of the fields those that are wanted, or all."""
        names = history_fields(self.history).names
        fields = names if self.fields is None else listed(self.fields)
        if fields:
            require_fields(fields, names, "fields")
        # Not `system_to_timestamp`: when a belief ended is known only afterwards.
        system = [SYSTEM_FROM] if is_bitemporal(self.history) else []
        columns = ["guid", VALID_FROM, VALID_TO, *system, *fields, SOURCE_MESSAGE]
        if self.provenance:
            require_struct(self.history, FIELD_PROVENANCE)
            columns.append(FIELD_PROVENANCE)
        return columns


@dataclass(frozen=True)
class Lookup(JoinedHistory):
    """
    A history that facts are looked up in, by what, and which of its versions a fact gets.

    Args:
        history: One row per version; for `as_of_join(…, known=…)` what `bitemporal` returned.
        into: The name of the struct column that takes the version.
        on: What a fact and its versions have in common: the name of a field, a list of names (the
            same in both), or a mapping of fact column to field.  A field is a business field of the
            history or its `guid`.
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
            - "not yet known": one was there, by what became known only after the moment of knowledge;
            - "no time": the fact has none, or no moment of knowledge;
            - "no key": it has none to look for.

            "not yet known" looks beyond the moment of knowledge on purpose: it is for a reader to
            judge what is missing, and no feature to learn from.

    >>> Lookup(history, on={"product": "number"}, into="sold", fields=["name"]).fields
    ['name']
    """

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
    def added_names(self) -> dict[str, str]:
        """The names of the columns that it adds to the facts, by the argument that says them."""
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"into": self.into, **reason}


def check_lookups(facts: DataFrame, lookups: Sequence[Lookup], *, beliefs: bool) -> list[Lookup]:
    """The lookups, with null for every end that is open; raises for those of no meaning."""
    if not lookups or not all(isinstance(lookup, Lookup) for lookup in lookups):
        raise wrong_argument("lookups", "one or more Lookup", lookups)
    for lookup in lookups:
        _require_options(lookup)
    require_distinct(facts, "facts")
    require_batch(facts, "facts", "join each batch in writeStream.foreachBatch(…)")
    taken = {name.lower(): name for name in facts.columns}
    for argument, name in [pair for lookup in lookups for pair in lookup.added_names.items()]:
        if name.lower() in taken:
            needed = f"a name other than {', '.join(taken.values())}"
            raise wrong_argument(argument, needed, name)
        taken[name.lower()] = name
    # A table that several look into stays one.
    tables = {id(lookup.history): _table(lookup, beliefs=beliefs) for lookup in lookups}
    return [replace(lookup, history=tables[id(lookup.history)]) for lookup in lookups]


def _require_options(lookup: Lookup) -> None:
    lookup.require_options()
    require_flag(lookup.strictly, "strictly")
    if lookup.reason is not None:
        require_name(lookup.reason, "reason")
    if lookup.direction not in DIRECTIONS:
        raise wrong_argument("direction", f"one of {', '.join(DIRECTIONS)}", lookup.direction)
    DURATION.or_none().check(lookup.tolerance, "tolerance")


def check_key(facts: DataFrame, lookup: Lookup) -> dict[str, str]:
    """The lookup's key as a mapping of fact column to field; raises unless both sides have it in one type."""
    lookup.require_rows()
    fact_columns, history_columns = both_sides(lookup.on)
    require_fields(history_columns, ["guid", *history_fields(lookup.history).names], "on")
    require_columns(facts, fact_columns)
    key = dict(zip(fact_columns, history_columns, strict=True))
    for column, name in key.items():
        require_alike(facts, column, lookup.history, name, f"in {lookup.into}")
    return key


def _table(lookup: Lookup, *, beliefs: bool) -> DataFrame:
    if not beliefs:
        if is_bitemporal(lookup.history):
            needed = f"said, since history of {lookup.into!r} has two times: when each fact asks"
            raise wrong_argument("known", needed, None)
        return require_history(lookup.history, *HISTORY_SCHEMA.fieldNames())
    if not {SYSTEM_FROM, SYSTEM_TO} <= set(lookup.history.columns):
        needed = (
            "a bitemporal table, since known is given: bitemporal(changes, …) makes one. (What has one time "
            "only, ask again without known; it may then tell what nobody knew.)"
        )
        raise wrong_argument(f"history of {lookup.into!r}", needed, lookup.history.columns)
    return require_bitemporal(lookup.history, *HISTORY_SCHEMA.fieldNames())


class Source(NamedTuple):
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


class LookupGroup(NamedTuple):
    """
    Lookups that have one key of the facts in common.

    Args:
        columns: That key: columns of the facts.
        sources: What they look into; what several share is there once.
        lookups: What is asked, each with the place of its source.
    """

    columns: tuple[str, ...]
    sources: list[Source]
    lookups: list[tuple[Lookup, int]]

    @property
    def key(self) -> list[str]:
        """The names of the key's columns in the table of rows."""
        return [key_column(index) for index in range(len(self.columns))]

    def of(self, place: int) -> list[Lookup]:
        """The lookups into the source at that place."""
        return [lookup for lookup, source in self.lookups if source == place]


def group_lookups(
    lookups: Sequence[Lookup], keys: Sequence[Mapping[str, str]], columns: Sequence[Sequence[str]]
) -> list[LookupGroup]:
    """
    The lookups, each with its key and the columns of its struct, together by the facts' columns.

    These stand in the order in which the first lookup names them, as an error tells the key.
    """
    groups: dict[frozenset[str], LookupGroup] = {}
    for lookup, key, lookup_columns in zip(lookups, keys, columns, strict=True):
        group = groups.setdefault(frozenset(key), LookupGroup(tuple(key), [], []))
        source = Source(lookup.history, tuple(key[name] for name in group.columns), tuple(lookup_columns))
        if source not in group.sources:
            group.sources.append(source)
        group.lookups.append((lookup, group.sources.index(source)))
    return list(groups.values())
