"""
`Relay.erase`: what events said goes, wherever they are; the windows of all streams stay what they were.

In `make test`:
tests/test_doors.py::test_who_was_erased_is_gone_and_does_not_come_again.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit import databus
from cdckit.databus import Relay
from cdckit.ledger import UnfinishedErasure
from cdckit.shell import shell
from cdckit.store import erasure as store_erasure
from support import relays
from support.databus_streams import drawn_words, record_of
from support.dying import Died, dies_at
from support.relays import SCHEMA, sent_of
from support.remains import find_remains
from tools.tiers import seeds

WHO = {"by": "dana", "reason": "asked for by letter"}
ADA = 7_190_041_700


def frame(spark: SparkSession, words: list[str], start: int = 0) -> DataFrame:
    return relays.frame(spark, sent_of(" ".join(words), start))


def of_others(relay: Relay, subjects: set[int]) -> dict[str, list[str]]:
    """What the relay says of everybody else, of its windows and of its streams."""
    theirs = F.coalesce(F.col("long_key").isin(*subjects), F.lit(False)) | (F.col("opcode") == "ERASED")
    answers = {
        "events": relay.events().where(~F.coalesce(theirs, F.lit(False))),
        "consistent": relay.consistent_events().where(~F.col("long_key").isin(*subjects)),
        "windows": relay.contracts()["windows"][0],  # type: ignore[index]
        "streams": relay.streams(),
        **{
            name: view.history().where(~F.col("id").isin(*subjects)) for name, view in relay.ledgers().items()
        },
    }
    return {name: sorted(str(row) for row in rows.collect()) for name, rows in answers.items()}


def test_a_key_goes_from_windows_that_passed_failed_or_are_open(spark: SparkSession, tmp_path: Path) -> None:
    """And does not come back: sent again, sent anew, made anew; consumers read the others of its windows."""
    relay = relays.relay_of(spark, tmp_path)
    key, amount = ADA, 8_817_263_545
    first = [
        *(f"a1:{key}={amount}", "b1:2=-5", ".1"),
        *(f"a2:{key}={amount}", "a2:2=5", "<2", f"a2:{key}={amount}", "a2:2=5", ".2"),
        *(f"a3:{key}", "a3:3=1", "?", ".3", f"a3:{key}", "a3:3=1", ".3"),
        *(f"a4:{key}={amount}", "b4:2=7"),
    ]
    relay.receive(frame(spark, first))
    subject: dict[str, list[str | int | float]] = {"ada": [key, amount]}
    before = of_others(relay, {key})
    receipt = relay.erase("a", keys=[{"id": key}], **WHO)
    assert find_remains(tmp_path, subject) == {}
    assert of_others(relay, {key}) == before
    assert receipt.is_proven
    assert {part.table: part.erased for part in receipt.parts if part.bucket is None} == {
        "events": 5,
        "waiting": 1,
    }
    # The same again changes nothing; what is new of her is refused, also where its window waits.
    assert relay.receive(frame(spark, first)).records == 0
    relay.receive(
        frame(spark, [".4", f"a5:{key}={amount}", "b5:2=9", ".5", f"a6:{key}={amount}"], len(first))
    )
    relay.rebuild()
    assert find_remains(tmp_path, subject) == {}
    view = relay.ledgers()["a"]
    assert {row["error_code"] for row in view.refused().collect()} == {"ENTITY_ERASED"}
    assert [
        row["amount"] for row in relay.ledgers()["b"].history().orderBy("valid_from_timestamp").collect()
    ] == [*(-5, 7, 9)]
    windows = relay.stream([relays.SOURCES["a"], relays.SOURCES["b"]]).windows()
    assert [window.table().num_rows for window in windows] == [1, 1, 1, 1, 1]
    # What was committed since is forgotten once more, by the same receipt.
    again = relay.erase("a", keys=[{"id": key}], **WHO)
    assert (again.receipt, again.entities, again.parts) == (receipt.receipt, 1, receipt.parts)
    relay.store.check(deep=True)


def test_an_event_that_a_rebuild_can_read_is_forgotten_with_its_entity(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its schema was lacking while its entity was erased: the receipt named it as a reject."""
    newer = SCHEMA.replace('"R"', '"Newer"')
    older, newest, both = (databus.Source(97, "a", texts) for texts in ([SCHEMA], [newer], [SCHEMA, newer]))
    words = ((f"a1:{ADA}=5", older), (".1", older), (f"a2:{ADA}=6", newest), ("a2:2=7", older), (".2", older))
    sent = [(record_of(word, at, {"a": source}), 0, at) for at, (word, source) in enumerate(words)]
    relay = Relay(spark, tmp_path, [older], keys={"a": ["id"]})
    relay.receive(relays.frame(spark, sent))
    assert [row["error_code"] for row in relay.rejects().collect()] == ["SCHEMA_UNKNOWN"]
    relay.erase("a", keys=[{"id": ADA}], **WHO)
    relay = Relay(spark, tmp_path, [both], keys={"a": ["id"]})
    relay.rebuild()
    events = relay.events().where("kind = 'data'").orderBy("offset").collect()
    kept = [(row["offset"], row["opcode"], row["long_key"], row["value"] is None) for row in events]
    assert kept == [(0, "ERASED", None, True), (2, "ERASED", None, True), (3, "UPSERT", 2, False)]
    assert [row["id"] for row in relay.ledgers()["a"].history().collect()] == [2]
    assert [row["offset"] for row in relay.ledgers()["a"].refused().collect()] == [2]
    assert relay.rejects().isEmpty()


@pytest.mark.soak
@seeds(1, soak=3)
def test_keys_of_random_streams_are_forgotten_whenever_it_is_stopped(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams in which everything goes wrong, in several batches; it dies at a step, and is called again."""
    draw = Random(seed)
    words: list[str] = drawn_words(draw, 400, first_key=ADA)
    ada_words: list[str] = [word.replace(f":{ADA + 2}", ":5").replace(f":{ADA + 1}", ":6") for word in words]
    relay = relays.relay_of(spark, tmp_path)
    cuts = sorted({0, *draw.choices(range(len(ada_words)), k=3), len(ada_words)})
    for start, stop in pairwise(cuts):
        relay.receive(frame(spark, ada_words[start:stop], start))
    before = of_others(relay, {ADA})
    steps: list[tuple[Any, str]] = [
        (shell, "erase_within"),
        (shell, "forget_past"),
        (store_erasure, "forget_versions"),
        (store_erasure.Location, "delete"),
        (shell, "finish"),
    ]
    where, what = draw.choice(steps)
    dies_at(monkeypatch, where, what, 0)
    with pytest.raises((Died, UnfinishedErasure)):
        relay.erase("a", keys=[{"id": ADA}], **WHO)
    monkeypatch.undo()
    relay.erase("a", keys=[{"id": ADA}], **WHO)
    relay.erase("b", keys=[{"id": ADA}], **WHO)
    assert find_remains(tmp_path, {"ada": [ADA]}) == {}
    assert of_others(relay, {ADA}) == before
    relay.receive(frame(spark, ada_words))
    relay.rebuild()
    assert find_remains(tmp_path, {"ada": [ADA]}) == {}
    assert of_others(relay, {ADA}) == before
