"""The hub: messages tried again and given up, who is merged, what a run costs, and a hub without anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import cdckit.datahub.runs
import cdckit.datahub.state
from cdckit.datahub import Backoff, Hub, records, schema
from cdckit.datahub.messages import HubFault, Status
from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.merging.merge import plan_versions
from cdckit.model.records import RECORD_SCHEMA
from cdckit.parts.workers import WorkerPlan
from support.hub_programs import receipts_of, rows_of
from support.hub_shop import AT, ORDER, SHOP, Row, after, customers, order

RETRY = Backoff(first=timedelta(seconds=60), factor=3, give_up_after=timedelta(days=1))


# Retry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"first": timedelta(0)},
        {"first": timedelta(seconds=-1)},
        {"factor": 0.99},
        {"factor": float("nan")},
        {"factor": float("inf")},
        {"give_up_after": timedelta(0)},
    ],
)
def test_delays_are_above_zero_and_do_not_shrink(arguments: Row) -> None:
    with pytest.raises(InvalidArgument, match="delays above zero that do not shrink"):
        Backoff(**arguments)


def test_delays_grow_up_to_the_greatest_age(spark: SparkSession) -> None:
    attempts = [1, 2, 3, 4, 100, 100_000]
    frame = spark.createDataFrame([(each,) for each in attempts], "attempts int")
    now, delays = "timestamp_micros(1704099600000000)", {}
    for growth in (1.0, 2.0, 1.5):
        retry = Backoff(factor=growth, give_up_after=timedelta(hours=1))
        rows = rows_of(frame.select("attempts", F.expr(retry.next_attempt(now, "attempts")).alias("due")))
        delays[growth] = [
            row["due"] - AT for row in sorted(rows, key=lambda row: attempts.index(row["attempts"]))
        ]
    hour = timedelta(hours=1)
    assert delays[1.0] == [timedelta(seconds=60)] * 6
    assert delays[2.0] == [timedelta(seconds=each) for each in (60, 120, 240, 480)] + [hour, hour]
    assert delays[1.5] == [timedelta(seconds=each) for each in (60, 90, 135, 202.5)] + [hour, hour]


class Played:
    """A hub at which things happen, and what was seen after each."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.messages: dict[str, dict[str, Row]] = {}
        self.orders: dict[str, list[int]] = {}
        self.merged: dict[str, dict[str, int]] = {}
        self.log: list[Row] = []
        """After the first of all."""
        self._now: dict[str, int] = {}

    def merge(self, changes: DataFrame, *, entity: str, keys: Any, few: bool) -> WorkerPlan:
        """The merge of the hub, which is told how many changes it is given."""
        assert entity not in self._now
        # They are found once: what is counted is what is merged.
        found = changes.localCheckpoint()
        self._now[entity] = found.count()
        return plan_versions(found, entity=entity, keys=keys, few=few)

    def step(self, name: str, happens: Callable[..., None], *arguments: Any, now: datetime) -> None:
        self._now = {}
        happens(*arguments, now=now)
        self.merged[name] = self._now
        self.messages[name] = {row["message_identifier"]: row for row in rows_of(self.hub.messages())}
        self.orders[name] = sorted(row["o"] for row in rows_of(self.hub.history("order")))


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """
    Three orders wait: for a customer who comes in time, for one who comes too late, and for nobody.

    The delays are 60, 180 and 540 seconds; a message is given up after a day.
    """
    hub = Hub(spark, schema(SHOP), tmp_path_factory.mktemp("retry"), backoff=RETRY)
    found = Played(hub)
    first = [customers("known", "c0", "c00"), order("at once", 0, "c0")]
    waiting = [order("in time", 1, "c1"), order("too late", 2, "c2"), order("never", 3, "c3")]
    with pytest.MonkeyPatch.context() as patched:
        # However small, it is kept up as a large hub is.
        patched.setattr(cdckit.datahub.runs, "FEW_STATEMENTS", 0)
        patched.setattr(cdckit.datahub.state, "plan_versions", found.merge)
        hub.receive(records(spark, first + waiting, received_at=AT))
        found.step("first", hub.run, now=AT)
        found.log = rows_of(hub.log())
        found.step("due", hub.run, now=after(seconds=60))
        hub.receive(records(spark, [customers("c1", "c1")], received_at=after(seconds=100)))
        found.step("not due", hub.run, now=after(seconds=100))
        found.step("due again", hub.run, now=after(seconds=240))
        found.step("old", hub.run, now=after(days=1, seconds=1))
        hub.receive(records(spark, [customers("c2", "c2", "c2")], received_at=after(days=2)))
        found.step("too late", hub.run, now=after(days=2))
        found.step("again", hub.reprocess, ["too late", "never"], now=after(days=3))
    return found


