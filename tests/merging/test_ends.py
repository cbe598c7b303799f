"""Changes with an end, merged without Spark: at each instant the fold of those that hold then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import cdckit.merging.ends
from cdckit.merging.beliefs import beliefs
from cdckit.merging.versions import versions
from cdckit.parts.arrow_types import arrow_schema
from support.fold import fold, identity
from support.histories import EXTREME_PRIORITIES, MIXTURE, Row, assert_same, history_schema, random_changes
from support.kernel_rows import kernel_rows, layout_of
from tools.tiers import seeds

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "double"}
KEYS = ["h", "k"]
ENDS = (False, False, True)
MANY_INSTANTS = tuple(datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 31))


def merged(changes: Sequence[Row]) -> list[Row]:
    """What the kernel makes of changes, by guid and time."""
    schema = arrow_schema(history_schema(FIELDS))
    batches = versions([kernel_rows(changes, FIELDS, KEYS)], layout_of(FIELDS, KEYS), schema)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["guid"], row["valid_from_timestamp"]))


def assert_folds(changes: Sequence[Row]) -> None:
    expected = fold(changes, entity="thing", keys=KEYS, fields=list(FIELDS))
    assert_same(merged(changes), expected, changes, guid_of_change)


def guid_of_change(change: Row) -> str:
    return identity(change, "thing", KEYS)


@pytest.mark.parametrize(
    "options", [{}, {"priorities": EXTREME_PRIORITIES}, {"priorities": (0,)}, {"ends": (True,)}]
)
@seeds(1, soak=100)
def test_random_histories_with_ends_are_what_the_fold_makes_of_them(
    options: dict[str, Any], seed: int
) -> None:
    """Two thousand histories; 200,000 in a soak."""
    assert_folds(random_changes(seed, 500, FIELDS, **{"ends": ENDS, **options}))


@pytest.mark.parametrize("rows", [1, 40])
def test_stretches_may_be_merged_in_portions(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(cdckit.merging.ends, "ROWS_AT_ONCE", rows)
    assert_folds(random_changes(5, 60, FIELDS, ends=ENDS))


@pytest.mark.parametrize(
    "options", [{}, {"priorities": (0,)}, {"operations": (*("upsert",) * 40, "delete")}, {"mixture": MIXTURE}]
)
@seeds(2, 3, soak=100)
def test_what_is_left_out_of_stretches_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], seed: int
) -> None:
    monkeypatch.setattr(cdckit.merging.ends, "MANY", 0)
    drawn = {"ends": ENDS, "instants": MANY_INSTANTS, "mixture": ("new", "new", "redelivery"), **options}
    assert_folds(random_changes(seed, 200, FIELDS, **drawn))
    assert_folds(random_changes(seed, 4, FIELDS, longest=100, **drawn))


@seeds(1, soak=100)
def test_what_was_believed_is_the_fold_of_what_was_known(seed: int) -> None:
    """At each moment; in one row as long as it was believed."""
    chance, moments = random.Random(seed), [datetime(2024, 7, 1, hour, tzinfo=UTC) for hour in range(6)]
    changes = random_changes(seed, 200, FIELDS, ends=ENDS, longest=chance.choice((10, 30)))
    for change in changes:
        change["arrival"] = {**change["arrival"], "timestamp": chance.choice(moments)}
    schema = arrow_schema(history_schema(FIELDS))
    for name in ("system_from_timestamp", "system_to_timestamp"):
        schema = schema.append(pa.field(name, schema.field("valid_from_timestamp").type))
    batches = beliefs(iter([kernel_rows(changes, FIELDS, KEYS)]), layout_of(FIELDS, KEYS), schema)
    rows = sorted(
        (row for batch in batches for row in batch.to_pylist()),
        key=lambda row: (row["guid"], row["valid_from_timestamp"]),
    )
    for moment in moments:
        known = [change for change in changes if change["arrival"]["timestamp"] <= moment]
        expected = fold(known, entity="thing", keys=KEYS, fields=list(FIELDS))
        assert_same(
            [believed(row) for row in rows if is_believed(row, moment)], expected, known, guid_of_change
        )


def is_believed(row: Row, moment: datetime) -> bool:
    until = row["system_to_timestamp"]
    return bool(row["system_from_timestamp"] <= moment and (until is None or moment < until))


def believed(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.startswith("system_")}


@seeds(2, soak=20)
def test_long_histories_with_ends(seed: int) -> None:
    assert_folds(random_changes(seed, 6, FIELDS, ends=ENDS, longest=200))
    assert_folds(random_changes(seed, 6, FIELDS, ends=ENDS, longest=200, instants=MANY_INSTANTS))
