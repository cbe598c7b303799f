"""The chain of batches, patches, updates and responses, on records as a topic gives them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit import rejects, streams
from cdckit.errors import InvalidArgument
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import drop_rejects
from cdckit.streams.messages import message
from cdckit.streams.requests import PATCH_SCHEMA
from support.devices import add

FIXTURES = Path(__file__).parents[3] / "shared/fixtures/debezium-streams"
CLIENT = "c297cf20-18bd-40e2-827d-9b563ca28ccd"
AT = datetime(2014, 11, 11, 23, 4, 46, 229_000, tzinfo=UTC)
ENDED = 1415747086229


def records(spark: SparkSession, *values: bytes | dict[str, Any] | None, at: datetime = AT) -> DataFrame:
    texts = [json.dumps(value).encode() if isinstance(value, dict) else value for value in values]
    listed = [(None, value, "t", 0, offset, at, 0, None) for offset, value in enumerate(texts)]
    return spark.createDataFrame(listed, RECORD_SCHEMA)


def batch(*patches: Any, **header: Any) -> dict[str, Any]:
    request = {"db": "my-db", "clientid": CLIENT, "request": 2, "user": "jsmith", "begun": 1415747086227}
    return {**request, **header, "patches": list(patches)}


def patch(entity: str, *ops: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"collection": "Contacts", "zone": "default", "entity": entity, "ops": list(ops), **more}


def read(records: DataFrame) -> list[dict[str, Any]]:
    return [json.loads(row.value) for row in records.collect()]


def fixture(name: str) -> dict[str, Any]:
    if not FIXTURES.exists():
        pytest.skip("the fixtures of the upstream are not here")
    members: dict[str, Any] = json.loads((FIXTURES / name).read_text())
    return members


@pytest.mark.parametrize(("many", "parts"), [("create-contact", 1), ("create-multiple-contacts", 2)])
def test_the_fixtures_batches_become_their_patches_updates_and_responses(
    spark: SparkSession, many: str, parts: int
) -> None:
    decoded = streams.decode(records(spark, fixture(f"entity-batches/{many}.json")), streams.ENTITY_BATCHES)
    patches = streams.entity_patches(decoded).localCheckpoint()
    written = streams.to_records(patches, streams.ENTITY_PATCHES)
    expected = [fixture(f"entity-patches/create-contact-{n}of{parts}.json") for n in range(1, parts + 1)]
    assert sorted(read(written), key=lambda each: each["part"]) == expected

    answers = streams.apply_patches(patches).localCheckpoint()
    updates = read(streams.to_records(streams.entity_updates(answers), streams.ENTITY_UPDATES))
    for update in updates:
        wanted = fixture(f"entity-updates/create-contact-{update['part']}of{parts}.json")
        # The flags are copied, as the page's tables say; `before` is there only if it was asked for.
        assert (update.pop("includeAfter"), update.pop("learning"), wanted.pop("before")) == (
            True,
            True,
            None,
        )
        if parts == 2 and update["part"] == 2:
            # The second file is of another request.
            assert {wanted.pop(name) - update.pop(name) for name in ("begun", "ended")} == {49823}
            assert wanted.pop("request") - update.pop("request") == 1
        assert update == wanted

    whole = streams.complete_responses(streams.response_parts(streams.partial_responses(answers))).collect()
    [found] = [json.loads(row.message) for row in whole]
    wanted = fixture(f"complete-responses/create-contact-{parts}.json")
    pieces, wanted_pieces = (each.get("responses", [each]) for each in (found, wanted))
    assert [each["after"] for each in pieces] == [each["after"] for each in wanted_pieces]
    assert set(found) - {"includeAfter", "learning"} == set(wanted) - {"before"}


def test_keys_partitions_and_durability_are_those_of_the_page() -> None:
    """An entity is one of a zone of a collection of a database; a request is one of its client."""
    entity, request = "db/collection/zone/entity", "client_id/request"
    stated = {
        # key, partitioned by, ideally kept forever
        "entity-batches": (request, request, True),
        "entity-patches": (entity, entity, False),
        "entity-updates": (entity, entity, False),
        "schema-patches": ("db", "db", True),
        "schema-updates": ("db", "db", False),
        "schema-learning": (f"{entity} or db", "db/collection", False),
        "partial-responses": (request, "client_id", False),
        "complete-responses": (request, "client_id", False),
        "connections": ("user", "user", False),
        "zone-changes": (entity, "db/subject_zone", False),
        "changes-by-device": ("device", "device", False),
        "device-notifications": ("device", "device", False),
    }
    catalogue = {}
    for name, stream in streams.STREAMS.items():
        keys = [stream.key, *([stream.other_key] if stream.other_key else [])]
        key, partition_by = " or ".join(map("/".join, keys)), "/".join(stream.partition_by)
        catalogue[name] = (key, partition_by, stream.forever)
    assert catalogue == stated


def test_messages_that_say_less_are_read() -> None:
    request = {"db": "d", "clientid": "c", "request": 1, "user": "u", "begun": 1, "ended": 2, "ops": []}
    place = {"collection": "C", "zone": "z", "entity": "e", "part": 1, "parts": 1, "status": 1}
    update = json.dumps({**request, **place, "before": None, "after": {"a": 1}}).encode()
    columns = message(update, streams.ENTITY_UPDATES)
    # The page's own sample: that null is said means that there was nothing, and is said again.
    assert (columns["before"], columns["include_before"], columns["include_after"]) == (None, True, False)
    # Nobody has connected from the device.
    left = b'{"db":"d","device":"x","count":1,"begun":1,"ended":2}'
    assert "error_code" not in message(left, streams.DEVICE_NOTIFICATIONS)


def test_patches_count_as_they_were_written_whatever_the_clocks_say(spark: SparkSession) -> None:
    """A partition is an append-only log; between two of them the latest time so far decides."""
    # Partition, offset, and the second of its producer's clock, in the order that is meant.
    written = [(0, 10, 5), (0, 11, 3), (1, 7, 6), (0, 12, 8), (1, 8, 9), (1, 9, 1)]
    header = {"db": "d", "clientid": "c", "user": "u", "begun": 1, "part": 1, "parts": 1}
    rows = [
        (json.dumps({**header, **patch("e", add("n/-", place)), "request": place}).encode(), *at)
        for place, at in enumerate(written)
    ]
    listed = [
        (None, value, "t", partition, offset, AT + timedelta(seconds=second), 0, None)
        for value, partition, offset, second in reversed(rows)
    ]
    patches = streams.decode(spark.createDataFrame(listed, RECORD_SCHEMA), streams.ENTITY_PATCHES)
    for order_by, expected in ((None, [0, 1, 2, 3, 4, 5]), (["timestamp"], [5, 1, 0, 2, 3, 4])):
        [known] = streams.entities(streams.apply_patches(patches, order_by=order_by)).collect()
        assert json.loads(known["document"]) == {"n": expected}


def test_every_record_is_patches_or_a_reject(spark: SparkSession) -> None:
    good = batch(patch("e1", add("a", 1)), 7, {"zone": "z", "ops": None})
    far = json.dumps(batch(patch("e2", add("a", 1)), patch("e3", add("a", 0.5)), request=3)).encode()
    values = [
        *(None, b"", b"?", b"[]", b"\xff", b'{"db": NaN}', b"[" * 20_000, {"db": "x"}),
        batch(request="2"),
        batch(request=2**70),
        batch(includeAfter="yes"),
        {**batch(), "patches": {}},
        {**batch(patch("e9")), "db": "other"},
        {**{name: value for name, value in good.items() if name != "db"}, "dbid": "my-db"},
        far.replace(b"0.5", b"1e99999999999999999999"),
    ]
    decoded = streams.decode(records(spark, *values), streams.ENTITY_BATCHES).localCheckpoint()
    codes = [row.error_code for row in decoded.orderBy("offset").collect()]
    assert codes == [
        *(
            "NO_VALUE",
            "NOT_JSON",
            "NOT_JSON",
            "NOT_JSON",
            "NOT_JSON",
            "NOT_JSON",
            "NOT_JSON",
            "MISSING_FIELD",
        ),
        *("WRONG_TYPE",) * 4,
        *(None, None, "NOT_JSON"),
    ]
    again = streams.decode(rejects(decoded), streams.ENTITY_BATCHES)
    assert [row.error_code for row in again.orderBy("offset").collect()] == [code for code in codes if code]

    patches = streams.entity_patches(decoded, databases=["my-db"])
    answers = drop_rejects(streams.apply_patches(patches)).orderBy("offset", "part").collect()
    assert [(row.part, row.parts, row.status, row.errors) for row in answers] == [
        (1, 1, 3, ["the database 'other' is not served here"]),
        (1, 3, 1, None),
        (2, 3, 3, ["the patch is 7, not an object"]),
        (
            3,
            3,
            3,
            [
                *(f"the patch has no {name}: it is null" for name in ("collection", "entity")),
                "the patch has no ops",
            ],
        ),
    ]
    assert all(row.ended == ENDED for row in answers)


def test_what_cannot_be_read_is_a_reject_down_to_the_changes(spark: SparkSession) -> None:
    """By hand, too: of batches, of patches, and of schemas; and nothing is made of it."""
    batches = [batch(patch("e1", add("name", "Sally")), patch("e2")), b"?", {**batch(), "patches": 7}]
    sound = {**batch(), **patch("e1", add("name", "Sal")), "part": 1, "parts": 1, "request": 3}
    # Of the last two it can be read of whom they are.
    patches = [sound, b"{}", *({**sound, "entity": name, "part": 7} for name in ("e1", "nobody"))]
    fields = T.StructType([T.StructField("name", T.StringType())])
    for sent, stream, codes, name in (
        (batches, streams.ENTITY_BATCHES, ["NOT_JSON", "WRONG_TYPE"], "Sally"),
        (patches, streams.ENTITY_PATCHES, ["MISSING_FIELD", "WRONG_PART", "WRONG_PART"], "Sal"),
    ):
        decoded = streams.decode(records(spark, *sent), stream)
        rows = decoded if stream is streams.ENTITY_PATCHES else streams.entity_patches(decoded)
        answers = streams.apply_patches(rows).localCheckpoint()
        expected = rejects(decoded).orderBy("offset").collect()
        assert [row.error_code for row in expected] == codes
        changes = streams.changes(answers, "Contacts", fields).collect()
        for made in (answers.collect(), changes):
            found = [row.reject for row in made if row.reject is not None]
            assert sorted(found, key=lambda row: row.offset) == expected
        assert [row.data.name for row in changes if row.reject is None] == [name]
        responses = {row.entity: row.status for row in streams.partial_responses(answers).collect()}
        revisions = {row.entity: row.revision for row in streams.entities(answers).collect()}
        assert (responses.get("e1"), revisions["e1"]) == (1, 1)
        assert responses.keys() == revisions.keys()
    schemas = streams.decode(records(spark, b"?"), streams.SCHEMA_PATCHES)
    [refused] = rejects(streams.apply_schema_patches(schemas)).collect()
    assert (refused.value, refused.error_code) == (b"?", "NOT_JSON")


def test_responses_wait_for_each_other_in_any_order_and_expire(spark: SparkSession) -> None:
    def response(request: int, part: int, parts: int, **more: Any) -> dict[str, Any]:
        answer = {"db": "d", "clientid": "c", "request": request, "user": "u", "begun": 1, "ended": 10 + part}
        return {**answer, "part": part, "parts": parts, "status": 1, "ops": [], **more}

    sent = [
        *(response(1, 2, 2), response(2, 1, 1), response(1, 2, 2, ended=99), response(1, 1, 2, begun=9)),
        *(response(3, 3, 4, begun=3), response(3, 2, 4), response(4, 1, 2), response(4, 2, 3)),
        response(5, 1, 1, status=3, error=["one", "two"]),
    ]
    parts = streams.response_parts(
        streams.decode(records(spark, *sent), streams.PARTIAL_RESPONSES)
    ).localCheckpoint()
    outcome = [(row.offset, row.part_is, row.waiting_for) for row in parts.orderBy("offset").collect()]
    lacking = "2 of 4 parts, the first of them part 1"
    assert outcome == [
        *((0, "complete", None), (1, "complete", None), (2, "duplicate", None), (3, "complete", None)),
        *((4, "waiting", lacking), (5, "waiting", lacking)),
        *((6, "contradicting", None), (7, "contradicting", None), (8, "complete", None)),
    ]
    whole = {row.request: row for row in streams.complete_responses(parts).collect()}
    assert sorted(whole) == [1, 2, 5]
    assert (whole[1].ended, [json.loads(each)["part"] for each in whole[1].responses]) == (12, [1, 2])
    aggregate = json.loads(whole[1].message)
    assert list(aggregate) == ["clientid", "request", "user", "parts", "begun", "ended", "responses"]
    assert json.loads(whole[2].message) == response(2, 1, 1)
    # The page: an error is a text; the prototype wrote an array of several.
    written_anew = {**sent[8], "error": "one; two"}
    assert json.loads(whole[5].message) == written_anew
    # The page: the complete response of one part is identical to the partial one.
    written = streams.to_records(streams.complete_responses(parts), streams.COMPLETE_RESPONSES)
    assert sorted(read(written), key=lambda each: each["request"]) == [*(aggregate, sent[1], written_anew)]
    assert aggregate["begun"] == 1  # the parts began at different times

    completed = spark.createDataFrame([("c", 1), ("c", 2), ("c", 2)], "client_id string, request long")
    late_parts = [*sent[:2], response(6, 1, 1), response(1, 3, 3, user="another")]
    decoded = streams.decode(records(spark, *late_parts), streams.PARTIAL_RESPONSES)
    again = streams.response_parts(decoded, completed=completed).orderBy("offset").collect()
    assert [(row.part_is, row.waiting_for, row.error_code) for row in again] == [
        *(("duplicate", None, None), ("duplicate", None, None)),
        *(("complete", None, None), ("duplicate", None, None)),
    ]

    an_hour = timedelta(hours=1)
    early = streams.waiting(parts, now=AT + an_hour, wait=an_hour, overdue="reject").collect()
    assert [(row.is_overdue, row.error_code) for row in early] == [(False, None)] * 2
    late = streams.waiting(parts, now=AT + 2 * an_hour, wait=an_hour, overdue="reject").collect()
    assert [(row.waited, row.error_code) for row in late] == [(2 * an_hour, "MISSING_PART")] * 2


def test_schemas_are_patched_as_entities_are(spark: SparkSession) -> None:
    """The page's sample: a field is added to one of two entity types."""
    names = {
        "firstName": {"type": "STRING", "optional": False},
        "lastName": {"type": "STRING", "optional": False},
    }
    before = {"Contacts": {"fields": names}, "Groups": {"fields": {"groupName": names["firstName"]}}}
    phone = {"type": "STRING", "optional": True}
    header = {"db": "my-db", "clientid": CLIENT, "user": "jsmith", "begun": 1, "part": 1, "parts": 1}
    made = {**header, "request": 1, "ops": [add("/", before)]}
    shown = {"includeBefore": True, "includeAfter": True}
    asked = {**header, "request": 2, **shown, "ops": [add("Contacts/fields/homePhone", phone)]}
    elsewhere = {
        **header,
        "db": "other",
        "request": 3,
        **shown,
        "ops": [{"op": "remove", "path": "Contacts"}],
    }
    failed = {**header, "request": 4, **shown, "ops": [{"op": "test", "path": "none", "value": 1}]}
    decoded = streams.decode(records(spark, made, asked, elsewhere, failed), streams.SCHEMA_PATCHES)
    answers = streams.apply_schema_patches(decoded).localCheckpoint()
    assert {row.request: row.status for row in answers.collect()} == {1: 1, 2: 1, 3: 2, 4: 3}
    responses = read(streams.to_records(streams.partial_responses(answers), streams.PARTIAL_RESPONSES))
    documents = {each["request"]: [each.get(name, "-") for name in ("before", "after")] for each in responses}
    # Of nothing, null; of a schema that is there, and whose patch failed, nothing is said; nor unasked.
    assert {number: documents[number] for number in (1, 3, 4)} == {
        1: ["-", "-"],
        3: [None, None],
        4: ["-", "-"],
    }
    updates = read(streams.to_records(streams.schema_updates(answers), streams.SCHEMA_UPDATES))
    [update] = [each for each in updates if each["request"] == 2]
    after = {**before, "Contacts": {"fields": {**names, "homePhone": phone}}}
    assert update == {**asked, "status": 1, "ended": ENDED, "before": before, "after": after}
    [known] = streams.entities(answers).where("db = 'my-db'").collect()
    assert (json.loads(known.document), known.revision) == (after, 2)


