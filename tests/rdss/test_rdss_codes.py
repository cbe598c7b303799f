"""The catalogue of error codes, and messages decorated with them."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cdckit.rdss import RdssFault, Rules, decorate_bytes, validate
from cdckit.rdss.decoration import refuse
from support.rdss_messages import MESSAGES, as_bytes, changed, message

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)


def decorated(value: bytes, code: RdssFault, description: str) -> Any:
    return json.loads(decorate_bytes(value, refuse(value, code, description)))


def test_the_codes_are_those_of_the_specification_and_each_has_its_queue() -> None:
    """Infrastructure, and what is too large, is for the error queue; the rest for the other."""
    assert {code.value: code.queue.value for code in RdssFault} == {
        "GENERR001": "invalid",
        "GENERR002": "invalid",
        "GENERR003": "invalid",
        "GENERR004": "invalid",
        "GENERR005": "error",
        "GENERR006": "error",
        "GENERR007": "invalid",
        "GENERR008": "error",
        "GENERR009": "error",
        "GENERR010": "invalid",
        "APPERRMET001": "invalid",
        "APPERRMET002": "invalid",
        "APPERRMET003": "invalid",
        "APPERRMET004": "invalid",
    }


def test_every_code_says_something_of_its_own() -> None:
    sentences = [code.sentence for code in RdssFault]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence.endswith(".") and len(sentence) > 25 for sentence in sentences)


def test_what_comes_later_can_mend_what_others_lack() -> None:
    """A connection, or an object that is not there yet; a message that is malformed stays so."""
    healing = {code.value for code in RdssFault if code.heals}
    assert healing == {"GENERR005", "GENERR006", "APPERRMET001", "APPERRMET002", "APPERRMET003"}


def test_a_decorated_message_is_another_one_with_two_more_fields_in_its_header() -> None:
    sent = MESSAGES["delete"]
    made = decorated(as_bytes(sent), RdssFault.DELETE_OF_UNKNOWN, "Nobody has it.")
    error = {"errorCode": "APPERRMET002", "errorDescription": "Nobody has it."}
    assert made == {**sent, "messageHeader": {**sent["messageHeader"], **error}}
    again = decorated(as_bytes(made), RdssFault.EXPIRED, "Too late.")
    assert again["messageHeader"]["errorCode"] == "GENERR003"


@pytest.mark.parametrize("header", [None, "h", []])
def test_a_header_that_is_none_becomes_one(header: object) -> None:
    value = as_bytes({"messageHeader": header, "messageBody": 1})
    assert decorated(value, RdssFault.INVALID_HEADER, "No.") == {
        "messageHeader": {"errorCode": "GENERR004", "errorDescription": "No."}, "messageBody": 1,
    }  # fmt: skip


def test_a_decorated_message_is_valid_but_for_what_is_wrong_with_it() -> None:
    expired = as_bytes(
        message(
            "create", changed("/messageHeader/messageTimings/expirationTimestamp", "2024-01-01T00:00:00Z")
        )
    )
    made = decorate_bytes(expired, validate(expired, now=NOW))
    assert validate(made, now=datetime(2023, 12, 31, tzinfo=UTC)).valid
    assert json.loads(made)["messageHeader"]["errorCode"] == "GENERR003"


def test_the_body_stays_as_it_came() -> None:
    value = as_bytes(message("create", changed("/messageBody/objectFile/0/fileSize", -1)))
    value = value.replace(b'"fileSize": -1', b'"fileSize":  -1.000')
    made = decorate_bytes(value, validate(value, now=NOW))
    assert b'"fileSize":  -1.000' in made
    assert json.loads(made)["messageHeader"]["errorCode"] == "GENERR001"


def test_of_bytes_that_are_no_message_the_queue_is_given_a_message_that_holds_them() -> None:
    value = b'{"messageHeader": \xff'
    made = json.loads(decorate_bytes(value, validate(value, now=NOW)))
    assert made["messageHeader"]["errorCode"] == "GENERR007"
    assert base64.b64decode(made["messageBody"]["base64"]) == value
    assert made["messageBody"]["sha256"] == hashlib.sha256(value).hexdigest()


def test_what_has_no_room_is_told_of_by_its_hash() -> None:
    value = b"x" * 2_000_000
    made = json.loads(decorate_bytes(value, validate(value, now=NOW)))
    assert made["messageHeader"]["errorCode"] == "GENERR006"
    assert made["messageBody"] == {"bytes": 2_000_000, "sha256": hashlib.sha256(value).hexdigest()}


@pytest.mark.parametrize("name", ["create", "delete"])
def test_what_is_made_is_never_over_the_maximum_size(name: str) -> None:
    """The message fits, and with the two fields it does not: it is told of, or at last its header is not."""
    value = as_bytes(message(name, changed("/messageHeader/messageId", "x")))
    for room in (len(value), len(value) + 250, 700):
        rules = Rules(max_bytes=max(room, len(value)))
        made = decorate_bytes(value, validate(value, now=NOW, rules=rules), Rules(max_bytes=room))
        assert len(made) <= room
        assert json.loads(made)["messageHeader"]["errorCode"] == "GENERR010"


def test_a_valid_message_is_not_decorated() -> None:
    value = as_bytes(message("read"))
    with pytest.raises(ValueError, match="needs a refused message"):
        decorate_bytes(value, validate(value, now=NOW))
