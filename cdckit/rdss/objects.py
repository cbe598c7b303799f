"""Research objects: their kinds, the changes that messages say of them, what preservation systems keep."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.changes import CHANGE_SCHEMA, DELETE, UPSERT
from cdckit.model.faults import ERROR_CODE
from cdckit.model.forms import history_with
from cdckit.model.history import DELETED, FIELD_PROVENANCE, VALID_FROM, business_fields, is_deleted
from cdckit.model.rejected_records import REJECT, door_reject
from cdckit.parts.argument_forms import no_stream, rows_of, rows_with, takes
from cdckit.parts.arguments import quoted
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.folded_rows import with_rule
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.message_types import CREATE, PRESERVATION, READ, REMOVE, UPDATE
from cdckit.rdss.object_bodies import FILES, KEY, RELATED, RESOURCE_TYPE, read_object

_TEXT = T.StringType()
_TEXTS = T.ArrayType(T.StringType())

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


def require_object_type(given: str) -> ObjectType:
    """The object type itself; raises `InvalidArgument` for a name that is none's."""
    object_type = {str(type_): type_ for type_ in ObjectType}.get(given)
    if object_type is None:
        raise InvalidArgument(None, "object_type", f"one of {', '.join(ObjectType)}", given)
    return object_type


_READ_COLUMNS = (
    *("topic", "partition", "offset", "timestamp", "message_id", "correlation_id", "message_class"),
    *("message_type", "return_address", "published_timestamp", "generator", "tenant_jisc_id"),
    *("object_uuid", "body", ERROR_CODE),
)

STATEMENT_SCHEMA = T.StructType([DECODED_SCHEMA[name] for name in _READ_COLUMNS])
"""What is read of `decode`'s rows for whatever is said of objects."""

BATCH = no_stream("decode each batch (foreachBatch)")
_STATEMENTS = rows_of(STATEMENT_SCHEMA, "{} is not what `decode` returned")


def is_statement(*types: str, document: bool = False) -> Column:
    """
    Tell whether a row is a valid and whole message of one of these types.

    A part of a sequence holds a piece of a body, so it names no object.  *document* tells a response from
    the request of the same type.
    """
    is_document = F.col("message_class") == "Document"
    return (
        F.col(ERROR_CODE).isNull()
        & F.col("object_uuid").isNotNull()
        & F.col("message_type").isin(*types)
        & (is_document if document else ~is_document)
    )


_BESIDE = ("return_address", "tenant_jisc_id", REJECT)


