"""The merge: from a set of changes to the history that processing them one by one would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.merging.arrow_changes import ARRIVED, GUID, MOVED_HERE, OPERATIONS, SNAPSHOT, Layout, flat_columns
from cdckit.merging.moves import brings_identity, with_moves
from cdckit.merging.versions import versions
from cdckit.model.changes import LACKING, MOVED, ORDER, TRUNCATE, UNTIL, require_changes
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    STANDARD_COLUMNS,
    VALID_FROM,
    VALID_TO,
    provenance_type,
    standard_columns,
    with_ends,
)
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.argument_forms import NAME, takes
from cdckit.parts.arguments import (
    quoted,
    require_batch,
    require_keys,
    require_struct,
    require_type,
    wrong_argument,
    wrong_type,
)
from cdckit.parts.arrow_types import arrow_schema, arrow_type
from cdckit.parts.built_columns import with_guid
from cdckit.parts.families import share_rows
from cdckit.parts.guids import can_be_guids, key_digest
from cdckit.parts.public_calls import called
from cdckit.parts.values import is_collated
from cdckit.parts.widening import WHOLE_KEYS
from cdckit.parts.workers import WorkerPlan

KEY_TYPES = (
    T.StringType, T.VarcharType, T.CharType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType,
    T.LongType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType,
)  # fmt: skip


@takes(entity=NAME)
def merge(changes: DataFrame, *, entity: str, keys: Sequence[str]) -> DataFrame:
    """
    The history of every entity that *changes* speak of.

    A pure function of the set of changes: order, partitioning, batching and repeats do not matter.
    The result is what processing the changes of each key one by one would give, in the order of
    `effective_timestamp`, `sequence`, `arrival`, `message_id`, `source`:

    - an upsert sets each field it carries if the field was never set, or if the change's priority
      for that field is at least the one that the field has; an equal value (`cdckit.parts.values` says what
      is equal) at an equal priority changes nothing, its provenance included; an equal value of a key
      field never changes its message, only its priority, also when it brings a deleted entity back;
    - a delete takes effect if its priority is at least the row's (greater, if the row is deleted
      already): every other field than the keys that was ever set becomes null, whatever its priority, and
      has the delete's priority for that field from there on;
    - an upsert of a deleted entity brings it back if its priority is at least the row's; fields
      that it does not carry stay null;
    - deletes before the first upsert of an entity say nothing: there was nothing to delete;
    - an absence, "a complete list did not name the entity", is a delete where the entity is alive, and
      nothing where it is not: it cannot make the delete of another source stronger;
    - a version begins wherever values, deletion or provenance change; of several changes at one
      instant only the last state counts.

    A change may say until when it holds (`effective_until`).  Then that result is the one of each instant
    for itself, of the changes that hold then: where a change ends, what would stand without it stands again,
    with its own message and priority; where nothing holds, there is no version.

    A row that moves to another key (`moved`) and does not send all of its values is an error, until
    `complete_moves` is said of the changes.  Then it takes along what the upsert of the new key did not send:
    the value that stood under the old key right before its delete, with its message and its priority.  It
    counts right behind that upsert, as a word of its own: where the new key is there already, a higher
    priority stands.  If the delete is not among *changes*, or its upsert does not say `moved`, nothing is
    taken along.

    Changes that say `snapshot` stand in the order of their source, and their times follow their places: see
    `cdckit.model.CHANGE_SCHEMA`.

    Args:
        changes: One row per change (`cdckit.model.CHANGE_SCHEMA`); rejects among them (`cdckit.rejects`
            shows them) are passed over.  The same `source`, `message_id`
            and `arrival.record_number` twice for one entity is one change: the one that comes first
            counts, whatever the other says (see `find_contradictions`).  If the two differ
            and stand at one place in that order, nothing says which of them counts.
        entity: The name of the kind of entity, part of the guid.
        keys: The fields of `data` that are its key.  Null is a value like any other here.  Where
            *changes* have the column `guid`, that is the identity instead, and key fields may
            change their values; otherwise, and for what `Ledger.changes` gives of a ledger that is kept by
            these keys, every version shows its key, carried or not.

    Returns:
        One row per version: `guid`, `valid_from_timestamp`, `valid_to_timestamp` (exclusive, null
        while it is current), `deleted_indicator`, the fields of `data`, `source_message` (which
        changed the state last, at the instant at which the version begins) and `field_provenance`
        (per field, and for the row itself under `guid`: the message `m` and priority `p` that it
        has its value from; null where the field was never set).  Rows have no order.

    Raises:
        MissingColumns, WrongColumnType: *changes* is not a table of changes, or a key is of a type
            that has no exact text: float, double, nested, or text with a collation; or a field is of the
            type void.
        InvalidArgument: *keys* is empty or names no field of `data`;
            `field_priorities` names one that `data` does not have; or a field of `data` has the name of
            a standard column of a history.
        PythonException: When the result is computed (Spark's; its text holds `InvalidChanges` and the
            column): a change lacks its effective timestamp, message, priority, record number, data or
            carried (as a whole) or, where that is the identity, guid; or its operation is none of
            upsert, delete and absent; or its text holds `InvalidEnds`, where a change ends before it begins,
            or as it does; or its text holds `CircularMoves`, where the two changes of moves
            stand so far apart that each would take along what another one brings.
        SparkRuntimeException: When the result is computed: a row moved to another key without all of its
            values, and `complete_moves` was not said.

    Cost: one shuffle by key and one sort; then the rows pass once through Python as Arrow batches.
    In memory at once: an Arrow batch or two, or all changes of one entity if those are more, and they
    take three to four times their own size: a million changes of one key took 0.5 GB of the worker's
    memory with three fields (116 bytes a change), 0.6 GB with nine (182 bytes).  What moves cost,
    `complete_moves` says.  An entity of n changes of which k end takes about log k times as long as without;
    up to k times where messages speak twice of it, or deletes end most of what it says.

    Source:
        Data hub, sections on updates, deletes, out-of-sequence records and priority.

    >>> history = merge(changes, entity="product", keys=["number"])
    >>> history.orderBy("number", "valid_from_timestamp").select(
    ...     "number", "name", "valid_from_timestamp", "deleted_indicator", "source_message"
    ... ).show()
    +------+------+--------------------+-----------------+--------------+
    |number|  name|valid_from_timestamp|deleted_indicator|source_message|
    +------+------+--------------------+-----------------+--------------+
    |     1|kettle| 2024-01-01 09:00:00|            false|            m1|
    |     1|teapot| 2024-01-01 10:00:00|            false|            m2|
    |     2|   mug| 2024-01-01 09:00:00|            false|            m1|
    |     2|  NULL| 2024-01-01 11:00:00|             true|            m3|
    +------+------+--------------------+-----------------+--------------+
    <BLANKLINE>
    """
    return merge_changes(changes, entity=entity, keys=keys)


def merge_changes(changes: DataFrame, *, entity: str, keys: Sequence[str]) -> DataFrame:
    """Merge as `merge`, for functions whose errors should bear their own names."""
    ordered = sort_by_entity(changes, entity=entity, keys=keys)
    history = with_guids(_versions(ordered).rows(), ordered.layout, entity)
    return with_ends(history) if UNTIL in changes.columns else history


@called("merge")
def plan_versions(changes: DataFrame, *, entity: str, keys: Sequence[str], few: bool = False) -> WorkerPlan:
    """
    Plan what `merge` makes, for whoever wants files of it, not rows.

    For changes that have their guid, or a key of which workers can make it.  If they are known to be *few*,
    one task sorts them: that needs no shuffle.
    """
    ordered = sort_by_entity(changes, entity=entity, keys=keys, few=few)
    assert ordered.layout.by_guid or ordered.layout.entity is not None
    return _versions(ordered)


def _versions(ordered: SortedChanges) -> WorkerPlan:
    schema = history_schema(ordered.data)
    by = partial(versions, layout=ordered.layout, schema=arrow_schema(schema, large=True))
    return WorkerPlan(ordered.changes, by, schema, large=True)


class SortedChanges(NamedTuple):
    """Changes as the kernel reads them (`cdckit.merging.arrow_changes`), and the type of their `data`."""

    changes: DataFrame
    layout: Layout
    data: T.StructType


def sort_by_entity(
    changes: DataFrame,
    *,
    entity: str,
    keys: Sequence[str],
    more: Mapping[str, Column] = MappingProxyType({}),
    reserved: Sequence[str] = (),
    few: bool = False,
) -> SortedChanges:
    """
    The changes of each entity in one partition, in their order, and *more* columns beside them.

    *reserved* are names that the result will have, beside those of every history: no field may.
    """
    data = check_fields(changes, keys, [*STANDARD_COLUMNS, *reserved])
    instead = "keep a Ledger up: changes.writeStream.foreachBatch(ledger.sink('a name'))"
    require_batch(changes, "changes", instead)
    changes, names = usable_changes(changes), data.fieldNames()
    by_guid, has_guid = brings_identity(changes, keys), GUID in changes.columns
    says_places = SNAPSHOT in changes.columns
    if MOVED in changes.columns:
        changes = with_moves(changes, keys, at_once=ARRIVED in more)
    priorities = fields_with_priority(changes, names)
    # Workers see each entity once, the JVM each version; but only the JVM knows the text of every key.
    types = {key: arrow_type(data[key].dataType) for key in keys}
    layout = Layout(
        fields=tuple(names),
        keys=tuple(names.index(key) for key in keys),
        field_priorities=frozenset(names.index(name) for name in priorities),
        by_guid=by_guid,
        entity=entity if not has_guid and can_be_guids(types) else None,
        has_guid=has_guid and not by_guid,
    )
    flat = (changes.withColumns(dict(more)) if more else changes).selectExpr(
        *([GUID] if has_guid else []),
        *ORDER,
        *(name for name in (SNAPSHOT, UNTIL, MOVED_HERE) if name in changes.columns),
        *flat_columns(names, priorities, says_places),
        *map(quoted, more),
    )
    if not says_places:
        together = flat.coalesce(1) if few else flat.repartition(*layout.identity)
        ordered = together.sortWithinPartitions(*layout.identity, *ORDER)
        return SortedChanges(ordered.drop("sequence", "arrival"), layout, data)
    is_truncate = F.col("operation").eqNullSafe(OPERATIONS.index(TRUNCATE))
    identity = F.xxhash64(*layout.identity)
    together = flat.coalesce(1) if few else share_rows(flat, identity, everywhere=is_truncate)
    ordered = together.sortWithinPartitions(is_truncate.desc(), *layout.identity, *ORDER)
    return SortedChanges(ordered, layout, data)


def with_guids(history: DataFrame, layout: Layout, entity: str) -> DataFrame:
    """The guids that the workers could not make."""
    if layout.by_guid or layout.has_guid or layout.entity is not None:
        return history
    keys = [layout.fields[index] for index in layout.keys]
    return with_guid(history, key_digest(entity, {key: F.col(quoted(key)) for key in keys}))


def history_schema(data: T.StructType, *more: T.StructField) -> T.StructType:
    """The columns of the history of these fields, *more* after the valid interval."""
    provenance = T.StructType([T.StructField(name, provenance_type()) for name in (GUID, *data.fieldNames())])
    return T.StructType(
        [
            *standard_columns(GUID, VALID_FROM, VALID_TO),
            *more,
            HISTORY_SCHEMA[DELETED],
            *(T.StructField(field.name, field.dataType) for field in data.fields),
            HISTORY_SCHEMA[SOURCE_MESSAGE],
            T.StructField(FIELD_PROVENANCE, provenance),
        ]
    )


def check_fields(changes: DataFrame, keys: Sequence[str], reserved: Sequence[str]) -> T.StructType:
    """The type of `data`; raises unless *changes* and *keys* are such as the merge can read."""
    require_changes(changes)
    data = require_struct(changes, "data")
    names = data.fieldNames()
    require_keys(keys, names)
    for lacks in changes.schema["data"].metadata.get(LACKING, {}).values():
        if GUID not in changes.columns and set(keys) <= set(lacks):
            needed = "fields of each table that was united: rename the key of those that call it otherwise"
            others = ", ".join(name for name in names if name not in lacks)
            only = f"{', '.join(keys)}, where one has only {others}"
            raise wrong_argument("keys", needed, only)
    taken = [name for name in names if name.lower() in reserved]
    if taken:
        needed = "free of the names of a history's own columns: rename these fields first"
        raise wrong_argument("data", needed, taken)
    for field in data.fields:
        if isinstance(field.dataType, T.NullType):
            needed = "of a type that has values: cast it to the type that they would have"
            raise wrong_type(f"data.{field.name}", needed, field.dataType.simpleString())
    if GUID in changes.columns:
        require_type(changes, GUID, T.StringType())
    if SNAPSHOT in changes.columns:
        require_type(changes, SNAPSHOT, T.BooleanType())
    for key in keys:
        kind = data[key].dataType
        # Spark would bring together, and sort as one, the texts that a collation does not tell apart.
        if not isinstance(kind, KEY_TYPES) or is_collated(kind):
            remedy = WHOLE_KEYS if isinstance(kind, T.FractionalType) else None
            needed = "a type with an exact text, being a key"
            raise wrong_type(f"data.{key}", needed, kind.simpleString(), remedy)
    return data


def fields_with_priority(changes: DataFrame, names: Sequence[str]) -> list[str]:
    """The fields of which *changes* state a priority; raises unless they are fields, and it is an int."""
    if "field_priorities" not in changes.columns:
        return []
    stated = require_struct(changes, "field_priorities")
    for field in stated.fields:
        if not isinstance(field.dataType, T.IntegerType):
            raise wrong_type(f"field_priorities.{field.name}", "int", field.dataType.simpleString())
    unknown = sorted(set(stated.fieldNames()) - set(names))
    if unknown:
        raise wrong_argument("field_priorities", f"a struct of fields among {', '.join(names)}", unknown)
    return stated.fieldNames()
