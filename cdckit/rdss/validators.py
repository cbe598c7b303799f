"""The compiled schemas of headers and bodies, and what is asked of a header beyond its form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cdckit.rdss.findings import HEADER, Finding, RdssFault, make_finding, show_value
from cdckit.rdss.reading import Rules

if TYPE_CHECKING:
    from jsonschema_rs import Validator

NAMES = ("values", "words", "header", "people", "details", "files", "objects", "bodies")
"""The files of `cdckit/rdss/schemas`, each of which builds on those before it."""

_BASE = "cdckit:/rdss/"

CREATE, UPDATE, REMOVE = "MetadataCreate", "MetadataUpdate", "MetadataDelete"
READ, PRESERVATION = "MetadataRead", "PreservationEvent"

BODIES: Mapping[tuple[str, str], str] = {
    (CREATE, "Command"): "object",
    (UPDATE, "Command"): "object",
    (REMOVE, "Command"): "reference",
    (READ, "Command"): "reference",
    (READ, "Document"): "object",
    (PRESERVATION, "Event"): "package",
}
"""What the body is of a message of that type and class: the pairs that there are."""


@dataclass(frozen=True)
class Validators:
    """The compiled schemas of one process."""

    header: Validator
    bodies: Mapping[str, Validator]


def schemas() -> dict[str, Any]:
    """
    The JSON Schemas by identifier, to be given to any validator of draft 2020-12.

    Two formats are not those of JSON Schema: `semver` and `addr-spec`.

    >>> sorted(schemas())[:2]
    ['cdckit:/rdss/bodies.json', 'cdckit:/rdss/details.json']
    """
    folder = files("cdckit.rdss") / "schemas"
    documents = [json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES]
    return {schema["$id"]: schema for schema in documents}


@cache
def validators() -> Validators:
    """The schemas, compiled when the first message of this process needs them: some milliseconds."""
    # Here, so that what never validates never loads it; nor does a kernel load pyspark.
    from cdckit.parts.arguments import require_package

    require_package("jsonschema_rs", extra="rdss", part="cdckit.rdss")
    import jsonschema_rs

    registry = jsonschema_rs.Registry(list(schemas().items()))

    def compiled(reference: str) -> Validator:
        return jsonschema_rs.validator_for(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": _BASE + reference},
            formats={"semver": is_semver, "addr-spec": is_address},
            validate_formats=True,
            ignore_unknown_formats=False,
            registry=registry,
            offline=True,
        )

    kinds = sorted(set(BODIES.values()))
    return Validators(
        compiled("header.json"), {kind: compiled(f"bodies.json#/$defs/{kind}") for kind in kinds}
    )


_LONGEST_VERSION = 256
_LONGEST_LINE = 998  # RFC 5322, section 2.1.1


@lru_cache(maxsize=1 << 10)
def parse_major(version: str) -> int | None:
    """The major version that a text of Semantic Versioning names; None for any other, and for a long one."""
    from semver import Version

    # The library counts digits of other scripts as digits.
    if not version.isascii() or len(version) > _LONGEST_VERSION or not Version.is_valid(version):
        return None
    return Version.parse(version).major


def is_semver(text: str) -> bool:
    """
    Tell whether a text is a version of Semantic Versioning 2.0.0.

    >>> is_semver("4.0.0-rc.1+build"), is_semver("4.0"), is_semver("4.0.0-01")
    (True, False, False)
    """
    return parse_major(text) is not None


@lru_cache(maxsize=1 << 16)
def is_address(text: str) -> bool:
    """
    Tell whether a text is an e-mail address as RFC 5322, section 3.4.1, has it; no name server is asked.

    The domain is a host name or an address in brackets, as that section says that it is; comments, white
    space and the obsolete forms are refused.

    >>> is_address('"a b"@net'), is_address("a@[192.0.2.1]"), is_address("a..b@net"), is_address("A <a@net>")
    (True, True, False, False)
    """
    from email_validator import EmailNotValidError, validate_email

    if not text.isascii() or len(text) > _LONGEST_LINE:
        return False
    try:
        validate_email(
            text,
            allow_smtputf8=False,
            allow_quoted_local=True,
            allow_domain_literal=True,
            check_deliverability=False,
            globally_deliverable=False,
        )
    except EmailNotValidError:
        return False
    return True


LONGEST_SEQUENCE = (1 << 31) - 1
_CODES = frozenset(RdssFault)


def parse_instant(text: str | None) -> datetime | None:
    """
    The instant of a text in the form of RFC 3339; None for no text, and for the year 0.

    A leap second is the beginning of the next minute; digits after the sixth of a second are cut.

    >>> print(parse_instant("2016-12-31t23:59:60z"), parse_instant("2024-01-01T00:00:00.5-00:00"))
    2017-01-01 00:00:00+00:00 2024-01-01 00:00:00.500000+00:00
    """
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.upper())
    except ValueError:
        if text[17:19] != "60":
            return None
    try:
        return datetime.fromisoformat(f"{text[:17]}59{text[19:]}".upper()) + timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None


def rule_finding(header: Mapping[str, Any], rules: Rules) -> Finding | None:
    """The first rule that a header breaks whose fields all have their form; None if it keeps all."""
    return (
        _version(header, rules)
        or _pairing(header)
        or _sequence(header["messageSequence"])
        or _timings(header["messageTimings"])
        or _code(header)
    )


def expiry_finding(header: Mapping[str, Any], now: datetime) -> Finding | None:
    """That the message had expired at *now*; at the very instant of its expiry it has not."""
    text = header["messageTimings"].get("expirationTimestamp")
    ends = parse_instant(text)
    if ends is None or now <= ends:
        return None
    path = (*HEADER, "messageTimings", "expirationTimestamp")
    return make_finding(RdssFault.EXPIRED, path, f"{text} is before {now.isoformat()}.")


def _header_finding(field: str | tuple[str, ...], sentence: str) -> Finding:
    steps = (field,) if isinstance(field, str) else field
    return make_finding(RdssFault.INVALID_HEADER, (*HEADER, *steps), sentence)


def _version(header: Mapping[str, Any], rules: Rules) -> Finding | None:
    version = header["version"]
    if parse_major(version) == rules.major:
        return None
    return _header_finding(
        "version", f"{show_value(version)} is no version {rules.major} of the specification."
    )


def _pairing(header: Mapping[str, Any]) -> Finding | None:
    kind, group = header["messageType"], header["messageClass"]
    if (kind, group) not in BODIES:
        fitting = " or ".join(of_class for of_type, of_class in BODIES if of_type == kind)
        return _header_finding("messageClass", f"a {kind} is a {fitting}, no {group}.")
    if (kind, group) == (READ, "Document") and "correlationId" not in header:
        return _header_finding((), "the field correlationId is missing, which a response needs.")
    return None


def _sequence(sequence: Mapping[str, Any]) -> Finding | None:
    position, total = sequence["position"], sequence["total"]
    if 1 <= position <= total <= LONGEST_SEQUENCE:
        return None
    return _header_finding(
        ("messageSequence", "position"),
        f"{show_value(position)} is no place in a sequence of {show_value(total)}.",
    )


def _timings(timings: Mapping[str, Any]) -> Finding | None:
    for name, text in timings.items():
        if parse_instant(text) is None:
            return _header_finding(
                ("messageTimings", name), f"{show_value(text)} is in no year from 1 to 9999."
            )
    return None


def _code(header: Mapping[str, Any]) -> Finding | None:
    if "errorCode" in header and header["errorCode"] not in _CODES:
        return _header_finding("errorCode", f"{show_value(header['errorCode'])} is no error code.")
    return None
