"""From updates to changes: patches know exactly which fields they touch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.changes import DELETE, UPSERT
from cdckit.model.faults import BYTES, ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import ERROR_FIELDS, REJECT, door_reject
from cdckit.parts.argument_forms import one_of, rows_of, takes
from cdckit.parts.arrow_types import arrow_schema, spark_columns
from cdckit.parts.folded_rows import with_rule
from cdckit.streams.catalogue import ARRIVAL, ENTITY_UPDATES, Status
from cdckit.streams.collection_types import BOOLEAN, DOCUMENT, DOUBLE, INTEGER, LONG, TIMESTAMP
from cdckit.streams.json_values import read
from cdckit.streams.patches import parse_steps
from cdckit.streams.requests import is_update
from cdckit.streams.update_fields import Fields
from cdckit.streams.zones import change_columns

Nested = Literal["dotted", "whole"]

KEYS = ("db", "zone", "entity")
"""The key fields of an entity's changes: give them to `merge`."""

_UNUSED = ("errors", "before", "learning", "include_before", "include_after", "parts")
_NEEDED = spark_columns(
    pa.schema([*ARRIVAL, *(field for field in ENTITY_UPDATES.columns() if field.name not in _UNUSED)])
)
_OPTIONAL = [RECORD_SCHEMA["timestampType"], *(RECORD_SCHEMA[name] for name in BYTES), *ERROR_FIELDS]
_READABLE = (T.StringType, T.BooleanType, T.IntegerType, T.LongType, T.DoubleType, T.TimestampType)

_NESTED = one_of("dotted", "whole")


@takes(updates=rows_of(_NEEDED, "{} are no updates"), nested=_NESTED)
def changes(
    updates: DataFrame, collection: str, fields: T.StructType, *, nested: Nested = "dotted"
) -> DataFrame:
    """
    Make changes of what the updates say of the entities of one collection.

    A change carries the fields that its patch touched, with their values behind it: those of the others
    are not sent again.  What is added or removed as a whole touches all that is inside.

    Args:
        updates: What `apply_patches` returned, or `decode` of `ENTITY_UPDATES`; all but applied updates are
            passed over, and those that `decode` could not read are rejects.
        collection: Whose entities.
        fields: Which fields, and their types: string (a value that is no text is JSON text), boolean, int,
            bigint, double or timestamp.  `type_fields` makes them of a learned type.
        nested: `dotted`: a field `phone.home` is `home` within the document `phone`, or a field whose own
            name is `phone.home`; `whole`: fields are those of the entity alone, and what is nested is JSON
            text.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`).  The key is `db`, `zone`, `entity` (`KEYS`);
        `effective_timestamp` is `ended`, `sequence` how many updates the entity had, `message_id` client,
        request and part, `source` the database.  A delete carries the key alone.  Updates that cannot be
        changes are rejects (`reject`), with their bytes where *updates* have them: NO_DOCUMENT, the update
        does not say what the entity is then, since nobody asked for it; UNFIT_VALUE, a value does not fit the
        type that its field is to have, or an entity has both `phone.home` and `home` within `phone`.

    Raises:
        InvalidArgument: No fields; two with one name, or one with the name of a key.
        WrongColumnType: A field has another type than these.

    Cost: one pass through Python in Arrow batches, no shuffle.

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": %d, "user": "ann", "begun": 7,
    ...     "collection": "Mugs", "zone": "z", "entity": "m1", "part": 1, "parts": 1, "ops": [%s]}'''
    >>> sent = [
    ...     text % (1, b'{"op": "add", "path": "/", "value": {"name": "mug", "size": {"cl": 25}}}'),
    ...     text % (2, b'{"op": "inc", "path": "size/cl", "value": 5}'),
    ... ]
    >>> patches = streams.decode(records_of(*sent), streams.ENTITY_PATCHES)
    >>> fields = T.StructType([T.StructField("name", T.StringType()), T.StructField("size.cl", T.LongType())])
    >>> changed = streams.changes(streams.apply_patches(patches), "Mugs", fields)
    >>> changed.select("message_id", "operation", "data.name", "data.`size.cl`", "carried.name").show()
    +----------+---------+----+-------+-----+
    |message_id|operation|name|size.cl| name|
    +----------+---------+----+-------+-----+
    |     c/1/1|   upsert| mug|     25| true|
    |     c/2/1|   upsert|NULL|     30|false|
    +----------+---------+----+-------+-----+
    <BLANKLINE>
    """
    _require_readable(fields)
    reader = Fields(arrow_schema(fields), nested == "dotted")
    stated = with_rule(
        _applied_updates(updates, collection),
        [*_NEEDED.fieldNames(), "timestampType", *BYTES, "revision"],
        ("ops", "after", ERROR_CODE, ERROR_DESCRIPTION),
        reader.read,
        reader.statement,
    )
    is_reject, reject = door_reject(stated.columns)
    data = (F.col(name) for name in KEYS)
    values = (F.col("data")[field.name].alias(field.name) for field in fields)
    touched = (F.col("carried")[field.name].alias(field.name) for field in fields)
    return stated.select(
        *change_columns(F.when(~is_reject, F.when(F.col("is_delete"), DELETE).otherwise(UPSERT))),
        F.struct(*data, *values).alias("data"),
        F.struct(*(F.lit(True).alias(name) for name in KEYS), *touched).alias("carried"),
        reject,
    )


