"""What preservation systems say of objects, and what they keep of those that were deleted."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    VALID_FROM,
    business_fields,
    require_free,
    require_history,
)
from cdckit.parts.arguments import quoted, require_columns, require_types
from cdckit.rdss.objects import PRESERVATION, STATEMENT_SCHEMA, is_statement

DELETE_REQUESTED = "delete_requested_timestamp"

_EVENT = ("preservationEventType", "preservationEventValue", "preservationEventDetail")
_PACKAGE = {
    "package_uuid": "packageUUID",
    "package_type": "packageType",
    "package_container_type": "packageContainerType",
    "package_description": "packageDescription",
    "event_type": f"packagePreservationEvent.{_EVENT[0]}",
    "event_value": f"packagePreservationEvent.{_EVENT[1]}",
    "event_detail": f"packagePreservationEvent.{_EVENT[2]}",
}
"""By column, the place of its value in the body."""

_BODY = T.StructType(
    [
        *(T.StructField(place, T.StringType()) for place in _PACKAGE.values() if "." not in place),
        T.StructField(
            "packagePreservationEvent", T.StructType([T.StructField(name, T.StringType()) for name in _EVENT])
        ),
    ]
)


def preservation_events(decoded: DataFrame) -> DataFrame:
    """
    What preservation systems have done with objects.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid preservation events is
            passed over.

    Returns:
        One row per message: `message_id`, `published_timestamp`, `generator`, `tenant_jisc_id`,
        `return_address`; the object (`object_uuid`) and its package (`package_uuid`, `package_type`: SIP,
        AIP or DIP, `package_container_type`, `package_description`); and what was done (`event_type`,
        `event_value`, `event_detail`).  What a message does not say is null.  A redelivered message
        is there as often as it came.

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: one filter and a projection, no shuffle.

    Source:
        RDSS, "Messages" (PreservationEvent).

    >>> events = preservation_events(decoded)
    >>> events.columns[-4:], events.count()
    (['package_description', 'event_type', 'event_value', 'event_detail'], 0)
    """
    require_types(decoded, STATEMENT_SCHEMA, function="preservation_events")
    events = decoded.where(is_statement(PRESERVATION)).withColumn("package", F.from_json("body", _BODY))
    said = (
        "message_id",
        "published_timestamp",
        "generator",
        "tenant_jisc_id",
        "return_address",
        "object_uuid",
    )
    values = (F.col(f"package.{place}").alias(name) for name, place in _PACKAGE.items())
    return events.select(*said, *values)


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
        InvalidArgument: *history* has such a column already, or is a bitemporal table.
        MissingColumns, WrongColumnType: *history* is none.

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
    history = require_history(history, "guid", VALID_FROM, DELETED, function="preservation_history")
    require_columns(history, [FIELD_PROVENANCE], function="preservation_history")
    require_free(history, DELETE_REQUESTED, function="preservation_history")
    is_deleted = F.col(DELETED)
    kept = [*business_fields(history).fieldNames(), FIELD_PROVENANCE]
    so_far = (
        Window.partitionBy("guid")
        .orderBy(VALID_FROM)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    alive = F.when(~is_deleted, F.struct(*map(quoted, kept)))
    known = history.withColumn("alive", F.last(alive, ignorenulls=True).over(so_far))
    columns = {
        **{name: F.col("alive").getField(name) for name in kept},
        DELETED: F.lit(False),
    }
    mark = F.when(is_deleted, F.col(VALID_FROM)).alias(DELETE_REQUESTED)
    return known.select(
        *(columns.get(name, F.col(quoted(name))).alias(name) for name in history.columns), mark
    )
