"""Requests, with the patches of each entity; and answers: what became of each patch, and its entity then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.records import ERROR_CODE, ERROR_FIELDS, RECORD_SCHEMA
from cdckit.parts.arguments import (
    require_batch,
    require_columns,
    require_flag,
    require_instant,
    require_int,
    require_types,
)
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.workers import WorkerPlan
from cdckit.streams.catalogue import (
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ENTITY_UPDATES,
    SCHEMA_LEARNING,
    SCHEMA_PATCHES,
    SCHEMA_UPDATES,
    SUBSCRIPTIONS,
    Status,
    Stream,
)
from cdckit.streams.documents import IS_LAST, Document, Plan, fold_messages
from cdckit.streams.json_values import column_text, read, read_all, to_text, to_text_all
from cdckit.streams.patches import show_value

ARRIVAL_COLUMNS = ("timestamp", "topic", "partition", "offset")
"""Where a message came from, and its place among all: what is left of its record."""

ARRIVAL_FIELDS = [RECORD_SCHEMA[name] for name in ARRIVAL_COLUMNS]
ERRORS = T.StructField("errors", T.ArrayType(T.StringType()))

PATCH_SCHEMA = T.StructType([*ARRIVAL_FIELDS, *ENTITY_PATCHES.columns().fields, ERRORS])
"""One row is one patch of one entity: where it came from, what it says, and why it cannot be applied, if it
is known before it is tried."""

_HEADER = [field for field in ENTITY_PATCHES.columns() if field.name in ENTITY_BATCHES.columns().fieldNames()]
_GIVEN = T.StructType([*ARRIVAL_FIELDS, *_HEADER, ENTITY_BATCHES.columns()["patches"]])
_TEXTS = ("collection", "zone", "entity")
_ROWS_AT_ONCE = 1000


def entity_patches(batches: DataFrame, *, databases: Iterable[str] | None = None) -> DataFrame:
    """
    The patches of the batches: part i of n, with the header fields of the batch.

    Args:
        batches: What `decode` returned of `ENTITY_BATCHES`, a batch or a stream; rows in error are passed
            over.
        databases: Those that are served here; all by default.  A patch of another one is not applied: it
            gets a failure response.

    Returns:
        One row per patch (`PATCH_SCHEMA`): `timestamp`, `topic`, `partition` and `offset` of the record of
        its batch; the fields of entity-patches, `part` counting from 1; and `errors` (array of text), why it
        cannot be applied: another database, no entity.  Null where nothing is known against it.  A
        batch without patches has no rows.

    Raises:
        InvalidArgument: *databases* is a text, or has what is none.
        MissingColumns, WrongColumnType: *batches* are not what `decode` returned.

    Cost: one pass through Python in Arrow batches, no shuffle.

    Source:
        Debezium streams, "entity-patches".

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "patches": [
    ...     {"collection": "Mugs", "zone": "z", "entity": "m1", "ops": []},
    ...     {"collection": "Mugs", "zone": "z", "entity": "m2", "ops": []}]}'''
    >>> patches = entity_patches(streams.decode(records_of(text), streams.ENTITY_BATCHES))
    >>> patches.select("request", "entity", "part", "parts", "ops", "errors").orderBy("part").show()
    +-------+------+----+-----+---+------+
    |request|entity|part|parts|ops|errors|
    +-------+------+----+-----+---+------+
    |      2|    m1|   1|    2| []|  NULL|
    |      2|    m2|   2|    2| []|  NULL|
    +-------+------+----+-----+---+------+
    <BLANKLINE>
    """
    served = require_databases(databases, function="entity_patches")
    require_types(batches, T.StructType([*_GIVEN.fields, *ERROR_FIELDS]), function="entity_patches")
    given = batches.where(batches[ERROR_CODE].isNull()).select(*_GIVEN.fieldNames())
    return WorkerPlan(given, partial(_patches, databases=served), PATCH_SCHEMA).rows()


def require_databases(databases: Iterable[str] | None, *, function: str) -> frozenset[str] | None:
    """The names of databases, None for all; raises `InvalidArgument` for one text, or what is none."""
    if databases is None:
        return None
    listed = [databases] if isinstance(databases, str) else list(databases)
    if isinstance(databases, str) or not all(isinstance(each, str) for each in listed):
        raise InvalidArgument(function, "databases", "a list of names", databases)
    return frozenset(listed)


def foreign_reason(databases: Iterable[str] | None) -> Column:
    """Why a message that names its database is not for these: `errors` of its patch, null where it is."""
    nothing = F.lit(None).cast(ERRORS.dataType)
    if databases is None:
        return nothing
    reasons = F.array(F.concat(F.lit("the database '"), F.col("db"), F.lit("' is not served here")))
    return F.when(~F.col("db").isin(*databases), reasons).otherwise(nothing)


def _patches(
    batches: Iterable[pa.RecordBatch], *, databases: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(PATCH_SCHEMA)
    copied = [field.name for field in (*ARRIVAL_FIELDS, *_HEADER)]
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            rows, found_patches = [], []
            lists = batch.column("patches").to_pylist()
            for row, (database, patches) in enumerate(
                zip(batch.column("db").to_pylist(), lists, strict=True)
            ):
                against = _foreign_reasons(database, databases)
                rows += [row] * len(patches)
                for part, text in enumerate(patches, 1):
                    found_patches.append({"part": part, "parts": len(patches), **read_patch(text, against)})
            taken = batch.take(pa.array(rows, pa.int64()))
            columns = {name: taken.column(name) for name in copied}
            for field in types:
                if field.name not in columns:
                    columns[field.name] = pa.array(
                        [each.get(field.name) for each in found_patches], field.type
                    )
            yield make_batch(columns, types)


def _foreign_reasons(database: str, databases: frozenset[str] | None) -> list[str]:
    if databases is None or database in databases:
        return []
    return [f"the database {show_value(database)} is not served here"]


ERASED = "ERASED"
"""What stands in a batch in the place of a patch that was erased."""
ERASED_REASON = "the patch spoke of an entity that was erased"


def read_patch(text: str, against: Sequence[str] = ()) -> dict[str, Any]:
    """The columns of one patch of a batch; why it cannot be applied among them, also what is *against* it."""
    document = read_all(text)
    if document == ERASED:
        return {"errors": [ERASED_REASON]}
    if not isinstance(document, dict):
        return {"errors": [*against, f"the patch is {show_value(document)}, not an object"]}
    reasons = [
        f"the patch has no {name}: it is {show_value(document.get(name))}"
        for name in _TEXTS
        if not isinstance(document.get(name), str)
    ]
    if document.get("ops") is None:
        reasons.append("the patch has no ops")
    texts = {name: column_text(document[name]) for name in _TEXTS if isinstance(document.get(name), str)}
    ops = None if document.get("ops") is None else column_text(to_text_all(document["ops"]))
    return {**texts, "ops": ops, "errors": [*against, *reasons] or None}


_SCHEMA_HEADER = ("db", "client_id", "request", "user", "begun", "ended", "status")
_KEPT = T.StructType([*ARRIVAL_FIELDS, *(SCHEMA_LEARNING.columns()[name] for name in _SCHEMA_HEADER)])
_MADE = [SCHEMA_LEARNING.columns()[name] for name in ("collection", "part", "parts", "after")]
_SCHEMAS_AT_ONCE = 100  # a schema may have a megabyte

TypeRow = tuple[str | None, int | None, int, str | None]


def explode_types(schemas: DataFrame) -> DataFrame:
    """
    One row for each entity type of each schema, and for each that an update removed.

    Not by Spark's `from_json`: it loses digits of numbers, and the quotes of a type that is a text.

    Args:
        schemas: Answers to patches of schemas that were applied, with the whole `before` and `after`.

    Returns:
        When the answer arrived, and its header; `collection`, the name of the type; `part` and `parts`: it
        is the i-th of n types of the schema, without i where it was removed; `after`, an object with this
        type alone, which is null where it was removed.

    Cost: one pass through Python in Arrow batches.
    """
    columns = T.StructType([*_KEPT.fields, *_MADE])
    return WorkerPlan(
        schemas.select(*_KEPT.fieldNames(), "before", "after"), _explode_batches, columns
    ).rows()


def _explode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    types = arrow_schema(T.StructType([*_KEPT.fields, *_MADE]))
    for whole in batches:
        for start in range(0, whole.num_rows, _SCHEMAS_AT_ONCE):
            batch = whole.slice(start, _SCHEMAS_AT_ONCE)
            texts = zip(batch.column("before").to_pylist(), batch.column("after").to_pylist(), strict=True)
            type_rows = [_type_rows(before, after) for before, after in texts]
            rows = [row for row, each in enumerate(type_rows) for _ in each]
            taken = batch.select(_KEPT.fieldNames()).take(pa.array(rows, pa.int64()))
            columns = dict(zip(_KEPT.fieldNames(), taken.columns, strict=True))
            exploded = [one for each in type_rows for one in each]
            for place, field in enumerate(_MADE):
                columns[field.name] = pa.array([one[place] for one in exploded], types.field(field.name).type)
            yield make_batch(columns, types)


def _type_rows(before: str | None, after: str | None) -> list[TypeRow]:
    now, was = _types_in(after), _types_in(before)
    there = [_row(name, place, len(now), now[name]) for place, name in enumerate(sorted(now), 1)]
    return there + [_row(name, None, len(now), None) for name in sorted(was.keys() - now.keys())]


def _row(name: str, part: int | None, parts: int, type_: Any) -> TypeRow:
    return column_text(name), part, parts, column_text(to_text({name: type_}))


def _types_in(text: str | None) -> dict[str, Any]:
    return {name: type_ for name, type_ in read(text or "{}").items() if type_ is not None}


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

RESULT_FIELDS = T.StructType(
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


def patch_columns(patches: Stream) -> T.StructType:
    """The columns of patches that their answers have, too."""
    return T.StructType([*ARRIVAL_FIELDS, *patches.columns().fields])


ANSWER_SCHEMA = T.StructType(
    [*patch_columns(ENTITY_PATCHES).fields, *RESULT_FIELDS.fields, IS_LAST, *STATE.fields]
)
"""One row is one patch of an entity, and what became of it."""
SCHEMA_ANSWER_SCHEMA = T.StructType(
    [*patch_columns(SCHEMA_PATCHES).fields, *RESULT_FIELDS.fields, IS_LAST, *STATE.fields]
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
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7,
    ...     "collection": "Mugs", "zone": "z", "entity": "m1", "part": 1, "parts": 1,
    ...     "ops": [{"op": "add", "path": "a", "value": 1}]}'''
    >>> answers = streams.apply_patches(streams.decode(records_of(text), streams.ENTITY_PATCHES))
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
    return with_requested(answers.where(done).withColumn("revision", F.col("revision_after"))).select(
        *columns
    )


