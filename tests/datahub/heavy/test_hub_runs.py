"""
Runs of a hub that follow one another, each scenario on a hub of its own.

In `make test`: tests/datahub/test_hub_story.py::test_what_waits_is_named_with_its_next_attempt,
tests/datahub/test_hub_story.py::test_a_rebuild_leaves_waiting_what_waits,
tests/datahub/test_hub_story.py::test_another_schema_reads_all_messages_anew,
tests/datahub/test_hub_interpreter.py::test_a_circle_over_two_messages_is_tried_when_either_is_due,
tests/datahub/test_datahub_hub.py::test_what_is_not_due_is_not_tried_though_it_could_be_applied.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cdckit.datahub.runs
from cdckit.datahub import Hub, SchemaMismatch, records, schema
from cdckit.model.records import RECORD_COLUMNS
from support.hub_programs import receipts_of, rows_of, statuses
from support.hub_runs import AT, MINUTE, ORDER, PRODUCT, Row, history, sent, system

PERSON: Row = {
    "reference": "person",
    "fields": [
        {"reference": "emp", "key": "employee"},
        {"reference": "nino", "key": "insurance"},
        {"reference": "name"},
    ],
}


def test_a_key_that_turns_out_to_be_another_ones_moves_the_entity_that_it_was_taken_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A delete by two keys finds one person, until somebody else turns out to have held the second key."""
    messages = [
        {"entity": "person", "guid": "m1", "data": {"emp": "1", "name": "Ann"}},
        {"entity": "person", "guid": "m2", "data": {"emp": "1", "nino": "A", "deleted_indicator": True}},
        {
            "entity": "person",
            "guid": "m3",
            "timestamp": "2024-01-01T08:00",
            "data": {"nino": "A", "name": "Bea"},
        },
    ]
    hub = Hub(spark, schema(system(person=PERSON)), tmp_path / "pieces")
    for minute, message in enumerate(messages[:2]):
        sent(hub, spark, message, minute=minute)
    assert [row["deleted_indicator"] for row in history(hub, "person")] == [False, True]
    sent(hub, spark, messages[2], minute=2)
    alive = [(row["emp"], row["nino"], row["name"]) for row in history(hub, "person")]
    assert sorted(alive, key=str) == [("1", None, "Ann"), (None, "A", "Bea")]
    found = {row["message_identifier"]: row["error_code"] for row in rows_of(hub.log())}
    assert found == {"m1": None, "m2": "KEY_AMBIGUOUS", "m3": None}
    # What is ambiguous waits for nothing.
    assert rows_of(hub.waiting()) == []
    in_pieces = history(hub, "person")
    hub.rebuild(now=AT + 3 * MINUTE)
    assert history(hub, "person") == in_pieces


def order(number: str) -> Row:
    return {"entity": "order", "guid": f"o{number}", "data": {"o": number, "no": number}}


def test_a_message_is_being_processed_while_a_run_has_chosen_it(spark: SparkSession, tmp_path: Path) -> None:
    """Another hub on the folder sees it so: the new messages, those that are due, or those listed."""
    shop = schema(system(order=ORDER, product=PRODUCT))
    hub, reader = Hub(spark, shop, tmp_path), Hub(spark, shop, tmp_path)

    def product(number: str) -> Row:
        return {"entity": "product", "guid": f"p{number}", "data": {"no": number}}

    sent(hub, spark, order("1"), product("2"), minute=0)
    assert statuses(reader) == {"o1": 1, "p2": 10}
    seen: list[Row] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.extend(map(statuses, (reader, Hub(spark, shop, tmp_path), hub)))
        raise RuntimeError("the run dies")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cdckit.datahub.runs, "waiting_statements", watched)
        hub.receive(records(spark, [product("1")], received_at=AT))
        for now in (AT + timedelta(seconds=59), AT + MINUTE):
            with pytest.raises(RuntimeError, match="the run dies"):
                hub.run(now=now)
        with pytest.raises(RuntimeError, match="the run dies"):
            hub.reprocess("p2", now=AT)
    assert seen[:3] == [{"o1": 1, "p1": 4, "p2": 10}] * 3
    assert seen[3:6] == [{"o1": 4, "p1": 4, "p2": 10}] * 3
    assert seen[6:] == [{"o1": 1, "p1": 0, "p2": 4}] * 3
    assert statuses(reader) == statuses(hub) == {"o1": 1, "p1": 0, "p2": 10}
    # What a program has left that was killed means nothing: nobody holds its lock.
    (tmp_path / "run.json").write_text('{"messages": "everything", "now": 0}')
    assert statuses(reader) == {"o1": 1, "p1": 0, "p2": 10}
    # A hub that was opened meanwhile has deleted nothing that the run needs.
    hub.run(now=AT + MINUTE)
    assert statuses(reader) == {"o1": 10, "p1": 10, "p2": 10}
    assert (tmp_path / "run.json").read_text() == ""


