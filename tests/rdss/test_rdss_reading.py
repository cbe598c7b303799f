"""The native parser of messages: it reads what the exact one does, or nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest

from cdckit import samples
from cdckit.rdss import Rules, reading, validate
from cdckit.rdss.reading import Unreadable, parse_message
from support.rdss_messages import MESSAGES, as_bytes, changed, message, read_cases, value_of
from tools.tiers import seeds

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
CASES = [value_of(case) for case in read_cases("validation")["cases"]]
SAMPLE = [
    value for value in pq.read_table(str(samples("rdss/records.parquet")))["value"].to_pylist() if value
]


def exact(value: bytes) -> str:
    """The message as the exact reader has it, with the type of each value; or that there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_parse_usual", lambda value: None)
        try:
            return repr(tuple(parse_message(value, Rules(max_bytes=10**9))))
        except Unreadable:
            return "none"


def agree(value: bytes) -> bool:
    """Whether the native parser says nothing about the bytes, or what the exact reader says."""
    native = reading._parse_usual(value)
    return native is None or repr(tuple(native)) == exact(value)


PLACE = {"geolocationPoint": {"latitude": 7, "longitude": 8}}
PLAIN = message(
    "create",
    changed("/messageBody/objectResourceType", "dataset"),
    changed("/messageBody/objectTitle", "TITLE"),
    changed("/messageBody/coverage", {"geospatialCoverage": [PLACE]}),
    changed("/messageBody/language", ["en"]),
    changed("/messageBody/objectValue", "normal"),
)  # fmt: skip
WHOLE = as_bytes(PLAIN)
HEADER, BODY = (as_bytes(PLAIN[name]) for name in ("messageHeader", "messageBody"))


def of(title: str = '"Tides"', latitude: str = "7", header: bytes = HEADER, body: bytes = BODY) -> bytes:
    """The message with these texts for a title and a number."""
    body = body.replace(b'"TITLE"', title.encode("utf-8", "surrogatepass"))
    body = body.replace(b'"latitude": 7', b'"latitude": ' + latitude.encode())
    return b'{"messageHeader": %b, "messageBody": %b}' % (header, body)


