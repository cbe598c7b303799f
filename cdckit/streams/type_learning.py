"""Schema learning: what the entities of a collection have in common, told again whenever it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import require_batch, require_columns, require_types
from cdckit.parts.instants import parse_instant
from cdckit.streams.catalogue import SCHEMA_LEARNING, Status
from cdckit.streams.documents import IS_LAST, Plan, fold_messages
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.patches import step_text
from cdckit.streams.requests import (
    ANSWER_SCHEMA,
    ARRIVAL_COLUMNS,
    ARRIVAL_FIELDS,
    SCHEMA_ANSWER_SCHEMA,
    explode_types,
)

STRING, BOOLEAN, INTEGER, LONG, DOUBLE = "STRING", "BOOLEAN", "INTEGER", "LONG", "DOUBLE"
BIG_INTEGER, DECIMAL, TIMESTAMP, UUID, DOCUMENT = "BIG_INTEGER", "DECIMAL", "TIMESTAMP", "UUID", "DOCUMENT"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WIDER = {frozenset((INTEGER, LONG)): LONG, frozenset((INTEGER, DOUBLE)): DOUBLE}
_SHORTEST_INSTANT = len("2024-01-01T10:00Z")


def value_type(value: Any) -> str | None:
    """
    The type of a JSON value; None for null, which is of every type.

    An array is a STRING: the page's types have none for it.

    >>> values = (1, 2**40, 2**70, Decimal("0.5"), "2024-01-01T10:00:00Z", "x", {}, None)
    >>> [value_type(each) for each in values]
    ['INTEGER', 'LONG', 'BIG_INTEGER', 'DOUBLE', 'TIMESTAMP', 'STRING', 'DOCUMENT', None]
    """
    if value is None or isinstance(value, bool):
        return None if value is None else BOOLEAN
    if isinstance(value, int):
        bits = (value if value >= 0 else ~value).bit_length()
        return INTEGER if bits < 32 else LONG if bits < 64 else BIG_INTEGER
    if isinstance(value, Decimal):
        return DOUBLE if Decimal(repr(float(value))) == value else DECIMAL
    if isinstance(value, str):
        if _UUID.fullmatch(value):
            return UUID
        is_instant = len(value) >= _SHORTEST_INSTANT and parse_instant(value) is not None
        return TIMESTAMP if is_instant else STRING
    return DOCUMENT if isinstance(value, dict) else STRING


def common_type(types: Iterable[str]) -> str:
    """
    The one type of a field that was of these: a matter of the set, not of the order.

    >>> common_type(["LONG", "INTEGER"]), common_type(["INTEGER", "DOUBLE", "LONG"]), common_type([])
    ('LONG', 'STRING', 'STRING')
    """
    found = frozenset(types)
    return next(iter(found)) if len(found) == 1 else _WIDER.get(found, STRING)


def typed_paths(document: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """
    The fields of a document with their types, nested ones under the path to them.

    >>> dict(typed_paths({"phone": {"home": "1"}, "age": 3}))
    {'phone': 'DOCUMENT', 'age': 'INTEGER', 'phone/home': 'STRING'}
    """
    inside = [("", document)]
    while inside:
        before, holder = inside.pop(0)
        for name, value in holder.items():
            path = before + step_text(name)
            yield path, value_type(value)
            if isinstance(value, dict):
                inside.append((f"{path}/", value))


_MOST_FIELDS = 10_000
_LONGEST_NAME = 1_000  # 100 names within each other may have 50 megabytes, of a document of one


class EntityType:
    """
    An entity type: how many entities there are, how many have each field, and of which types it was.

    What a schema declares of a field counts more than what is seen of it.  Types only widen: a field stays
    of the type that it was once seen with; one that was null each time has none yet, and is not told.  Of
    more than 10,000 fields the later ones are not learnt, nor is one whose path has more than 1,000
    characters.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all: another entity type."""
        self.entities = 0
        self.counts: dict[str, int] = {}
        self.types: dict[str, set[str]] = {}
        self.declared: dict[str, Any] = {}
        self.type: str | None = None
        self.always: set[str] | None = None

    def load(self, type_: str | None, lessons: str | None) -> None:
        """Begin with what was learnt before."""
        known, self.always = read(lessons or "{}"), None
        self.type, self.entities = type_, known.get("entities", 0)
        self.declared = known.get("declared", {})
        fields = known.get("fields", {})
        self.counts = {path: count for path, (count, _) in fields.items()}
        self.types = {path: set(types) for path, (_, types) in fields.items()}

    def state(self) -> tuple[str | None, str]:
        """The entity type, and what it was made of."""
        fields = {path: [count, sorted(self.types[path])] for path, count in sorted(self.counts.items())}
        lessons = {"entities": self.entities, "fields": fields, "declared": self.declared}
        return self.type, column_text(to_text(lessons)) or ""

    def step(
        self, is_type: bool, collection: str, before: str | None, after: str | None
    ) -> tuple[tuple[str | None, int], int]:
        """The entity type if the message changed it, and how many entities there are."""
        if is_type:
            self.declared, is_new = _fields_declared(after, collection), True
        else:
            # Both are counted, whatever the first one says.
            is_new = any([self._count(before, -1), self._count(after, 1)])
        always = {path for path, count in self.counts.items() if count >= self.entities}
        # To sort and write all fields takes much longer than to see that they are as they were.
        if always == self.always and not is_new:
            return (None, self.entities), 0
        self.always = always
        schema = column_text(to_text({collection: {"fields": self._fields()}}))
        changed = schema if schema != self.type else None
        self.type = schema
        return (changed, self.entities), len(changed or "")

    def _count(self, text: str | None, by: int) -> bool:
        """Count an entity in or out; whether a field, or a type of one, is new."""
        if text is None:
            return False
        self.entities += by
        is_new = False
        for path, kind in typed_paths(read(text)):
            if path not in self.counts:
                if len(path) > _LONGEST_NAME or len(self.counts) >= _MOST_FIELDS:
                    continue
                self.counts[path], self.types[path], is_new = 0, set(), True
            self.counts[path] += by
            if by > 0 and kind is not None and kind not in self.types[path]:
                self.types[path].add(kind)
                is_new = True
        return is_new

    def _fields(self) -> dict[str, Any]:
        seen = {
            path: {"type": common_type(self.types[path]), "optional": count < self.entities}
            for path, count in self.counts.items()
            if self.types[path]
        }
        fields = {**seen, **self.declared}
        return {path: fields[path] for path in sorted(fields)}


def _fields_declared(text: str | None, collection: str) -> dict[str, Any]:
    declared = read(text) if text else None
    type_ = declared.get(collection) if isinstance(declared, dict) else None
    fields = type_.get("fields") if isinstance(type_, dict) else None
    return fields if isinstance(fields, dict) else {}


LEARNING_SCHEMA = T.StructType(
    [*ARRIVAL_FIELDS, *SCHEMA_LEARNING.columns().fields, T.StructField("is_type", T.BooleanType())]
)
"""One row is one message of schema-learning: an update of an entity, or of an entity type (`is_type`)."""

TYPE_STATE = T.StructType(
    [T.StructField("entity_type", T.StringType()), T.StructField("lessons", T.StringType())]
)
_MADE = T.StructType(
    [T.StructField("changed_type", T.StringType()), T.StructField("entities", T.IntegerType())]
)
_IDENTITY = ("db", "collection")
_KEEPS = T.StructType(
    [
        *ARRIVAL_FIELDS,
        *(LEARNING_SCHEMA[name] for name in (*_IDENTITY, "ended", "is_type", "client_id", "request")),
    ]
)
LESSON_SCHEMA = T.StructType([*_KEEPS.fields, *_MADE.fields, IS_LAST, *TYPE_STATE.fields])
"""One row is one message of schema-learning, and what it taught."""
TYPE_SCHEMA = T.StructType([*(LEARNING_SCHEMA[name] for name in _IDENTITY), *TYPE_STATE.fields])
"""One row is one entity type: what is known of it, and what that was made of."""


LEARNED_SCHEMA = T.StructType(
    [
        *ARRIVAL_FIELDS,
        *(LEARNING_SCHEMA[name] for name in (*_IDENTITY, "ended")),
        _MADE["entities"],
        TYPE_STATE["entity_type"],
    ]
)
"""One row is one entity type as it was learnt, told whenever it changed."""


def schema_learning(answers: DataFrame, schemas: DataFrame | None = None) -> DataFrame:
    """
    What can be learnt from: the updates of entities that say so, and those of the entity types of a schema.

    Args:
        answers: What `apply_patches` returned; only updates with `learning` teach.
        schemas: What `apply_schema_patches` returned; None if there are none.

    Returns:
        One row per message (`LEARNING_SCHEMA`).  Of an entity: its update, `before` as the entity was taught
        last, `after` as it is.  Of a schema: a row for each entity type in it (`is_type`), `part` i of n,
        with only that type in `after`, no `before` and no `ops`, and the name of the type as `collection`.
        For one that was removed there is a row as well, or nobody would learn of it: without `part`, and the
        type is null in `after`.

    Raises:
        MissingColumns, WrongColumnType: These are no answers.

    Cost: a filter of each, and one pass of the schemas through Python; no shuffle.

    Source:
        Debezium streams, "schema-learning".

    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> schema_learning(nothing).count()
    0
    """
    require_types(answers, ANSWER_SCHEMA, function="schema_learning")
    done = (F.col("status") == Status.DONE) & F.col("action").isNotNull()
    # What the patch asked for is for its response; here both are there, or nothing could be learnt.
    taught = answers.where(done & F.col("learning")).withColumns(
        {"before": F.col("taught_before"), "is_type": F.lit(False), "errors": F.lit(None)}
    )
    lessons = taught.select(*_columns(taught))
    if schemas is None:
        return lessons
    require_types(schemas, SCHEMA_ANSWER_SCHEMA, function="schema_learning")
    types = explode_types(schemas.where(done)).withColumn("is_type", F.lit(True))
    return lessons.unionByName(types.select(*_columns(types)))


def _columns(messages: DataFrame) -> list[Column]:
    return [
        (F.col(field.name) if field.name in messages.columns else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in LEARNING_SCHEMA
    ]


def learn(
    messages: DataFrame, *, known: DataFrame | None = None, order_by: Iterable[str] = ARRIVAL_COLUMNS
) -> DataFrame:
    """
    What each message of schema-learning taught, one after the other for each entity type.

    Args:
        messages: What `schema_learning` returned.
        known: What was learnt before: what `entity_types` returned; None if nothing was.
        order_by: The columns in whose order they count: with the types alone the order does not matter,
            but what is told on the way does.

    Returns:
        One row per message (`LESSON_SCHEMA`): where it came from; `changed_type`, the entity type as it is
        since this message, null if the message did not change it; `entities`, how many there are; and in
        the last row of each type (`is_last`) what is known then: see `entity_types`.

        A field is `optional` when fewer entities have it than there are; fields of nested documents stand
        under their path, `phone/home`.  Its type is the common one of all values that were seen of it:
        INTEGER and LONG are LONG, INTEGER and DOUBLE are DOUBLE, all else is STRING.  What a schema
        declares of a field stands.  Of more than 10,000 fields the later ones are not learnt, nor is one
        whose path has more than 1,000 characters.

    Raises:
        InvalidArgument: *messages* are a stream.
        MissingColumns, WrongColumnType: *messages* or *known* are not such tables.

    Cost: one shuffle by entity type, as the page has it, and a sort: all updates of one type pass through
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
    require_types(messages, LEARNING_SCHEMA, function="learn")
    require_batch(messages, "messages", "hand its batches to a function", function="learn")
    if known is not None:
        require_types(known, TYPE_SCHEMA, function="learn")
    order = [*([order_by] if isinstance(order_by, str) else order_by), "part", "client_id", "request"]
    require_columns(messages, order, function="learn")
    reads = ("is_type", "collection", "before", "after")
    plan = Plan(_IDENTITY, reads, _KEEPS, _MADE, TYPE_STATE, EntityType)
    return fold_messages(messages, known, plan, order=order)


