"""From updates to changes: patches know exactly which fields they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from math import isinf
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.model.changes import DELETE, UPSERT
from cdckit.model.faults import BYTES, keep_bytes
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS, RECORD_SCHEMA, door_reject
from cdckit.parts.arguments import require_types
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.instants import parse_instant
from cdckit.parts.workers import WorkerPlan
from cdckit.streams.catalogue import ENTITY_UPDATES, Status, StreamFault
from cdckit.streams.json_values import column_text, read, read_all, to_text
from cdckit.streams.patches import (
    ADD,
    INCREMENT,
    MOVE,
    REMOVE,
    REPLACE,
    REQUIRE,
    Operation,
    Path,
    operations,
    parse_steps,
    show_value,
)
from cdckit.streams.requests import ARRIVAL_FIELDS
from cdckit.streams.type_learning import BOOLEAN, DOCUMENT, DOUBLE, INTEGER, LONG, TIMESTAMP
from cdckit.streams.zones import change_columns

_MOST_STEPS = 6  # each doubles in how many ways a name can be read

Row = tuple[str, list[Any], list[bool], str | None, str | None]
"""Operation, values, which fields were touched, and the code and sentence of what is wrong."""


def statement(
    ops: str | None,
    after: str | None,
    places: list[list[Path]],
    convert: list[Callable[[Any], Any]],
    names: list[str],
) -> Row:
    """
    What one update says of the fields.

    Args:
        ops: The operations of its patch, JSON text.
        after: The entity after it, JSON text; null where nobody said.
        places: By field, where it may stand in a document.
        convert: By field, what makes its value of one of JSON, or raises.
        names: By field, its name.
    """
    nothing: list[Any] = [None] * len(places)
    done, _ = operations(read_all(ops or "[]"))
    if after is None:
        if ends_without(done):
            return DELETE, nothing, [False] * len(places), None, None
        return _unfit(StreamFault.NO_DOCUMENT, "", nothing)
    document = read(after)
    written_at = [path for operation in done for path in written_paths(operation)]
    touched = [any(_paths_overlap(path, at) for path in each for at in written_at) for each in places]
    values = []
    for paths, is_touched, converted, name in zip(places, touched, convert, names, strict=True):
        found = [_value(document, path) for path in paths] if is_touched else []
        value, *more = [each for each in found if each is not None] or [None]
        if more:
            return _unfit(StreamFault.UNFIT_VALUE, f"{name} is there twice: a name has the dot.", nothing)
        try:
            values.append(None if value is None else converted(value))
        except (TypeError, ValueError, OverflowError):
            return _unfit(StreamFault.UNFIT_VALUE, f"{name} is {show_value(value)}.", nothing)
    return UPSERT, values, touched, None, None


def _unfit(fault: StreamFault, finding: str, nothing: list[Any]) -> Row:
    return UPSERT, nothing, [False] * len(nothing), fault.value, column_text(fault.describe(finding))


def ends_without(done: list[Operation]) -> bool:
    """Whether the entity is gone after these operations, given that nothing is said of it after them."""
    gone = False
    for operation in done:
        if operation.name == REMOVE:
            gone = gone or not operation.path
        elif operation.name in _MAKES:
            gone = False
    return gone


# What makes an entity anew that is gone: what is moved or copied must be there.
_MAKES = (ADD, REPLACE, INCREMENT)


def field_paths(name: str) -> list[Path]:
    """
    Where a field may stand: `a.b` is `b` within `a`, or the field of an entity whose name has the dot.

    >>> field_paths("a.b")
    [('a', 'b'), ('a.b',)]
    """
    steps = name.split(".")
    if len(steps) > _MOST_STEPS:
        return [tuple(steps), (name,)]
    found: list[Path] = [(steps[-1],)]
    for step in reversed(steps[:-1]):
        found = [each for rest in found for each in ((step, *rest), (f"{step}.{rest[0]}", *rest[1:]))]
    return found


def written_paths(operation: Operation) -> tuple[Path, ...]:
    """The places that an operation changes; the document itself has no steps."""
    if operation.name == REQUIRE:
        return ()
    return (operation.path, operation.source) if operation.name == MOVE else (operation.path,)


def _paths_overlap(first: Path, second: Path) -> bool:
    short = min(len(first), len(second))
    return first[:short] == second[:short]


def _value(document: Any, path: Path) -> Any:
    for step in path:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document


def _text(value: Any) -> str | None:
    return column_text(value if isinstance(value, str) else to_text(value))


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any, *, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        raise TypeError
    return value


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError
    found = float(value)
    if isinf(found):  # a decimal beyond all doubles; of an int Python says so itself
        raise OverflowError
    return found


def _instant(value: Any) -> Any:
    found = parse_instant(value)
    if found is None:
        raise TypeError
    return found


CONVERT: Mapping[type[T.DataType], Callable[[Any], Any]] = {
    T.StringType: _text,
    T.BooleanType: _boolean,
    T.IntegerType: partial(_whole, bits=31),
    T.LongType: partial(_whole, bits=63),
    T.DoubleType: _double,
    T.TimestampType: _instant,
}


Nested = Literal["dotted", "whole"]

KEYS = ("db", "zone", "entity")
"""The key fields of an entity's changes: give them to `merge`."""

