"""Sources: what the numbers of sources stand for in events, and the schemas of their values."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import fastavro
import pyarrow as pa

from cdckit.errors import InvalidArgument
from cdckit.parts import avro


@dataclass(frozen=True)
class Source:
    """
    One Databus source, such as a table: its number in events, its name, and the schemas of its values.

    Args:
        id: The srcId of its events.
        name: Its name, unique among the sources.
        schemas: Avro schemas of records as JSON text, oldest first: a mapping of schema id (base64) to text,
            or texts alone, whose ids are then `schema_id` of them.

    Raises:
        InvalidArgument: The id is no number from 0 on, the name is no text, or there is no schema.
        SchemaRefused: A text is no schema that can be used; its reason says why.  Give a mended text under
            the id that events have.

    Source:
        Databus, "Source event type"; the id of a schema is the MD5 of its text.

    >>> text = '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}'
    >>> plane = Source(3, "planes", [text])
    >>> list(plane.schemas)
    ['S6KYUtsRb0m2xD9AWj3IzA==']
    """

    id: int
    name: str
    schemas: Mapping[str, str] | Sequence[str]

    def __post_init__(self) -> None:
        if not isinstance(self.id, int) or isinstance(self.id, bool) or self.id < 0:
            raise InvalidArgument(
                "Source", "id", "a number from 0 on: system events have those below", self.id
            )
        if not isinstance(self.name, str) or not self.name:
            raise InvalidArgument("Source", "name", "a text that is not empty", self.name)
        schemas = self.schemas
        if isinstance(schemas, str) or not schemas:
            raise InvalidArgument("Source", "schemas", "one schema or more, as a list or by id", schemas)
        texts = dict(schemas) if isinstance(schemas, Mapping) else {schema_id(text): text for text in schemas}
        for text in texts.values():
            if not pa.types.is_struct(avro.parse_schema(text).arrow_type):
                raise InvalidArgument("Source", "schemas", "schemas of records", text)
            fastavro_schema(text)
        object.__setattr__(self, "schemas", texts)

    @property
    def texts(self) -> dict[str, str]:
        """The schemas by id, oldest first."""
        return cast("dict[str, str]", self.schemas)


@lru_cache(maxsize=512)
def fastavro_schema(text: str) -> Any:
    """Parse a schema for fastavro; raises `SchemaRefused` where that does not take it."""
    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as error:
        reason = f"fastavro does not take it ({type(error).__name__}: {error!s:.160})"
        raise avro.SchemaRefused(reason) from None


def schema_id(text: str) -> str:
    """
    Compute the id by which events refer to a schema of this text: the base64 of the MD5 of its bytes.

    A Databus relay takes the MD5 of the text as its Avro library writes the schema, which may differ from the
    file in spaces and order: where ids do not meet, give `Source` the ids that the events have.

    >>> schema_id('"long"')
    '4d2aHvmLRRtTaQNws5OWaw=='
    """
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()


def sources_by_id(sources: Iterable[Source]) -> dict[int, Source]:
    """Map sources by id, in their order; raise `InvalidArgument` where an id or a name comes twice."""
    source_list = list(sources)
    for source in source_list:
        if not isinstance(source, Source):
            raise InvalidArgument(None, "sources", "a list of Source", source)
    by_id = {source.id: source for source in source_list}
    if len(by_id) < len(source_list) or len({source.name for source in source_list}) < len(source_list):
        names = [source.name for source in source_list]
        raise InvalidArgument(None, "sources", "of distinct ids and names", names)
    return by_id


def require_sources(sources: Iterable[Source]) -> dict[int, Source]:
    """Map sources by id; raise `InvalidArgument` where there is none, or one twice."""
    by_id = sources_by_id(sources)
    if not by_id:
        raise InvalidArgument(None, "sources", "one or more", sources)
    return by_id
