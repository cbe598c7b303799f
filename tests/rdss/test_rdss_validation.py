"""`validate`: any bytes have a verdict; the most specific code wins, and the description names the path."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cdckit.errors import InvalidArgument
from cdckit.rdss import Queue, RdssFault, Rules, validate
from support.rdss_messages import MESSAGES, as_bytes, changed, message, read_cases, value_of
from tools.tiers import seeds

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
CASES = read_cases("validation")["cases"]
FOUND_WHEN_VALIDATED = {
    *("GENERR001", "GENERR002", "GENERR003", "GENERR004", "GENERR007", "GENERR010", "APPERRMET004"),
}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    verdict = validate(value_of(case), now=NOW)
    assert (verdict.code, verdict.path) == (case["code"], case["path"]), verdict.description
    if case["code"] is not None:
        assert verdict.queue == Queue.INVALID
        assert verdict.description.startswith(verdict.code.sentence)
        assert f"At {case['path']}: " in verdict.description


def test_there_is_a_case_for_each_code_that_validation_gives() -> None:
    assert {case["code"] for case in CASES} - {None} == FOUND_WHEN_VALIDATED


def test_a_valid_message_is_given_back_with_every_digit() -> None:
    value = as_bytes(message("create")).replace(b'"fileSize": 3', b'"fileSize": 3.00')
    verdict = validate(value, now=NOW)
    assert verdict.valid
    assert (verdict.queue, verdict.description, verdict.path) == (None, None, None)
    assert verdict.header == MESSAGES["create"]["messageHeader"]
    assert '"fileSize": 3.00' in verdict.body_text
    assert json.loads(verdict.body_text) == verdict.body == MESSAGES["create"]["messageBody"]


def test_of_a_refused_message_the_header_is_there_if_it_could_be_read() -> None:
    refused = validate(as_bytes(message("create", changed("/messageHeader/messageId", "m1"))), now=NOW)
    assert refused.header is not None
    assert refused.header["messageId"] == "m1"
    assert validate(b"{", now=NOW).header is None


def test_descriptions_say_what_was_found() -> None:
    def said(*changes: dict[str, Any]) -> str:
        return validate(as_bytes(message("create", *changes)), now=NOW).description or ""

    assert said(changed("/messageHeader/version", "5.0.0")) == (
        "The header is missing, incomplete or wrong. "
        "At $.messageHeader.version: '5.0.0' is no version 4 of the specification."
    )
    assert said(changed("/messageBody/objectFile/0/fileSize", "3")) == (
        "The body is not of the form that its type needs. "
        "At $.messageBody.objectFile[0].fileSize: '3' is not a whole number."
    )
    assert said(changed("/messageBody/objectValue", "low")).endswith(
        "'low' is none of normal, high, veryHigh."
    )
    assert said(changed("/messageBody/a b", 1)).endswith("the field 'a b' is not known here.")
    assert said(changed("/messageBody/objectDate", [])).endswith("objectDate: the list is empty.")
    assert len(said(changed("/messageBody/" + "x" * 100_000, 1))) < 300


@pytest.mark.parametrize("digits", [30, 999, 1200, 4300, 100_000])
def test_integers_of_any_size_are_integers(digits: int) -> None:
    number = b"1" * digits
    value = as_bytes(message()).replace(b'"tenantJiscID": 7', b'"tenantJiscID": -' + number)
    assert number in value
    verdict = validate(value, now=NOW)
    assert verdict.valid, verdict.description
    if digits <= 4300:
        assert verdict.header is not None
        assert verdict.header["tenantJiscID"] == -int(number)


def test_a_message_of_the_maximum_size_is_read_and_one_of_a_byte_more_goes_to_the_error_queue() -> None:
    value = as_bytes(message("create"))
    padded = value + b" " * (1_000_000 - len(value))
    assert validate(padded, now=NOW).valid
    larger = validate(padded + b" ", now=NOW)
    assert (larger.code, larger.queue) == (RdssFault.SYSTEM_FAILED, Queue.ERROR)
    assert "1,000,001 bytes are more than 1,000,000" in larger.description
    assert validate(value, now=NOW, rules=Rules(max_bytes=len(value) - 1)).code == "GENERR006"


def test_rules_may_be_set_otherwise() -> None:
    text = as_bytes(message("create", changed("/messageBody/objectFile/0/fileChecksum/0/checksumValue", "?")))
    assert validate(text, now=NOW).code == "APPERRMET004"
    assert validate(text, now=NOW, rules=Rules(checksum_form=False)).valid


def test_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="now to be an aware datetime"):
        validate(b"{}", now=datetime(2024, 3, 1))


def in_a_message(body: bytes, header: bytes = b"{}") -> bytes:
    return b'{"messageHeader": ' + header + b', "messageBody": ' + body + b"}"


HEADER = as_bytes(MESSAGES["create"]["messageHeader"])
MAIL = "/messageBody/objectPersonRole/0/person/personMail"
HOSTILE = {
    "no value": (None, "GENERR007"),
    "not UTF-8": (b'{"messageHeader": "\xff"}', "GENERR007"),
    "UTF-16": ("{}".encode("utf-16"), "GENERR007"),
    "half a pair in UTF-8": (b'{"a": "\xed\xa0\x80"}', "GENERR007"),
    "a zero byte": (b"\x00" * 1000, "GENERR007"),
    "lists 10,000 deep": (b"[" * 10_000 + b"]" * 10_000, "GENERR007"),
    "a million opening brackets": (b"[" * 999_999, "GENERR007"),
    "objects 10,000 deep in a body": (in_a_message(b'{"a":' * 10_000 + b"1" + b"}" * 10_000), "GENERR007"),
    "objects 500 deep in a body": (in_a_message(b'{"a":' * 500 + b"1" + b"}" * 500, HEADER), "GENERR007"),
    "lists 150 deep in a body": (in_a_message(b"[" * 150 + b"]" * 150, HEADER), "GENERR007"),
    "lists 90 deep in a body": (in_a_message(b"[" * 90 + b"]" * 90, HEADER), "GENERR001"),
    "100 MB": (b"x" * 100_000_000, "GENERR006"),
    "a number of 100,000 digits": (in_a_message(b"9" * 100_000, HEADER), "GENERR001"),
    "a number beyond all doubles": (in_a_message(b"1e999999", HEADER), "GENERR001"),
    "400,000 wrong values": (in_a_message(b"[0" + b",0" * 400_000 + b"]", HEADER), "GENERR001"),
    "19,000 wrong values": (
        in_a_message(b'{"objectKeyword": [' + b",".join(b"%d" % i for i in range(19_000)) + b"]}", HEADER),
        "GENERR001",
    ),
    "80,000 unknown fields": (
        in_a_message(b"{" + b",".join(b'"a%d":1' % i for i in range(80_000)) + b"}", HEADER), "GENERR001",
    ),
    "60,000 fields, the last of them twice": (
        in_a_message(b"{" + b",".join(b'"a%d":1' % i for i in [*range(60_000), 59_999]) + b"}"), "GENERR007",
    ),
    "an address of 400,000 characters": (
        as_bytes(message("create", changed(MAIL, "a." * 200_000))), "GENERR001",
    ),
    "a version of 600,000 characters": (
        as_bytes(message("create", changed("/messageHeader/version", "4.0.0-" + "0a." * 200_000))),
        "GENERR004",
    ),
    "a half character for a name": (in_a_message(b'{"\\udc00": 1}', HEADER), "GENERR007"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_any_bytes_have_a_verdict_within_bounded_time_and_memory(name: str) -> None:
    value, code = HOSTILE[name]
    began = time.thread_time()
    verdict = validate(value, now=NOW)
    took = time.thread_time() - began
    assert verdict.code == code, verdict.description
    assert verdict.description.encode()
    assert len(verdict.description) < 500
    assert took < 3  # of the processor, of which nobody else can take any; a twentieth is usual


@pytest.mark.parametrize("name", ["100 MB", "a million opening brackets", "80,000 unknown fields"])
def test_memory_is_bounded(name: str) -> None:
    value, _ = HOSTILE[name]
    tracemalloc.start()
    validate(value, now=NOW)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000


@seeds(1, soak=50)
def test_bytes_of_a_message_that_are_damaged_have_a_verdict(seed: int) -> None:
    """Bytes cut, doubled, changed at random: nothing raises, and what is refused has a code and a path."""
    draw = random.Random(seed)
    values = [as_bytes(each) for each in MESSAGES.values()]
    for _ in range(2000):
        value = bytearray(draw.choice(values))
        for _ in range(draw.randint(1, 3)):
            start = draw.randrange(len(value))
            end = start + draw.choice([1, 1, 1, 5, 50])
            put = draw.choice(
                [b"", value[start:end] * 2, bytes([draw.randrange(256)]), b'"', b"}", b"null", b","]
            )
            value[start:end] = put
        verdict = validate(bytes(value), now=NOW)
        assert verdict.valid or (verdict.path[:1] == "$" and verdict.description and verdict.queue)


def test_expiry_is_measured_at_the_instant_that_is_given() -> None:
    value = as_bytes(message("create"))
    assert validate(value, now=NOW + timedelta(days=1)).valid
    assert validate(value, now=NOW + timedelta(days=1, microseconds=1)).code == RdssFault.EXPIRED
