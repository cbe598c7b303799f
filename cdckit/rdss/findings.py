"""What is wrong with a message: an error code, the JSON path at which it was found, and a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from cdckit.model.faults import Fault

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator


class Queue(StrEnum):
    """
    The queues for messages that were not processed.

    Source:
        RDSS, "Error Queues".

    >>> Queue.INVALID == "invalid"
    True
    """

    INVALID = "invalid"
    """What a receiver cannot process: a message that is malformed or incomplete."""
    ERROR = "error"
    """What a receiver was unable to process: infrastructure, or a message over the maximum size."""


class RdssFault(Fault):
    """
    The catalogue of error codes: `errorCode` in a header, `error_code` in a reject.

    Args:
        sentence: What is wrong.
        queue: The queue that such a message is moved to.
        heals: Whether what comes later can make the message usable.

    Some decisions are ours.  The text says of the queues that an oversize message is for the error queue, and
    gives no code for it: it is GENERR006, since the limit is the underlying system's.  The text demands
    GENERR010 for exhausted retries in one paragraph and GENERR005 in its table: it is GENERR005.  GENERR007
    is also for a header, and for a message, that is malformed JSON; GENERR004 for a part that contradicts
    others of its sequence, GENERR001 for parts whose sequence stays incomplete, and APPERRMET004 for a
    checksum that cannot be one of its type.  What a handler raises is GENERR006 if it is an error of files,
    networks or statements, with which it interacts, and GENERR009 if nobody expected it.

    Source:
        RDSS, "Error Codes" and "Error Queues".

    >>> RdssFault.INVALID_UUID == "GENERR010", RdssFault("GENERR010").queue
    (True, <Queue.INVALID: 'invalid'>)
    >>> RdssFault.EXPIRED.describe("It expired at noon.")
    'The message had expired when it was delivered. It expired at noon.'
    """

    queue: Queue

    def __new__(cls, code: str, sentence: str, queue: Queue, heals: bool = False) -> Self:
        member = str.__new__(cls, code)  # not by super: an enumeration puts its own in the place of __new__
        member._value_ = code
        member.sentence, member.queue, member.heals = sentence, queue, heals
        return member

    INVALID_BODY = "GENERR001", "The body is not of the form that its type needs.", Queue.INVALID
    UNKNOWN_TYPE = "GENERR002", "The message type is not supported.", Queue.INVALID
    EXPIRED = "GENERR003", "The message had expired when it was delivered.", Queue.INVALID
    INVALID_HEADER = "GENERR004", "The header is missing, incomplete or wrong.", Queue.INVALID
    RETRIES_EXHAUSTED = (
        "GENERR005",
        "The message could not be sent: all retries of the connection failed.",
        Queue.ERROR,
        True,
    )
    SYSTEM_FAILED = (
        "GENERR006",
        "The system below failed, or the message is larger than it takes.",
        Queue.ERROR,
        True,
    )
    MALFORMED = "GENERR007", "The message is not well-formed JSON.", Queue.INVALID
    ROLLBACK_FAILED = "GENERR008", "A transaction could not be rolled back.", Queue.ERROR
    UNEXPECTED = "GENERR009", "An error occurred that nobody expected.", Queue.ERROR
    INVALID_UUID = "GENERR010", "A UUID is not of the form of one.", Queue.INVALID
    UPDATE_OF_UNKNOWN = "APPERRMET001", "The object to update does not exist.", Queue.INVALID, True
    DELETE_OF_UNKNOWN = "APPERRMET002", "The object to delete does not exist.", Queue.INVALID, True
    READ_OF_UNKNOWN = "APPERRMET003", "The object to read does not exist.", Queue.INVALID, True
    INVALID_CHECKSUM = (
        "APPERRMET004",
        "A checksum is not that of its file, or cannot be one of its type.",
        Queue.INVALID,
    )


CODES: Mapping[str, RdssFault] = {fault.value: fault for fault in RdssFault}
"""The catalogue by the text of each code."""


HEADER = ("messageHeader",)
BODY = ("messageBody",)

Path = tuple[str | int, ...]

# The most specific code wins: what any field can have wrong is last.
_RANKS = {RdssFault.INVALID_UUID: 0, RdssFault.UNKNOWN_TYPE: 1}
_LAST = 2

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a message."""

    code: RdssFault
    path: str
    sentence: str

    @property
    def description(self) -> str:
        """The `errorDescription`: what the code says, where, and what was found there."""
        return self.code.describe(f"At {self.path}: {self.sentence}")


def make_finding(code: RdssFault, path: Path, sentence: str) -> Finding:
    """A finding at the place that *path* leads to."""
    return Finding(code, json_path(path), sentence)


def json_path(path: Iterable[str | int]) -> str:
    """
    A place in a message, as JSONPath writes it.

    >>> json_path(["messageBody", "objectFile", 0, "fileSize"]), json_path(["a b"]), json_path([])
    ('$.messageBody.objectFile[0].fileSize', "$['a b']", '$')
    """
    return "$" + "".join(map(_step, path))


