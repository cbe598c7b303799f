"""Requests, with the patches of each entity; and answers: what became of each patch, and its entity then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.faults import ERROR_CODE
from cdckit.model.rejected_records import ERROR_FIELDS, REJECT, door_reject
from cdckit.parts.argument_forms import ABOVE_ZERO, FOR_EACH_BATCH, Form, rows_of, takes
from cdckit.parts.arguments import require_columns, require_types
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.fold import IS_LAST, FoldPlan
from cdckit.parts.folded_rows import explode_rule, fold_rows
from cdckit.streams.catalogue import (
    ARRIVAL,
    BATCH_HEADER,
    DATABASE,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ENTITY_UPDATES,
    REQUEST,
    SCHEMA_PATCHES,
    SCHEMA_UPDATES,
    Stream,
)
from cdckit.streams.documents import (
    ANSWER,
    ANSWERED_AT,
    IS_REJECT,
    MOST_CHARACTERS,
    REMEMBERED,
    STATE,
    patch_plan,
)
from cdckit.streams.request_parts import PATCH, batch_patches

_ERRORS = PATCH.field("errors")
PATCH_SCHEMA = spark_columns(pa.schema([*ARRIVAL, *ENTITY_PATCHES.columns(), _ERRORS]))
"""One row is one patch of one entity: where it came from, what it says, and why it cannot be applied, if it
is known before it is tried."""

_BATCH = pa.schema([*ARRIVAL, *map(ENTITY_BATCHES.columns().field, (*BATCH_HEADER, "patches"))])


def _answer_schema(patches: Stream) -> T.StructType:
    return spark_columns(pa.schema([*ARRIVAL, *patches.columns(), *ANSWER]))


ANSWER_SCHEMA = _answer_schema(ENTITY_PATCHES)
"""One row is one patch of an entity, and what became of it."""
SCHEMA_ANSWER_SCHEMA = _answer_schema(SCHEMA_PATCHES)
"""One row is one patch of a schema, and what became of it."""
ENTITY_SCHEMA = spark_columns(pa.schema([*map(ENTITY_PATCHES.columns().field, ENTITY), *STATE]))
"""One row is one entity: its identity, and what is known of it."""
SCHEMA_SCHEMA = spark_columns(pa.schema([*map(SCHEMA_PATCHES.columns().field, DATABASE), *STATE]))
"""One row is the schema of one database, and what is known of it."""

ANSWERS = rows_of(ANSWER_SCHEMA, "{} are not what `apply_patches` returned")
SCHEMA_ANSWERS = rows_of(SCHEMA_ANSWER_SCHEMA, "{} are not what `apply_schema_patches` returned")
LIMITS = {"most_characters": ABOVE_ZERO, "remember": ABOVE_ZERO}
_WRONG_KNOWN = "{} is not what `entities` returned"

_OF_UPDATES = [("action", pa.string()), ("revision", pa.int64())]
UPDATE_SCHEMA = spark_columns(pa.schema([*ARRIVAL, *ENTITY_UPDATES.columns(), *_OF_UPDATES]))
"""One row is one update of an entity: the fields of entity-updates; which action it was; and how many
updates its entity had with it."""


@takes()
def entity_patches(batches: DataFrame, *, databases: Iterable[str] | None = None) -> DataFrame:
    """
    The patches of the batches: part i of n, with the header fields of the batch.

    Args:
        batches: What `decode` returned of `ENTITY_BATCHES`, a batch or a stream.
        databases: Those that are served here; all by default.  A patch of another one is not applied: it
            gets a failure response.

    Returns:
        One row per patch (`PATCH_SCHEMA`): `timestamp`, `topic`, `partition` and `offset` of the record of
        its batch; the fields of entity-patches, `part` counting from 1; and `errors` (array of text), why it
        cannot be applied: another database, no entity.  Null where nothing is known against it.  A
        batch without patches has no rows.  A record that `decode` could not read is one row with a `reject`
        (`cdckit.rejects`), which is null for all others.

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
    served = require_databases(databases)
    require_types(batches, T.StructType([*spark_columns(_BATCH).fields, *ERROR_FIELDS]))
    rule = partial(batch_patches, databases=served)
    kept, reads = [*ARRIVAL.names, *BATCH_HEADER, REJECT], ["db", "patches", IS_REJECT]
    return explode_rule(_with_reject(batches), kept, reads, rule, PATCH).select(
        *PATCH_SCHEMA.fieldNames(), REJECT
    )


