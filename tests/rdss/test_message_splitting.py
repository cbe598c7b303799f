"""`split`: parts within the limit, cut between characters, which give the message when they are joined."""

from __future__ import annotations

import json
import random

import pytest

from cdckit.errors import InvalidArgument
from cdckit.rdss import Rules, split, validate
from cdckit.rdss.header_rules import parse_instant
from cdckit.rdss.reading import parse_message
from cdckit.rdss.sequence_rules import WholeMessage
from support.rdss_messages import MESSAGES, as_bytes, changed, message
from tools.tiers import seeds

NOW = parse_instant("2024-03-01T12:00:00Z")
TEXTS = ["Tides", "潮汐", "é", "🌊", '"', "\\", '\\"', "\n", "\u2028", "{", "x" * 50]


def large(text: str) -> dict[str, object]:
    return message("create", changed("/messageBody/objectTitle", text))


def join(parts: list[bytes]) -> object:
    """The message as whoever puts it together has it."""
    whole = WholeMessage(Rules())
    for part in sorted(parts, key=position):
        whole.take(part if position(part) == 1 else None, parse_message(part, Rules()).body_text)
    return json.loads(whole.assemble(NOW)[0])


def position(part: bytes) -> int:
    return int(json.loads(part)["messageHeader"]["messageSequence"]["position"])


def test_a_message_that_fits_is_its_own_only_part() -> None:
    value = as_bytes(MESSAGES["create"])
    assert split(value) == [value]


def test_the_parts_of_two_megabytes_are_valid_messages_of_at_most_the_maximum_size() -> None:
    sent = large("潮汐🌊" * 200_000)
    parts = split(as_bytes(sent))
    assert all(999_990 < len(part) <= 1_000_000 for part in parts[:-1])
    assert len(parts[-1]) <= 1_000_000
    assert all(validate(part, now=NOW).valid for part in parts)
    headers = [json.loads(part)["messageHeader"] for part in parts]
    assert [each["messageSequence"]["position"] for each in headers] == list(range(1, len(parts) + 1))
    assert {(each["messageSequence"]["sequence"], each["messageSequence"]["total"]) for each in headers} == {
        (sent["messageHeader"]["messageSequence"]["sequence"], len(parts)),
    }  # fmt: skip
    assert headers[0]["messageId"] == sent["messageHeader"]["messageId"]
    assert len({each["messageId"] for each in headers}) == len(parts)
    assert join(parts) == sent


def test_the_same_message_is_always_cut_the_same_way() -> None:
    value = as_bytes(large("x" * 1_500_000))
    assert split(value) == split(value)


def test_digits_stay_as_they_came() -> None:
    value = as_bytes(large("x" * 3000)).replace(b'"fileSize": 3', b'"fileSize": 3.000')
    pieces = [json.loads(part)["messageBody"] for part in split(value, rules=Rules(max_bytes=1500))]
    assert '"fileSize": 3.000' in "".join(pieces)


@seeds(1, soak=50)
def test_no_text_is_cut_where_it_must_not_be(seed: int) -> None:
    """Any mixture of characters, quotes and backslashes, in any room: the pieces join to the body."""
    draw = random.Random(seed)
    for _ in range(100):
        sent = large("".join(draw.choices(TEXTS, k=draw.randint(30, 300))))
        value = json.dumps(sent, ensure_ascii=draw.random() < 0.5).encode()
        rules = Rules(max_bytes=draw.randint(700, 1500))
        parts = split(value, rules=rules)
        assert len(parts) > 1
        assert max(map(len, parts)) <= rules.max_bytes
        draw.shuffle(parts)
        assert join(parts) == sent


def test_the_number_of_digits_in_position_and_total_is_counted() -> None:
    """Nine parts fit, the tenth makes every header two bytes longer."""
    for length in range(3000, 6000, 97):
        parts = split(as_bytes(large("x" * length)), rules=Rules(max_bytes=950))
        assert max(map(len, parts)) <= 950
    assert len(parts) > 9


@pytest.mark.parametrize("value", [b"?", b"{}", as_bytes({"messageHeader": {}, "messageBody": {}})])
def test_what_is_no_message_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidArgument, match="value to be a message"):
        split(value)


def test_a_header_without_room_for_a_body_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="leaves room for a body in 400 bytes"):
        split(as_bytes(MESSAGES["create"]), rules=Rules(max_bytes=400))
