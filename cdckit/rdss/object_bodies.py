"""Research objects as the bodies of messages hold them: their fields, and the versions that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from cdckit.parts.fold import Result
from cdckit.rdss.message_types import UPDATE

KEY = "objectUUID"
RESOURCE_TYPE = "objectResourceType"
RELATED = "objectRelatedIdentifier"
FILES = "objectFile"

NESTED = frozenset(
    {
        *("objectPersonRole", "objectOrganisationRole", "objectDescription", "objectRights", "objectDate"),
        *("objectIdentifier", RELATED, FILES, "coverage", "freeToRead", "journal"),
    }
)
"""The fields whose values are objects or lists of objects: their columns hold JSON text."""


def read_object(uuid: str | None, body: str | None, resource_type: str | None) -> Result:
    """
    Say whether there is an object of a type behind a message, and give the values of its fields.

    There is none behind one without a body, nor where it has become an object of another type.
    """
    values = None if body is None else object_reader()(body)
    if values is None or resource_type not in (None, values.get(RESOURCE_TYPE)):
        return False, {KEY: uuid}
    return True, values


@cache
def object_reader() -> Callable[[str], dict[str, Any]]:
    """
    Make what reads the values of an object's fields out of the text of a body.

    A nested value is JSON text in one form, whatever the message had: no space between its parts, names in
    their order, no sign escaped that needs it not, and every number in the digits that were sent.  So an
    object that is sent anew by another program has no other values.

    >>> read = object_reader()
    >>> read('{"objectTitle": "A", "coverage": { "b": 1.10, "a": [] } }')
    {'objectTitle': 'A', 'coverage': '{"a":[],"b":1.10}'}
    """
    # Nobody can have put it into a text: it is drawn anew in each process.
    mark = f"number {uuid4()} "
    decoder = json.JSONDecoder(parse_int=mark.__add__, parse_float=mark.__add__)
    write = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
    marked = re.compile(f'"{mark}([^"]*)"')

    def read_values(body: str) -> dict[str, Any]:
        values: dict[str, Any] = decoder.decode(body)
        for name in values.keys() & NESTED:
            text = write(values[name])
            values[name] = marked.sub(r"\1", text) if mark in text else text
        return values

    return read_values


NEWER, OLDER = "isNewVersionOf", "isPreviousVersionOf"
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def named_objects(message_type: str, object_uuid: str, body: str | None) -> list[str]:
    """List the objects of which one must exist for a message: its own, and those it is a version of."""
    content = None if body is None or message_type != UPDATE else _read_json(body)
    return list(dict.fromkeys([object_uuid, *(name for _, name in _related_versions(content))]))


LINKS = pa.schema([("newer", pa.string()), ("older", pa.string())])


def version_pairs(object_uuid: str, related: str | None) -> Iterable[Result]:
    """List the pairs of versions that an object names, by the JSON text of its `objectRelatedIdentifier`."""
    versions = _related_versions({RELATED: related and _read_json(related)})
    return [(object_uuid, other) if is_newer else (other, object_uuid) for is_newer, other in versions]


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _related_versions(body: Any) -> Iterator[tuple[bool, str]]:
    """Tell whether the object is newer than another, or older; and which, if a relation leads to one."""
    for kind, name in related_objects(body):
        if kind in (NEWER, OLDER) and _UUID.fullmatch(name):
            yield kind == NEWER, name


def related_objects(body: Any) -> Iterator[tuple[str, str]]:
    """
    List the relations of an object: the type of each, and the name of what it leads to.

    A UUID is named in small letters, and without `urn:uuid:` before it, as an `objectUUID` is.

    >>> of_first = {"relationType": "isNewVersionOf", "identifier": {"identifierValue": "urn:uuid:5680E8E0"}}
    >>> list(related_objects({"objectRelatedIdentifier": [of_first]}))
    [('isNewVersionOf', '5680e8e0')]
    """
    related = body.get(RELATED) if isinstance(body, Mapping) else None
    for relation in related if isinstance(related, list) else ():
        kind = relation.get("relationType") if isinstance(relation, Mapping) else None
        identifier = relation.get("identifier") if isinstance(relation, Mapping) else None
        if isinstance(identifier, Mapping):
            value = str(identifier.get("identifierValue"))
            yield str(kind), value.strip().lower().removeprefix("urn:uuid:")
