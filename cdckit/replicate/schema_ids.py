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

Statement = Mapping[str, Any]
"""What a metadata message says, or a zone has kept of it; instants are microseconds."""

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


def find_conflict(message: Statement, firsts: dict[str, Statement]) -> str | None:
    """
    Find what contradicts the first message about a schema id in another one.

    Args:
        message: The next one by place: with its `layout` and the names of its table, or with an
            `error_code`, then it says nothing.  In `known` is the first word of a zone from earlier, or null.
        firsts: The first word about each schema id so far, which is kept here.
    """
    if message["error_code"] is not None:
        return None
    first = firsts.setdefault(message["schema_id"], message["known"] or message)
    here, before = message["layout"], first["layout"]
    if here == before:
        return None
    return ReplicateFault.SCHEMA_CONFLICT.describe(
        f"Here, for {table_text(message)}, it has {_only(here, before)};"
        f" before, for {table_text(first)}, it had {_only(before, here)}."
    )


def _only(lines: Sequence[str], others: Sequence[str]) -> str:
    """The lines of a layout that another one has not."""
    only = dict.fromkeys(line for line in lines if line not in others)
    return ("; ".join(only) or "the same in another order")[:90]


def statements(messages: Iterable[Statement]) -> Iterator[dict[str, Any]]:
    """
    All that was said of one schema id (`STATEMENT_TYPES`): a row from its first message on until another.

    Args:
        messages: Those about the id, in any order; statements from earlier, with their `places`, among them.
    """
    by_table: dict[str, list[tuple[Statement, Statement]]] = {}
    for message in messages:
        placed = [(place, message) for place in message["places"] or [message]]
        by_table.setdefault(table_text(message), []).extend(placed)
    for table, placed_messages in by_table.items():
        others = sorted(other for other in by_table if other != table)
        placed_messages.sort(key=lambda entry: place_order(entry[0]))
        for _, run in groupby(placed_messages, key=lambda entry: [entry[1][name] for name in _SAID]):
            entries = list(run)
            places = [{name: place[name] for name in SAID_AT_TYPES} for place, _ in entries]
            message = entries[0][1]
            yield {
                **{name: message[name] for name in METADATA_TYPES},
                **places[0],
                "places": [place for place, _ in groupby(places)],
                "other_tables": others,
            }


def place_order(place: Statement) -> list[tuple[bool, Any]]:
    """What sorts messages by their places (`SAID_AT_TYPES`), null first."""
    return [(place[name] is not None, place[name]) for name in SAID_AT_TYPES]
