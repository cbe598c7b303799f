"""The quick way to a valid message: it ends where the exact one does, or nowhere."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rdss_messages import MESSAGES, as_bytes, read_cases, value_of

from cdckit import samples
from cdckit.rdss import Rules, validate, validation
from cdckit.rdss.accepting import accepted
from cdckit.rdss.decoding import _instants
from cdckit.rdss.header_rules import instant_of
from cdckit.rdss.native_reading import read_natively
from cdckit.rdss.reading import Unreadable, read
from cdckit.rdss.rules import RULES
from tools.tiers import seeds

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
CASES = [value_of(case) for case in read_cases("validation")["cases"]]
SAMPLE = [
    value for value in pq.read_table(str(samples("rdss/records.parquet")))["value"].to_pylist() if value
]


def told(value: bytes) -> str:
    """The message as the exact reader has it, with the type of each value; or that there is none."""
    try:
        return repr(tuple(read(value, Rules(max_bytes=10**9))))
    except Unreadable:
        return "none"


def agree(value: bytes) -> bool:
    """Whether the native parser says nothing about the bytes, or what the exact reader says."""
    quick = read_natively(value)
    return quick is None or repr(tuple(quick)) == told(value)


def of(header: str = "{}", body: str = "{}") -> bytes:
    return f'{{"messageHeader": {header}, "messageBody": {body}}}'.encode("utf-8", "surrogatepass")


READ = {
    "compact": b'{"messageHeader":{"a":1},"messageBody":[2]}',
    "space": b' \t{ "messageHeader" \n: { "a" : 1 } , "messageBody" : [2 ] \r\n} \n',
    "quotes and backslashes": of(body=r'["\"", "\\", "\\\"", "a\\\\", "\"messageBody\": 1", "\u0022"]'),
    "a pair of escapes": of(body=r'"\ud83d\ude00"'),
    "numbers": of(
        body="[1, 1.0, -0, -0.0, 1e5, 1E+5, 12345678901234567890123, 0.1, 5e-324, 1.7976931348623157e308]"
    ),
    "800 digits": of(body="9" * 800),
    "a text like a name": of(body='{"b": "messageBody"}'),
}
NOT_READ = {
    "a name twice": of(body='{"a": 1, "a": 1}'),
    "a name twice, in a list in the header": of(header='{"a": [{"b": "", "c": 1, "b": ""}]}'),
    "a name twice, once by an escape": of(body=r'{"a": 1, "\u0061": 1}'),
    "a name twice, of backslashes": of(body=r'{"\\": "\"", "\\": "\""}'),
    "the body twice": b'{"messageHeader": {}, "messageBody": 1, "messageBody": 1}',
    "the header twice": b'{"messageHeader": {}, "messageHeader": {}, "messageBody": 1}',
    "a third field": b'{"messageHeader": {}, "messageBody": 1, "more": 1}',
    "a body in the header": b'{"messageHeader": {"a": 1, "messageBody": 1}}',
    "1000 digits": of(body="9" * 1000),
    "1000 digits, among others": of(body='["' + "-" * 77 + '", ' + "1" * 1000 + "]"),
    "half a pair": of(body=r'"\ud83d"'),
    "half a pair, in bytes": of(body='"\ud83d"'),
    "NaN": of(body="NaN"),
    "more than any double": of(body="1e999"),
    "a form feed": of().replace(b", ", b",\f"),
    "a no-break space": of().replace(b", ", b",\xc2\xa0"),
    "a byte order mark": b"\xef\xbb\xbf" + of(),
    "a line end in a text": of(body='"\n"'),
    "more behind it": of() + b"}",
    "nothing for a header": b'{"messageHeader": , "messageBody": 1}',
    "nothing for a body": b'{"messageHeader": {}, "messageBody": }',
    "a comma too many": b'{"messageHeader": {},, "messageBody": 1}',
    "10,000 lists": of(body="[" * 10_000 + "]" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_is_read_natively_is_what_the_exact_reader_reads(name: str) -> None:
    assert read_natively(READ[name]) is not None
    assert agree(READ[name])


@pytest.mark.parametrize("name", NOT_READ)
def test_what_the_exact_reader_refuses_or_rounds_is_not_read_natively(name: str) -> None:
    assert read_natively(NOT_READ[name]) is None


def test_bytes_without_an_end_are_not_read_natively() -> None:
    for value in (READ["quotes and backslashes"], READ["space"]):
        ended = value.rstrip()
        assert not any(read_natively(ended[:end]) for end in range(len(ended)))


def test_the_messages_of_the_sample_that_are_valid_are_accepted() -> None:
    """All but those with their body first: the quick way is the usual one."""
    valid = [value for value in SAMPLE if exact(value).code in (None, "GENERR003")]
    assert len(valid) > 250
    assert all(accepted(value, RULES) for value in valid)


def exact(value: bytes, now: datetime = NOW) -> Any:
    """The verdict without the quick way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "accepted", lambda value, rules: None)
        return validate(value, now=now)


@seeds(1, soak=50)
def test_verdicts_are_the_same_with_and_without_the_quick_way(seed: int) -> None:
    """On messages of every type, valid and not, whose bytes and whose values are damaged at random."""
    draw = random.Random(seed)
    values = [*CASES, *SAMPLE, *map(as_bytes, MESSAGES.values())]
    small = [value for value in values if 0 < len(value) < 10_000]
    quick = 0
    for value in [*values, *(draw.choice(DAMAGES)(draw.choice(small), draw) for _ in range(2000))]:
        verdict, truth = validate(value, now=NOW), exact(value)
        assert repr(verdict) == repr(truth), value
        assert agree(value), value
        quick += accepted(value, RULES) is not None
    assert quick > 400


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

INSTANTS = [
    *("2024-03-04T08:00:00.123Z", "2024-03-04T08:00:00+01:30", "9999-12-31T23:59:59-23:00", None),
    *("0001-01-01T00:00:00Z", "2024-03-04 08:00:00-00:00", "1582-10-10T00:00:00Z", "2024-03-04T08Z"),
]
ODD_INSTANTS = [
    *("2024-03-04t08:00:00z", "2024-03-04T08:00:00.1234567Z", "2016-12-31T23:59:60Z", "0000-01-01T00:00:00Z"),
    *("2024-03-04T24:00:00Z", "2024-03-04T08:00:00+24:00", "2024-03-04", "2024-02-30T08:00:00Z", "?", ""),
    *("2024-03-04T08:00:00", "20240304T080000Z", " 2024-03-04T08:00:00Z"),
]


@pytest.mark.parametrize("texts", [INSTANTS, *([*INSTANTS, odd] for odd in ODD_INSTANTS)], ids=str)
def test_a_column_of_instants_is_that_of_each_text_alone(texts: list[str | None]) -> None:
    expected = pa.array([instant_of(text) for text in texts], pa.timestamp("us", "UTC"))
    assert _instants(texts).equals(expected)