def learned_types(lessons: DataFrame) -> DataFrame:
    """
    The entity types as they were learnt, one row for each change: those lessons that changed a type.

    Args:
        lessons: What `learn` returned.

    Returns:
        One row per change of a type (`LEARNED_SCHEMA`): `timestamp`, `topic`, `partition` and `offset` of the
        message that changed it; `db`, `collection`, `ended`; `entities`, how many there are; and
        `entity_type`, JSON text.

    Raises:
        MissingColumns, WrongColumnType: *lessons* are not what `learn` returned.

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
    require_types(lessons, LESSON_SCHEMA, function="learned_types")
    changed = lessons.where(F.col("changed_type").isNotNull())
    return changed.withColumn("entity_type", F.col("changed_type")).select(*LEARNED_SCHEMA.fieldNames())


def entity_types(lessons: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """
    What is known of the entity types behind these lessons (`TYPE_SCHEMA`): give it to the next call of
    `learn`.

    Args:
        lessons: What `learn` returned.
        known: What was given to it.

    Raises:
        MissingColumns, WrongColumnType: These are not such tables.

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
    require_types(lessons, LESSON_SCHEMA, function="entity_types")
    last = lessons.where(IS_LAST.name).select(*TYPE_SCHEMA.fieldNames())
    if known is None:
        return last
    require_types(known, TYPE_SCHEMA, function="entity_types")
    older = known.select(*TYPE_SCHEMA.fieldNames())
    return last.unionByName(older.join(last.select(*_IDENTITY), list(_IDENTITY), "left_anti"))
