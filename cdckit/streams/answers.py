"""Answers: what became of each patch, what is known of its entity then, and which of them are updates."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_columns, require_types
from cdckit.streams.batches import ARRIVAL_COLUMNS, ARRIVAL_FIELDS, ERRORS
from cdckit.streams.catalogue import (
    ENTITY_PATCHES,
    ENTITY_UPDATES,
    SCHEMA_PATCHES,
    SCHEMA_UPDATES,
    Stream,
)
from cdckit.streams.codes import Status
from cdckit.streams.entity_fold import IS_LAST

STATE = T.StructType(
    [
        T.StructField("document", T.StringType()),
        T.StructField("answered", T.ArrayType(T.StringType())),
        T.StructField("revision", T.LongType()),
        T.StructField("changed", T.LongType()),
        T.StructField("taught", T.StringType()),
    ]
)
"""What is known of an entity, behind its identity: its document as JSON text, null where it does not
exist; the names of its last patches; how often it was changed; when the last patch was answered; and the
document as it was when a patch last let it be learnt from."""

MADE = T.StructType(
    [
        T.StructField("status", T.IntegerType()),
        ERRORS,
        T.StructField("before", T.StringType()),
        T.StructField("after", T.StringType()),
        T.StructField("action", T.StringType()),
        T.StructField("revision_after", T.LongType()),
        T.StructField("ended", T.LongType()),
        T.StructField("taught_before", T.StringType()),
        T.StructField("is_repeat", T.BooleanType()),
    ]
)

ENTITY = ("db", "collection", "zone", "entity")
SCHEMA = ("db",)


def kept_columns(patches: Stream) -> T.StructType:
    """The columns of patches that their answers have, too."""
    return T.StructType([*ARRIVAL_FIELDS, *patches.columns().fields])


ANSWER_SCHEMA = T.StructType([*kept_columns(ENTITY_PATCHES).fields, *MADE.fields, IS_LAST, *STATE.fields])
"""One row is one patch of an entity, and what became of it."""
SCHEMA_ANSWER_SCHEMA = T.StructType(
    [*kept_columns(SCHEMA_PATCHES).fields, *MADE.fields, IS_LAST, *STATE.fields]
)
"""One row is one patch of a schema, and what became of it."""
ENTITY_SCHEMA = T.StructType([*(ENTITY_PATCHES.columns()[name] for name in ENTITY), *STATE.fields])
"""One row is one entity: its identity, and what is known of it."""
SCHEMA_SCHEMA = T.StructType([*(SCHEMA_PATCHES.columns()[name] for name in SCHEMA), *STATE.fields])
"""One row is the schema of one database, and what is known of it."""

UPDATE_SCHEMA = T.StructType(
    [
        *ARRIVAL_FIELDS,
        *ENTITY_UPDATES.columns().fields,
        T.StructField("action", T.StringType()),
        T.StructField("revision", T.LongType()),
    ]
)
"""One row is one update of an entity: the fields of entity-updates; which action it was; and how many
updates its entity had with it."""


def entities(answers: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """
    What is known of the entities, or schemas, behind the patches that were answered.

    Args:
        answers: What `apply_patches` or `apply_schema_patches` returned.
        known: What was given to it.

    Returns:
        One row per entity that any patch was about: its identity; `document`, JSON text, null where it does
        not exist, any more or yet; `answered`, the names of its last patches, so that they have no effect
        when they come again, those that failed among them; `revision`; `changed`, in milliseconds.  Give it
        to the next call.

    Raises:
        MissingColumns, WrongColumnType: These are not such tables.

    Cost: a filter; with *known*, one shuffle of it by identity.

    >>> from cdckit import streams
    >>> said = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7,
    ...     "collection": "Mugs", "zone": "z", "entity": "m1", "part": 1, "parts": 1,
    ...     "ops": [{"op": "add", "path": "a", "value": 1}]}'''
    >>> answers = streams.apply_patches(streams.decode(records_of(said), streams.ENTITY_PATCHES))
    >>> entities(answers).select("collection", "entity", "document", "answered", "revision").show()
    +----------+------+--------+--------+--------+
    |collection|entity|document|answered|revision|
    +----------+------+--------+--------+--------+
    |      Mugs|    m1| {"a":1}| [c/2/1]|       1|
    +----------+------+--------+--------+--------+
    <BLANKLINE>
    """
    whole = "entity" in answers.columns
    columns = (ENTITY_SCHEMA if whole else SCHEMA_SCHEMA).fieldNames()
    identity = list(ENTITY if whole else SCHEMA)
    require_columns(answers, [*columns, IS_LAST.name], function="entities")
    # A patch that names no entity was refused: there is nothing to know.
    named = F.coalesce(*(F.when(F.col(name).isNull(), F.lit(False)) for name in identity), F.lit(True))
    last = answers.where(F.col(IS_LAST.name) & named).select(*columns)
    if known is None:
        return last
    require_types(known, ENTITY_SCHEMA if whole else SCHEMA_SCHEMA, function="entities")
    return last.unionByName(known.select(*columns).join(last.select(*identity), identity, "left_anti"))


def entity_updates(answers: DataFrame) -> DataFrame:
    """
    The updates of entities: what was applied, and changed something.

    Args:
        answers: What `apply_patches` returned.

    Returns:
        One row per update (`UPDATE_SCHEMA`), `status` always 1; `before` and `after` where the patch asked
        for them.  Reads change nothing: their responses are among the `partial_responses` only.

    Raises:
        MissingColumns, WrongColumnType: *answers* are not what `apply_patches` returned.

    Cost: one filter, no shuffle.

    Source:
        Debezium streams, "entity-updates": a durable record of all entities that were changed.

    >>> from cdckit import streams
    >>> nothing = streams.decode(records_of(b"?"), streams.ENTITY_PATCHES)
    >>> entity_updates(streams.apply_patches(nothing)).count()
    0
    """
    require_types(answers, ANSWER_SCHEMA, function="entity_updates")
    return _updates(answers, UPDATE_SCHEMA.fieldNames())


def schema_updates(answers: DataFrame) -> DataFrame:
    """
    The updates of schemas: as `entity_updates`, of what `apply_schema_patches` returned.

    >>> from cdckit import streams
    >>> nothing = streams.decode(records_of(b"?"), streams.SCHEMA_PATCHES)
    >>> schema_updates(streams.apply_schema_patches(nothing)).count()
    0
    """
    require_types(answers, SCHEMA_ANSWER_SCHEMA, function="schema_updates")
    return _updates(answers, [*ARRIVAL_COLUMNS, *SCHEMA_UPDATES.columns().fieldNames(), "action", "revision"])


def _updates(answers: DataFrame, columns: list[str]) -> DataFrame:
    done = (F.col("status") == Status.DONE) & F.col("action").isNotNull()
    return with_asked(answers.where(done).withColumn("revision", F.col("revision_after"))).select(*columns)


def with_asked(answers: DataFrame) -> DataFrame:
    """`before` and `after` as the patch asked for them."""
    return answers.withColumns(
        {
            "before": F.when(F.col("include_before"), F.col("before")),
            "after": F.when(F.col("include_after"), F.col("after")),
        }
    )