def _with_reject(rows: DataFrame) -> DataFrame:
    """Rows, what `REJECT` says of them, and whether it says anything."""
    if REJECT in rows.columns:
        return rows.withColumn(IS_REJECT, F.col(REJECT).isNotNull())
    is_reject, reject = door_reject(rows.columns)
    return rows.withColumns({IS_REJECT: is_reject, REJECT: reject})


def require_databases(databases: Iterable[str] | None) -> frozenset[str] | None:
    """The names of databases, None for all; raises `InvalidArgument` for one text, or what is none."""
    if databases is None:
        return None
    listed = [databases] if isinstance(databases, str) else list(databases)
    if isinstance(databases, str) or not all(isinstance(name, str) for name in listed):
        raise InvalidArgument(None, "databases", "a list of names", databases)
    return frozenset(listed)


@takes()
def entities(answers: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """
    Read what is known of the entities, or schemas, behind the patches that were answered.

    Args:
        answers: What `apply_patches` or `apply_schema_patches` returned.
        known: What was given to it.

    Returns:
        One row per entity that any patch was about: its identity; `document`, JSON text, null where it does
        not exist, any more or yet; `answered`, the names of its last patches, so that they have no effect
        when they come again, those that failed among them; `revision`; `changed`, in milliseconds.  Patches
        that name no entity have such a row, too, with nulls for the names that they lack.  Give it to the
        next call.

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
    schema, key = (ENTITY_SCHEMA, ENTITY) if "entity" in answers.columns else (SCHEMA_SCHEMA, DATABASE)
    require_columns(answers, [*schema.fieldNames(), IS_LAST.name])
    if known is not None:
        require_types(known, schema)
    return last_states(answers, known, key, schema.fieldNames())


def last_states(
    rows: DataFrame, known: DataFrame | None, scope: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """What is known of scopes behind rows that were folded, and of others what was *known* before."""
    last = rows.where(IS_LAST.name).select(*columns)
    if known is None:
        return last
    others, now = known.select(*columns).alias("others"), last.select(*scope).alias("now")
    same = (F.col(f"others.{name}").eqNullSafe(F.col(f"now.{name}")) for name in scope)
    return last.unionByName(others.join(now, reduce(Column.__and__, same), "left_anti"))


@takes(answers=ANSWERS)
def entity_updates(answers: DataFrame) -> DataFrame:
    """
    The updates of entities: what was applied, and asked for a change.

    Args:
        answers: What `apply_patches` returned.

    Returns:
        One row per update (`UPDATE_SCHEMA`), `status` always 1; `before` and `after` where the patch asked
        for them.  Reads change nothing: their responses are among the `partial_responses` only.

    Cost: one filter, no shuffle.

    Source:
        Debezium streams, "entity-updates": a durable record of all entities that were changed.

    >>> from cdckit import streams
    >>> nothing = streams.decode(records_of(b"?"), streams.ENTITY_PATCHES)
    >>> entity_updates(streams.apply_patches(nothing)).count()
    0
    """
    return _updates(answers, UPDATE_SCHEMA.fieldNames())


@takes(answers=SCHEMA_ANSWERS)
def schema_updates(answers: DataFrame) -> DataFrame:
    """
    The updates of schemas: as `entity_updates`, of what `apply_schema_patches` returned.

    >>> from cdckit import streams
    >>> nothing = streams.decode(records_of(b"?"), streams.SCHEMA_PATCHES)
    >>> schema_updates(streams.apply_schema_patches(nothing)).count()
    0
    """
    return _updates(answers, [*ARRIVAL.names, *SCHEMA_UPDATES.columns().names, "action", "revision"])


def _updates(answers: DataFrame, columns: list[str]) -> DataFrame:
    updates = with_requested(answers.where(is_update()))
    return updates.withColumn("revision", F.col("revision_after")).select(*columns)


def is_update() -> Column:
    """Tell of an answer whether its patch was applied, and asked for a change."""
    return F.col("action").isNotNull()


def with_requested(answers: DataFrame, always: Column | None = None) -> DataFrame:
    """`before` and `after` as the patch asked for them, or where they *always* are there."""
    shown = F.lit(False) if always is None else always
    return answers.withColumns(
        {name: F.when(F.col(f"include_{name}") | shown, F.col(name)) for name in ("before", "after")}
    )


def _patches_of(stream: Stream) -> Form:
    schema = spark_columns(pa.schema([*ARRIVAL, *stream.columns()]))
    return rows_of(schema, "{} are not what `entity_patches` or `decode` returned")


@takes(
    patches=[_patches_of(ENTITY_PATCHES), FOR_EACH_BATCH],
    known=rows_of(ENTITY_SCHEMA, _WRONG_KNOWN).or_none(),
    **LIMITS,
)
def apply_patches(
    patches: DataFrame,
    *,
    known: DataFrame | None = None,
    order_by: Iterable[str] | None = None,
    most_characters: int = MOST_CHARACTERS,
    remember: int = REMEMBERED,
) -> DataFrame:
    """
    Apply the patches of each entity one after the other, each wholly or not at all.

    Args:
        patches: What `entity_patches` returned, or `decode` of `ENTITY_PATCHES`.
        known: What is known from before: what `entities` returned; None if nothing is.
        order_by: The columns that say in which order the patches of an entity count, then `part`.  By default
            they count as they were written: in a partition, which is an append-only log, by offset, whatever
            the clocks of producers say; between partitions by record time, of each the latest so far.
        most_characters: How long the JSON text of an entity may become.
        remember: How many of the last patches of an entity are remembered, here and for the next call: one
            of them that comes again is a repeat.

    Returns:
        One row per patch (`ANSWER_SCHEMA`): its own columns, and

        - `status`: 1, it was applied; 2, the entity does not exist, and no operation adds anything (reads,
          and removes, get this); 3, it could not be applied, and nothing of it was.
        - `errors`: why, for 2 and 3.
        - `before` and `after`: the entity as JSON text, asked for or not; null where it does not exist, and
          where the patch failed.  Responses and updates have them where they were asked for.
        - `action`: `created`, `updated` or `deleted`; null where no change was asked for, or none was made:
          a read (no operations, or tests alone), a failure.  A patch that asks for a change is an update
          even where nothing is another then, such as one that removes a field that is not there.
        - `ended`, milliseconds: each patch is answered at the time of its record, so that the same patches
          always have the same answers; of one entity it never goes back.  `revision_after`, how often the
          entity was changed so far.
        - `taught_before`: of a patch with `learning`, the entity as it was after the last such one.
        - `is_repeat`: the same part of the same request was there before; it has no effect, and no status.
        - in the last row of each entity (`is_last`) what is known of it then: see `entities`.
        - `reject`, if *patches* say what could not be read (`cdckit.rejects`): nothing is made of such a row,
          and `changes` hands it on.

    Raises:
        MissingColumns: *patches* have no column of *order_by*.

    Cost: one shuffle by entity, two sorts (one by *order_by*), a pass through Python that holds one document.
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
    plan = patch_plan(ENTITY, most_characters, remember)
    return _answer_patches(patches, plan, ENTITY_PATCHES, order_by, known=known)


@takes(
    patches=[_patches_of(SCHEMA_PATCHES), FOR_EACH_BATCH],
    known=rows_of(SCHEMA_SCHEMA, _WRONG_KNOWN).or_none(),
    **LIMITS,
)
def apply_schema_patches(
    patches: DataFrame,
    *,
    known: DataFrame | None = None,
    order_by: Iterable[str] | None = None,
    most_characters: int = MOST_CHARACTERS,
    remember: int = REMEMBERED,
) -> DataFrame:
    """
    Apply the patches of each database's schema: as `apply_patches` does those of entities.

    Args:
        patches: What `decode` returned of `SCHEMA_PATCHES`.
        known: What is known from before: what `entities` returned of such answers.
        order_by, most_characters, remember: As for `apply_patches`.

    Returns:
        One row per patch (`SCHEMA_ANSWER_SCHEMA`), as of `apply_patches`.

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
    plan = patch_plan(DATABASE, most_characters, remember)
    return _answer_patches(patches, plan, SCHEMA_PATCHES, order_by, known=known)


def _answer_patches(
    patches: DataFrame,
    plan: FoldPlan,
    stream: Stream,
    order_by: Iterable[str] | None,
    *,
    known: DataFrame | None,
) -> DataFrame:
    keeps = pa.schema([*ARRIVAL, *stream.columns()])
    named = [order_by] if isinstance(order_by, str) else order_by
    order = None if named is None else [*named, "part", *REQUEST]
    require_columns(patches, order or [])
    given = {
        "errors": F.col("errors") if "errors" in patches.columns else F.lit(None).cast("array<string>"),
        # As `cdckit.streams.documents.answered_at`.
        ANSWERED_AT: F.coalesce(F.unix_millis("timestamp"), F.col("begun"), F.lit(0)),
        "learning": F.col("learning") if "learning" in keeps.names else F.lit(False),
    }
    rejects = [REJECT] if {REJECT, ERROR_CODE} & set(patches.columns) else []
    rows = _with_reject(patches).withColumns(given)
    return fold_rows(rows, plan, keeps=[*keeps.names, *rejects], order=order, states=known)
