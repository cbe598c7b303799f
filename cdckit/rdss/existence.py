"""Which objects exist, by what messages say of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.model.changes import DELETE, UPSERT, require_changes
from cdckit.model.history import DELETED, SOURCE_MESSAGE, VALID_FROM, is_deleted, require_history
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.argument_forms import FLAG, takes
from cdckit.parts.arguments import require_columns
from cdckit.parts.folded_rows import fold_rows, with_rule
from cdckit.rdss.decoding import DECODED
from cdckit.rdss.existence_rules import FAULTS, published_statements
from cdckit.rdss.findings import BODY, RdssFault, json_path
from cdckit.rdss.message_types import CREATE, UPDATE
from cdckit.rdss.object_bodies import KEY, named_objects
from cdckit.rdss.objects import BATCH, is_statement


@takes(decoded=[DECODED, BATCH], keeps_deleted=FLAG)
def with_unknown(
    decoded: DataFrame, *, known_objects: DataFrame | None = None, keeps_deleted: bool = False
) -> DataFrame:
    """
    Give the messages about unknown objects their verdict: APPERRMET001 to 003.

    Whether an object exists is settled by the last create or delete of it that was published before the
    message; of messages of one instant, that which arrived before.  So it does not depend on how the
    messages were batched.  A create never is an error: an object that is known to some already, and
    becomes public, comes as a create.

    Each version of an object has an `objectUUID` of its own, and comes as an update.  So an update is right
    too if it says, by isNewVersionOf or isPreviousVersionOf, that it is a version of an object that exists.
    Its own object exists from then on.  One that is refused makes no object exist, so a chain of versions
    that leads to no create is refused whole, until the create comes.

    Args:
        decoded: What `decode` returned, its sequences assembled.  A message that comes twice has the same
            verdict each time, also where *known_objects* have it already.
        known_objects: What was known before: a history of research objects, or changes of them (of the kind
            `ResearchObject`); without it, nothing.
        keeps_deleted: Whether an object that was deleted can be updated, deleted and read all the same, as
            in a preservation system, which keeps what it has.

    Returns:
        The same rows: valid updates, deletes and reads of unknown objects have `queue`, `error_code` and
        `error_description` now.  So `cdckit.rejects`, `queue_records` and `changes` treat them as refused.
        They
        can heal: a create that comes late, and was published before them, makes them right.

    Raises:
        MissingColumns, WrongColumnType: *known_objects* are no history of objects, and no changes.

    Cost: the ids of the messages are shuffled by object, with what is known of them; those about objects
        that are versions of each other go through one task.  The messages themselves are joined with the
        ids of those that are wrong.

    Source:
        RDSS, "Metadata Error Codes", "Metadata Update", "Digital Object Versioning".

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
    wrong = _unknown_statements(decoded, known_objects, keeps_deleted)
    places = wrong.select(
        *(F.col(name).alias(f"_{name}") for name in _RECORD), F.lit(True).alias("_is_wrong")
    )
    same = reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _RECORD))
    is_wrong = is_statement(*FAULTS) & F.col("_is_wrong").isNotNull()
    compared = decoded.join(places, same, "left")
    columns = {
        name: F.when(is_wrong, text).otherwise(F.col(name))
        for name, text in object_fault(F.col("object_uuid")).items()
    }
    return compared.withColumns(columns).select(*decoded.columns)


# A topic that was made anew counts its offsets from 0 again: its records hold other messages.
_RECORD = ("topic", "partition", "offset", "message_id")
_ARRIVAL = ("timestamp", *_RECORD)


def _unknown_statements(
    decoded: DataFrame, known_objects: DataFrame | None, keeps_deleted: bool
) -> DataFrame:
    """The messages about unknown objects: one row for each, its `_RECORD`."""
    light = (*_ARRIVAL, "message_type", "published_timestamp", "object_uuid")
    body = F.when(F.col("message_type") == UPDATE, F.col("body")).alias("body")
    messages = decoded.where(is_statement(CREATE, *FAULTS)).select(*light, body)
    reads = ["message_type", "object_uuid", "body"]
    named = with_rule(messages, light, reads, _list_objects, pa.schema([_OBJECT_LIST]))
    statements = named.withColumns({"is_message": F.lit(True), "known": F.lit(None).cast("boolean")})
    if known_objects is not None:
        before = _known_instants(known_objects).withColumn("is_message", F.lit(False))
        statements = statements.unionByName(before, allowMissingColumns=True)
    # Versions of each other are looked at together, all others object by object.
    linked = statements.where(F.size("objects") > 1).select(F.explode("objects").alias("object_uuid"))
    is_linked = linked.distinct().withColumn("is_linked", F.lit(True))
    family = F.when(F.col("is_linked").isNull(), F.col("object_uuid"))
    statements = statements.join(is_linked, "object_uuid", "left").withColumn("family", family)
    # At one instant, what was known before stands first.
    order = ("published_timestamp", "is_message", *_ARRIVAL)
    plan = published_statements(keeps_deleted)
    verdicts = fold_rows(statements, plan, keeps=_RECORD, order=order)
    return verdicts.where("is_wrong").select(*_RECORD).distinct()


_OBJECT_LIST = pa.field("objects", pa.list_(pa.string()))


def _list_objects(message_type: str, object_uuid: str, body: str | None) -> tuple[list[str]]:
    return (named_objects(message_type, object_uuid, body),)


def _known_instants(known_objects: DataFrame) -> DataFrame:
    """The instants at which known objects came to be, changed or went."""
    if "operation" in known_objects.columns:
        require_changes(known_objects)
        key = F.col("data").getField(KEY)
        at, message, exists = "effective_timestamp", "message_id", F.col("operation") == UPSERT
        known_objects = known_objects.where(F.col("operation").isin(UPSERT, DELETE))
    else:
        require_columns(known_objects, [KEY])
        known_objects = require_history(known_objects, VALID_FROM, DELETED, SOURCE_MESSAGE)
        key, at, message, exists = F.col(KEY), VALID_FROM, SOURCE_MESSAGE, ~is_deleted()
    return known_objects.select(
        key.alias("object_uuid"),
        F.array(key).alias("objects"),
        F.col(at).alias("published_timestamp"),
        F.col(message).alias("message_id"),
        exists.alias("known"),
    )


def object_fault(about: Column) -> dict[str, Column]:
    """The verdict on a message *about* an unknown object: what its columns have then."""
    place = f" At {json_path((*BODY, KEY))}: no object "
    return {
        "queue": _text_by_type(lambda fault: fault.queue.value),
        ERROR_CODE: _text_by_type(lambda fault: fault.value),
        ERROR_DESCRIPTION: F.concat(
            _text_by_type(lambda fault: f"{fault.describe()}{place}"),
            about,
            F.lit(" was known when the message was published."),
        ),
    }


def _text_by_type(text: Callable[[RdssFault], str]) -> Column:
    """Say something of a message by its type."""
    return F.coalesce(*(F.when(F.col("message_type") == name, text(fault)) for name, fault in FAULTS.items()))