READ = {
    "as it is": of(),
    "compact": json.dumps(PLAIN, separators=(",", ":")).encode(),
    "space": b" \t" + json.dumps(PLAIN, indent="\t", separators=(" ,", "\r\n:")).encode() + b" \n",
    "the body first": b'{"messageBody": %b, "messageHeader": %b}' % (BODY, HEADER),
    "quotes and backslashes": of(r'"\" \\ \\\" a\\\\ \"messageBody\": 1 \u0022 \\\\"'),
    "a pair of escapes": of(r'"\ud83d\ude00 \u00e9 é 潮"'),
    "a name by escapes": of(body=BODY.replace(b'"objectTitle"', rb'"object\u0054itle"')),
    "a text like a name": of('"messageBody"'),
    **{
        f"the number {number}": of(latitude=number)
        for number in ("1", "1.0", "-0", "-0.0", "1e5", "1E+5", "0.1", "5e-324", "1.7976931348623157e308")
    },
    "a number of 20 digits": of(latitude="1234567890123456789012"),
    "a number of 300 digits": of(latitude="9" * 300),
    "a number of 4,300 digits": of(latitude="9" * 4300),
    "a whole number of 20 digits": of(header=HEADER.replace(b'JiscID": 7', b'JiscID": 7' + b"0" * 20)),
    "a list of three texts": of(body=BODY.replace(b'["en"]', b'["en", "fr", "de"]')),
}
NOT_READ = {
    "a name twice": of('"a", "objectTitle": "b"'),
    "a name twice, in a list in the header": of(
        header=HEADER.replace(b'"machineId"', b'"machineId": "x", "machineId"')
    ),
    "a name twice, once by an escape": of(r'"a", "object\u0054itle": "b"'),
    "a name twice, with backslashes": of(r'"\\", "objectTitle": "\""'),
    "the body twice": of().replace(b', "messageBody"', b', "messageBody": %b, "messageBody"' % BODY),
    "the header twice": b'{"messageHeader": %b, ' % HEADER + of()[1:],
    "a third field": of()[:-1] + b', "more": 1}',
    "no body": b'{"messageHeader": %b}' % HEADER,
    "a body in the header": b'{"messageHeader": %b, "messageBody": 1}}' % HEADER[:-1],
    "5,000 digits": of(latitude="9" * 5000),
    "half a pair": of(r'"\ud83d"'),
    "half a pair, in bytes": of('"\ud83d"'),
    "NaN": of(latitude="NaN"),
    "more than any double": of(latitude="1e999"),
    "a form feed": of().replace(b", ", b",\f"),
    "a no-break space": of().replace(b", ", b",\xc2\xa0"),
    "a byte order mark": b"\xef\xbb\xbf" + of(),
    "a line end in a text": of('"\n"'),
    "more behind it": of() + b"}",
    "nothing for a header": of(header=b""),
    "nothing for a body": of(body=b""),
    "a comma too many": of().replace(b', "messageBody"', b',, "messageBody"'),
    "10,000 lists": of("[" * 10_000 + "]" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_the_native_parser_reads_is_what_the_exact_one_reads(name: str) -> None:
    assert reading._parse_usual(READ[name]) is not None
    assert agree(READ[name])


@pytest.mark.parametrize("name", NOT_READ)
def test_what_the_exact_reader_refuses_or_rounds_is_left_to_it(name: str) -> None:
    assert NOT_READ[name] != of()
    assert reading._parse_usual(NOT_READ[name]) is None


def test_bytes_without_an_end_are_not_read() -> None:
    for value in (READ["quotes and backslashes"], READ["space"]):
        ended = value.rstrip()
        assert not any(reading._parse_usual(ended[:end]) for end in range(len(ended)))


def test_the_valid_messages_of_the_sample_are_read_by_the_native_parser() -> None:
    valid = [value for value in SAMPLE if validate(value, now=NOW).code in (None, "GENERR003")]
    assert len(valid) > 250
    assert all(reading._parse_usual(value) for value in valid)


@seeds(1, soak=50)
def test_both_parsers_read_the_same_of_damaged_messages(seed: int) -> None:
    """Of every type, valid and not, whose bytes and whose values are damaged at random."""
    draw = random.Random(seed)
    values = [*CASES, *SAMPLE, *map(as_bytes, MESSAGES.values())]
    small = [value for value in values if 0 < len(value) < 10_000]
    values += [draw.choice(DAMAGES)(draw.choice(small), draw) for _ in range(2000)]
    assert [value for value in values if not agree(value)] == []
    assert sum(reading._parse_usual(value) is not None for value in values) > 400


def _bytes_damaged(value: bytes, draw: random.Random) -> bytes:
    made = bytearray(value)
    start = draw.randrange(len(made))
    end = start + draw.choice([0, 1, 1, 1, 5, 50])
    put = [b"", made[start:end] * 2, bytes([draw.randrange(256)]), b'"', b"\\", b"}", b",", b" ", b"\\u0041"]
    made[start:end] = draw.choice(put)
    return bytes(made)


def _member_twice(value: bytes, draw: random.Random) -> bytes:
    """One name anew somewhere else, so that some object may have it twice."""
    names = value.split(b'": ')
    if len(names) < 3:
        return value
    name = names[draw.randrange(len(names) - 1)].rpartition(b'"')[2]
    place = draw.randrange(1, len(names))
    head, tail = b'": '.join(names[:place]), b'": '.join(names[place:])
    return head[: head.rfind(b'"')] + b'"' + name + b'": 1, ' + head[head.rfind(b'"') :] + b'": ' + tail


def _value_put(value: bytes, draw: random.Random) -> bytes:
    try:
        message = json.loads(value)
    except ValueError:
        return value
    holders = [each for each in _inside(message) if each]
    holder: Any = draw.choice(holders) if holders else [0]
    key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key] = draw.choice(PUT)
    spaced = draw.choice([(", ", ": "), (",", ":"), (" ,\n", "\t: ")])
    return json.dumps(message, ensure_ascii=draw.random() < 0.5, separators=spaced).encode("utf-8", "replace")


def _inside(value: Any) -> list[Any]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) else []
    return [*own, *(found for each in inner for found in _inside(each))]


DAMAGES: list[Callable[[bytes, random.Random], bytes]] = [_bytes_damaged, _member_twice, _value_put]
PUT = [
    *(None, True, 0, 2, -1, 2.0, 1.5, 10**20, 10**400, [], {}, "", "é 潮 🌊 \" \\ \x7f", "messageBody"),
    *("4.0.0", "4.0.1-rc.1", "2024-03-04t08:00:00z", "2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z"),
]  # fmt: skip