def state(played: Played, step: str, message: str) -> tuple[int, int, timedelta | None]:
    row = played.messages[step][message]
    due = row["next_attempt_timestamp"]
    return row["status"], row["attempts"], None if due is None else due - AT


def test_what_is_applied_at_once_is_never_tried_again(played: Played) -> None:
    for step in played.messages:
        assert state(played, step, "known") == state(played, step, "at once") == (10, 1, None)


def test_what_waits_is_tried_again_when_it_is_due_after_growing_delays(played: Played) -> None:
    assert state(played, "first", "in time") == (1, 1, timedelta(seconds=60))
    assert state(played, "due", "in time") == (1, 2, timedelta(seconds=240))
    assert state(played, "due again", "never") == (1, 3, timedelta(seconds=780))


def test_what_is_not_due_is_not_tried_though_it_could_be_applied(played: Played) -> None:
    assert state(played, "not due", "in time") == (1, 2, timedelta(seconds=240))
    assert played.orders["not due"] == [0]
    assert state(played, "due again", "in time") == (10, 3, None)
    assert played.orders["due again"] == [0, 1]


def test_what_is_older_than_the_greatest_age_is_given_up(played: Played) -> None:
    assert state(played, "old", "too late")[::2] == state(played, "old", "never")[::2] == (26, None)
    assert state(played, "too late", "too late")[::2] == (26, None)
    assert played.orders["too late"] == [0, 1]


def test_what_waits_says_for_what_by_its_key(played: Played) -> None:
    """A guid would say nothing to whoever has to send what is missing."""
    text = "The record waits for what is not there: customer c = c3"
    for step in ("first", "due", "old", "too late"):
        assert played.messages[step]["never"]["error_message"] == f"record 1: LINK_MISSING: {text}"
    (row,) = [each for each in played.log if each["message_identifier"] == "never"]
    assert (row["record"], row["outcome"], row["error_code"]) == ("1", "waiting", "LINK_MISSING")
    assert row["error_description"] == text


def test_reprocessing_gives_what_was_given_up_a_new_chance(played: Played) -> None:
    assert state(played, "again", "too late") == (10, 1, None)
    assert played.orders["again"] == [0, 1, 2]
    # Without its customer it waits as if it had just come.
    assert state(played, "again", "never") == (1, 1, timedelta(days=3, seconds=60))


def test_only_the_entities_that_are_touched_are_merged_again(played: Played) -> None:
    """By the number of changes that the merge is given: all that were ever said of those entities."""
    assert played.merged["first"] == {"customer": 2, "order": 1}
    assert played.merged["due"] == {}
    assert played.merged["not due"] == {"customer": 1}
    assert played.merged["due again"] == {"order": 1}
    assert played.merged["old"] == {}
    assert played.merged["too late"] == {"customer": 2}
    assert played.merged["again"]["order"] == 3


def test_a_message_that_is_not_there_cannot_be_reprocessed(spark: SparkSession, played: Played) -> None:
    before = rows_of(played.hub.messages())
    with pytest.raises(InvalidArgument) as caught:
        played.hub.reprocess(["known", "nobody"], now=after(days=4))
    assert (caught.value.function, caught.value.found) == ("reprocess", "nobody")
    assert f"status {int(Status.MESSAGE_NOT_FOUND)}" in str(caught.value)
    with pytest.raises(InvalidArgument, match="'nobody'"):
        played.hub.reprocess("nobody", now=after(days=4))
    assert sorted(map(repr, rows_of(played.hub.messages()))) == sorted(map(repr, before))


def test_a_run_needs_an_instant_with_its_zone(played: Played) -> None:
    naive = datetime(2024, 1, 1)
    with pytest.raises(InvalidArgument, match=r"run\(\) needs now to be an aware datetime"):
        played.hub.run(now=naive)
    with pytest.raises(InvalidArgument, match=r"rebuild\(\) needs now to be an aware datetime"):
        played.hub.rebuild(now=naive)
    with pytest.raises(InvalidArgument, match=r"reprocess\(\) needs now to be an aware datetime"):
        played.hub.reprocess("known", now=naive)