def with_requested(answers: DataFrame) -> DataFrame:
    """`before` and `after` as the patch asked for them."""
    return answers.withColumns(
        {
            "before": F.when(F.col("include_before"), F.col("before")),
            "after": F.when(F.col("include_after"), F.col("after")),
        }
    )


# Names that no column of a caller has, by which patches may be ordered.
_AT, _SHOWN = "answered at", "shown in any case"
_READS = (
    "errors",
    "client_id",
    "request",
    "part",
    "ops",
    "include_before",
    "include_after",
    "learning",
    _AT,
    _SHOWN,
)


def apply_patches(
    patches: DataFrame,
    *,
    entities: DataFrame | None = None,
    ended: datetime | None = None,
    order_by: Iterable[str] = ARRIVAL_COLUMNS,
    documents: bool = False,
    most_characters: int = 1_000_000,
    remember: int = 100,
) -> DataFrame:
    """
    Apply the patches of each entity one after the other, each wholly or not at all.

    Args:
        patches: What `entity_patches` returned, or `decode` of `ENTITY_PATCHES`; rows with an `error_code`
            are passed over.
        entities: What is known from before: what `entities` returned; None if nothing is.
        ended: When the patches are answered, aware; by default each at the time of its record, so that the
            same patches always have the same answers.  Of one entity it never goes back.
        order_by: The columns that say in which order the patches of an entity count, then `part`: by default
            record time, topic, partition and offset.  Of a topic that is partitioned by entity, whose clocks
            may not be trusted, `["offset"]` is the order in which they were written.
        documents: Whether `before` and `after` are there for all, asked for or not: `changes` needs
            `after`.  Of subscriptions to zones they always are: `zone_changes` needs them.
        most_characters: How long the JSON text of an entity may become.
        remember: How many of the last patches of an entity are remembered, here and for the next call: one
            of them that comes again is a repeat.

    Returns:
        One row per patch (`ANSWER_SCHEMA`): its own columns, and

        - `status`: 1, it was applied; 2, the entity does not exist, and no operation adds anything (reads,
          and removes, get this); 3, it could not be applied, and nothing of it was.
        - `errors`: why, for 2 and 3.
        - `before` and `after`: the entity as JSON text, if asked for; null where it does not exist, and
          where the patch failed.
        - `action`: `created`, `updated` or `deleted`; null where nothing was to be changed: a read, a
          failure.
        - `ended`, milliseconds; `revision_after`, how often the entity was changed so far.
        - `taught_before`: of a patch with `learning`, the entity as it was after the last such one.
        - `is_repeat`: the same part of the same request was there before; it has no effect, and no status.
        - in the last row of each entity (`is_last`) what is known of it then: see `entities`.

    Raises:
        InvalidArgument: *patches* are a stream (hand its batches to a function), *ended* has no zone, a
        number
            is not above 0.
        MissingColumns, WrongColumnType: *patches* or *entities* are not such tables.

    Cost: one shuffle by entity, a sort, one pass through Python; of an entity one document is held at a time.
    The answers are often used twice, for updates and for what is known: write them, or cache them, before.

    Source:
        Debezium streams, "entity-updates".

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7,
    ...     "includeAfter": true, "collection": "Mugs", "zone": "z", "entity": "m1",
    ...     "part": 1, "parts": 1, "ops": [%s]}'''
    >>> sent = [
    ...     text % b'{"op": "add", "path": "size/cl", "value": 25}',
    ...     text.replace(b"2,", b"3,", 1) % b'{"op": "inc", "path": "size", "value": 1}',
    ... ]
    >>> answers = apply_patches(streams.decode(records_of(*sent), streams.ENTITY_PATCHES))
    >>> answers.select("request", "status", "action", "after", "errors").show(truncate=False)
    +-------+------+-------+------------------+--------------------------------------------------+
    |request|status|action |after             |errors                                            |
    +-------+------+-------+------------------+--------------------------------------------------+
    |2      |1     |created|{"size":{"cl":25}}|NULL                                              |
    |3      |3     |NULL   |NULL              |[operation 1: '/size' is an object, and no number]|
    +-------+------+-------+------------------+--------------------------------------------------+
    <BLANKLINE>
    """
    function = "apply_patches"
    if entities is not None:
        require_types(entities, ENTITY_SCHEMA, function=function)
    shown = F.lit(require_flag(documents, "documents", function=function))
    # A subscription says in its document which zone it is to: without it nobody would know.
    shown |= F.coalesce(F.col("collection").isin(*SUBSCRIPTIONS), F.lit(False))
    limits = require_limits(most_characters, remember, function=function)
    return _answer_patches(
        patches, entities, ENTITY_PATCHES, ENTITY, ended, order_by, shown, limits, function
    )


