"""
The departure board of the New York airports as it stood at an instant, from Replicate envelope bytes.

    python -m tools.demo "2013-02-08 12:00"        the time is New York's

Reads the sample of three days in February 2013: two systems, a schedule and the operations, that
speak of the same flights.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit import Priority, as_of, merge, replicate, session, union_changes, with_priorities
from cdckit.model.records import RECORD_SCHEMA

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "replicate"
STREAMS = ("metadata", "schedule", "operations")
NEW_YORK = ZoneInfo("America/New_York")
KEYS = ["flight_date", "carrier", "flight", "origin"]
# The operations know better what a flight does; whether it exists and with which plane, both may say.
PRIORITIES = {"operations": Priority(0, {"expected_departure": 10, "status": 10})}


def flights(records: DataFrame) -> DataFrame:
    """The history of every flight, from the records of both tasks."""
    # The timetable of a day is loaded at 05:00 UTC; the messages of a full load do not say so.
    loaded_at = F.date_trunc("day", F.col("timestamp")) + F.expr("INTERVAL 5 HOURS")
    said = [
        replicate.table_changes(
            records.where(F.col("topic").isin("flights.metadata", f"{task}.flights")),
            task=task,
            table="FLIGHTS",
            source=task,
            loaded_at=loaded_at,
        )
        for task in ("schedule", "operations")
    ]
    return merge(with_priorities(union_changes(*said), PRIORITIES), entity="flight", keys=KEYS)


def board(history: DataFrame, at: datetime, *, hours: float = 2, rows: int = 18) -> DataFrame:
    """The board at *at*: the first *rows* flights scheduled from an hour before to *hours* after it."""
    soon = F.col("scheduled_departure").between(at - timedelta(hours=1), at + timedelta(hours=hours))
    shown = (
        as_of(history, at)
        .where(soon)
        .orderBy("scheduled_departure", "origin", "carrier", "flight")
        .limit(rows)
    )
    source = F.regexp_extract(F.col("field_provenance.status.m"), "/([^:]*):", 1)
    return shown.select(
        _clock("scheduled_departure").alias("time"),
        F.concat_ws(" ", "carrier", "flight").alias("flight"),
        F.col("origin").alias("from"),
        F.col("dest").alias("to"),
        F.when(
            F.col("expected_departure") != F.col("scheduled_departure"), _clock("expected_departure")
        ).alias("now"),
        "status",
        F.coalesce("tailnum", F.lit("")).alias("plane"),
        source.alias("says"),
    )


def _clock(instant: str) -> Column:
    return F.date_format(F.from_utc_timestamp(instant, str(NEW_YORK)), "HH:mm")


def print_board(table: DataFrame, at: datetime) -> None:
    """Write the board the way a hall shows it."""
    print(f"\n  DEPARTURES   {at:%A %d %B %Y, %H:%M} New York\n")
    line = "  {:<6}{:<9}{:<6}{:<6}{:<7}{:<11}{:<8}{}"
    print(line.format("TIME", "FLIGHT", "FROM", "TO", "NOW", "STATUS", "PLANE", "WHO SAYS SO"))
    found = table.collect()
    for row in found:
        print(line.format(*("" if value is None else value for value in row)))
    if not found:
        print("  Nothing: the sample holds the flights of 7 to 9 February 2013.")


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo", description=__doc__.split("\n")[1])
    parser.add_argument("at", nargs="?", default="2013-02-08 12:00", help="YYYY-MM-DD HH:MM in New York")
    try:
        at = datetime.fromisoformat(parser.parse_args(arguments).at)
    except ValueError as error:
        parser.error(f'an instant is written "2013-02-08 12:00": {error}')
    if at.tzinfo is not None:
        parser.error("the time is New York's: leave the zone out")
    at = at.replace(tzinfo=NEW_YORK)
    spark = session(app_name="cdckit demo", memory="1g", small=True)
    files = (str(SAMPLE / f"{name}.parquet") for name in STREAMS)
    records = spark.read.schema(RECORD_SCHEMA).parquet(*files)
    history = flights(records).cache()
    print_board(board(history, at), at)
    versions, entities = history.agg(F.count("*"), F.count_distinct("guid")).collect()[0]
    print(
        f"\n  {records.count():,} records of two systems: {versions:,} versions of {entities:,} flights."
        '\n  Another minute: make demo AT="2013-02-08 18:00". The same step by step: make lab, 01_tour.\n'
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