# Nothing -------------------------------------------------------------------------------------------------

LETTER: Row = {"reference": "letter", "export": True, "fields": [{"reference": "text"}]}
NOBODYS: Row = {
    "reference": "other",
    "mappings": {
        "order": [
            {
                "reference": "other order",
                "fields": [
                    ORDER["fields"][0],
                    {**ORDER["fields"][1], "autocreate": True},
                ],
            }
        ]
    },
}


@pytest.fixture(scope="module")
def empty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    mappings = {**SHOP["mappings"], "letter": [LETTER]}
    return Hub(spark, schema({"reference": "*", "mappings": mappings}, NOBODYS), tmp_path_factory.mktemp("e"))


QUESTIONS: dict[str, Callable[[Hub], DataFrame]] = {
    "messages": Hub.messages,
    "log": Hub.log,
    "rejects": Hub.rejects,
    "history": lambda hub: hub.history("order"),
    "changes": lambda hub: hub.changes("order"),
    "exports": lambda hub: hub.exports("letter"),
    "query": lambda hub: hub.query({"entity": "order", "where": {"o": 1}}),
}


@pytest.fixture(scope="module")
def shapes(empty: Hub) -> dict[str, str]:
    """The columns of each answer of a hub that has received nothing."""
    found = {}
    for name, question in QUESTIONS.items():
        table = question(empty)
        assert table.collect() == []
        found[name] = table.schema.simpleString()
    return found


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_hub_without_messages_answers_with_no_rows(shapes: dict[str, str], name: str) -> None:
    assert shapes[name].startswith("struct<")


def test_a_target_that_is_not_there_cannot_be_asked_about(empty: Hub) -> None:
    known = r"needs entity to be one of customer, order, other order; it is 'nobody'"
    with pytest.raises(InvalidArgument, match=rf"history\(\) {known}"):
        empty.history("nobody")
    with pytest.raises(InvalidArgument, match=rf"changes\(\) {known}"):
        empty.changes("nobody")
    with pytest.raises(InvalidArgument, match=r"query\(\) needs question.*'nobody'"):
        empty.query({"entity": "nobody"})
    with pytest.raises(InvalidArgument, match=r"query\(\) needs now to be an aware datetime"):
        empty.query({"entity": "order"}, now=datetime(2024, 1, 1))


def test_a_run_without_messages_does_nothing(empty: Hub, shapes: dict[str, str]) -> None:
    empty.run(now=AT)
    for name, question in QUESTIONS.items():
        table = question(empty)
        assert table.collect() == []
        assert table.schema.simpleString() == shapes[name]


def test_a_first_message_that_the_schema_has_no_place_for_is_processed(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(spark, schema(SHOP), tmp_path)
    hub.receive(
        records(spark, [{"guid": "m", "entity": "x"}, order("n", 1, "c") | {"system": "x"}], received_at=AT)
    )
    hub.run(now=AT)
    assert {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())} == {"m": 24, "n": 23}


@pytest.fixture(scope="module")
def refreshed(spark: SparkSession, empty: Hub, shapes: dict[str, str]) -> Hub:
    documents = [
        {"guid": "r1", "entity": "order", "refresh": True, "data": []},
        {"guid": "r2", "entity": "letter", "refresh": True, "data": []},
        order("made", 1, "c1") | {"system": "other"},
    ]
    empty.receive(records(spark, [*documents, {"data": []}], received_at=AT))
    empty.run(now=AT)
    return empty


def test_a_refresh_over_an_empty_entity_is_a_success_that_does_nothing(refreshed: Hub) -> None:
    statuses = {row["message_identifier"]: row["status"] for row in rows_of(refreshed.messages())}
    assert (statuses["r1"], statuses["r2"]) == (10, 10)
    assert refreshed.history("order").collect() == []
    assert refreshed.changes("order").collect() == []
    assert refreshed.exports("letter").collect() == []
    assert [row for row in rows_of(refreshed.log()) if row["message_identifier"] in ("r1", "r2")] == []