@takes(decoded=_STATEMENTS)
def changes(decoded: DataFrame, object_type: str = ObjectType.RESEARCH_OBJECT) -> DataFrame:
    """
    Make changes of what the messages about research objects say of those of one kind.

    A create and an update carry the whole object: a field that the message does not have is null, and the
    object has it no more.  A create of an object that is there already is an update: one that was
    confidential and becomes public comes as a create.  An object without files, a "metadata only" record, is
    an object like any other: its `objectFile` is null, or the list that was sent.

    A delete says nothing of the kind, so it is a change in every kind: where the object never was, `merge`
    makes nothing of it.  Likewise a create or update with which an object has become one of another kind
    is a delete here.

    Args:
        decoded: What `decode` returned, its sequences assembled; parts of sequences, reads, responses and
            preservation events are passed over.
        object_type: The kind: `ResearchObject` (all objects, with the fields of every kind), `Dataset`,
            `Article` or `ThesisDissertation` (see `ObjectType`).

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`) of the key `objectUUID`, and one per row in error,
        which is a `reject` whatever the kind.
        `effective_timestamp` is the `publishedTimestamp`, the one instant that a message has;
        `sequence` is empty, since producers do not count; `message_id` is the `messageId`, so that a
        redelivered message is the same message; `source` is the `generator`.  In `data`, texts and lists of
        texts are themselves; what is nested is JSON text in one form, with the digits that were sent.
        Beside them stand `return_address` and `tenant_jisc_id`.

    Raises:
        InvalidArgument: There is no such *object_type*.

    Cost: one pass of the bodies through Python, no shuffle; about 0.1 milliseconds for a message of 2 KB.

    An update or a delete of an object that nobody created is no error here; an `Exchange` refuses it.

    Source:
        RDSS, "Message Triggers", "Institutional Repositories", "Digital Objects".

    >>> from cdckit import rdss
    >>> found = rdss.changes(decoded, "Dataset").orderBy("effective_timestamp")
    >>> found.select("effective_timestamp", "operation", "source", "data.objectTitle", "data.language").show()
    +-------------------+---------+----------+------------+--------+
    |effective_timestamp|operation|    source| objectTitle|language|
    +-------------------+---------+----------+------------+--------+
    |2024-03-01 12:00:00|   upsert|repository|       Tides|    [en]|
    |2024-03-01 13:00:00|   upsert|repository|Tides, again|    NULL|
    |2024-03-01 14:00:00|   delete|repository|        NULL|    NULL|
    +-------------------+---------+----------+------------+--------+
    <BLANKLINE>
    """
    kind = require_object_type(object_type)
    arrival = F.struct("timestamp", "topic", "partition", "offset", F.lit(1).alias("record_number"))
    is_reject, reject = door_reject(decoded.columns)
    statements = decoded.where(is_statement(CREATE, UPDATE, REMOVE) | is_reject).select(
        F.col("published_timestamp").alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        arrival.alias("arrival"),
        "message_id",
        F.col("generator").alias("source"),
        F.lit(0).alias("priority"),
        "return_address",
        "tenant_jisc_id",
        reject,
        "object_uuid",
        # A delete says no more than which object it is.
        F.when((F.col("message_type") != REMOVE) & ~is_reject, F.col("body")).alias("body"),
    )
    rule = partial(read_object, resource_type=kind.resource_type)
    columns = pa.schema([("is_there", pa.bool_()), ("data", arrow_type(kind.fields))])
    names = [name for name in CHANGE_SCHEMA.fieldNames() if name != "operation"]
    read = with_rule(statements, [*names, *_BESIDE], ["object_uuid", "body"], rule, columns)
    operation = F.when(F.col("is_there"), UPSERT).otherwise(DELETE)
    # An upsert carries every field, a delete the key.
    fields = kind.fields.fieldNames()
    carried = F.struct(*(((F.col("is_there") | F.lit(name == KEY)).alias(name)) for name in fields))
    return read.select(
        F.when(F.col(REJECT).isNull(), operation).alias("operation"),
        *names,
        "data",
        carried.alias("carried"),
        *_BESIDE,
    )


@takes(decoded=[_STATEMENTS, BATCH])
def read_requests(decoded: DataFrame) -> DataFrame:
    """
    The requests to read an object, each with its response.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid reads is passed over.

    Returns:
        One row per request, and per response if there are several: `message_id`, `published_timestamp`,
        `generator`, `return_address` (where the response is to be sent; null where the request does not say)
        and `object_uuid` of the request; `response_message_id`, `response_timestamp`, `response_generator`
        and `response_body` (JSON text as it came), all null where no response has come yet.  A response
        is one whose `correlationId` is the request's `messageId`; redelivered messages count once.

    Cost: the reads are shuffled by their message id, the responses by their correlation id.

    Source:
        RDSS, "Messages" (MetadataRead), "correlationId", "returnAddress".

    >>> read_requests(decoded).count()
    0
    """
    requests = decoded.where(is_statement(READ)).select(
        "message_id", "published_timestamp", "generator", "return_address", "object_uuid"
    )
    responses = decoded.where(is_statement(READ, document=True)).select(
        F.col("correlation_id").alias("of_request"),
        F.col("message_id").alias("response_message_id"),
        F.col("published_timestamp").alias("response_timestamp"),
        F.col("generator").alias("response_generator"),
        F.col("body").alias("response_body"),
    )
    # A messageId is unique system-wide, whoever sent it.
    responded = responses.dropDuplicates(["of_request", "response_message_id"])
    answered = F.col("message_id") == F.col("of_request")
    return requests.dropDuplicates(["message_id"]).join(responded, answered, how="left").drop("of_request")


