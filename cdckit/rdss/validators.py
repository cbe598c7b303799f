"""The compiled schemas of headers and bodies, and the two forms of texts that JSON Schema has no name for."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from cdckit.rdss.message_types import BODIES

if TYPE_CHECKING:
    from jsonschema_rs import Validator

NAMES = ("values", "words", "header", "people", "details", "files", "objects", "bodies")
"""The files of `cdckit/rdss/schemas`, each of which builds on those before it."""

_BASE = "cdckit:/rdss/"


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
def validators() -> dict[str, Validator]:
    """The schemas of headers and of each kind of body, compiled when a process first needs them: some ms."""
    # Here, so that what never validates never loads it; nor does a kernel load pyspark.
    from cdckit.parts.installation import require_package

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

    bodies = {kind: compiled(f"bodies.json#/$defs/{kind}") for kind in sorted(set(BODIES.values()))}
    return {"header": compiled("header.json"), **bodies}


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
