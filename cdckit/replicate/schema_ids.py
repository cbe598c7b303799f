"""
What a schema id stands for: what the metadata messages about it say, in the order of their records.

Data messages name a schema by its id alone, and it must be found "in a customer defined zone" (Replicate,
"Typical consumer logic").  Nothing says that an id is that of one table, or of one version of it: so all that
was said of an id is kept, by table and time.  What an id may never get is another layout: data messages of
both could not be told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from cdckit.replicate.envelopes import ReplicateFault
from cdckit.replicate.metadata_messages import METADATA_TYPES, table_text

Message = Mapping[str, Any]
"""A metadata message, or a statement of a zone that was kept; instants are microseconds."""

PLACE_TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""Where a message stands; the first of two is the one whose place is less, null being least."""

SAID_AT_TYPES = {**PLACE_TYPES, "lineage_timestamp": METADATA_TYPES["lineage_timestamp"]}
"""What messages that say the same may differ in: their place, and when the version was made."""

STATEMENT_TYPES: dict[str, pa.DataType] = {
    **METADATA_TYPES,
    **{name: PLACE_TYPES[name] for name in ("topic", "partition", "offset", "timestamp")},
    "places": pa.list_(pa.field("element", pa.struct(list(SAID_AT_TYPES.items())))),
    "other_tables": pa.list_(pa.field("element", pa.string())),
}
"""One statement, as `schema_zone` has it."""

# What a statement says, beside the id and the table.  Where it was said again it is no new statement.
_SAID = ("table_version", "columns", "data_schema")

Place = tuple[Any, ...]


def message_rows(messages: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Metadata messages, or statements, as rows, with their instants as microseconds."""
    kinds = [field.with_type(_in_micros(field.type)) for field in messages.schema]
    rows: list[dict[str, Any]] = messages.cast(pa.schema(kinds)).to_pylist()
    return rows


def _in_micros(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_micros(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_micros(field.type)) for field in kind])
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def find_conflicts(messages: Iterable[Message]) -> Iterator[str | None]:
    """
    Find what contradicts the first message about a schema id, in each of the messages about it.

    Args:
        messages: In the order of their places; each with `layout` and the names of its table, or with an
            `error_code`, then it says nothing.  In `known` is the first word of a zone from earlier, or null.
    """
    first: Message | None = None
    for message in messages:
        if message["error_code"] is not None:
            yield None
            continue
        first = first or message["known"] or message
        here, before = message["layout"], first["layout"]
        conflict = (
            f"Here, for {table_text(message)}, it has {_only(here, before)};"
            f" before, for {table_text(first)}, it had {_only(before, here)}."
        )
        yield None if here == before else ReplicateFault.SCHEMA_CONFLICT.describe(conflict)


def _only(lines: Sequence[str], others: Sequence[str]) -> str:
    """The lines of a layout that another one has not."""
    only = dict.fromkeys(line for line in lines if line not in others)
    return ("; ".join(only) or "the same in another order")[:90]


def statements(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """
    All that was said of one schema id (`STATEMENT_TYPES`): a row from its first message on until another.

    Args:
        messages: Those about the id, in any order; statements from earlier, with their `places`, among them.
    """
    by_table: dict[str, list[tuple[Place, Message]]] = {}
    for message in messages:
        places = message["places"] or [message]
        by_table.setdefault(table_text(message), []).extend((_place(place), message) for place in places)
    for table, placed_messages in by_table.items():
        others = sorted(other for other in by_table if other != table)
        placed_messages.sort(key=lambda entry: _sortable(entry[0]))
        for _, run in groupby(placed_messages, key=lambda entry: [entry[1][name] for name in _SAID]):
            entries = list(run)
            first, message = entries[0]
            places = dict.fromkeys(place for place, _ in entries)
            yield {
                **{name: message[name] for name in METADATA_TYPES},
                **dict(zip(SAID_AT_TYPES, first, strict=True)),
                "places": [dict(zip(SAID_AT_TYPES, place, strict=True)) for place in places],
                "other_tables": others,
            }


def _place(message: Message) -> Place:
    return tuple(message[name] for name in SAID_AT_TYPES)


def _sortable(place: Place) -> list[tuple[bool, Any]]:
    return [(part is not None, part) for part in place]
