"""
What a hub forgets, whole scenarios: inside records, by links that made others, and what is refused.

In `make test`: tests/datahub/test_hub_erase.py::test_nothing_of_an_erased_entity_remains,
tests/datahub/test_hub_erase.py::test_who_was_erased_is_refused_when_it_comes_again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import cdckit.datahub.hub as hub_module
import cdckit.datahub.runs
import cdckit.datahub.state
from cdckit.datahub import DependentEntities, Hub, UnmaskableRecords, records, schema
from cdckit.errors import InvalidArgument
from cdckit.ledger import UnfinishedErasure, UnknownEntities
from cdckit.shell import shell
from cdckit.shell.record_places import SharedRecords
from cdckit.store import erasure as store_erasure
from support.dying import Died, dies_at
from support.hub_programs import FILTERS, READERS, draw_program, records_of, rows_of
from support.remains import find_remains
from tools.tiers import seeds

Row = dict[str, Any]
AT = datetime(2024, 1, 1, 9, tzinfo=UTC)
WHO = {"by": "dana", "reason": "asked for by letter"}
ADA = 71_900_417

LINE: Row = {
    "reference": "line",
    "fields": [
        {"reference": "order", "type": "link", "linkEntity": "order", "linkKey": "o", "key": True},
        {"reference": "place", "type": "integer", "key": True},
        {"reference": "text"},
    ],
}
LINES: Row = {
    "reference": "lines",
    "type": "children",
    "childEntity": "line",
    "parentIdentifier": "order",
    "childSequence": "place",
}
CUSTOMER: Row = {
    "reference": "customer",
    "fields": [{"reference": "c", "type": "integer", "key": True}, {"reference": "name"}],
}
ORDER: Row = {
    "reference": "order",
    "fields": [
        {"reference": "o", "type": "integer", "key": True},
        {"reference": "customer", "type": "link", "linkEntity": "customer", "linkKey": "c"},
        LINES,
    ],
}
SHOP: Row = {"reference": "*", "mappings": {"customer": [CUSTOMER], "order": [ORDER], "line": [LINE]}}
TABLE: Row = {
    "reference": "csv",
    "mappings": {"customer": [{**CUSTOMER, "messageReader": "csv"}]},
}
TRACES: dict[str, list[str | int | float]] = {"ada": ["ada lovelace", ADA, "adas gift", 55_019_283]}


def message(guid: str, entity: str, *data: Row, **more: Any) -> Row:
    return {"guid": guid, "entity": entity, "data": list(data), **more}


def histories(hub: Hub) -> dict[str, list[str]]:
    """What a hub says of everything, and of its messages."""
    found = {name: view.history() for name, view in hub.ledgers().items()}
    found |= {"changes of customers": hub.changes("customer"), "messages": hub.messages().drop("data")}
    found |= {"waiting": hub.waiting().drop("value", "key", "headers")}
    return {name: sorted(map(str, rows_of(rows))) for name, rows in found.items()}


def without(found: dict[str, list[str]], *texts: str) -> dict[str, list[str]]:
    return {
        name: [row for row in rows if not any(each in row for each in texts)] for name, rows in found.items()
    }


def test_an_entity_goes_with_what_is_inside_its_records(spark: SparkSession, tmp_path: Path) -> None:
    """And does not come back: received again, sent anew, made anew, tried again, by another schema."""
    hub = Hub(spark, schema(SHOP), tmp_path)
    ada = {"c": ADA, "name": "ada lovelace"}
    sent = [
        message("m1", "customer", {"c": 1, "name": "bob"}, ada, {"c": 3, "name": "cid"}),
        message("m2", "order", {"o": 1, "c": 1}, {"o": 2, "c": 3}, refresh=True),
        message("m3", "order", {"o": 9, "c": 404}),
        message(
            "m4", "order", {"o": 55_019_283, "c": ADA, "lines": [{"text": "adas gift"}, {"text": "more"}]}
        ),
        message("m5", "customer", {**ada, "name": 7, "c": ADA}, {"name": "keyless"}),
    ]
    hub.receive(records(spark, sent, received_at=AT))
    hub.run(now=AT)
    before = histories(hub)
    assert len(rows_of(hub.history("line"))) == 2
    receipt = hub.erase("order", keys=[{"o": 55_019_283}], **WHO)
    assert {part.table: part.erased for part in receipt.parts} == {
        "messages": 1,
        "history.order": 1,
        "history.line": 2,
    }
    assert receipt.is_proven
    hub.erase("customer", keys=[{"c": ADA}], **WHO)
    assert find_remains(tmp_path, TRACES) == {}
    assert histories(hub) == without(before, str(ADA), "55019283", "more", "adas gift")
    # What is sent again was received before; what is new of her is refused, and its neighbours are not.
    again = [sent[0], message("m6", "customer", ada, {"c": 6, "name": "dot"})]
    again += [message("m7", "order", {"o": 55_019_283, "c": 1, "lines": [{"text": "adas gift"}]})]
    came = records(spark, again, received_at=AT + timedelta(hours=1))
    hub.receive(came.withColumn("key", F.lit(str(ADA)).cast("binary")))
    hub.run(now=AT + timedelta(seconds=9))
    assert {row["c"] for row in rows_of(hub.history("customer"))} == {1, 3, 6}
    assert sorted(row["o"] for row in rows_of(hub.history("order"))) == [1, 2]
    refused = hub.ledgers()["customer"].refused().collect()
    assert [(row["record_number"], row["error_code"]) for row in refused] == [(1, "ENTITY_ERASED")]
    # By another schema all messages are read anew.
    other = {**CUSTOMER, "priority": 5}
    changed = Hub(spark, schema({**SHOP, "mappings": {**SHOP["mappings"], "customer": [other]}}), tmp_path)
    changed.run(now=AT + timedelta(seconds=10))
    assert {row["c"] for row in rows_of(changed.history("customer"))} == {1, 3, 6}
    # Older commits have what came since, until the next erasure.
    newest = hub.store.snapshot()
    texts = [str(newest.read(name).toArrow().to_pylist()) for name in newest.names()]
    assert not [each for each in TRACES["ada"] for text in texts if str(each) in text]
    hub.store.check(deep=True)
    assert find_remains(tmp_path, TRACES) != {}
    [last] = [each for each in changed.ledgers()["customer"].receipts() if each.entities]
    once_more = changed.erase("customer", keys=[{"c": ADA}], **WHO)
    assert (once_more.receipt, once_more.files > last.files) == (last.receipt, True)
    assert find_remains(tmp_path, TRACES) == {}
    # With nothing new there is nothing to do.
    assert changed.erase("customer", keys=[{"c": ADA}], **WHO) == once_more


def test_what_links_of_others_make_too_is_refused(spark: SparkSession, tmp_path: Path, no_few: None) -> None:
    """In a large hub, which looks at nothing but what a message touches, it would only be out of sight."""
    makes = {**ORDER["fields"][1], "autocreate": True}
    letter = {"reference": "letter", "fields": [{"reference": "l", "key": True}, makes]}
    hub = Hub(spark, schema({**SHOP, "mappings": {**SHOP["mappings"], "letter": [letter]}}), tmp_path)
    sent = [
        message("m1", "letter", {"l": "first", "c": 77}),
        message("m2", "customer", {"c": 77, "name": "x"}),
    ]
    hub.receive(records(spark, sent, received_at=AT))
    hub.run(now=AT)
    before = histories(hub)
    with pytest.raises(DependentEntities, match="1 of 'customer'"):
        hub.erase("customer", keys=[{"c": 77}], **WHO)
    assert histories(hub) == before


def test_what_is_not_due_waits_on_when_the_erased_come_again(
    spark: SparkSession, tmp_path: Path, no_few: None
) -> None:
    """Its customer has come, so it would be taken for there by who asks for it, and be so nowhere."""
    to_order = {"reference": "order", "type": "link", "linkEntity": "order", "linkKey": "o"}
    letter = {"reference": "letter", "fields": [{"reference": "l", "key": True}, to_order]}
    hub = Hub(spark, schema({**SHOP, "mappings": {**SHOP["mappings"], "letter": [letter]}}), tmp_path)

    def run(second: int, *messages: Row) -> None:
        at = AT + timedelta(seconds=second)
        hub.receive(records(spark, messages, received_at=at))
        hub.run(now=at)

    run(0, message("m1", "customer", {"c": ADA}, {"c": 1}), message("m2", "order", {"o": 5, "c": 2}))
    hub.erase("customer", keys=[{"c": ADA}], **WHO)
    run(10, message("m3", "customer", {"c": 2}))
    run(20, message("m4", "customer", {"c": ADA}), message("m5", "letter", {"l": "first", "o": 5}))
    assert sorted(row["message_identifier"] for row in rows_of(hub.waiting())) == ["m2", "m5"]
    run(90)
    assert rows_of(hub.waiting()) == []
    assert [len(rows_of(hub.history(name))) for name in ("customer", "order", "letter")] == [2, 1, 1]


@pytest.mark.soak
def test_what_cannot_be_taken_apart_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    weak = {"reference": "w", "fields": [{"reference": "a", "key": "one"}, {"reference": "b", "key": "two"}]}
    makes = {**ORDER["fields"][1], "autocreate": True}
    letter = {"reference": "letter", "fields": [{"reference": "l", "key": True}, makes]}
    mappings = {**SHOP["mappings"], "w": [weak], "letter": [letter]}
    hub = Hub(spark, schema({**SHOP, "mappings": mappings}, TABLE), tmp_path)
    sent = [
        {"guid": "m1", "system": "csv", "entity": "customer", "data": f"c,name\n{ADA},ada lovelace\n5,eve\n"},
        message("m2", "letter", {"l": "first", "c": 77}),
        message(
            "m3",
            "customer",
            {"c": 8, "name": "gone", "deleted_indicator": True},
            timestamp="2014-01-01T00:00",
        ),
        message("m4", "customer", {"c": 8, "name": "there"}, timestamp="2013-01-01T00:00"),
    ]
    hub.receive(records(spark, sent, received_at=AT))
    hub.run(now=AT)
    before = histories(hub)
    with pytest.raises(UnmaskableRecords, match="in 1 messages"):
        hub.erase("customer", keys=[{"c": ADA}], **WHO)
    with pytest.raises(DependentEntities, match="1 of 'customer'"):
        hub.erase("customer", keys=[{"c": 77}], **WHO)
    with pytest.raises(UnknownEntities):
        hub.erase("customer", keys=[{"c": 78}], **WHO)
    with pytest.raises(InvalidArgument, match="ledger to be one of customer, order, letter, line"):
        hub.erase("w", keys=[{"a": "x"}], **WHO)
    assert histories(hub) == before
    assert hub.erase("customer", where="name = 'nobody'", **WHO).entities == 0
    assert hub.erase("customer", keep=timedelta(days=365), at=AT, **WHO).entities == 1
    assert {row["c"] for row in rows_of(hub.history("customer"))} == {ADA, 5, 77}
    # A CSV that comes later keeps what was erased, which is told of, and nothing of it is taken.
    late = {"guid": "m5", "system": "csv", "entity": "customer", "data": "c,name\n8,back\n9,new\n"}
    hub.receive(records(spark, [late], received_at=AT))
    hub.run(now=AT)
    assert {row["c"] for row in rows_of(hub.history("customer"))} == {ADA, 5, 77, 9}
    refused = hub.ledgers()["customer"].refused().collect()
    assert [(row["record_number"], row["error_code"]) for row in refused] == [(1, "ENTITY_KEPT")]


def rows_in(data: str | None, context: Any) -> Any:
    return json.loads(data or "")["rows"]


# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def test_what_a_reader_of_ones_own_reads_is_kept_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Where its records stand, the text does not say.  It is told of once, however often it is read."""
    own = {"reference": "own", "mappings": {"customer": [{**CUSTOMER, "messageReader": "rows"}]}}
    hub = Hub(spark, schema(SHOP, own), tmp_path, readers={"rows": rows_in})
    hub.receive([message("m1", "customer", {"c": ADA, "name": "ada lovelace"})], received_at=AT)
    hub.run(now=AT)
    hub.erase("customer", keys=[{"c": ADA}], **WHO)
    sent = {"rows": [{"c": ADA, "name": "ada"}, {"c": 2, "name": "dot"}]}
    hub.receive([{"guid": "m2", "system": "own", "entity": "customer", "data": sent}], received_at=AT)
    hub.run(now=AT)
    hub.rebuild(now=AT)
    hub.reprocess("m2", now=AT)
    assert [row["c"] for row in rows_of(hub.history("customer"))] == [2]
    assert [row["data"] for row in rows_of(hub.messages().where("source_system = 'own'"))] == [
        json.dumps(sent)
    ]
    refused = hub.ledgers()["customer"].refused().collect()
    assert [(row["record_number"], row["error_code"]) for row in refused] == [(1, "ENTITY_KEPT")]