def _applied_updates(updates: DataFrame, collection: str) -> DataFrame:
    """The updates of a collection, and what could not be read; null in columns that they do not have."""
    if REJECT in updates.columns:
        reject = F.col(REJECT)
        updates = updates.withColumns({field.name: reject[field.name] for field in _OPTIONAL})
    lacking = [field for field in _OPTIONAL if field.name not in updates.columns]
    whole = updates.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in lacking))
    wrong = F.col(ERROR_CODE).isNotNull()
    # An answer says whether it is an update; of a message of entity-updates the status does.
    applied = is_update() if "action" in updates.columns else F.col("status") == Status.DONE
    revision = next((name for name in ("revision_after", "revision") if name in updates.columns), None)
    number = F.lit(None) if revision is None else F.col(revision)
    chosen = whole.where((wrong | applied) & F.coalesce(F.col("collection") == collection, wrong))
    return chosen.withColumn("revision", number.cast("bigint"))


@takes(nested=_NESTED)
def type_fields(entity_type: str, *, nested: Nested = "dotted") -> T.StructType:
    """
    The fields of a learned entity type, as `changes` takes them.

    Args:
        entity_type: Its JSON text, as `learned_types` gives it.
        nested: As for `changes`: `dotted` leaves the documents out and takes what is in them; `whole` the
            opposite.

    Returns:
        A field of each name: where `a.b` and `b` within `a` are both there, one that is a string if their
        types differ.  What a schema declares without a type, or with one that is not known, is a string too.

    >>> schema = '{"Mugs": {"fields": {"size": {"type": "DOCUMENT"}, "size/cl": {"type": "LONG"}}}}'
    >>> type_fields(schema).simpleString(), type_fields(schema, nested="whole").simpleString()
    ('struct<size.cl:bigint>', 'struct<size:string>')
    """
    [type_] = read(entity_type).values()
    kinds: dict[str, T.DataType] = {}
    for name, field in type_["fields"].items():
        steps, kind = parse_steps(name), field.get("type") if isinstance(field, dict) else None
        if len(steps) == 1 if nested == "whole" else kind != DOCUMENT:
            dotted, type_of = ".".join(steps), _SPARK.get(str(kind), T.StringType())
            kinds[dotted] = type_of if kinds.get(dotted, type_of) == type_of else T.StringType()
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


_SPARK: Mapping[str, T.DataType] = {
    BOOLEAN: T.BooleanType(),
    INTEGER: T.LongType(),
    LONG: T.LongType(),
    DOUBLE: T.DoubleType(),
    TIMESTAMP: T.TimestampType(),
}


def _require_readable(fields: T.StructType) -> None:
    if not isinstance(fields, T.StructType) or not fields.fields:
        raise InvalidArgument(None, "fields", "a StructType with one field or more", fields)
    names = [name.lower() for name in (*KEYS, *fields.fieldNames())]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(None, "fields", f"of different names, none of {', '.join(KEYS)}", twice)
    for field in fields:
        if not isinstance(field.dataType, _READABLE):
            needed = "string, boolean, int, bigint, double or timestamp"
            raise WrongColumnType(None, field.name, needed, field.dataType.simpleString())