def test_of_one_entity_a_ledger_shows_the_delete_that_names_no_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(spark, schema(SHOP), tmp_path)
    for day, names in enumerate((["c1", "c2"], ["c2"])):
        hub.receive([customers(f"m{day}", *names) | {"refresh": True}], received_at=after(days=day))
        hub.run(now=after(days=day))
    ledger = hub.ledgers()["customer"]
    changes = ledger.changes({"c": "c1"})
    assert sorted(row["operation"] for row in changes.collect()) == ["absent", "upsert"]
    assert [row["deleted_indicator"] for row in ledger.history({"c": "c1"}).collect()] == [False, True]
    (guid,) = {row["guid"] for row in ledger.history({"c": "c1"}).collect()}
    assert ledger.changes(guid).count() == ledger.history(guid).count() == 2
    for wrong in ({}, {"d": "c1"}, "c1"):
        with pytest.raises(InvalidArgument, match="key to be a guid, or values of c; it is"):
            ledger.changes(wrong)


def test_an_invalid_message_is_a_reject_and_no_message(refreshed: Hub) -> None:
    (row,) = rows_of(refreshed.rejects())
    assert (row["value"], row["error_code"]) == (b'{"data": []}', "MESSAGE_INVALID")
    assert (row["error_description"], row["message_identifier"]) == (
        "The record holds no message: entity is missing",
        None,
    )
    assert len(rows_of(refreshed.messages())) == 3


def test_a_link_makes_what_is_missing_though_another_system_maps_it(refreshed: Hub) -> None:
    """The one who links says that it is there; a link to nothing would be left otherwise."""
    (made,) = rows_of(refreshed.history("other order"))
    found = rows_of(refreshed.history("customer"))
    assert [(row["guid"], row["c"], row["name"]) for row in found] == [(made["customer"], "c1", None)]


def test_tables_have_the_same_columns_with_rows_as_without(refreshed: Hub, shapes: dict[str, str]) -> None:
    found = {name: question(refreshed).schema.simpleString() for name, question in QUESTIONS.items()}
    assert found == shapes


def test_one_error_of_a_record_with_two_mappings_is_one_reject(spark: SparkSession, tmp_path: Path) -> None:
    fields = [{"reference": "k", "key": True}, {"reference": "n", "type": "integer"}]
    mappings = [{"reference": "a", "fields": fields}, {"reference": "b", "fields": fields}]
    hub = Hub(spark, schema({"reference": "*", "mappings": {"e": mappings}}), tmp_path)
    hub.receive(
        records(spark, [{"entity": "e", "guid": "m", "data": [{"k": "1", "n": "x"}]}], received_at=AT)
    )
    hub.run(now=AT)
    assert sorted(row["entity"] for row in rows_of(hub.log())) == ["a", "b"]
    [reject] = rows_of(hub.rejects())
    assert (reject["record"], reject["error_code"]) == ("1", "VALUE_INVALID")
    assert (reject["source_system"], reject["source_entity"], reject["entities"]) == ("*", "e", ["a", "b"])
    assert reject["record_text"] == '{"k": "1", "n": "x"}'