def apply_schema_patches(
    patches: DataFrame,
    *,
    schemas: DataFrame | None = None,
    ended: datetime | None = None,
    order_by: Iterable[str] = ARRIVAL_COLUMNS,
    most_characters: int = 1_000_000,
    remember: int = 100,
) -> DataFrame:
    """
    Apply the patches of each database's schema: as `apply_patches` does those of entities.

    Args:
        patches: What `decode` returned of `SCHEMA_PATCHES`.
        schemas: What is known from before: what `entities` returned of such answers.
        ended, order_by, most_characters, remember: As for `apply_patches`.

    Returns:
        One row per patch (`SCHEMA_ANSWER_SCHEMA`); `before` and `after` are always there, since
        `schema_learning` needs them.

    Raises:
        As `apply_patches`.

    Cost: as `apply_patches`; all patches of one schema are answered by one task.

    Source:
        Debezium streams, "schema-updates".

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7,
    ...     "part": 1, "parts": 1, "includeAfter": true,
    ...     "ops": [{"op": "add", "path": "Mugs/fields/size", "value": {"type": "LONG"}}]}'''
    >>> answers = apply_schema_patches(streams.decode(records_of(text), streams.SCHEMA_PATCHES))
    >>> answers.select("db", "status", "action", "after").show(truncate=False)
    +----+------+-------+--------------------------------------------+
    |db  |status|action |after                                       |
    +----+------+-------+--------------------------------------------+
    |shop|1     |created|{"Mugs":{"fields":{"size":{"type":"LONG"}}}}|
    +----+------+-------+--------------------------------------------+
    <BLANKLINE>
    """
    function = "apply_schema_patches"
    if schemas is not None:
        require_types(schemas, SCHEMA_SCHEMA, function=function)
    limits = require_limits(most_characters, remember, function=function)
    shown = F.lit(True)
    return _answer_patches(patches, schemas, SCHEMA_PATCHES, SCHEMA, ended, order_by, shown, limits, function)