def test_a_link_does_not_make_anew_who_was_erased(spark: SparkSession, tmp_path: Path) -> None:
    """Nor when its message is read again, since another record of it is erased."""
    makes = {**ORDER["fields"][1], "autocreate": True}
    order = {"reference": "order", "fields": [ORDER["fields"][0], makes]}
    shop = {"reference": "*", "mappings": {"customer": [CUSTOMER], "order": [order]}}
    hub = Hub(spark, schema(shop), tmp_path)
    hub.receive([message("m1", "customer", {"c": ADA}, {"c": 2})], received_at=AT)
    hub.run(now=AT)
    hub.erase("customer", keys=[{"c": ADA}], **WHO)
    hub.receive([message("m2", "order", {"o": 1, "c": ADA}, {"o": 2})], received_at=AT)
    hub.run(now=AT)
    assert hub.erase("order", keys=[{"o": 2}], **WHO).is_proven
    assert [row["c"] for row in rows_of(hub.history("customer"))] == [2]
    assert [row["o"] for row in rows_of(hub.history("order"))] == [1]


@pytest.fixture
def no_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
        patched.setattr(cdckit.datahub.state, "_FILE_ROWS", 3)
        yield


@pytest.mark.soak
@seeds(1, soak=2)
def test_entities_of_random_programs_are_forgotten_or_refused(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """A hub that refuses is what it was; in one that does not, nothing of them is left."""
    draw, program = Random(seed), draw_program(seed, messages=40)
    if seed % 2:
        # As in a hub with many statements.
        request.getfixturevalue("no_few")
    hub = Hub(spark, schema(*program.schema), tmp_path, filters=FILTERS, readers=READERS)
    hub.receive(records_of(spark, program.messages))
    hub.run(now=AT + timedelta(days=1))
    names = set(hub.ledgers())

    def all_rows(skip: frozenset[str] = frozenset()) -> dict[str, list[str]]:
        found = {name: rows_of(view.history()) for name, view in hub.ledgers().items()}
        return {
            name: sorted(str(row) for row in rows if row["guid"] not in skip) for name, rows in found.items()
        }

    done = 0
    erasable = sorted(names & hub_module.erasable_kinds(hub.schema).keys())
    for entity in draw.sample(erasable, len(erasable)):
        if done == 2:
            break
        guids = sorted({row["guid"] for row in rows_of(hub.history(entity).select("guid"))})
        for guid in draw.sample(guids, min(len(guids), 1)):
            before = all_rows()
            dies_at(monkeypatch, *draw.choice(STEPS), 0)
            try:
                hub.erase(entity, keys=[guid], **WHO)
            except (Died, UnfinishedErasure):
                pass
            except REFUSED:
                monkeypatch.undo()
                assert all_rows() == before
                continue
            monkeypatch.undo()
            try:
                receipt = hub.erase(entity, keys=[guid], **WHO)
            except REFUSED:
                assert all_rows() == before
                continue
            assert receipt.is_proven
            done += 1
            assert find_remains(tmp_path, {"it": [guid]}) == {}
            after = all_rows()
            for name, rows in after.items():
                assert set(rows) <= set(before[name])
                assert guid not in str(rows)
    assert done
    after = all_rows()
    hub.rebuild(now=AT + timedelta(days=1))
    assert all_rows() == after
    hub.store.check(deep=True)


REFUSED = (DependentEntities, SharedRecords, UnmaskableRecords)
STEPS: list[tuple[Any, str]] = [
    (shell, "erase_within"),
    (shell, "forget_past"),
    (store_erasure, "forget_versions"),
    (store_erasure.Location, "delete"),
    (shell, "finish"),
]


def test_what_only_a_link_of_theirs_made_goes_too(spark: SparkSession, tmp_path: Path) -> None:
    """Here the name of a region that one order alone names; the regions of others stay as they were."""
    region = {"reference": "region", "fields": [{"reference": "r", "key": True}]}
    link = {"type": "link", "linkEntity": "region", "linkKey": "r", "autocreate": True}
    number = {"reference": "o", "type": "integer", "key": True}
    seller = {"reference": "seller", "type": "link", "linkEntity": "person", "linkKey": "p"}
    order = {"reference": "order", "fields": [number, {"reference": "region", **link}, seller]}
    person = {"reference": "person", "fields": [{"reference": "p", "key": True}]}
    mappings = {"order": [order], "region": [region], "person": [person]}
    hub = Hub(spark, schema({"reference": "*", "mappings": mappings}), tmp_path)
    sent = [
        message("m1", "order", {"o": 55, "r": "adas home"}),
        message("m2", "order", {"o": 1, "r": "north", "p": "bob"}),
        message("m3", "person", {"p": "bob"}),
    ]
    hub.receive(records(spark, sent, received_at=AT))
    hub.run(now=AT)
    version = hub.store.snapshot().version
    with pytest.raises(DependentEntities, match="1 of 'order' would not be what they were"):
        hub.erase("person", keys=[{"p": "bob"}], **WHO)
    assert hub.store.snapshot().version == version
    assert hub.erase("order", keys=[{"o": 55}], **WHO).is_proven
    assert find_remains(tmp_path, {"ada": ["adas home"]}) == {}
    assert [row["r"] for row in hub.history("region").collect()] == ["north"]