DELETE_REQUESTED = "delete_requested_timestamp"

_PACKAGE = {
    "package_uuid": "packageUUID",
    "package_type": "packageType",
    "package_container_type": "packageContainerType",
    "package_description": "packageDescription",
    "event_type": "packagePreservationEvent.preservationEventType",
    "event_value": "packagePreservationEvent.preservationEventValue",
    "event_detail": "packagePreservationEvent.preservationEventDetail",
}
"""By column, the place of its value in the body."""


@takes(decoded=_STATEMENTS)
def preservation_events(decoded: DataFrame) -> DataFrame:
    """
    List what preservation systems have done with objects.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid preservation events is
            passed over.

    Returns:
        One row per message: `message_id`, `published_timestamp`, `generator`, `tenant_jisc_id`,
        `return_address`; the object (`object_uuid`) and its package (`package_uuid`, `package_type`: SIP,
        AIP or DIP, `package_container_type`, `package_description`); and what was done (`event_type`,
        `event_value`, `event_detail`).  What a message does not say is null.  A redelivered message
        is there as often as it came.

    Cost: one filter and a projection, no shuffle.

    Source:
        RDSS, "Messages" (PreservationEvent).

    >>> events = preservation_events(decoded)
    >>> events.columns[-4:], events.count()
    (['package_description', 'event_type', 'event_value', 'event_detail'], 0)
    """
    return decoded.where(is_statement(PRESERVATION)).select(
        *("message_id", "published_timestamp", "generator", "tenant_jisc_id", "return_address"),
        "object_uuid",
        *(F.get_json_object("body", f"$.{place}").alias(name) for name, place in _PACKAGE.items()),
    )


@takes(
    history=[history_with("guid", VALID_FROM, DELETED, free=[DELETE_REQUESTED]), rows_with(FIELD_PROVENANCE)]
)
def preservation_history(history: DataFrame) -> DataFrame:
    """
    The history of a preservation system, which keeps what is deleted and marks it.

    A repository hides or removes what is deleted: that is the history as `merge` makes it.  A preservation
    system should ignore a delete, and may note that it was asked for.  So here a deleted version shows
    what its object had before, and the mark.  Whatever comes later goes on as it does everywhere: an object
    that is created anew is no longer marked.

    Args:
        history: One row per version of an object, such as `merge` makes of `changes`; all versions.

    Returns:
        The same rows, none of them deleted, and `delete_requested_timestamp`: the instant at which the
        object was to be deleted, null in the versions that are not marked.  In a marked version the fields
        and `field_provenance` are those of the last version that was not deleted; `source_message` is
        the delete's.

    Raises:
        InvalidArgument: *history* is a bitemporal table.

    Cost: one shuffle by guid and one sort.

    Source:
        RDSS, "Preservation Systems".

    >>> marked = preservation_history(history).where("number = 2").orderBy("valid_from_timestamp")
    >>> marked.select("name", "deleted_indicator", "delete_requested_timestamp").show()
    +----+-----------------+--------------------------+
    |name|deleted_indicator|delete_requested_timestamp|
    +----+-----------------+--------------------------+
    | mug|            false|                      NULL|
    | mug|            false|       2024-01-01 11:00:00|
    +----+-----------------+--------------------------+
    <BLANKLINE>
    """
    is_gone = is_deleted()
    kept = [*business_fields(history).fieldNames(), FIELD_PROVENANCE]
    so_far = (
        Window.partitionBy("guid")
        .orderBy(VALID_FROM)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    alive = F.when(~is_gone, F.struct(*map(quoted, kept)))
    with_alive = history.withColumn("alive", F.last(alive, ignorenulls=True).over(so_far))
    columns = {**{name: F.col("alive").getField(name) for name in kept}, DELETED: F.lit(False)}
    mark = F.when(is_gone, F.col(VALID_FROM)).alias(DELETE_REQUESTED)
    return with_alive.select(
        *(columns.get(name, F.col(quoted(name))).alias(name) for name in history.columns), mark
    )
