"""The years 1 to 9999 are all that there are: another one makes a row a reject, and an argument an error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, as_of, between, changes_from, changes_from_snapshots, merge, rejects
from cdckit.debezium.connect_values import Unreadable, encoding
from cdckit.errors import InvalidArgument
from cdckit.outputs import create_view
from cdckit.parts.instants import INSTANT, parse_instant
from cdckit.tables import table_rows

DAY = datetime(2024, 1, 1, tzinfo=UTC)
INFINITY = 2**63 - 1
FAR = datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))
"""In the year 10000 of UTC."""

OUTSIDE = {
    # Infinity, the year 300000, and the first and last instants that are in no year.
    "timestamps": pa.array(
        [
            INFINITY,
            -INFINITY,
            9_404_000_000_000_000_000 // 2,
            253_402_300_800_000_000,
            -62_135_596_800_000_001,
        ],
        INSTANT,
    ),
    "days": pa.array([2**31 - 1, 1 - 2**31, 2_932_897, -719_163], pa.date32()),
}


def calls(values: pa.Array) -> dict[str, tuple[dict[str, pa.Array], dict[str, Any]]]:
    """Tables and calls in which such a time is what an argument names, or a field, or a part of one."""
    at = pa.array([DAY] * len(values), INSTANT)
    listed = pa.ListArray.from_arrays(range(len(values) + 1), values)
    structs = pa.StructArray.from_arrays([listed], ["x"])
    return {
        "effective": ({"v": values}, {"effective": "v"}),
        "sequence": ({"v": values}, {"sequence_by": "v", "except_column_list": ["v"]}),
        "second part": ({"at": at, "v": values}, {"sequence_by": ["at", "v"], "column_list": []}),
        "sequence alone": ({"at": at, "v": values}, {"sequence_by": "v", "effective": "at"}),
        "valid_from": ({"v": values, "end": at}, {"valid_from": "v", "valid_to": "end"}),
        "field": ({"at": at, "v": values}, {"effective": "at"}),
        "list": ({"at": at, "v": listed}, {"effective": "at"}),
        "struct": ({"at": at, "v": structs}, {"effective": "at"}),
    }


@pytest.mark.parametrize("kind", OUTSIDE)
def test_a_row_of_another_year_is_a_reject(kind: str, spark: SparkSession) -> None:
    """Whichever argument names its column, or none: nothing is wrapped, and nothing ends the job."""
    frames = []
    for columns, arguments in calls(OUTSIDE[kind]).values():
        count = len(OUTSIDE[kind])
        table = pa.table({"id": pa.array(range(count)), **columns})
        given = table if kind == "timestamps" else spark.createDataFrame(table)
        rows = table_rows(given, keys=["id"], **arguments)
        frames.append(rows.select("operation", "error_code", "error_description"))
    rows = reduce(DataFrame.unionAll, frames).collect()
    assert len(rows) == len(calls(OUTSIDE[kind])) * len(OUTSIDE[kind])
    assert {row["operation"] for row in rows} == {None}
    assert {row["error_code"] for row in rows} == {"TIME_UNREADABLE", "TIME_OUT_OF_RANGE"}
    assert [row for row in rows if "not in the years 1 to 9999" not in row["error_description"]] == []


def test_an_end_of_infinity_is_open_and_one_before_the_year_1_is_a_reject(spark: SparkSession) -> None:
    """Rejects keep what they said, and can be read by Python."""
    ends = ["infinity", "+12024-01-01", "-infinity", "0000-01-01", "9999-12-31 23:59:59-01", "2024-01-05"]
    frame = pd.DataFrame({"id": range(6), "since": "2024-01-01", "until": ends})
    how = {"keys": ["id"], "valid_from": "since", "valid_to": "until"}
    changes = changes_from(frame, **how)
    history = merge(changes, entity="e", keys=["id"]).orderBy("id", "valid_from_timestamp").collect()
    assert [(row["id"], row["valid_to_timestamp"]) for row in history if not row["deleted_indicator"]] == [
        (0, None), (1, None), (4, None), (5, datetime(2024, 1, 5)),
    ]  # fmt: skip
    refused = rejects(changes).select("error_code", F.col("value").cast("string")).collect()
    assert sorted(row["error_code"] for row in refused) == ["END_UNREADABLE"] * 2
    assert sorted("infinity" in row["value"] for row in refused) == [False, True]


def test_a_list_with_such_a_time_ends_the_job_and_names_it(spark: SparkSession) -> None:
    """What a list does not name has ended, so no row of it is left out."""
    times = spark.sql("select 1 as id, date'+12024-01-01' as due, timestamp'2024-01-01 00:00:00' as at")
    changes = changes_from_snapshots({DAY: times.drop("at")}, keys=["id"])
    with pytest.raises(SparkRuntimeException, match=r"years 1 to 9999, and due is \+12024-01-01"):
        changes.collect()
    taken = changes_from_snapshots(times, keys=["id"], taken_at="due", except_column_list=["due"])
    with pytest.raises(SparkRuntimeException, match="not in the years 1 to 9999"):
        taken.collect()


def test_arguments_and_messages_of_another_year_are_refused(history: DataFrame) -> None:
    """At the end of the last year, a clock of another zone says less than UTC's."""
    for call in (
        lambda: as_of(history, FAR),
        lambda: between(history, DAY, FAR),
        lambda: changes_from_snapshots({FAR: history.select("id")}, keys=["id"]),
        lambda: changes_from(history.select("id"), keys=["id"], effective=FAR),
    ):
        with pytest.raises(InvalidArgument, match="in the years 1 to 9999, in UTC"):
            call()
    for text in ("0000-01-01", "9999-12-31T23:59:59-01:00", "10000-01-01", "infinity"):
        assert parse_instant(text) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("io.debezium.time.date", 2_932_897),
        ("io.debezium.time.timestamp", 9_404_000_000_000_000),
        ("io.debezium.time.microtimestamp", -62_135_596_800_000_001),
        ("io.debezium.time.zonedtimestamp", "9999-12-31T23:59:59-01:00"),
        ("io.debezium.time.zonedtimestamp", "0000-01-01T00:00:00Z"),
    ],
)
def test_a_value_of_debezium_of_another_year_cannot_be_read(kind: str, value: Any) -> None:
    with pytest.raises(Unreadable):
        encoding(kind).read(value)


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    """One product with a name, since the first day of 2024."""
    frame = pd.DataFrame({"id": [1], "name": ["mug"], "at": [pd.Timestamp("2024-01-01")]})
    return merge(changes_from(frame, keys=["id"], sequence_by="at"), entity="e", keys=["id"])