def test_two_hubs_on_one_folder_go_on_from_what_the_other_has_done(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One after the other: what one has received or processed, the other does not write over."""
    shop = schema(system(product=PRODUCT))
    one, other = Hub(spark, shop, tmp_path), Hub(spark, shop, tmp_path)

    def product(number: str) -> list[Row]:
        return [{"entity": "product", "guid": f"m{number}", "data": {"no": number}}]

    one.receive(product("1"), received_at=AT)
    other.receive(product("2"), received_at=AT + MINUTE)
    assert [row["status"] for row in receipts_of(other, product("1"), received_at=AT)] == [5]
    one.run(now=AT)
    other.receive(product("3"), received_at=AT + MINUTE)
    other.run(now=AT + MINUTE)
    for hub in (one, other):
        found = {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())}
        assert found == {"m1": 10, "m2": 10, "m3": 10}
        assert {row["no"] for row in history(hub, "product")} == {"1", "2", "3"}


def test_another_schema_reads_all_messages_anew(spark: SparkSession, tmp_path: Path) -> None:
    """A field and a target that the schema gains are filled from the messages that were there."""
    first = system(product={**PRODUCT, "fields": PRODUCT["fields"][:1]})
    hub = Hub(spark, schema(first), tmp_path)
    product = {"entity": "product", "guid": "m1", "data": {"no": "1", "name": "kettle"}}
    order = {"entity": "order", "guid": "m2", "data": {"o": "7", "no": "1"}}
    sent(hub, spark, product, order, minute=0)
    assert [row["no"] for row in history(hub, "product")] == ["1"]
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())}
    assert statuses == {"m1": 10, "m2": 24}

    grown = Hub(spark, schema(system(order=ORDER, product=PRODUCT)), tmp_path)
    for question in (grown.log, grown.rejects, grown.waiting, lambda: grown.changes("product")):
        with pytest.raises(SchemaMismatch, match=r"`run\(\)` reads them anew"):
            question()
    assert grown.messages().count() == 2
    sent(grown, spark, {"entity": "product", "guid": "m3", "data": {"no": "2", "name": "mug"}}, minute=1)
    names = sorted((row["no"], row["name"]) for row in history(grown, "product"))
    assert names == [("1", "kettle"), ("2", "mug")]
    assert [row["o"] for row in history(grown, "order")] == ["7"]
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(grown.messages())}
    assert statuses == {"m1": 10, "m2": 10, "m3": 10}


def test_reprocessing_by_another_schema_counts_attempts_anew(spark: SparkSession, tmp_path: Path) -> None:
    order = {"entity": "order", "guid": "m1", "data": {"o": "7", "no": "1"}}
    hub = Hub(spark, schema(system(order=ORDER, product=PRODUCT)), tmp_path)
    sent(hub, spark, order, minute=0)
    hub.run(now=AT + 2 * MINUTE)
    assert [row["attempts"] for row in rows_of(hub.messages())] == [2]
    named = {**PRODUCT, "fields": PRODUCT["fields"][:1]}
    Hub(spark, schema(system(order=ORDER, product=named)), tmp_path).reprocess("m1", now=AT + 3 * MINUTE)
    assert [row["attempts"] for row in rows_of(hub.messages())] == [1]


def test_what_waited_by_another_schema_is_tried_by_the_new_one(spark: SparkSession, tmp_path: Path) -> None:
    """Though it is not due, and though its mapping stands in another place now."""
    hub = Hub(spark, schema(system(order=ORDER, product=PRODUCT)), tmp_path)
    sent(hub, spark, {"entity": "order", "guid": "m1", "data": {"o": "7", "no": "1"}}, minute=0)
    area = {"reference": "area", "fields": [{"reference": "code", "key": True}]}
    grown = Hub(spark, schema(system(area=area, order=ORDER, product=PRODUCT)), tmp_path)
    grown.receive(records(spark, [{"entity": "product", "guid": "m2", "data": {"no": "1"}}], received_at=AT))
    grown.run(now=AT + timedelta(seconds=10))
    assert [row["o"] for row in history(grown, "order")] == ["7"]
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(grown.messages())}
    assert statuses == {"m1": 10, "m2": 10}


def test_a_rebuild_leaves_waiting_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    """Though what it waits for has come: statuses and tables are what they were, until it is tried."""
    hub = Hub(spark, schema(system(order=ORDER, product=PRODUCT)), tmp_path)
    sent(hub, spark, {"entity": "order", "guid": "m1", "data": {"o": "7", "no": "1"}}, minute=0)
    hub.receive(records(spark, [{"entity": "product", "guid": "m2", "data": {"no": "1"}}], received_at=AT))
    hub.run(now=AT + timedelta(seconds=10))
    before = history(hub, "order"), rows_of(hub.messages().orderBy("message_identifier"))
    assert [row["status"] for row in before[1]] == [1, 10]
    hub.rebuild(now=AT + timedelta(days=1))
    assert (history(hub, "order"), rows_of(hub.messages().orderBy("message_identifier"))) == before
    hub.run(now=AT + timedelta(days=1))
    assert [row["o"] for row in history(hub, "order")] == ["7"]


def test_a_run_of_nothing_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """But a run in which what waits is due tries it, though nothing came."""
    hub = Hub(spark, schema(system(product=PRODUCT, order=ORDER)), tmp_path)
    order = {"entity": "order", "guid": "o", "data": {"o": "7", "no": "1"}}
    sent(hub, spark, order, minute=0)
    [waiting] = rows_of(hub.messages())
    assert (waiting["attempts"], waiting["next_attempt_timestamp"]) == (1, AT + MINUTE)
    before = sorted(map(str, tmp_path.rglob("*")))
    hub.run(now=AT + MINUTE / 2)
    assert sorted(map(str, tmp_path.rglob("*"))) == before
    hub.run(now=AT + MINUTE)
    assert [row["attempts"] for row in rows_of(hub.messages())] == [2]


def test_what_is_waited_for_is_named_by_the_key_that_the_record_gave(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whether a look-up finds nobody, or one who waits too; what a record holds waits for the record."""
    product: Row = {
        "reference": "product",
        "fields": [
            {"reference": "no", "key": "number"},
            {"reference": "ean", "key": "code"},
            {"reference": "maker", "type": "link", "linkEntity": "maker", "linkKey": "m"},
        ],
    }
    line: Row = {
        "reference": "line",
        "fields": [
            {"reference": "order", "type": "link", "linkEntity": "order", "linkKey": "o", "key": True},
            {"reference": "place", "type": "integer", "key": True},
        ],
    }
    order: Row = {
        "reference": "order",
        "fields": [
            {"reference": "o", "key": True},
            {"reference": "product", "type": "link", "linkEntity": "product", "linkKey": "ean"},
            {"reference": "lines", "type": "children", "childEntity": "line", "parentIdentifier": "order",
             "childSequence": "place"},
        ],
    }  # fmt: skip
    maker: Row = {"reference": "maker", "fields": [{"reference": "m", "key": True}]}
    by_key = {"reference": "product", "type": "link", "linkEntity": "product", "linkKey": "no"}
    gift: Row = {"reference": "gift", "fields": [{"reference": "g", "key": True}, by_key]}
    found_by = {**by_key, "reference": "other", "linkKey": "ean"}
    gift["fields"].append(found_by)
    shop = system(maker=maker, product=product, order=order, line=line, gift=gift)
    hub = Hub(spark, schema(shop), tmp_path)
    documents: list[Row] = [
        {"entity": "product", "guid": "p", "data": {"no": "1", "ean": "5", "m": "x"}},
        {"entity": "order", "guid": "found", "data": {"o": "7", "ean": "5", "lines": [{}]}},
        {"entity": "order", "guid": "not found", "data": {"o": "8", "ean": "9", "lines": [{}]}},
        # Both mean the product that has no maker.
        {"entity": "gift", "guid": "two", "data": [{"g": "1", "no": "1"}, {"g": "2", "ean": "5"}]},
    ]
    sent(hub, spark, *documents, minute=0)
    found = {(row["message_identifier"], row["record"]): row["waiting_for"] for row in rows_of(hub.waiting())}
    assert found == {
        ("p", "1"): "maker m = x",
        ("found", "1"): "product ean = 5",
        ("found", "1/lines/1"): "order o = 7",
        ("not found", "1"): "product ean = 9",
        ("not found", "1/lines/1"): "order o = 8",
        ("two", "1"): "product no = 1",
        ("two", "2"): "product ean = 5",
    }
    sent(hub, spark, {"entity": "maker", "guid": "m", "data": {"m": "x"}}, minute=1)
    assert {row["waiting_for"] for row in rows_of(hub.waiting())} == {"product ean = 9", "order o = 8"}


def test_a_hub_says_who_waits_for_what_and_until_when(spark: SparkSession, tmp_path: Path) -> None:
    """One row per record; what was given up waits no longer, and is a reject until it has a new chance."""
    hub = Hub(spark, schema(system(product=PRODUCT, order=ORDER)), tmp_path)
    assert rows_of(hub.waiting()) == []
    orders = [{"o": "7", "no": "1"}, {"o": "8", "no": None}]
    sent(hub, spark, {"entity": "order", "guid": "o", "data": orders}, minute=0)
    waits = {
        "message_identifier": "o", "record": "1", "entity": "order", "attempts": 1,
        "next_attempt_timestamp": AT + MINUTE, "given_up_timestamp": AT + timedelta(days=40),
        "waiting_since": AT, "waiting_for": "product no = 1",
    }  # fmt: skip
    assert rows_of(hub.waiting().drop(*RECORD_COLUMNS)) == [waits]
    hub.run(now=AT + timedelta(days=40))
    assert rows_of(hub.waiting()) == []
    assert [(row["record"], row["error_code"]) for row in rows_of(hub.rejects())] == [("1", "LINK_MISSING")]
    hub.reprocess("o", now=AT + MINUTE)
    assert rows_of(hub.rejects()) == []
    assert hub.expire(AT + timedelta(hours=1), timedelta(hours=1)) == 0
    assert hub.expire(AT + timedelta(hours=2), timedelta(hours=1)) == 1
    assert rows_of(hub.waiting()) == []
    assert [row["status"] for row in rows_of(hub.messages())] == [26]
    sent(hub, spark, {"entity": "product", "guid": "p", "data": {"no": "1", "name": "kettle"}}, minute=200)
    assert [row["o"] for row in history(hub, "order")] == ["8"]


def test_what_is_not_due_is_not_tried_and_makes_only_what_it_had_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a message that waits one record is applied, and its product there; the other makes none, still."""
    monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    maker = {"reference": "maker", "fields": [{"reference": "m", "key": True}]}
    by = {"reference": "maker", "type": "link", "linkEntity": "maker", "linkKey": "m"}
    product = {**PRODUCT, "fields": [*PRODUCT["fields"], by]}
    hub = Hub(spark, schema(system(order=ORDER, product=product, maker=maker)), tmp_path)

    def waiting() -> set[tuple[str, str]]:
        return {(row["message_identifier"], row["waiting_for"]) for row in rows_of(hub.waiting())}

    products = [{"no": "1", "m": "x"}, {"no": "2"}]
    sent(hub, spark, {"entity": "product", "guid": "p", "data": products}, minute=0)
    assert statuses(hub) == {"p": 1}
    hub.receive(records(spark, [order("1"), order("2")], received_at=AT))
    hub.run(now=AT + timedelta(seconds=1))
    assert statuses(hub) == {"p": 1, "o1": 1, "o2": 10}
    assert waiting() == {("p", "maker m = x"), ("o1", "product no = 1")}
    assert [row["no"] for row in history(hub, "product")] == ["2"]
    # What makes them apply comes while nothing is due, so that they wait on.
    hub.receive(records(spark, [{"entity": "maker", "guid": "m", "data": {"m": "x"}}], received_at=AT))
    hub.run(now=AT + timedelta(seconds=2))
    assert statuses(hub) == {"p": 1, "o1": 1, "o2": 10, "m": 10}
    assert waiting() == {("p", "maker m = x"), ("o1", "product no = 1")}
    # An order that has just begun to wait is not due when the others are.
    hub.receive(records(spark, [order("9")], received_at=AT))
    hub.run(now=AT + timedelta(seconds=59))
    hub.run(now=AT + timedelta(seconds=62))
    assert statuses(hub) == {"p": 10, "o1": 10, "o2": 10, "m": 10, "o9": 1}
    assert waiting() == {("o9", "product no = 9")}
    assert sorted(row["no"] for row in history(hub, "product")) == ["1", "2"]
    assert sorted(row["o"] for row in history(hub, "order")) == ["1", "2"]


class Things:
    """A hub of things, each of which may link to another one."""

    def __init__(self, spark: SparkSession, folder: Path, *more_fields: Row) -> None:
        other = {"reference": "other", "type": "link", "linkEntity": "thing", "linkKey": "id"}
        fields = [{"reference": "id", "key": "id"}, {**other, "sourceLinkKey": "other_id"}, *more_fields]
        self.hub = Hub(spark, schema(system(thing={"reference": "thing", "fields": fields})), folder)

    def run(self, seconds: int, name: str | None = None, *others: str | None) -> dict[str, int]:
        """Things of one message, each with the other that it links to; then the statuses."""
        now = AT + timedelta(seconds=seconds)
        data = [{"id": f"{name}{at}", "other_id": other} for at, other in enumerate(others)]
        self.hub.receive([{"guid": name, "entity": "thing", "data": data}] if name else [], received_at=now)
        self.hub.run(now=now)
        return {row["message_identifier"]: row["status"] for row in rows_of(self.hub.messages())}


@pytest.mark.parametrize("keeps", ["small", "large", "looked up"])
def test_a_circle_over_two_messages_is_tried_when_either_is_due(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: str
) -> None:
    """All of the message that was not due is tried, and what of it waits on is due later."""
    if keeps != "small":
        monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    code = {"reference": "code", "key": "code"}
    things = Things(spark, tmp_path, *([code] if keeps == "looked up" else []))
    assert things.run(0, "a", "b0", "nobody") == {"a": 1}
    assert things.run(10, "b", "a0") == {"a": 1, "b": 10}
    assert sorted(row["id"] for row in history(things.hub, "thing")) == ["a0", "b0"]
    [waiting] = rows_of(things.hub.waiting())
    next_attempt = AT + timedelta(seconds=130)
    assert (waiting["record"], waiting["waiting_for"]) == ("2", "thing id = nobody")
    assert (waiting["attempts"], waiting["next_attempt_timestamp"]) == (2, next_attempt)


def test_a_circle_is_not_tried_with_what_was_given_up_nor_what_stands_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild tries nothing, and leaves all as it is."""
    monkeypatch.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
    things = Things(spark, tmp_path)
    # Three in a circle, of which two have come.
    assert [things.run(0, "c", "d0")["c"], things.run(10, "d", "e0")["d"]] == [1, 1]
    assert things.run(20, "e", "c0") == {"c": 10, "d": 10, "e": 10}
    # What stands alone waits for its time, and so does what comes to wait for it.
    found = [things.run(30, "f", "g0")["f"], things.run(35, "g", None)["f"], things.run(40, "h", "f0")["f"]]
    assert found == [1, 1, 1]
    kept = history(things.hub, "thing"), rows_of(things.hub.messages().orderBy("message_identifier"))
    things.hub.rebuild(now=AT + timedelta(seconds=45))
    assert (
        history(things.hub, "thing"),
        rows_of(things.hub.messages().orderBy("message_identifier")),
    ) == kept
    assert things.run(100, "i", "j0") == dict.fromkeys("cdefgh", 10) | {"i": 1}
    assert things.hub.expire(AT + timedelta(hours=1), timedelta(minutes=1)) == 1
    assert things.run(3600, "j", "i0") == dict.fromkeys("cdefgh", 10) | {"i": 26, "j": 1}