def test_records_have_the_keys_of_the_page_and_compaction_leaves_what_it_states(spark: SparkSession) -> None:
    decoded = streams.decode(
        records(spark, batch(patch("a/b", add("x", 1)), patch("c"))), streams.ENTITY_BATCHES
    )
    patches = streams.entity_patches(decoded)
    responses = streams.partial_responses(streams.apply_patches(patches))
    keys = [
        bytes(row.key) for row in streams.to_records(patches, streams.ENTITY_PATCHES).orderBy("key").collect()
    ]
    assert keys == [b"my-db/Contacts/default/a~1b", b"my-db/Contacts/default/c"]
    sent = streams.to_records(responses, streams.PARTIAL_RESPONSES, topic="p", partitions=64).collect()
    assert {(bytes(row.key).decode(), row.topic) for row in sent} == {(f"{CLIENT}/2", "p")}
    assert len({row.partition for row in sent}) == 1

    rows = [
        (key, str(n).encode(), "t", 0, n, AT + timedelta(hours=n), 0, None)
        for n, key in enumerate([b"k", b"k", b"l", b"k", b"k"])
    ]
    written = spark.createDataFrame(rows, RECORD_SCHEMA)
    now = AT + timedelta(hours=5)
    # A device may be told of several databases: its newest notification does not stand for all.
    for stream, left in (
        (streams.ENTITY_UPDATES, [2, 3, 4]),
        (streams.ENTITY_PATCHES, [3, 4]),
        (streams.DEVICE_NOTIFICATIONS, [3, 4]),
    ):
        kept = streams.compact_records(written, stream, now=now, keep=timedelta(hours=2))
        assert sorted(row.offset for row in kept.collect()) == left
    # The newest of a key that is old stays.
    kept = streams.compact_records(written, streams.ENTITY_UPDATES, now=now, keep=timedelta(0))
    assert sorted(row.offset for row in kept.collect()) == [2, 4]
    with pytest.raises(InvalidArgument, match="not kept forever"):
        streams.compact_records(written, streams.ENTITY_UPDATES, now=now)


def test_what_cannot_be_meant_is_said_when_called(spark: SparkSession) -> None:
    patches = spark.createDataFrame([], PATCH_SCHEMA)
    with pytest.raises(InvalidArgument, match="a number above 0"):
        streams.apply_patches(patches, remember=0)
    with pytest.raises(InvalidArgument, match="a list of names"):
        streams.entity_patches(patches, databases="my-db")
    with pytest.raises(InvalidArgument, match="a Stream, of entity-batches"):
        streams.decode(patches, "entity-batches")  # type: ignore[arg-type]
    assert streams.apply_patches(patches).count() == 0
