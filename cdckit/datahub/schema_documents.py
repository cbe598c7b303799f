"""The schema of a hub, from JSON documents: one for each source system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdckit.datahub.documents import InvalidSchema, source_system
from cdckit.datahub.mappings import SourceSystem
from cdckit.datahub.source_systems import Schema
from cdckit.errors import InvalidArgument


def schema(*documents: Mapping[str, Any]) -> Schema:
    """
    The schema that documents describe, one per source system.

    Args:
        documents: JSON documents as dictionaries, one for each source system.  Whatever is not listed here
            is refused; `name` and `description` may stand everywhere, and mean nothing.

            A system: `reference` (`*` is the one of messages that name none), `mappings` (by source
            entity a list of mappings).

            A mapping: `reference` (the target), `fields`, `priority` (0; the greater is heard),
            `messageReader` ("json", "csv", "file", or one that the hub is given) with
            `messageReaderConfig` (what the reader is told; with every reader, `timestamp` names the property
            in which a record says from when on it is true, so that a dump of many days is one message:
            then each must say it, children have the time of their parent, and a refresh is an error,
            DATA_INVALID), `messageFilters` (names, or objects of `name` and `config`); `unique`,
            with `uniqueIdentifier` and `uniqueSequence`, the key fields that hold the message and the
            number of the record; `export`, `exportIdentifier`, `exportStandardFields`.

            A field: `reference` (in the target), `sourceReference` (in the record; the same), `type`
            (text; the others are number, double, smallint, integer, bigint, decimal, date, timestamp,
            boolean, link, children), `length` (of a text), `scale` and `precision` (of a decimal: digits
            in all, and after the point), `key` (true, or the name of an alternative key), `priority`.

            A link: `linkEntity` (a source entity of the same system, else a target), `linkKey` (its key
            fields, by their names there), `sourceLinkKey` (the same in this record), `autocreate`.

            Children: `childEntity` (a source entity), `parentIdentifier` (its field that leads here),
            `childSequence` (its field that is to hold the number in the list).  A list names all children
            that its parent has: those that are not in it are deleted, and `[]` says that there are none.
            A record without the property says nothing of them; null is an error (CHILDREN_INVALID).
            Children go with their parent, whichever system deletes it.

    Returns:
        A value to be given to a hub.

    Values are converted before keys are compared: a key of type integer is rounded, a text with `length`
    is cut.  Of a key of several fields one may be null, not all.  Where mappings find an entity by several
    keys, a record means the entity that holds one of its keys at its time (the rules are in
    `cdckit.datahub.weak_key_walk`).
    A link leads to whatever was ever spoken of, deleted or not; so `autocreate` revives nobody.

    Raises:
        InvalidSchema: A document cannot be followed; the error names the path in it.
        InvalidArgument: There is no document.

    Source:
        Data hub, sections on source systems and mappings.

    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> product = {"reference": "product", "fields": fields}
    >>> shop = schema({"reference": "*", "mappings": {"product": [product]}})
    >>> shop.targets["product"].data.simpleString()
    'struct<number:int,name:string>'
    >>> schema({"reference": "*", "mappings": {"product": [{"reference": "product", "fields": [{}]}]}})
    Traceback (most recent call last):
    ...
    cdckit.datahub.documents.InvalidSchema: *:mappings.product[0].fields[0].reference must be a text that ...
    """
    if not documents:
        raise InvalidArgument("schema", "documents", "one or more documents of source systems", documents)
    return Schema([source_system(each) for each in documents])


def read_schema(folder: str | Path) -> Schema:
    """
    The schema in a folder: every file `*.json` in it is the document of one source system.

    Raises:
        InvalidSchema: A document cannot be followed, or is no JSON.
        InvalidArgument: The folder holds none.

    >>> from tempfile import TemporaryDirectory
    >>> fields = [{"reference": "number", "type": "integer", "key": True}]
    >>> shop = {"reference": "shop", "mappings": {"item": [{"reference": "product", "fields": fields}]}}
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "shop.json").write_text(json.dumps(shop))
    ...     list(read_schema(folder).targets)
    ['product']
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise InvalidArgument("read_schema", "folder", "a folder with files *.json", str(folder))
    return Schema([_source_system_in(each) for each in files])


def _source_system_in(file: Path) -> SourceSystem:
    try:
        return source_system(json.loads(file.read_text(encoding="utf-8")))
    except InvalidSchema as error:
        raise InvalidSchema(f"{file.name}: {error.path}", error.needed, error.found) from None
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(file.name, "JSON text in UTF-8", str(error)) from None
