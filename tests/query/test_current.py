"""`current`: the version of each entity that has no end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdckit import current
from cdckit.model.history import with_ends
from cdckit.query.as_of import _warn_of_ends
from support.histories import at

SCHEMA = """
    guid string, valid_from_timestamp timestamp, valid_to_timestamp timestamp, deleted_indicator boolean,
    name string, source_message string
"""


@pytest.fixture
def history(spark: SparkSession) -> DataFrame:
    """One entity that lives, one that is deleted, one that came back, one that begins long after now."""
    return spark.createDataFrame(
        [
            ("alive", at(9), at(10), False, "first", "m1"),
            ("alive", at(10), None, False, "second", "m2"),
            ("deleted", at(9), at(10), False, "was", "m1"),
            ("deleted", at(10), None, True, None, "m2"),
            ("back", at(9), at(10), False, "first", "m1"),
            ("back", at(10), at(11), True, None, "m2"),
            ("back", at(11), None, False, "again", "m3"),
            ("future", datetime(2999, 1, 1, tzinfo=UTC), None, False, "to come", "m4"),
        ],
        SCHEMA,
    )


def names(versions: DataFrame) -> list[tuple[str, str | None]]:
    return sorted((row["guid"], row["name"]) for row in versions.collect())


def test_the_version_with_the_open_end_is_kept_unless_it_is_deleted(history: DataFrame) -> None:
    assert names(current(history)) == [("alive", "second"), ("back", "again"), ("future", "to come")]


def test_deleted_entities_are_kept_on_request(history: DataFrame) -> None:
    assert names(current(history, deletes=True)) == [
        ("alive", "second"),
        ("back", "again"),
        ("deleted", None),
        ("future", "to come"),
    ]


def test_a_history_of_changes_that_end_says_once_what_is_left_out(
    history: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """A version with a known end may be in force today: `as_of` has it."""
    _warn_of_ends.cache_clear()
    assert current(history).columns == history.columns
    assert not caplog.messages
    for _ in range(2):
        current(with_ends(history))
    assert caplog.messages == [
        "current() leaves out what has a known end, also while it is in force: as_of(…) has it"
    ]


def test_the_columns_stay_as_they_are(history: DataFrame) -> None:
    assert current(history).schema == history.schema


def test_an_empty_history_has_no_versions(spark: SparkSession) -> None:
    assert current(spark.createDataFrame([], SCHEMA)).collect() == []