def test_rejects_are_the_records_as_they_came_and_can_be_fed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A system and a field of a type that the first schema has not; and a message that is corrected."""
    headers = [("trace", b"\xff\x00"), ("trace", b""), ("empty", None)]
    values = [
        b' {"guid": "m0", "entity": "e", "data": [{"k": "0"}, {"k": "1", "n": 1.10}], "user": "ann"}\n',
        b'{"guid": "m1", "system": "new", "entity": "e", "data": {"k": "2", "n": 2}}',
        b'{"guid": "m2", "entity": "e", "dta": {"k": "3"}}',
    ]
    rows = [(b"\xfe", value, "t", 3, offset, AT, 1, headers) for offset, value in enumerate(values)]
    came = spark.createDataFrame(rows, RECORD_SCHEMA)
    number = {"reference": "n", "type": "date"}
    e = {"reference": "e", "fields": [{"reference": "k", "key": True}, number]}
    hub = Hub(spark, schema({"reference": "*", "mappings": {"e": [e]}}), tmp_path / "first")
    hub.receive(came)
    hub.run(now=AT)
    found = hub.rejects()
    assert sorted((row["offset"], row["record"], row["error_code"]) for row in rows_of(found)) == [
        (0, "2", "VALUE_INVALID"),
        (1, None, "SYSTEM_NOT_FOUND"),
        (2, None, "MESSAGE_INVALID"),
    ]
    assert sorted(map(repr, rows_of(found.select(*came.columns)))) == sorted(map(repr, rows_of(came)))

    number["type"] = "text"
    cured = schema({"reference": "*", "mappings": {"e": [e]}}, {"reference": "new", "mappings": {"e": [e]}})
    corrected = F.encode(F.replace(F.decode("value", "utf-8"), F.lit("dta"), F.lit("data")), "utf-8")
    other = Hub(spark, cured, tmp_path / "second")
    other.receive(found.withColumn("value", corrected))
    other.run(now=AT)
    assert {row["message_identifier"]: row["status"] for row in rows_of(other.messages())} == dict.fromkeys(
        ("m0", "m1", "m2"), 10
    )
    assert sorted((row["k"], row["n"]) for row in rows_of(other.history("e"))) == [
        ("0", None), ("1", "1.10"), ("2", "2"), ("3", None),
    ]  # fmt: skip
    assert other.rejects().count() == 0


@pytest.mark.parametrize("problem", list(HubFault))
def test_every_problem_has_a_sentence_of_its_own(problem: HubFault) -> None:
    assert problem.sentence.endswith(".")
    assert [each.sentence for each in HubFault].count(problem.sentence) == 1
    assert problem.describe() == problem.sentence
    assert problem.describe("so") == problem.sentence[:-1] + ": so"


def test_a_message_that_names_no_system_may_have_none(spark: SparkSession, tmp_path: Path) -> None:
    e = {"reference": "e", "fields": [{"reference": "k", "key": True}]}
    hub = Hub(spark, schema({"reference": "shop", "mappings": {"e": [e]}}), tmp_path)
    hub.receive(records(spark, [{"entity": "e"}, {"entity": "e", "system": "mill"}], received_at=AT))
    hub.run(now=AT)
    assert sorted(row["error_message"] for row in rows_of(hub.messages())) == [
        "SYSTEM_NOT_FOUND: The schema has no such source system: mill",
        "SYSTEM_NOT_FOUND: The schema has no such source system: the message names none, and there is none"
        " by default, *",
    ]


def test_a_hub_needs_a_schema_and_says_where_it_comes_from(spark: SparkSession, tmp_path: Path) -> None:
    document: Any = SHOP
    with pytest.raises(InvalidArgument, match=r"needs schema to be what datahub\.schema or .* it is 'dict'"):
        Hub(spark, document, tmp_path)
    retry: Any = 60
    with pytest.raises(InvalidArgument, match=r"needs backoff to be a datahub\.Backoff; it is 60"):
        Hub(spark, schema(SHOP), tmp_path, backoff=retry)


def test_a_list_of_documents_is_received_as_records_of_that_time(spark: SparkSession, tmp_path: Path) -> None:
    """What a newcomer has is a list of dictionaries."""
    hub = Hub(spark, schema(SHOP), tmp_path)
    documents: list[Any] = [customers("m1", "c1"), '{"entity": "customer", "data": {"c": "c2"}}']
    receipts = receipts_of(hub, documents, received_at=AT)
    assert sorted((row["offset"], row["status"]) for row in receipts) == [
        (1_704_099_600_000_000, 0),
        (1_704_099_600_000_001, 0),
    ]
    again = receipts_of(hub, documents, received_at=AT)
    assert [row["status"] for row in again] == [5, 5]
    begun = datetime.now(UTC)
    hub.receive(documents)  # the second names no guid, and is another by the clock's time
    hub.run(now=AT)
    found = rows_of(hub.messages())
    assert sorted(row["message_timestamp"] <= AT for row in found) == [False, True, True]
    assert max(row["message_timestamp"] for row in found) >= begun
    assert {row["c"] for row in rows_of(hub.history("customer"))} == {"c1", "c2"}


@pytest.mark.parametrize("given", [{"entity": "customer"}, '{"entity": "customer"}', None, 5])
def test_what_is_neither_a_table_nor_a_list_is_not_received(empty: Hub, given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"receive\(\) needs records to be a list of documents"):
        empty.receive(given)


def test_what_cannot_be_received_is_told_of_receive(spark: SparkSession, empty: Hub) -> None:
    with pytest.raises(InvalidArgument, match=r"receive\(\) needs received_at to be an aware datetime"):
        empty.receive([], received_at=datetime(2024, 1, 1))
    with pytest.raises(InvalidArgument, match=r"receive\(\) needs received_at to be left out for a table"):
        empty.receive(records(spark, [], received_at=AT), received_at=AT)
    with pytest.raises(MissingColumns, match=r"receive\(\) needs the columns value; the DataFrame has key"):
        empty.receive(records(spark, [], received_at=AT).drop("value"))
