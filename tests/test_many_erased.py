"""A thousand subjects go in one call, as the one does: in as many jobs, and for little more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import Ledger, changes_from, datahub, rdss
from cdckit.ledger import Receipt
from cdckit.model.records import RECORD_SCHEMA
from support.rdss_messages import as_bytes, changed, message
from support.remains import find_remains

AT = datetime(2024, 3, 1, tzinfo=UTC)
FIRST, MANY, SUBJECTS = 71_900_000, 1_200, 1_000
WHO = {"by": "dana", "reason": "asked for by letter"}
Erase = Callable[[Path, range], Receipt]
"""Erases the entities of these numbers in what is in a folder."""


def uuid(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-00000000abcd"


def fill_ledger(spark: SparkSession, place: Path) -> Erase:
    def ledger_at(place: Path) -> Ledger:
        return Ledger(spark, place, entity="person", keys=["h"], buckets=8)

    rows = spark.range(FIRST, FIRST + MANY).select(
        F.col("id").alias("h"), F.format_string("name%d.", "id").alias("name"), F.lit(AT).alias("at")
    )
    ledger_at(place).apply(
        changes_from(rows, keys=["h"], sequence_by="at", except_column_list=["at"], apply_as_deletes="false")
    )
    return lambda place, some: ledger_at(place).erase(keys=[{"h": each} for each in some], **WHO)


def fill_exchange(spark: SparkSession, place: Path) -> Erase:
    def exchange_at(place: Path) -> rdss.Exchange:
        return rdss.Exchange(spark, place, types=["ResearchObject"])

    rows = []
    for at in range(MANY):
        header = changed("/messageHeader/messageId", uuid(FIRST + MANY + at))
        sequence = changed("/messageHeader/messageSequence/sequence", uuid(FIRST + 2 * MANY + at))
        about = changed("/messageBody/objectUUID", uuid(FIRST + at))
        title = changed("/messageBody/objectTitle", f"name{FIRST + at}.")
        value = as_bytes(message("create", header, sequence, about, title))
        rows.append((None, value, "rdss", 0, at, AT + timedelta(seconds=at), 0, None))
    exchange_at(place).receive(spark.createDataFrame(rows, RECORD_SCHEMA))
    return lambda place, some: exchange_at(place).erase(
        "ResearchObject", keys=[{"objectUUID": uuid(each)} for each in some], **WHO
    )


def fill_hub(spark: SparkSession, place: Path) -> Erase:
    person = {
        "reference": "person",
        "fields": [{"reference": "h", "type": "integer", "key": True}, {"reference": "name"}],
    }
    schema = datahub.schema({"reference": "*", "mappings": {"person": [person]}})

    def hub_at(place: Path) -> datahub.Hub:
        return datahub.Hub(spark, schema, place)

    people = [{"h": each, "name": f"name{each}."} for each in range(FIRST, FIRST + MANY)]
    sent = [
        {"guid": f"m{at}", "entity": "person", "data": people[at : at + 100]} for at in range(0, MANY, 100)
    ]
    hub_at(place).receive(datahub.records(spark, sent, received_at=AT))
    hub_at(place).run(now=AT)
    return lambda place, some: hub_at(place).erase("person", keys=[{"h": each} for each in some], **WHO)


@pytest.mark.soak
@pytest.mark.parametrize("fill", [fill_ledger, fill_exchange, fill_hub])
def test_a_thousand_go_as_one_does(spark: SparkSession, tmp_path: Path, fill: Any) -> None:
    place = tmp_path / "store"
    erase = fill(spark, place)
    jobs, took = list[int](), list[float]()
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # type: ignore[union-attr]
    for many in (1, 1, SUBJECTS):  # the first time classes are loaded
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        before, began = scheduler.numTotalJobs(), perf_counter()
        receipt = erase(copy, range(FIRST, FIRST + many))
        took.append(perf_counter() - began)
        jobs.append(scheduler.numTotalJobs() - before)
        assert (receipt.entities, receipt.is_proven) == (many, True)
    print(f"{fill.__name__}: {json.dumps([round(each, 1) for each in took])} s, {jobs} jobs")
    subjects: dict[str, list[str | int | float]] = {
        str(each): [f"name{each}."] for each in range(FIRST, FIRST + SUBJECTS)
    }
    assert find_remains(copy, subjects) == {}
    assert len(find_remains(copy, {"rest": [f"name{FIRST + SUBJECTS}."]})) > 0
    assert jobs[-1] <= 1.3 * jobs[1]
    assert took[-1] <= 5 * took[1]
