"""
What is said of calls that cannot mean anything.

Errors about instants, priorities and sources show a call that would do, of the caller's own values; and
every question to a history names the column that it lacks, or that is of another type.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import cdckit
import cdckit.outputs
from cdckit import Priority, merge, with_priorities
from cdckit.errors import InvalidArgument, MissingColumns, WrongColumnType
from cdckit.model.sources import UnknownSource, require_sources
from cdckit.notebook.pictures.plane import bitemporal_plane
from cdckit.quality.unsound_rows import coalesce_versions, find_gaps, find_overlaps
from cdckit.query.as_of import timeline, with_operation
from cdckit.query.provenance import values_by_message
from support.flight_changes import change, frame

KEYS = {"entity": "flight", "keys": ["flight"]}
NAIVE, LATER = datetime(2024, 1, 1, 9, 30), datetime(2024, 1, 2)


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> dict[str, Any]:
    """The names that an example may use."""
    changes = frame(spark, change(9, "schedule", gate="A1"), change(11, "operations", gate="B2"))
    history = merge(changes, **KEYS)
    table = cdckit.bitemporal(changes, **KEYS)
    return {
        **{name: getattr(cdckit, name) for name in cdckit.__all__},
        "scd_type_2": cdckit.outputs.scd_type_2,
        "changes": changes,
        "history": history,
        "table": table,
        "UTC": UTC,
        "datetime": datetime,
    }


@pytest.mark.parametrize(
    ("call", "example"),
    [
        (
            lambda w: cdckit.as_of(w["history"], NAIVE),
            "as_of(history, datetime(2024, 1, 1, 9, 30, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.as_of(w["history"], "2024-01-01T11:30+02:00"),
            "as_of(history, datetime(2024, 1, 1, 9, 30, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.as_of(w["history"], date(2024, 1, 2)),
            "as_of(history, datetime(2024, 1, 2, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.between(w["history"], NAIVE, LATER),
            "between(history, datetime(2024, 1, 1, 9, 30, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.changes_between(w["history"], NAIVE, None),
            "changes_between(history, datetime(2024, 1, 1, 9, 30, tzinfo=UTC), None)",
        ),
        (
            lambda w: cdckit.as_known(w["changes"], NAIVE, **KEYS),
            "as_known(changes, datetime(2024, 1, 1, 9, 30, tzinfo=UTC), entity='flight', keys=['flight'])",
        ),
        (
            lambda w: cdckit.keep_known(w["table"], LATER),
            "keep_known(table, datetime(2024, 1, 2, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.why(w["changes"], {"flight": "UA1"}, "gate", keys=["flight"], valid_at=NAIVE),
            "why(changes, {'flight': 'UA1'}, 'gate', keys=['flight'], "
            "valid_at=datetime(2024, 1, 1, 9, 30, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.blame(w["history"], {"flight": "UA1"}, valid_at=NAIVE),
            "blame(history, {'flight': 'UA1'}, valid_at=datetime(2024, 1, 1, 9, 30, tzinfo=UTC))",
        ),
        (
            lambda w: cdckit.outputs.scd_type_2(w["history"], valid_to_current=datetime(9999, 12, 31)),
            "scd_type_2(history, valid_to_current=datetime(9999, 12, 31, tzinfo=UTC))",
        ),
    ],
)
def test_an_instant_without_a_zone_is_shown_with_one(
    world: dict[str, Any], call: Callable[[dict[str, Any]], Any], example: str
) -> None:
    """The example runs as it stands."""
    with pytest.raises(InvalidArgument) as refused:
        call(world)
    assert refused.value.example == f"{example}  # or in another zone"
    assert str(refused.value).endswith(f"A call that would do: {refused.value.example}")
    assert eval(refused.value.example, world).columns


BEGIN, END, GONE = "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator"
AT, FLIGHT = datetime(2024, 1, 1, 9, 30, tzinfo=UTC), {"flight": "UA1"}


@pytest.mark.parametrize(
    ("function", "arguments", "lacking", "wrong"),
    [
        (cdckit.as_of, (AT,), (BEGIN, END, GONE), ()),
        (cdckit.between, (AT, None), (BEGIN, END, GONE), (BEGIN, END, GONE)),
        (cdckit.current, (), (END, GONE), ()),
        (with_operation, (), ("guid", BEGIN, END, GONE), ()),
        (timeline, (FLIGHT,), ("guid", BEGIN, END, GONE), ()),
        (cdckit.changes_between, (AT, None), (GONE,), ("field_provenance",)),
        (cdckit.blame, (FLIGHT,), ("guid", END, "field_provenance", "gate"), ()),
        (values_by_message, ("m1",), ("gate",), ()),
        (coalesce_versions, (), ("guid",), ("field_provenance",)),
        (find_overlaps, (), (END,), ()),
        (find_gaps, (), (END,), ()),
        (bitemporal_plane, (FLIGHT, "gate"), ("system_from_timestamp",), ()),
    ],
)
def test_a_missing_or_wrong_column_is_named(
    world: dict[str, Any], function: Callable[..., Any], arguments: Any, lacking: Any, wrong: Any
) -> None:
    history = world["history"]
    for column in lacking:
        with pytest.raises(MissingColumns, match=rf"^{function.__name__}\(\) needs the columns {column}[;,]"):
            function(history.drop(column), *arguments)
    for column in wrong:
        with pytest.raises(WrongColumnType, match=rf"needs the column {column} as "):
            function(history.withColumn(column, F.lit("x")), *arguments)


@pytest.mark.parametrize(
    ("priorities", "argument"),
    [
        ({"schedule": 5}, "priorities['schedule']"),
        ({"schedule": {"gate": 7}}, "priorities['schedule']"),
        ({"schedule": Priority(2), 7: None}, "priorities"),
        ([("schedule", 1)], "priorities"),
    ],
)
def test_priorities_of_another_form_are_refused_with_one_of_theirs(
    world: dict[str, Any], priorities: Any, argument: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        with_priorities(world["changes"], priorities)
    assert refused.value.argument == argument
    assert refused.value.example == 'with_priorities(changes, {"shop": Priority(1, {"name": 9})})'


def test_a_misspelt_field_is_refused_with_the_nearest_one(world: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"it is \['gaet'\]\. Is it gate for gaet\?$"):
        with_priorities(world["changes"], {"schedule": Priority(2, {"gaet": 3, "gate": 1})})


def test_a_priority_of_a_field_that_is_like_none_is_not_dropped_silently(world: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"it is \['colour'\]\.$") as refused:
        with_priorities(world["changes"], {"schedule": Priority(2, {"colour": 3, "gate": 1})})
    assert refused.value.example is None


@pytest.mark.parametrize(
    ("make", "example"),
    [
        (lambda: Priority("high"), 'Priority(1, {"name": 9})'),
        (lambda: Priority(3, "gate"), 'Priority(1, {"name": 9})'),
        (lambda: Priority(3, {"gate": "low"}), 'Priority(1, {"name": 9})'),
    ],
)
def test_a_priority_that_is_none_is_shown_as_one(make: Callable[[], Any], example: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        make()
    assert refused.value.example == example
    assert isinstance(eval(example), Priority)


def test_a_source_that_no_change_comes_from_is_refused_with_the_nearest_one(world: dict[str, Any]) -> None:
    changes = world["changes"]
    require_sources(changes, {"schedule": Priority(1), "operations": Priority(2)})
    with pytest.raises(UnknownSource, match=r"for 'shedule' \(is it schedule\?\): the changes") as refused:
        require_sources(changes, {"shedule": Priority(1), "operations": Priority(2, {"gate": 3})})
    assert refused.value.unknown == ("shedule",)
    assert refused.value.known == ("operations", "schedule")
    with pytest.raises(UnknownSource, match="'weather': the changes come from 'operations', 'schedule'"):
        require_sources(changes, {"weather": Priority(4), "operations": Priority(1)})