def _step(step: str | int) -> str:
    if isinstance(step, str) and _NAME.fullmatch(step) and len(step) <= _SHOWN:
        return f".{step}"
    return f"[{step}]" if isinstance(step, int) else f"[{show_value(step)}]"


def show_value(value: object) -> str:
    """A value in a sentence: short, and in characters that every file can hold."""
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def most_specific(
    validator: Validator, value: object, path: Path, otherwise: RdssFault, *, every: bool
) -> Finding:
    """
    Find the most specific code among what a schema finds wrong with a value that it refuses.

    Of several with one code, the first that the schema comes to.

    Args:
        validator: The schema.
        value: What it refuses.
        path: Where the value stands in the message.
        otherwise: The code of what has none of its own.
        every: Whether all that is wrong is looked at, or the first only: each costs ten microseconds and a
            kilobyte, and a message of a megabyte has room for hundreds of thousands.
    """
    errors = list(validator.iter_errors(value)) if every else [_first(validator, value)]
    findings = (_finding(error, path, otherwise) for error in errors)
    return min(findings, key=lambda finding: _RANKS.get(finding.code, _LAST))


def _first(validator: Validator, value: object) -> ValidationError:
    from jsonschema_rs import ValidationError

    try:
        validator.validate(value)
    except ValidationError as error:
        return error
    raise AssertionError("the schema refuses the value, and finds nothing wrong with it")


def _finding(error: ValidationError, path: Path, otherwise: RdssFault) -> Finding:
    whole = (*path, *error.instance_path)
    is_type = whole == (*HEADER, "messageType") and isinstance(error.instance, str)
    code = RdssFault.UNKNOWN_TYPE if is_type else otherwise
    if _definition(error) == "uuid":
        code = RdssFault.INVALID_UUID
    return make_finding(code, whole, _sentence(error))


def _definition(error: ValidationError) -> str:
    """The name of the definition in `$defs` whose keyword a value does not keep."""
    return (error.absolute_keyword_location or "").rpartition("/")[0].rpartition("/")[2]


def _sentence(error: ValidationError) -> str:
    """Say in our words what a schema's keyword found; values are cut, whatever their length."""
    kind: Any = error.kind
    if kind.name in _OF_LISTS:
        return f"{_OF_LISTS[kind.name](kind)}."
    value = _show_instance(error.instance)
    form = _FORMS.get(_definition(error))
    if kind.name != "type" and form is not None:
        return f"{value} is not {form}."
    return f"{value} {_OF_VALUES.get(kind.name, lambda _: 'is not what is needed here')(kind)}."


def _show_instance(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "an object"
    return show_value(value) if isinstance(value, str) else json.dumps(value)[:_SHOWN]


_FORMS = {
    "uuid": "a UUID of RFC 4122 in small letters",
    "instant": "an instant of RFC 3339 with date, time and zone",
    "semver": "a version of Semantic Versioning",
    "host": "a host name or an IP address",
    "mail": "an e-mail address of RFC 5322",
    "address": "a URI",
    "text": "a text that holds something",
}
"""What a value of `schemas/values.json` must be."""

_TYPES = {"string": "a text", "integer": "a whole number", "object": "an object", "array": "a list"}
_MOST_OPTIONS = 6


def _options(kind: Any) -> str:
    more = ", …" if len(kind.options) > _MOST_OPTIONS else ""
    return f"is none of {', '.join(map(str, kind.options[:_MOST_OPTIONS]))}{more}"


_OF_VALUES: Mapping[str, Callable[[Any], str]] = {
    "type": lambda kind: f"is not {' or '.join(_TYPES.get(type_, f'a {type_}') for type_ in kind.types)}",
    "enum": _options,
    "minimum": lambda kind: f"is less than {kind.limit}",
}
_OF_LISTS: Mapping[str, Callable[[Any], str]] = {
    "required": lambda kind: f"the field {kind.property} is missing",
    "additionalProperties": lambda kind: f"the field {show_value(min(kind.unexpected))} is not known here",
    "minItems": lambda _: "the list is empty",
    "uniqueItems": lambda _: "the list holds something twice",
    "contains": lambda _: "the list lacks an entry that a thesis needs",
}


_CHECKSUMS = {"md5": re.compile("[0-9A-Fa-f]{32}"), "sha256": re.compile("[0-9A-Fa-f]{64}")}


def odd_checksums(body: Any) -> Iterator[Finding]:
    """Checksums of a valid object that no file can have."""
    for place, file in enumerate(body.get("objectFile", ())):
        for which, checksum in enumerate(file["fileChecksum"]):
            kind, text = checksum["checksumType"], checksum["checksumValue"]
            if not _CHECKSUMS[kind].fullmatch(text):
                path = (*BODY, "objectFile", place, "fileChecksum", which, "checksumValue")
                sentence = f"{show_value(text)} is no {kind} checksum, which has hexadecimal digits alone."
                yield make_finding(RdssFault.INVALID_CHECKSUM, path, sentence)
