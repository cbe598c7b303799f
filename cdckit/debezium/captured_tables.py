"""What a feed knows of each table of a captured database: its key, its columns, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import msgspec

from cdckit.debezium.connect_values import field_names

Types = Mapping[str, tuple[str, ...]]
"""By column the names of its types, as `changes` takes them."""

Naming = Callable[[Sequence[str]], tuple[str, ...]]
"""Gives what `changes` calls the types that the events of a column say; `UNTYPED` for none."""


class Mention(NamedTuple):
    """
    That events of a table name a column.

    Args:
        table: The full name of the table.
        keys: The columns that the keys of the records name; None if there are no such keys.
        column: The column; None of a truncate, which names none.
        type: What the events say of its type; None if they say nothing.
        source: Whose events they are; None if they do not say it.
    """

    table: str
    keys: tuple[str, ...] | None
    column: str | None
    type: str | None
    source: str | None = None


@dataclass(frozen=True)
class Reading:
    """
    How the events of a table are read.

    Args:
        keys: The key columns; none while nobody has said any.
        columns: By column its types.
        given: The types that the user gave.
    """

    keys: tuple[str, ...]
    columns: Types
    given: Types

    @property
    def missing_keys(self) -> tuple[str, ...]:
        """The key columns that no event has named yet."""
        return tuple(key for key in self.keys if key not in self.columns)

    @property
    def is_ready(self) -> bool:
        """Whether events of the table can become changes."""
        return bool(self.keys) and not self.missing_keys


@dataclass(frozen=True)
class CapturedTable:
    """
    One table, as far as its events have told of it.

    Args:
        name: Its full name.
        keys: What the keys of its records name: one key or, of a table whose key was changed, several.
        types: By column what its events say of its type, in the order in which it came; None where some
            say nothing.
        made_by: How the events were read of which its ledger was made; None while there is no ledger.
        sources: Whose events they are.
    """

    name: str
    keys: tuple[tuple[str, ...], ...]
    types: Mapping[str, tuple[str | None, ...]]
    made_by: Reading | None
    sources: tuple[str, ...] = ()

    @classmethod
    def new(cls, name: str) -> CapturedTable:
        """
        A table of which nothing is known.

        >>> CapturedTable.new("shop.orders").reading({}, {}, tuple).is_ready
        False
        """
        return cls(name, (), {}, None)

    def learn(self, mentions: Iterable[Mention]) -> CapturedTable:
        """The table with what more events say of it."""
        types, keys, sources = dict(self.types), self.keys, self.sources
        for mention in mentions:
            if mention.source is not None and mention.source not in sources:
                sources = (*sources, mention.source)
            if mention.keys and not any(set(mention.keys) == set(key) for key in keys):
                keys = (*keys, mention.keys)
            if mention.column is not None:
                before = types.get(mention.column, ())
                types[mention.column] = before if mention.type in before else (*before, mention.type)
        return replace(self, keys=keys, types=types, sources=sources)

    def reading(self, keys: Mapping[str, Sequence[str]], given: Mapping[str, Types], name: Naming) -> Reading:
        """
        Tell how its events are read, by what they say and what the user said of tables.

        Events that say nothing of a column's type are read by the type that others say.  Where their records
        name several keys nobody can tell which rows are one: it has none until the user says it.
        """
        given_types = find_named(self.name, given) or {}
        typed = {
            column: tuple(kind for kind in types if kind is not None) for column, types in self.types.items()
        }
        columns = {column: given_types.get(column) or name(types) for column, types in typed.items()}
        named = find_named(self.name, keys)
        # By the set of their columns, but for those that no row has: a route through Connect adds such.
        own = {frozenset(some): some for key in self.keys if (some := tuple(c for c in key if c in columns))}
        said = tuple(named) if named else next(iter(own.values())) if len(own) == 1 else ()
        return Reading(said, columns, given_types)

    def continues(self, before: CapturedTable, reading: Reading) -> bool:
        """Tell whether rows that were read as *before* read the same by *reading*, but for what came new."""
        made_by = before.made_by
        return made_by is not None and all(
            reading.columns[column] == types
            or (
                column not in reading.keys
                and None not in before.types[column]
                and set(types) < set(reading.columns[column])
            )
            for column, types in made_by.columns.items()
        )

    def text(self) -> str:
        """
        Write what a store keeps of it, and `read_captured_table` reads.

        >>> table = CapturedTable("shop.orders", (("id",),), {"id": ("int64",)}, None)
        >>> read_captured_table(table.text()) == table
        True
        """
        return msgspec.json.encode(self).decode()


read_captured_table = msgspec.json.Decoder(CapturedTable).decode
_Value = TypeVar("_Value")


def find_named(table: str, by_name: Mapping[str, _Value]) -> _Value | None:
    """
    Find what is said under a table's name, with as much before it as the user wrote; of several the longest.

    >>> find_named("shop.public.orders", {"orders": 1, "public.orders": 2, "ders": 3})
    2
    """
    names = [name for name in by_name if is_name_of(name, table)]
    return by_name[max(names, key=len)] if names else None


def is_name_of(name: str, table: str) -> bool:
    """Tell whether a full name is, or ends in, this name."""
    return table == name or table.endswith(f".{name}")


def describe_news(
    before: CapturedTable, after: CapturedTable, reading: Reading, names: Iterable[str]
) -> list[str]:
    """
    Describe in sentences what nobody had named before: the table, its columns, types beside others.

    *names* are the tables that the user named; none for all.
    """
    sentences, named = [], list(names)
    if len(after.sources) > max(1, len(before.sources)):
        sentences.append(
            f"{after.name} comes from several sources, {', '.join(after.sources)}: rows of equal keys are "
            "one row here; give each source a feed of its own if they are not"
        )
    if not before.types and named and not any(is_name_of(name, after.name) for name in named):
        sentences.append(f"{after.name} is a table that was not named")
    if not before.types:
        untyped = [column for column, types in after.types.items() if set(types) == {None}]
        if untyped and not reading.given:
            listed = ", ".join(untyped)
            sentences.append(
                f"{after.name}: no type is said of {listed}; they are text, unless columns= says one"
            )
        unused = [column for column in reading.given if after.types and column not in after.types]
        if unused:
            sentences.append(f"{after.name} has no column {', '.join(unused)}, of which columns= says a type")
    for column, types in after.types.items():
        read_as = " or ".join(reading.columns[column])
        if column not in before.types and (before.types or (reading.given and column not in reading.given)):
            field = field_names(after.types)[column]
            beside = "" if field == column else f", which is the field {field}"
            sentences.append(f"{after.name} has another column, {column} ({read_as}){beside}")
        elif column in reading.given or types == before.types.get(column):
            continue
        elif None in types and len(types) > 1:
            sentences.append(
                f"{after.name}.{column}: some events say its type and others none; it is read as {read_as}"
            )
        elif len(types) > 1:
            named_types = ", ".join(map(str, types))
            sentences.append(
                f"{after.name}.{column} has several types ({named_types}); it is read as {read_as}"
            )
    return sentences


def describe_unused(
    argument: str, by_name: Mapping[str, object], tables: Iterable[str], new: Iterable[str]
) -> list[str]:
    """
    The names of an argument that no table has, where one came that it does not name: one may be misspelt.

    >>> describe_unused("columns", {"order": {}, "items": {}}, ["items", "orders"], ["orders"])
    ['columns= names order, which is no table so far; not named is orders']
    """
    unused = [name for name in by_name if not any(is_name_of(name, table) for table in tables)]
    others = sorted(table for table in new if find_named(table, by_name) is None)
    if not unused or not others:
        return []
    are = "is no table" if len(unused) == 1 else "are no tables"
    listed = ", ".join(others)
    return [f"{argument}= names {', '.join(unused)}, which {are} so far; not named is {listed}"]
