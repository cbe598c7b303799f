"""Messages about objects that do not exist: updates, deletes and reads of what nobody created."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cdckit.changes import ARRIVAL_TYPE, DELETE, UPSERT, require_changes
from cdckit.history import DELETED, SOURCE_MESSAGE, VALID_FROM, require_history
from cdckit.parts.arguments import require_flag
from cdckit.parts.schemas import require_batch, require_columns, require_types
from cdckit.rdss.codes import RdssFault
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.findings import BODY, json_path
from cdckit.rdss.object_types import KEY
from cdckit.rdss.statements import CREATE, READ, REMOVE, UPDATE, is_statement
from cdckit.rejected import ERROR_CODE, ERROR_DESCRIPTION

_CODES = {
    UPDATE: RdssFault.UPDATE_OF_UNKNOWN,
    REMOVE: RdssFault.DELETE_OF_UNKNOWN,
    READ: RdssFault.READ_OF_UNKNOWN,
}


def with_unknown(
    decoded: DataFrame, *, known: DataFrame | None = None, keeps_deleted: bool = False
) -> DataFrame:
    """
    Give the messages about unknown objects their verdict: APPERRMET001 to 003.

    Whether an object exists is settled by the last create or delete of it that was published before the
    message; of messages of one instant, that which arrived before.  So it does not depend on how the
    messages were batched.  A create never is an error: an object that is known to some already, and
    becomes public, comes as a create.

    Args:
        decoded: What `decode` returned, its sequences assembled.  A message that comes twice has the same
            verdict each time, also where *known* has it already.
        known: What was known before: a history of research objects, or changes of them (of the kind
            `ResearchObject`); without it, nothing.
        keeps_deleted: Whether an object that was deleted can be updated, deleted and read all the same, as
            in a preservation system, which keeps what it has.

    Returns:
        The same rows: valid updates, deletes and reads of unknown objects have `queue`, `error_code` and
        `error_description` now.  So `cdckit.rejects`, `queued` and `changes` treat them as refused.  They
        can heal: a create that comes late, and was published before them, makes them right.

    Raises:
        InvalidArgument: *decoded* is a stream, or *keeps_deleted* is no bool.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned; or *known* is neither a
            history nor changes of research objects.

    Cost: one shuffle of the messages by object, with what is known of them; sorted twice there.

    Source:
        RDSS, "Metadata Error Codes", "Metadata Update".

    >>> later = decoded.where("message_type != 'MetadataCreate'").orderBy("offset")
    >>> with_unknown(later).select("message_type", "queue", "error_code").show()
    +--------------+-------+------------+
    |  message_type|  queue|  error_code|
    +--------------+-------+------------+
    |MetadataUpdate|invalid|APPERRMET001|
    |MetadataDelete|invalid|APPERRMET002|
    +--------------+-------+------------+
    <BLANKLINE>
    """
    require_types(decoded, DECODED_SCHEMA, function="with_unknown")
    require_batch(decoded, "decoded", "decode each batch (foreachBatch)", function="with_unknown")
    require_flag(keeps_deleted, "keeps_deleted", function="with_unknown")
    asked = _with_existence(decoded, known, keeps_deleted)
    unknown = is_statement(*_CODES) & ~F.col("existed")
    verdict = {
        "queue": _by_type(lambda code: code.queue.value),
        ERROR_CODE: _by_type(lambda code: code.value),
        ERROR_DESCRIPTION: _description(),
    }
    judged = {name: F.when(unknown, said).otherwise(F.col(name)) for name, said in verdict.items()}
    return asked.withColumns(judged).drop("existed")


def find_unknown(
    decoded: DataFrame, *, known: DataFrame | None = None, keeps_deleted: bool = False
) -> DataFrame:
    """
    The messages about objects that do not exist: updates, deletes and reads.

    Args:
        decoded: As for `with_unknown`.
        known: As for `with_unknown`.
        keeps_deleted: As for `with_unknown`.

    Returns:
        Those rows of *decoded*, with their verdict: APPERRMET001 for an update, 002 for a delete, 003 for a
        read.  Rows that `decode` refused are not among them.

    Raises:
        InvalidArgument, MissingColumns, WrongColumnType: As for `with_unknown`.

    Cost: as for `with_unknown`.

    >>> find_unknown(decoded).count()
    0
    """
    judged = with_unknown(decoded, known=known, keeps_deleted=keeps_deleted)
    return judged.where(F.col(ERROR_CODE).isin(*(code.value for code in _CODES.values())))


def _with_existence(decoded: DataFrame, known: DataFrame | None, keeps_deleted: bool) -> DataFrame:
    """Each message, and whether its object existed before it: `existed`."""
    said = decoded.withColumns({"exists": _said(keeps_deleted), "is_message": F.lit(True)})
    if known is not None:
        before = _known(known).withColumn("is_message", F.lit(False))
        kept = before.where("exists") if keeps_deleted else before
        said = said.unionByName(kept, allowMissingColumns=True)
    # What names no object is of none: each such row is looked at alone, not all of them by one task.
    place = F.to_json(F.struct("topic", "partition", "offset"))
    arrival = [name for name in ARRIVAL_TYPE.fieldNames() if name != "record_number"]
    entity = F.coalesce("object_uuid", place)
    # At one instant, what was known before stands first.
    in_order = Window.partitionBy(entity).orderBy("published_timestamp", "is_message", *arrival)
    before_it = in_order.rowsBetween(Window.unboundedPreceding, -1)
    existed = F.coalesce(F.last("exists", ignorenulls=True).over(before_it), F.lit(False))
    # A message that comes again, or is known already, is as right as it was the first time.
    same = Window.partitionBy(entity, "message_id").orderBy("is_message", "published_timestamp", *arrival)
    first = F.first("existed").over(same.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    told = said.withColumn("existed", existed).withColumn("existed", first)
    return told.where("is_message").drop("exists", "is_message")


def _said(keeps_deleted: bool) -> Column:
    """Whether the object exists after a message; null where the message does not settle it."""
    settled = F.when(is_statement(CREATE), True)
    return settled if keeps_deleted else settled.when(is_statement(REMOVE), False)


def _known(known: DataFrame) -> DataFrame:
    """The instants at which known objects came to be, changed or went."""
    if "operation" in known.columns:
        require_changes(known, function="with_unknown")
        key = F.col("data").getField(KEY)
        at, message, exists = "effective_timestamp", "message_id", F.col("operation") == UPSERT
        known = known.where(F.col("operation").isin(UPSERT, DELETE))
    else:
        require_columns(known, [KEY], function="with_unknown")
        require_history(known, VALID_FROM, DELETED, SOURCE_MESSAGE, function="with_unknown")
        key, at, message, exists = F.col(KEY), VALID_FROM, SOURCE_MESSAGE, ~F.col(DELETED)
    return known.select(
        key.alias("object_uuid"),
        F.col(at).alias("published_timestamp"),
        F.col(message).alias("message_id"),
        exists.alias("exists"),
    )


def _by_type(text: Callable[[RdssFault], str]) -> Column:
    """What is said of a message by its type."""
    chosen = [F.when(F.col("message_type") == name, F.lit(text(code))) for name, code in _CODES.items()]
    return F.coalesce(*chosen)


def _description() -> Column:
    place = f"At {json_path((*BODY, KEY))}: "
    return F.concat(
        _by_type(RdssFault.describe),
        F.lit(f" {place}no object "),
        F.col("object_uuid"),
        F.lit(" was known when the message was published."),
    )
