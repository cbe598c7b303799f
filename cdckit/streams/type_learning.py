"""Schema learning: what the entities of a collection have in common, told again whenever it changes."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.argument_forms import no_stream, rows_of, takes
from cdckit.parts.arguments import schema_columns
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import IS_LAST
from cdckit.parts.folded_rows import explode_rule, fold_rows
from cdckit.streams.catalogue import ARRIVAL, REQUEST, SCHEMA_LEARNING
from cdckit.streams.collection_types import DECLARED_TYPE, LESSON, TYPE_PLAN, TYPE_STATE, declared_types
from cdckit.streams.requests import ANSWERS, SCHEMA_ANSWERS, is_update, last_states

LEARNING_SCHEMA = spark_columns(pa.schema([*ARRIVAL, *SCHEMA_LEARNING.columns(), ("is_type", pa.bool_())]))
"""One row is one message of schema-learning: an update of an entity, or of an entity type (`is_type`)."""

_KEEPS = (*ARRIVAL.names, *TYPE_PLAN.scope, "ended", "is_type", "client_id", "request")
LESSON_SCHEMA = T.StructType(
    [
        *(LEARNING_SCHEMA[name] for name in _KEEPS),
        *spark_columns(pa.schema([*LESSON, IS_LAST, *TYPE_STATE])),
    ]
)
"""One row is one message of schema-learning, and what it taught."""
TYPE_SCHEMA = T.StructType([LESSON_SCHEMA[name] for name in (*TYPE_PLAN.scope, *TYPE_STATE.names)])
"""One row is one entity type: what is known of it, and what that was made of."""
LEARNED_SCHEMA = T.StructType(
    [LESSON_SCHEMA[name] for name in (*ARRIVAL.names, *TYPE_PLAN.scope, "ended", "entities", "entity_type")]
)
"""One row is one entity type as it was learnt, told whenever it changed."""

_LESSONS = rows_of(LESSON_SCHEMA, "{} are not what `learn` returned")
_TYPES = rows_of(TYPE_SCHEMA, "{} is not what `entity_types` returned").or_none()


@takes(answers=ANSWERS, schemas=SCHEMA_ANSWERS.or_none())
def schema_learning(answers: DataFrame, schemas: DataFrame | None = None) -> DataFrame:
    """
    Find what can be learnt from: updates of entities that say so, and those of the entity types of a schema.

    Args:
        answers: What `apply_patches` returned; only updates with `learning` teach.
        schemas: What `apply_schema_patches` returned; None if there are none.

    Returns:
        One row per message (`LEARNING_SCHEMA`).  Of an entity: its update, `after` as the entity is, asked
        for or not, and `before` as it was taught last.  The page has "the same messages" as entity-updates
        here; of those that ask for no documents nobody could learn, and what an update without `learning`
        has changed would be counted out, and never in.  Of a schema: a row for each entity type in it
        (`is_type`), `part` i of n, with only that type in `after`, no `before` and no `ops`, and the name of
        the type as `collection`.  For one that was removed there is a row as well, or nobody would learn of
        it: without `part`, and the type is null in `after`.

    Cost: a filter of each, and one pass of the schemas through Python; no shuffle.

    Source:
        Debezium streams, "schema-learning".

    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> schema_learning(nothing).count()
    0
    """
    taught = answers.where(is_update() & F.col("learning"))
    lessons = _messages(taught.withColumn("before", F.col("taught_before")), is_type=False)
    if schemas is None:
        return lessons
    header = [*ARRIVAL.names, "db", *REQUEST, "user", "begun", "ended", "status"]
    updates = schemas.where(is_update())
    types = explode_rule(updates, header, ["before", "after"], declared_types, DECLARED_TYPE)
    return lessons.unionByName(_messages(types, is_type=True))


def _messages(rows: DataFrame, *, is_type: bool) -> DataFrame:
    """Rows in the columns of `LEARNING_SCHEMA`, null where they have none."""
    marked = rows.withColumn("is_type", F.lit(is_type))
    return marked.select(*schema_columns(LEARNING_SCHEMA, {name: F.col(name) for name in marked.columns}))


@takes(
    messages=[
        rows_of(LEARNING_SCHEMA, "{} are not what `schema_learning` returned"),
        no_stream("hand its batches to a function"),
    ],
    known=_TYPES,
)
def learn(messages: DataFrame, *, known: DataFrame | None = None) -> DataFrame:
    """
    Learn from each message of schema-learning, one after the other for each entity type, as they came.

    With the types alone the order does not matter, but what is told on the way does.

    Args:
        messages: What `schema_learning` returned.
        known: What was learnt before: what `entity_types` returned; None if nothing was.

    Returns:
        One row per message (`LESSON_SCHEMA`): where it came from; `changed_type`, the entity type as it is
        since this message, null if the message did not change it; `entities`, how many there are; and in
        the last row of each type (`is_last`) what is known then: see `entity_types`.

        A field is `optional` when fewer entities have it than there are; fields of nested documents stand
        under their path, `phone/home`.  Its type is the common one of all values that were seen of it:
        INTEGER and LONG are LONG, INTEGER and DOUBLE are DOUBLE, all else is STRING.  What a schema
        declares of a field stands.  Of more than 10,000 fields the later ones are not learnt, nor is one
        whose path has more than 1,000 characters.

    Cost: one shuffle by entity type, as the page has it, two sorts: all updates of one type pass through
    one task, which holds its fields and no entities.

    Source:
        Debezium streams, "schema-learning".

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "learning": true,
    ...     "collection": "Mugs", "zone": "z", "entity": "m1", "part": 1, "parts": 1,
    ...     "ops": [{"op": "add", "path": "cl", "value": 25}]}'''
    >>> answers = streams.apply_patches(streams.decode(records_of(text), streams.ENTITY_PATCHES))
    >>> learn(schema_learning(answers)).select("entities", "changed_type").show(truncate=False)
    +--------+--------------------------------------------------------------+
    |entities|changed_type                                                  |
    +--------+--------------------------------------------------------------+
    |1       |{"Mugs":{"fields":{"cl":{"type":"INTEGER","optional":false}}}}|
    +--------+--------------------------------------------------------------+
    <BLANKLINE>
    """
    return fold_rows(messages, TYPE_PLAN, keeps=_KEEPS, states=known)


@takes(lessons=_LESSONS)
def learned_types(lessons: DataFrame) -> DataFrame:
    """
    The entity types as they were learnt, one row for each change: those lessons that changed a type.

    Args:
        lessons: What `learn` returned.

    Returns:
        One row per change of a type (`LEARNED_SCHEMA`): `timestamp`, `topic`, `partition` and `offset` of the
        message that changed it; `db`, `collection`, `ended`; `entities`, how many there are; and
        `entity_type`, JSON text.

    Cost: one filter.

    The second mug changes nothing:

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "learning": true,
    ...     "collection": "Mugs", "zone": "z", "entity": "%s", "part": 1, "parts": 1,
    ...     "ops": [{"op": "add", "path": "cl", "value": 25}]}'''
    >>> sent = streams.decode(records_of(text % b"m1", text % b"m2"), streams.ENTITY_PATCHES)
    >>> lessons = learn(schema_learning(streams.apply_patches(sent)))
    >>> learned_types(lessons).select("offset", "entity_type").show(truncate=False)
    +------+--------------------------------------------------------------+
    |offset|entity_type                                                   |
    +------+--------------------------------------------------------------+
    |0     |{"Mugs":{"fields":{"cl":{"type":"INTEGER","optional":false}}}}|
    +------+--------------------------------------------------------------+
    <BLANKLINE>
    """
    changed = lessons.where(F.col("changed_type").isNotNull())
    return changed.withColumn("entity_type", F.col("changed_type")).select(*LEARNED_SCHEMA.fieldNames())


@takes(lessons=_LESSONS, known=_TYPES)
def entity_types(lessons: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """
    What is known of the entity types behind these lessons (`TYPE_SCHEMA`): give it to the next call of
    `learn`.

    Args:
        lessons: What `learn` returned.
        known: What was given to it.

    Cost: a filter; with *known*, one shuffle of it.

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "learning": true,
    ...     "collection": "Mugs", "zone": "z", "entity": "%s", "part": 1, "parts": 1,
    ...     "ops": [{"op": "add", "path": "cl", "value": 25}]}'''
    >>> sent = streams.decode(records_of(text % b"m1", text % b"m2"), streams.ENTITY_PATCHES)
    >>> lessons = learn(schema_learning(streams.apply_patches(sent)))
    >>> entity_types(lessons).select("collection", F.get_json_object("lessons", "$.entities")).show()
    +----------+------------------------------------+
    |collection|get_json_object(lessons, $.entities)|
    +----------+------------------------------------+
    |      Mugs|                                   2|
    +----------+------------------------------------+
    <BLANKLINE>
    """
    return last_states(lessons, known, TYPE_PLAN.scope, TYPE_SCHEMA.fieldNames())