_FUNCTION = "changes"
_ROWS_AT_ONCE = 1000
_ERRORS = (ERROR_CODE, ERROR_DESCRIPTION)
_NEEDED = T.StructType(
    [
        *ARRIVAL_FIELDS,
        *(
            field
            for field in ENTITY_UPDATES.columns()
            if field.name not in ("errors", "before", "learning", "include_before", "include_after", "parts")
        ),
    ]
)


def changes(
    updates: DataFrame, collection: str, fields: T.StructType, *, nested: Nested = "dotted"
) -> DataFrame:
    """
    What the updates say of the entities of one collection.

    A change carries the fields that its patch touched, with their values behind it: those of the others
    are not sent again.  What is added or removed as a whole touches all that is inside.

    Args:
        updates: What `apply_patches` returned with `documents=True`, or `decode` of `ENTITY_UPDATES`; all
            but applied updates are passed over, and those that `decode` could not read are rejects.
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
        changes are rejects (`reject`), with their bytes where *updates* have them: see `find_unfit`.

    Raises:
        InvalidArgument: *nested* is neither; no fields; two with one name, or one with the name of a key.
        WrongColumnType: A field has another type than these.
        MissingColumns: *updates* are no updates.

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
    >>> changed = streams.changes(streams.apply_patches(patches, documents=True), "Mugs", fields)
    >>> changed.select("message_id", "operation", "data.name", "data.`size.cl`", "carried.name").show()
    +----------+---------+----+-------+-----+
    |message_id|operation|name|size.cl| name|
    +----------+---------+----+-------+-----+
    |     c/1/1|   upsert| mug|     25| true|
    |     c/2/1|   upsert|NULL|     30|false|
    +----------+---------+----+-------+-----+
    <BLANKLINE>
    """
    stated = _read_updates(updates, collection, fields, nested)
    is_reject, reject = door_reject(stated.columns)
    data = (F.col(name) for name in KEYS)
    values = (F.col("data")[field.name].alias(field.name) for field in fields)
    touched = (F.col("carried")[field.name].alias(field.name) for field in fields)
    return stated.select(
        *change_columns(F.when(~is_reject, F.col("operation"))),
        F.struct(*data, *values).alias("data"),
        F.struct(*(F.lit(True).alias(name) for name in KEYS), *touched).alias("carried"),
        reject,
    )


def find_unfit(
    updates: DataFrame, collection: str, fields: T.StructType, *, nested: Nested = "dotted"
) -> DataFrame:
    """
    The updates that `changes` has as rejects, with the reason.

    Returns:
        One row per update, its own columns and `error_code` (NO_DOCUMENT: it does not say what the entity
        is then, since nobody asked for it; UNFIT_VALUE: a value does not fit the type that its field is to
        have, or an entity has both `phone.home` and `home` within `phone`) and `error_description`.

    Raises, Cost: as `changes`.

    >>> from cdckit import streams
    >>> text = b'''{"db": "shop", "clientid": "c", "request": 1, "user": "ann", "begun": 7, "ended": 8,
    ...     "ops": [], "collection": "Mugs", "zone": "z", "entity": "m1",
    ...     "part": 1, "parts": 1, "status": 1}'''
    >>> updates = streams.decode(records_of(text), streams.ENTITY_UPDATES)
    >>> fields = T.StructType([T.StructField("name", T.StringType())])
    >>> find_unfit(updates, "Mugs", fields).select("entity", "error_code").show()
    +------+-----------+
    |entity| error_code|
    +------+-----------+
    |    m1|NO_DOCUMENT|
    +------+-----------+
    <BLANKLINE>
    """
    stated = _read_updates(updates, collection, fields, nested)
    return stated.where(F.col(ERROR_CODE).isNotNull()).drop("operation", "data", "carried")


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
    _require_nested(nested, "fields_of")
    [type_] = read(entity_type).values()
    found: dict[str, T.DataType] = {}
    for name, field in type_["fields"].items():
        steps, kind = parse_steps(name), field.get("type") if isinstance(field, dict) else None
        if len(steps) == 1 if nested == "whole" else kind != DOCUMENT:
            dotted, type_of = ".".join(steps), _SPARK.get(str(kind), T.StringType())
            found[dotted] = type_of if found.get(dotted, type_of) == type_of else T.StringType()
    return T.StructType([T.StructField(name, kind) for name, kind in found.items()])


