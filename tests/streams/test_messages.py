"""What a message lacks or has too much of, stream by stream, without Spark; and how a message is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdckit import streams
from cdckit.streams.messages import message, message_text

_WHO = {"clientid": "c", "request": 1, "user": "u", "begun": 1}
_PATCH = {"db": "d", **_WHO, "part": 1, "parts": 2, "ops": []}
_ENTITY = {"db": "d", "collection": "C", "zone": "z", "entity": "e"}
_UPDATE = {**_PATCH, **_ENTITY, "ended": 2, "status": 1}
SOUND: dict[str, dict[str, Any]] = {
    "entity-patches": {**_PATCH, **_ENTITY},
    "entity-updates": _UPDATE,
    "zone-changes": _UPDATE,
    "partial-responses": _UPDATE,
    "schema-patches": _PATCH,
    "schema-updates": {**_PATCH, "ended": 2, "status": 1},
    "schema-learning": {"db": "d", **_WHO, "status": 1, "after": {"C": None}},
    "complete-responses": {**_WHO, "parts": 2, "ended": 2, "responses": []},
    "changes-by-device": {**_ENTITY, "notification": "n", "action": "created", "ended": 1},
}
LACKING = ("MISSING_FIELD", "Missing: part.")
FLAG = ("WRONG_TYPE", "learning is 'yes', not true or false.")
ACTION = ("WRONG_TYPE", "action is 'made', not created, updated or deleted.")
NUMBER = ("WRONG_TYPE", "request is 'x', not a whole number in range.")
WELL = (None, "")

# The stream; what the page says; what is otherwise in a sound message, None for a field that is not there;
# the error code, and the end of the description.
CASES: list[tuple[str, str, dict[str, Any], tuple[str | None, str]]] = [
    ("entity-updates", "part is required", {"part": None}, LACKING),
    ("schema-updates", "part is required", {"part": None}, LACKING),
    ("zone-changes", "the same structure as entity-updates", {"part": None}, LACKING),
    ("entity-patches", "the 1-based part number", {"part": 0}, ("WRONG_PART", "It is part 0 of 2.")),
    ("schema-learning", "the 1-based part number", {"part": 0}, ("WRONG_PART", "It is part 0.")),
    ("entity-patches", "the total number of parts", {"part": 3}, ("WRONG_PART", "It is part 3 of 2.")),
    ("complete-responses", "the total number of parts", {"parts": 0}, ("WRONG_PART", "It is of 0 parts.")),
    ("complete-responses", "the total number of parts", {"parts": -1}, ("WRONG_PART", "It is of -1 parts.")),
    ("schema-learning", "the number of entity types, of which none may be left", {"parts": 0}, WELL),
    ("entity-updates", "1, 2 or 3", {"status": 9}, ("WRONG_TYPE", "status is 9, not 1, 2 or 3.")),
    ("partial-responses", "1, 2 or 3", {"status": 0}, ("WRONG_TYPE", "status is 0, not 1, 2 or 3.")),
    ("partial-responses", "1, 2 or 3", {"status": 3}, WELL),
    ("changes-by-device", "one of created, updated, or deleted", {"action": "made"}, ACTION),
    ("changes-by-device", "one of created, updated, or deleted", {"action": "deleted"}, WELL),
    ("schema-patches", "learning is no field of it", {"learning": "yes"}, WELL),
    ("schema-updates", "learning is no field of it", {"learning": "yes"}, WELL),
    ("entity-patches", "learning is a boolean", {"learning": "yes"}, FLAG),
    ("entity-patches", "of several faults the first", {"request": "x", "part": 9, "ops": None}, NUMBER),
]


def test_of_a_name_that_comes_twice_no_value_is_dropped() -> None:
    """Neither one of the message, nor one of a document in it."""
    sound = json.dumps(SOUND["entity-patches"])
    for old, new, name in (('"db"', '"db": "x", "db"', "db"), ("[]", '[{"value": {"a": 1, "a": 2}}]', "a")):
        columns = message(sound.replace(old, new, 1).encode(), streams.ENTITY_PATCHES)
        assert columns["error_code"] == "NOT_JSON"
        assert columns["error_description"].endswith(f" The name '{name}' comes twice.")


@pytest.mark.parametrize(("stream", "sentence", "otherwise", "expected"), CASES)
def test_cases(
    stream: str, sentence: str, otherwise: dict[str, Any], expected: tuple[str | None, str]
) -> None:
    members = {name: value for name, value in {**SOUND[stream], **otherwise}.items() if value is not None}
    columns = message(json.dumps(members).encode(), streams.STREAMS[stream], b"device")
    code, end = expected
    assert columns.get("error_code") == code
    assert (columns.get("error_description") or "").endswith(end)


def test_an_error_is_one_text_and_read_from_either() -> None:
    """ "error string": the prototype wrote an array of several."""
    columns = {"client_id": "c", "status": 3, "errors": ["no zone", "no ops"]}
    text = message_text(columns, streams.PARTIAL_RESPONSES)
    assert text == '{"clientid":"c","status":3,"error":"no zone; no ops"}'
    for error in ("no zone; no ops", ["no zone; no ops"]):
        read = message(
            json.dumps({**_UPDATE, "status": 3, "error": error}).encode(), streams.PARTIAL_RESPONSES
        )
        assert read["errors"] == ["no zone; no ops"]


def test_an_array_that_may_be_lacking_is_written_where_it_has_elements() -> None:
    assert message_text({"parts": 1, "responses": []}, streams.COMPLETE_RESPONSES) == '{"parts":1}'
    assert message_text({"patches": []}, streams.ENTITY_BATCHES) == '{"patches":[]}'
