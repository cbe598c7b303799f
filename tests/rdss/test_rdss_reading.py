"""The parser of messages: what it reads, to the last digit, and what it refuses where."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cdckit.rdss import Rules, validate
from cdckit.rdss.reading import parse_message
from support.rdss_messages import as_bytes, changed, message

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
PLACE = {"geolocationPoint": {"latitude": 7, "longitude": 8}}
PLAIN = message(
    "create",
    changed("/messageBody/objectResourceType", "dataset"),
    changed("/messageBody/objectTitle", "TITLE"),
    changed("/messageBody/coverage", {"geospatialCoverage": [PLACE]}),
    changed("/messageBody/language", ["en"]),
    changed("/messageBody/objectValue", "normal"),
)  # fmt: skip
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
TWICE = "$.messageBody: the name 'objectTitle' comes twice."
REFUSED = {
    "a name twice": (of('"a", "objectTitle": "b"'), "GENERR007", TWICE),
    "a name twice, once by an escape": (of(r'"a", "object\u0054itle": "b"'), "GENERR007", TWICE),
    "a name twice, with backslashes": (of(r'"\\", "objectTitle": "\""'), "GENERR007", TWICE),
    "a name twice, in a list in the header": (
        of(header=HEADER.replace(b'"machineId"', b'"machineId": "x", "machineId"')),
        "GENERR007",
        "$.messageHeader.messageHistory[0]: the name 'machineId' comes twice.",
    ),
    "the body twice": (
        of().replace(b', "messageBody"', b', "messageBody": %b, "messageBody"' % BODY),
        "GENERR007",
        "$: the name 'messageBody' comes twice.",
    ),
    "a third field": (of()[:-1] + b', "more": 1}', "GENERR001", "the field 'more' is not known here."),
    "no body": (b'{"messageHeader": %b}' % HEADER, "GENERR001", "the field messageBody is missing."),
    "a body in the header": (
        b'{"messageHeader": %b, "messageBody": 1}}' % HEADER[:-1],
        "GENERR004",
        "$.messageHeader: the field 'messageBody' is not known here.",
    ),
    "half a pair": (of(r'"\ud83d"'), "GENERR007", r"'\ud83d' holds half a character."),
    "half a pair, in bytes": (of('"\ud83d"'), "GENERR007", "is not UTF-8."),
    "NaN": (of(latitude="NaN"), "GENERR007", "NaN is no number of JSON."),
    "more than any double": (of(latitude="1e999"), "GENERR001", "latitude: null is not a number."),
    "a form feed": (of().replace(b", ", b",\f"), "GENERR007", "expecting property name"),
    "a no-break space": (of().replace(b", ", b",\xc2\xa0"), "GENERR007", "expecting property name"),
    "a byte order mark": (b"\xef\xbb\xbf" + of(), "GENERR007", "a byte order mark stands before the object."),
    "a line end in a text": (of('"\n"'), "GENERR007", "invalid control character"),
    "more behind it": (of() + b"}", "GENERR007", "there is more after the object"),
    "nothing for a header": (of(header=b""), "GENERR007", "expecting value at character 18."),
    "nothing for a body": (of(body=b""), "GENERR007", "expecting value"),
    "a comma too many": (
        of().replace(b', "messageBody"', b',, "messageBody"'),
        "GENERR007",
        "a name is missing at character",
    ),
    "10,000 lists": (of("[" * 10_000 + "]" * 10_000), "GENERR007", "it is nested deeper than 100 levels."),
}


@pytest.mark.parametrize("name", READ)
def test_a_message_is_read_with_its_body_as_it_came(name: str) -> None:
    value = READ[name]
    message = parse_message(value, Rules())
    header, body = (json.loads(value)[name] for name in ("messageHeader", "messageBody"))
    assert repr((message.header, message.body)) == repr((header, body))
    assert message.body_text in value.decode()
    assert json.loads(message.body_text) == body


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_message_is_refused_and_said_where(name: str) -> None:
    value, code, finding = REFUSED[name]
    verdict = validate(value, now=NOW)
    assert (verdict.code, finding in (verdict.description or "")) == (code, True), verdict.description


def test_a_number_of_more_digits_than_python_takes_is_the_largest_of_those() -> None:
    message = parse_message(of(latitude="9" * 5000), Rules())
    [place] = message.body["coverage"]["geospatialCoverage"]
    assert place["geolocationPoint"]["latitude"] == 10**4300 - 1
    assert "9" * 5000 in message.body_text


def test_bytes_without_an_end_are_refused() -> None:
    for value in (READ["quotes and backslashes"], READ["space"]):
        ended = value.rstrip()
        codes = {validate(ended[:end], now=NOW).code for end in range(len(ended))}
        assert codes == {"GENERR007"}