_SPARK: Mapping[str, T.DataType] = {
    BOOLEAN: T.BooleanType(),
    INTEGER: T.LongType(),
    LONG: T.LongType(),
    DOUBLE: T.DoubleType(),
    TIMESTAMP: T.TimestampType(),
}


def _read_updates(updates: DataFrame, collection: str, fields: T.StructType, nested: Nested) -> DataFrame:
    require_types(updates, _NEEDED, function=_FUNCTION)
    _require_nested(nested, _FUNCTION)
    _require_readable(fields)
    others = [*(RECORD_SCHEMA[name] for name in BYTES), *ERROR_FIELDS]
    lacking = [each for each in others if each.name not in updates.columns]
    whole = updates.select("*", *(F.lit(None).cast(each.dataType).alias(each.name) for each in lacking))
    wrong = F.col(ERROR_CODE).isNotNull()
    revision = next((name for name in ("revision_after", "revision") if name in updates.columns), None)
    number = F.lit(None) if revision is None else F.col(revision)
    is_applied = F.col("status") == Status.DONE
    if "action" in updates.columns:
        is_applied &= F.col("action").isNotNull()
    is_ours = F.coalesce(F.col("collection") == collection, wrong)
    applied = whole.where((wrong | is_applied) & is_ours)
    given = applied.withColumn("revision", number.cast("bigint"))
    kept = [
        *_NEEDED.fields,
        *(RECORD_SCHEMA[name] for name in BYTES),
        T.StructField("revision", T.LongType()),
    ]
    carried = T.StructType([T.StructField(field.name, T.BooleanType()) for field in fields])
    columns = [
        T.StructField("operation", T.StringType()),
        T.StructField("data", fields),
        T.StructField("carried", carried),
        *ERROR_FIELDS,
    ]
    places: list[list[Path]] = [
        field_paths(field.name) if nested == "dotted" else [(field.name,)] for field in fields
    ]
    by = partial(_read, fields=fields, places=places)
    return WorkerPlan(
        given.select(*(field.name for field in (*kept, *ERROR_FIELDS))), by, T.StructType([*kept, *columns])
    ).rows()


def _require_nested(nested: str, function: str) -> None:
    if nested not in ("dotted", "whole"):
        raise InvalidArgument(function, "nested", "'dotted' or 'whole'", nested)


def _require_readable(fields: T.StructType) -> None:
    if not isinstance(fields, T.StructType) or not fields.fields:
        raise InvalidArgument(_FUNCTION, "fields", "a StructType with one field or more", fields)
    names = [name.lower() for name in (*KEYS, *fields.fieldNames())]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(_FUNCTION, "fields", f"of different names, none of {', '.join(KEYS)}", twice)
    for field in fields:
        if type(field.dataType) not in CONVERT:
            needed = "string, boolean, int, bigint, double or timestamp"
            raise WrongColumnType(_FUNCTION, field.name, needed, field.dataType.simpleString())


def _read(
    batches: Iterable[pa.RecordBatch], *, fields: T.StructType, places: list[list[Path]]
) -> Iterator[pa.RecordBatch]:
    names = fields.fieldNames()
    types = [arrow_type(field.dataType) for field in fields]
    convert = [CONVERT[type(field.dataType)] for field in fields]
    none = UPSERT, [None] * len(names), [False] * len(names)
    for whole in batches:
        for start in range(0, whole.num_rows, _ROWS_AT_ONCE):
            batch = whole.slice(start, _ROWS_AT_ONCE)
            read_before = (batch.column(name).to_pylist() for name in ("ops", "after", *_ERRORS))
            rows = [
                statement(ops, after, places, convert, names) if code is None else (*none, code, description)
                for ops, after, code, description in zip(*read_before, strict=True)
            ]
            kinds, values, touched, codes, errors = zip(*rows, strict=True) if rows else ((),) * 5
            columns = {
                "operation": pa.array(kinds, pa.string()),
                "data": _struct(values, names, types),
                "carried": _struct(touched, names, [pa.bool_()] * len(names)),
                ERROR_CODE: pa.array(codes, pa.string()),
                ERROR_DESCRIPTION: pa.array(errors, pa.string()),
            }
            record = {name: batch.column(name) for name in batch.schema.names if name not in _ERRORS}
            yield pa.RecordBatch.from_pydict(
                {**keep_bytes(record, columns[ERROR_CODE].is_valid()), **columns}
            )


def _struct(rows: Sequence[Sequence[Any]], names: list[str], types: list[pa.DataType]) -> pa.StructArray:
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]
    fields = [pa.field(name, kind) for name, kind in zip(names, types, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)