@pytest.fixture
def without_zones(spark: SparkSession) -> Iterator[None]:
    """A session in which TIMESTAMP says no zone."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    yield
    spark.conf.unset("spark.sql.timestampType")


@pytest.mark.usefixtures("without_zones")
def test_the_session_s_default_type_of_timestamps_changes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("""
        select 1 as id, 'mug' as name, timestamp_ltz'2024-01-01 00:00:00Z' as at,
            timestamp'2024-01-01' as seen
        union all select 1, 'jug', timestamp_ltz'2024-01-02 00:00:00Z', null
    """)
    changes = changes_from(rows, keys=["id"], sequence_by="at", valid_from="at", valid_to="seen")
    ordered = changes_from(rows, keys=["id"], sequence_by="at")
    ledger = Ledger(spark, tmp_path, entity="e", keys=["id"], buckets=1)
    ledger.apply(ordered)
    for table in (merge(ordered, entity="e", keys=["id"]), ledger.history()):
        assert as_of(table, DAY).select("name").collect() == [("mug",)]
        create_view(table, "things")
        found = spark.sql("select name from things_as_of(timestamp_ltz'2024-01-02 00:00:00Z')").collect()
        assert found == [("jug",)]
    assert changes.schema["effective_timestamp"].dataType.simpleString() == "timestamp"
    assert rejects(changes).count() == 1
