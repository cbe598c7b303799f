"""What the workers of `as_of_join` say of each fact, asked without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cdckit.parts.instants import INSTANT
from cdckit.query import join_kernel

Row = dict[str, Any]
_TIMES = dict.fromkeys((join_kernel.AT, join_kernel.UNTIL, join_kernel.KNOWN, join_kernel.FORGOTTEN), INSTANT)
_LINE = pa.schema(
    {
        "group": pa.int64(),
        "key": pa.string(),
        join_kernel.SOURCE: pa.int32(),
        join_kernel.IS_DELETED: pa.bool_(),
        **_TIMES,
    }
)


def answered(
    versions: Sequence[Row],
    facts: Sequence[Row],
    *,
    direction: str = "backward",
    strictly: bool = False,
    tolerance: timedelta | None = None,
) -> list[tuple[Row | None, str | None]]:
    """
    The version of each fact, and why it has none.

    Args:
        versions: With `guid`, which is their key, their interval, whether they are deleted and, where it is
            asked what was believed, the system interval.
        facts: With their `key`, the instant `at`, and their moment of knowledge, `known`, if that is asked.
        direction: As for `Lookup`, like *strictly* and *tolerance*.
    """
    most = join_kernel.ANY if tolerance is None else tolerance // timedelta(microseconds=1)
    rule = join_kernel.LookupRule("found", 0, direction, strictly, most, reason=True)
    rows = [
        {
            "key": version["guid"],
            join_kernel.SOURCE: 0,
            join_kernel.IS_DELETED: version["deleted_indicator"],
            join_kernel.AT: version["valid_from_timestamp"],
            join_kernel.UNTIL: version["valid_to_timestamp"],
            join_kernel.KNOWN: version.get("system_from_timestamp"),
            join_kernel.FORGOTTEN: version.get("system_to_timestamp"),
        }
        for version in versions
    ]
    rows += [
        {"key": fact["key"], join_kernel.AT: fact["at"], join_kernel.KNOWN: fact.get("known")}
        for fact in facts
    ]
    line = pa.RecordBatch.from_pylist([{"group": 0, **row} for row in rows], schema=_LINE)
    if not any("known" in fact for fact in facts):
        line = line.drop_columns([join_kernel.KNOWN, join_kernel.FORGOTTEN])
    [answer] = join_kernel.answer_batches([line], "group", ["key"], [rule])
    said = answer.slice(len(versions)).to_pylist()
    assert not any(row[join_kernel.OVERLAP] for row in said)
    stand, reason = (
        join_kernel.answer_column(join_kernel.STAND, 0),
        join_kernel.answer_column(join_kernel.REASON, 0),
    )
    return [(None if row[stand] is None else versions[row[stand]], row[reason]) for row in said]