def require_limits(most: int, remember: int, *, function: str) -> partial[Document]:
    """What folds the patches of a document within limits; raises `InvalidArgument` for one below 1."""
    for argument, number in (("most_characters", most), ("remember", remember)):
        if require_int(number, argument, function=function) < 1:
            raise InvalidArgument(function, argument, "a number above 0", number)
    return partial(Document, most=most, remember=remember)


def _answer_patches(
    patches: DataFrame,
    known: DataFrame | None,
    stream: Stream,
    identity: tuple[str, ...],
    ended: datetime | None,
    order_by: Iterable[str],
    shown: Column,
    fold: partial[Document],
    function: str,
) -> DataFrame:
    keeps = patch_columns(stream)
    require_types(patches, keeps, function=function)
    require_batch(
        patches, "patches", "hand its batches to a function: writeStream.foreachBatch(…)", function=function
    )
    order = [*([order_by] if isinstance(order_by, str) else order_by), "part", "client_id", "request"]
    require_columns(patches, order, function=function)
    usable = patches.where(F.col(ERROR_CODE).isNull()) if ERROR_CODE in patches.columns else patches
    against = F.col("errors") if "errors" in patches.columns else F.lit(None).cast(ERRORS.dataType)
    given = usable.withColumns({"errors": against, _AT: _end_millis(ended, function), _SHOWN: shown})
    plan = Plan(identity, _READS, keeps, RESULT_FIELDS, STATE, fold)
    return fold_messages(given, known, plan, order=order)


def _end_millis(ended: datetime | None, function: str) -> Column:
    if ended is not None:
        return F.unix_millis(require_instant(ended, "ended", function=function))
    return F.coalesce(F.unix_millis("timestamp"), F.col("begun"), F.lit(0))
