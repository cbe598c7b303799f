"""
One rule for gateway and exchange: a naive reader, one message at a time, is what both are measured by.

In `make test`:
tests/rdss/test_exchange_rules.py::test_any_batches_are_read_as_one_message_after_the_other,
tests/rdss/test_exchange_cases.py::test_what_becomes_of_messages_about_objects,
tests/rdss/gateway/test_gateway.py::test_every_message_has_one_outcome_in_the_order_of_the_checks.
"""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from cdckit.model.records import RECORD_SCHEMA
from cdckit.rdss import Exchange, Status
from cdckit.rdss.gateway import Outcome, SqliteRepository
from cdckit.rdss.gateway.repository import StoredMessage
from support.rdss_exchange import exchange as queues
from support.rdss_exchange import gateway
from support.rdss_messages import as_bytes
from support.rdss_worlds import NOON, Naive, as_text, draw_worlds
from tools.tiers import seeds

WORLDS = 40


def frame(spark: SparkSession, values: list[bytes], first: int) -> DataFrame:
    rows = [
        (None, value, "rdss", 0, place, NOON + timedelta(seconds=place), 0, None)
        for place, value in enumerate(values, first)
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA).coalesce(1)


def found_by(exchange: Exchange) -> tuple[list[tuple[str, str | None]], set[tuple[str, str, str | None]]]:
    outcomes = exchange.messages().orderBy("offset").select("outcome", "error_code").collect()
    versions = exchange.history().select("objectUUID", "valid_from_timestamp", "objectTitle").collect()
    return [tuple(row) for row in outcomes], {
        (row[0], row[1].isoformat(timespec="milliseconds") + "Z", row[2]) for row in versions
    }


@seeds(1, soak=3)
def test_gateway_and_exchange_read_any_messages_as_one_who_reads_them_one_by_one(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Parts, whole messages, retries, contradictions, equal ids, messages of our own; and after a rebuild."""
    chance, values, own = draw_worlds(seed, WORLDS)
    mine = [
        as_bytes({**as_text(value), "messageHeader": {**as_text(value)["messageHeader"], "messageId": name}})
        for name, value in own.items()
    ]
    naive = Naive(set(own))
    for each in values:
        naive.read(each)
    assert len({outcome for outcome, _ in naive.outcomes}) == 4
    assert {"GENERR004", "GENERR007"} <= {code for _, code in naive.outcomes}

    with SqliteRepository(":memory:") as repository:
        repository.mark_to_send(
            [StoredMessage(name, "Command", "MetadataCreate", name, 1, 1, None, b"{}") for name in own]
        )
        channels, handled = queues(), list[Any]()
        for each in values:
            channels.input.send(each, key="")
        receiver = gateway(repository, channels, clock=lambda: NOON)
        while receiver.receive(chance.randrange(1, 50)):
            receiver.process(
                lambda turn: handled.append((turn.message.message_id, turn.message.body)), chance.randrange(9)
            )
        receiver.process(lambda turn: handled.append((turn.message.message_id, turn.message.body)))
        counted = Counter({str(outcome): number for outcome, number in repository.counts().items()})
    assert +counted == Counter(outcome for outcome, _ in naive.outcomes)
    expected = [(told["messageHeader"]["messageId"], told["messageBody"]) for _, _, told in naive.wholes]
    assert sorted(map(repr, handled)) == sorted(map(repr, expected))
    assert Outcome.PROCESSED in counted

    exchanges = {name: Exchange(spark, tmp_path / name, types=["ResearchObject"]) for name in ("one", "many")}
    cuts = {
        "one": [0, len(values)],
        "many": [0, *sorted(chance.sample(range(1, len(values)), 2)), len(values)],
    }
    for name, exchange in exchanges.items():
        exchange.note_own(mine, Status.TO_SEND)
        for begin, end in itertools.pairwise(cuts[name]):
            exchange.receive(frame(spark, values[begin:end], begin))
        assert found_by(exchange) == naive.objects(), name
    exchanges["many"].rebuild()
    assert found_by(exchanges["many"]) == naive.objects()
