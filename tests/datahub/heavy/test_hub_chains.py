"""
A hub at length: who waits for somebody who waits, and how many jobs a run starts.

In `make test`: tests/datahub/test_datahub_hub.py::test_what_is_older_than_the_greatest_age_is_given_up,
tests/datahub/test_datahub_hub.py::test_what_waits_says_for_what_by_its_key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.datahub.runs
import cdckit.datahub.state
from cdckit.datahub import Hub, records, schema
from cdckit.datahub.messages import Status
from cdckit.store import Transaction
from support.hub_programs import rows_of
from support.hub_shop import AT, CUSTOMER, SHOP, Row, after, customers, order
from support.jobs import jobs_of


def test_who_waits_for_somebody_who_waits_is_not_applied_before_him(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large hub, which looks at what is new and at what is due: what was there before counts too."""
    monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    referrer = {"reference": "referrer", "type": "link", "linkEntity": "customer", "linkKey": "c"}
    referring = CUSTOMER | {"fields": [*CUSTOMER["fields"], referrer | {"sourceLinkKey": "by"}]}
    seen = {"reference": "seen", "export": True, "fields": [{"reference": "what"}, referrer]}
    hub = Hub(
        spark, schema({"reference": "*", "mappings": {"customer": [referring], "seen": [seen]}}), tmp_path
    )

    def run(minute: int, *said: tuple[str, str | None]) -> tuple[set[str], set[str], list[str]]:
        """Who is applied, whose messages wait, and what was exported in which run."""
        data = [{"guid": c, "entity": "customer", "data": {"c": c, "by": by}} for c, by in said]
        visit = {"guid": f"visit {minute}", "entity": "seen", "data": {"what": f"at {minute}", "c": "known"}}
        hub.receive(records(spark, [*data, visit], received_at=after(minutes=minute)))
        hub.run(now=after(minutes=minute))
        waits = hub.messages().where(F.col("status") == int(Status.REQUIRES_REPROCESSING))
        exported = sorted(rows_of(hub.exports("seen")), key=lambda row: row["position"])
        return (
            {row["c"] for row in rows_of(hub.history("customer"))},
            {row["message_identifier"] for row in rows_of(waits)},
            [f"{row['position']}: {row['document']['what']}" for row in exported],
        )

    first, second = "1: at 0", "2: at 10"
    assert run(0, ("known", None), ("c", "b")) == ({"known"}, {"c"}, [first])
    # The one waits for somebody who waits; the other one's referrer was there before.
    assert run(10, ("d", "c"), ("e", "known")) == ({"known", "e"}, {"c", "d"}, [first, second])
    # He who was missing came: all are due.
    found = run(60, ("b", "e"))
    assert found == ({"known", "e", "b", "c", "d"}, set(), [first, second, "3: at 60"])


# Cost ----------------------------------------------------------------------------------------------------


def next_job(spark: SparkSession) -> int:
    """The number of the next job: jobs are numbered one after the other."""
    context = spark.sparkContext
    context.setJobGroup("counting", "")
    context.parallelize([1], 1).count()
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    return jobs_of(spark, "counting")[-1]


@pytest.fixture
def planned_once(spark: SparkSession) -> Iterator[None]:
    """
    What a query does is decided before it runs.

    Adaptive execution decides it again after each stage, so that the number of jobs of one query depends on
    which of two stages ends first.
    """
    adaptive = "spark.sql.adaptive.enabled"
    before = spark.conf.get(adaptive)
    spark.conf.set(adaptive, "false")
    yield
    spark.conf.set(adaptive, before)


@pytest.mark.usefixtures("planned_once")
def test_the_number_of_jobs_does_not_depend_on_the_number_of_messages(
    spark: SparkSession, tmp_path: Path
) -> None:
    jobs = {}
    for count in (10, 1000):
        hub = Hub(spark, schema(SHOP), tmp_path / str(count))
        half = range(count // 2)
        documents = [order(f"o{each}", each, f"c{each % 5}") for each in half]
        documents += [customers(f"c{each}", f"c{each % 5}") for each in half]
        hub.receive(records(spark, documents, received_at=AT))
        before = next_job(spark)
        hub.run(now=AT)
        jobs[count] = next_job(spark) - before
        assert hub.messages().count() == count
    assert jobs[10] == jobs[1000]


THING: Row = {
    "reference": "thing",
    "fields": [
        {"reference": "id", "key": True},
        {"reference": "next", "type": "link", "linkEntity": "thing", "linkKey": "id", "sourceLinkKey": "to"},
    ],
}


@pytest.mark.usefixtures("planned_once")
def test_the_number_of_jobs_does_not_depend_on_how_long_a_chain_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each record waits for the one that the next would make, and the last for nobody; a circle stands."""
    jobs = {}
    for length in (6, 60):
        hub = Hub(spark, schema({"reference": "*", "mappings": {"thing": [THING]}}), tmp_path / str(length))
        chain = [{"id": f"c{each}", "to": f"c{each + 1}"} for each in range(length)]
        standing = [
            {"id": "a", "to": "b"},
            {"id": "b", "to": "a"},
            {"id": "self", "to": "self"},
            # It is made twice, and once by a record that waits.
            {"id": "known", "to": "c0"},
            {"id": "known"},
            {"id": "follower", "to": "known"},
        ]
        data = {"chain": chain, **{f"s{number}": each for number, each in enumerate(standing)}}
        messages = [{"guid": guid, "entity": "thing", "data": each} for guid, each in data.items()]
        hub.receive(records(spark, messages, received_at=AT))
        before = next_job(spark)
        hub.run(now=AT)
        jobs[length] = next_job(spark) - before
        waiting = {(row["message_identifier"], row["record"]) for row in rows_of(hub.log())
                   if row["outcome"] == "waiting"}  # fmt: skip
        assert waiting == {("s3", "1"), *(("chain", str(each + 1)) for each in range(length))}
        assert {row["id"] for row in rows_of(hub.history("thing"))} == {"a", "b", "self", "known", "follower"}
    assert jobs[6] == jobs[60]


@pytest.mark.usefixtures("planned_once")
def test_a_message_for_a_small_hub_takes_few_jobs_and_leaves_what_waits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing waits: to read it, for what it means, to merge its target, for its status; a job each."""
    reads: list[str] = []

    def counted(tables: Transaction, name: str, *arguments: Any, **named: Any) -> DataFrame:
        reads.append(name)
        return read(tables, name, *arguments, **named)

    read = Transaction.read
    monkeypatch.setattr(Transaction, "read", counted)
    hub = Hub(spark, schema(SHOP), tmp_path)

    def run(seconds: int, *documents: Row) -> tuple[int, int]:
        """How many jobs the run starts, and how often it reads what waits."""
        hub.receive(records(spark, documents, received_at=after(seconds=seconds)))
        reads.clear()
        before = next_job(spark)
        hub.run(now=after(seconds=seconds))
        return next_job(spark) - before - 1, reads.count("unapplied")

    run(0, customers("c1", "c1"), order("o1", 1, "c1"))
    assert run(1, order("o2", 2, "c1")) == (4, 0)
    run(2, order("o3", 3, "nobody"))
    waiting = hub.store.snapshot().files("unapplied")
    assert len(waiting) == 1
    # It is due after a minute.
    assert run(3, order("o4", 4, "c1")) == (12, 1)
    assert hub.store.snapshot().files("unapplied") == waiting
    assert {row["o"] for row in rows_of(hub.history("order"))} == {1, 2, 4}
    assert {row["message_identifier"] for row in rows_of(hub.waiting())} == {"o3"}
