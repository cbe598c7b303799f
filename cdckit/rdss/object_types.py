"""The kinds of research objects: which objects each has, and which fields these have, with their types."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Self

from pyspark.sql import types as T

from cdckit.errors import InvalidArgument

KEY = "objectUUID"
RESOURCE_TYPE = "objectResourceType"
RELATED = "objectRelatedIdentifier"
FILES = "objectFile"

_TEXT = T.StringType()
_TEXTS = T.ArrayType(T.StringType())

NESTED = frozenset(
    {
        *("objectPersonRole", "objectOrganisationRole", "objectDescription", "objectRights", "objectDate"),
        *("objectIdentifier", RELATED, FILES, "coverage", "freeToRead", "journal"),
    }
)
"""The fields whose values are objects or lists of objects: their columns hold JSON text."""

_LISTS = frozenset({"objectKeyword", "objectCategory", "language"})
_COMMON = (
    *(KEY, "objectTitle", RESOURCE_TYPE, "objectValue", "objectPersonRole", "objectOrganisationRole"),
    *("objectDescription", "objectRights", "objectDate", "objectKeyword", "objectCategory"),
    *("objectIdentifier", RELATED, FILES),
)
_DATASET = ("language", "coverage", "version")
_ARTICLE = (
    *("language", "coverage", "publicationVersion", "articleProcessingCharge", "freeToRead", "journal"),
)
_THESIS = ("language", "coverage", "qualificationLevel", "qualificationName")


class ObjectType(StrEnum):
    """
    A kind of research object, under the name that its schema has.

    `RESEARCH_OBJECT` is every object, whatever it is, with the fields of all kinds: one that a kind does not
    have is null there.  The others are the objects of one `objectResourceType`, with their fields alone.

    Args:
        resource_type: The `objectResourceType` of its objects; None for any.
        fields: Its fields, in order: texts, lists of texts, and JSON text for what is nested.

    Source:
        RDSS, "Message Body".

    >>> ObjectType.THESIS == "ThesisDissertation", ObjectType.THESIS.resource_type
    (True, 'thesisDissertation')
    >>> ObjectType("Dataset").fields["language"].dataType.simpleString()
    'array<string>'
    """

    resource_type: str | None
    fields: T.StructType

    def __new__(cls, name: str, resource_type: str | None, fields: Iterable[str]) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.resource_type = resource_type
        kinds = ((field, _TEXTS if field in _LISTS else _TEXT) for field in dict.fromkeys(fields))
        member.fields = T.StructType([T.StructField(field, kind) for field, kind in kinds])
        return member

    RESEARCH_OBJECT = "ResearchObject", None, (*_COMMON, *_DATASET, *_ARTICLE, *_THESIS)
    DATASET = "Dataset", "dataset", (*_COMMON, *_DATASET)
    ARTICLE = "Article", "article", (*_COMMON, *_ARTICLE)
    THESIS = "ThesisDissertation", "thesisDissertation", (*_COMMON, *_THESIS)


def require_object_type(given: str, *, function: str) -> ObjectType:
    """The object type itself; raises `InvalidArgument` for a name that is none's."""
    found = {str(each): each for each in ObjectType}.get(given)
    if found is None:
        raise InvalidArgument(function, "object_type", f"one of {', '.join(ObjectType)}", given)
    return found
