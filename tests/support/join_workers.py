"""What the workers of `as_of_join` say of each fact, asked without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cdckit.parts.instants import INSTANT
from cdckit.query import as_of_join_kernel as kernel

Row = dict[str, Any]
_TIMES = dict.fromkeys(
    (kernel.AT, kernel.UNTIL, kernel.KNOWN, kernel.FORGOTTEN),
    INSTANT,
)
_LINE = pa.schema(
    {
        "group": pa.int64(),
        "key": pa.string(),
        kernel.SOURCE: pa.int32(),
        kernel.IS_DELETED: pa.bool_(),
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
    most = kernel.ANY if tolerance is None else tolerance // timedelta(microseconds=1)
    rule = kernel.LookupRule("found", 0, direction, strictly, most, reason=True)
    rows = [
        {
            "key": version["guid"],
            kernel.SOURCE: 0,
            kernel.IS_DELETED: version["deleted_indicator"],
            kernel.AT: version["valid_from_timestamp"],
            kernel.UNTIL: version["valid_to_timestamp"],
            kernel.KNOWN: version.get("system_from_timestamp"),
            kernel.FORGOTTEN: version.get("system_to_timestamp"),
        }
        for version in versions
    ]
    rows += [{"key": fact["key"], kernel.AT: fact["at"], kernel.KNOWN: fact.get("known")} for fact in facts]
    line = pa.RecordBatch.from_pylist([{"group": 0, **row} for row in rows], schema=_LINE)
    if not any("known" in fact for fact in facts):
        line = line.drop_columns([kernel.KNOWN, kernel.FORGOTTEN])
    [answer] = kernel.answer_batches([line], "group", ["key"], [rule])
    said = answer.slice(len(versions)).to_pylist()
    assert not any(row[kernel.OVERLAP] for row in said)
    stand, reason = (
        kernel.answer_column(kernel.STAND, 0),
        kernel.answer_column(kernel.REASON, 0),
    )
    return [(None if row[stand] is None else versions[row[stand]], row[reason]) for row in said]
