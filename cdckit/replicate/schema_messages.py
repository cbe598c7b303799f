"""The schema zone: which table, version and columns a schema id stands for, and since when."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.faults import Findings, FoundFault, error_columns
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, ERROR_FIELDS, RECORD_COLUMNS, RECORD_SCHEMA
from cdckit.parts import avro
from cdckit.parts.arguments import flat_columns, require_batch, require_types
from cdckit.parts.arrow_types import arrow_type
from cdckit.parts.avro.schema import Node
from cdckit.parts.workers import WorkerPlan
from cdckit.replicate.envelope import (
    ENVELOPE_SCHEMA,
    METADATA,
    SCHEMA_ID_BYTES,
    ReplicateFault,
)

OPERATIONS = ("INSERT", "UPDATE", "DELETE", "REFRESH")

HEADER_TYPES = {
    "operation": pa.string(),
    "changeSequence": pa.string(),
    "timestamp": pa.string(),
    "streamPosition": pa.string(),
    "transactionId": pa.string(),
    "changeMask": pa.binary(),
    "columnMask": pa.binary(),
    "transactionEventCounter": pa.int64(),
    "transactionLastEvent": pa.bool_(),
}
"""The headers that are read, by the producer's names; it may send more, and leave out any but the first."""

TIME_TAKEN_FROM = T.StructField("time_taken_from", T.StringType())

HEADER_FIELDS = [
    T.StructField("operation", T.StringType()),
    T.StructField("change_sequence", T.StringType()),
    T.StructField("change_timestamp", T.TimestampType()),
    TIME_TAKEN_FROM,
    T.StructField("stream_position", T.StringType()),
    T.StructField("transaction_id", T.StringType()),
    T.StructField("transaction_event_counter", T.LongType()),
    T.StructField("transaction_last_event", T.BooleanType()),
]
"""The same in a row: instants typed, masks decoded elsewhere (`sent`, `changed`)."""

WORKER_HEADER_FIELDS = [field for field in HEADER_FIELDS if field is not TIME_TAKEN_FROM]
"""The headers as they come from the workers: `change_timestamp` is null where the message has none."""


def misfit_headers(found: pa.StructType) -> str:
    """What is wrong with the headers of a data schema, or nothing."""
    misfits = ["operation"] if found.get_field_index("operation") < 0 else []
    for name, needed in HEADER_TYPES.items():
        index = found.get_field_index(name)
        if index >= 0 and not _readable(found.field(index).type, needed):
            misfits.append(f"{name} is {found.field(index).type}")
    return ", ".join(misfits)


def _readable(found: pa.DataType, needed: pa.DataType) -> bool:
    return found in (needed, pa.null()) or (pa.types.is_integer(found) and pa.types.is_integer(needed))


def layout(root: Node) -> list[str]:
    """
    One line for each field in the order of its bytes: schemas with the same lines decode alike.

    Names of types, texts for readers, defaults and the spelling of the JSON are not in them.

    >>> from cdckit.parts.avro import parse_schema
    >>> fields = '[{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}]'
    >>> layout(parse_schema('{"type": "record", "name": "R", "fields": ' + fields + "}").root)
    ['id: int', 'note: null or string']
    """
    return list(_lines("", root))


def _lines(path: str, node: Node) -> Iterator[str]:
    if node.kind == "record":
        for name, child in node.fields:
            yield from _lines(f"{path}.{name}".lstrip("."), child)
        return
    yield f"{path}: {_type_name(node)}"
    if node.kind in ("array", "map") and node.items is not None:
        yield from _lines(f"{path}[]", node.items)
    for branch in node.branches:
        if branch.kind in ("record", "array", "map"):
            yield from _lines(path, branch)


def _type_name(node: Node) -> str:
    if node.kind == "union":
        return " or ".join(_type_name(branch) for branch in node.branches)
    named = node.kind
    if node.kind == "fixed":
        named = f"fixed({node.size})"
    if node.kind == "enum":
        named = f"enum({', '.join(node.symbols)})"
    if node.logical == "decimal":
        return f"decimal({node.precision},{node.scale}) in {named}"
    return f"{node.logical} in {named}" if node.logical else named


def match_columns(columns: Sequence[tuple[str, int]], fields: Sequence[str]) -> dict[str, int]:
    """
    Where each column of a table stands in a row.

    The names of *fields* are those that an Avro schema allows, so they may differ from the names of the
    source: what is not allowed in them was replaced, and one of two names that differ in case alone was
    changed.  The ordinal is the position of a column in the row, so where every field can bear the name
    of the column at its position, that is what counts; else names do, exact ones first.

    Args:
        columns: Name and ordinal, by ordinal.
        fields: The names of a row's fields, in order; columns that only the task knows may be among them.

    Returns:
        The index of its field for each column that has one.

    >>> match_columns([("A B", 1), ("A_B", 2), ("GRÖSSE", 3)], ["A_B", "A_B_2", "GR_SSE"])
    {'A B': 0, 'A_B': 1, 'GRÖSSE': 2}
    >>> match_columns([("id", 1), ("price", 2), ("colour", 4)], ["colour", "id", "price", "loaded_by"])
    {'id': 1, 'price': 2, 'colour': 0}
    """
    places = {name: place for place, name in enumerate(fields)}
    if all(name in places for name, _ in columns):
        return {name: places[name] for name, _ in columns}
    in_order = {name: ordinal - 1 for name, ordinal in columns}
    if all(place < len(fields) and _can_bear(fields[place], name) for name, place in in_order.items()):
        return in_order
    found = {name: places[name] for name, _ in columns if name in places}
    for is_of in (_is_but_for_case, _can_bear):
        for name, _ in columns:
            free = (place for place in range(len(fields)) if place not in found.values())
            place = next((place for place in free if is_of(fields[place], name)), None)
            if name not in found and place is not None:
                found[name] = place
    return {name: found[name] for name, _ in columns if name in found}


def _is_but_for_case(field: str, column: str) -> bool:
    return field.lower() == column.lower()


def _can_bear(field: str, column: str) -> bool:
    """
    Whether *field* may be the name under which Avro got *column*.

    It is the same but for its case, or has a number behind it that keeps two names apart; or *column* has
    characters that Avro does not allow, and all of its others stand in *field* in their order.
    """
    if re.fullmatch(rf"{re.escape(column)}(_?[0-9]+_*)?", field, re.IGNORECASE):
        return True
    letters = iter(field.lower())
    return not _ALLOWED.fullmatch(column) and all(
        letter in letters for letter in re.sub("[^a-z0-9]", "", column.lower())
    )


_ALLOWED = re.compile("[A-Za-z_][A-Za-z0-9_]*")


COLUMN_TYPE = flat_columns(
    """name string, ordinal integer, type string, length integer, precision integer, scale integer,
    key_position integer"""
)
"""One column of a source table; `key_position` counts from 1, 0 = not in the key."""

_TABLE_FIELDS = [
    *flat_columns("schema_id string, server string, task string, schema string, table string"),
    *flat_columns("table_version integer, lineage_timestamp string"),
    T.StructField("columns", T.ArrayType(COLUMN_TYPE)),
    T.StructField("data_schema", T.StringType()),
    T.StructField("layout", T.ArrayType(T.StringType())),
]
METADATA_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *_TABLE_FIELDS, *ERROR_FIELDS])
"""One row is one metadata message: its record, and the table version that it describes."""

_PLACE = ("timestamp", "topic", "partition", "offset")
_PLACE_TYPE = T.StructType([RECORD_SCHEMA[name] for name in _PLACE])

ZONE_SCHEMA = T.StructType(
    [
        *_TABLE_FIELDS,
        *(RECORD_SCHEMA[name] for name in ("topic", "partition", "offset", "timestamp")),
        T.StructField("latest", _PLACE_TYPE),
        T.StructField("other_tables", T.ArrayType(T.StringType())),
    ]
)
"""One row is one statement about a schema id: what it stands for, from where and when on that was said,
and the place of the latest message that said so (`latest`) before another one about the same id and table
said something else.  `other_tables` are those that the same id stands for as well."""

INSTEAD = "keep a Feed up: records.writeStream.foreachBatch(feed.sink('a name'))"
"""What to do with a stream, where all metadata is needed at once."""

LINEAGE = ("server", "task", "schema", "table")
"""What names a table: a task of one name may run on two servers, and is another one then."""

# What a statement says, beside the id and the lineage.  Where it was said again it is no new statement.
_SAID = ("table_version", "columns", "data_schema")

MAX_ORDINAL = 10_000
"""The greatest ordinal of a column that is taken: what a mask takes in memory hangs on it."""


def metadata(decoded: DataFrame, *, known: DataFrame | None = None) -> DataFrame:
    """
    Read the metadata messages: the evidence for the schema zone.

    Args:
        decoded: What `decode` returned; rows that are not MD, or have an error already, are passed over.
        known: A schema zone from earlier, against which conflicts are found as well.

    Returns:
        One row per metadata message (`METADATA_SCHEMA`): the record's columns, `schema_id`, the
        lineage (`server`, `task`, `schema`, `table`, `table_version`, `lineage_timestamp`),
        `columns`, `data_schema` (Avro, as JSON text), `layout` (the fields of a data message in the
        order of their bytes), `error_code` and `error_description`.  Two messages contradict each
        other only if data messages of one id would decode differently: then the first to arrive
        stands, and the others are in error and say what differs.  Another length of a column,
        another key, version or table under one id is none: see `schema_zone`.

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returns.

    Cost: one pass through Python over the metadata messages, one small shuffle by schema id.

    Source:
        Replicate, "Decoding a self-describing message" and "Typical consumer logic".

    >>> from cdckit.replicate import decode
    >>> messages = metadata(decode(records))
    >>> messages.select("task", "table", "table_version", "columns.name", "error_code").show()
    +--------+--------+-------------+---------------+----------+
    |    task|   table|table_version|           name|error_code|
    +--------+--------+-------------+---------------+----------+
    |schedule|AIRLINES|            1|[carrier, name]|      NULL|
    +--------+--------+-------------+---------------+----------+
    <BLANKLINE>
    """
    require_types(decoded, ENVELOPE_SCHEMA, function="metadata")
    require_batch(decoded, "decoded", INSTEAD, function="metadata")
    messages = decoded.where((F.col("type") == METADATA) & F.col(ERROR_CODE).isNull())
    needed = messages.select(*RECORD_COLUMNS, "form", "message_schema", "message")
    return _with_conflicts(WorkerPlan(needed, _read_batches, METADATA_SCHEMA).rows(), known)


def schema_zone(metadata: DataFrame, *, known: DataFrame | None = None) -> DataFrame:
    """
    What each schema id stands for, as it was said over time.

    Nothing that was said is lost: a data message is read by what was said last about its id before it
    came, and a table is now as its latest metadata message says, whatever number its version has.  So
    a DDL that was taken back, or a table that was made anew, is as the source has it.

    Args:
        metadata: What `metadata` returned (with the same *known*).
        known: The zone as it was before.  A zone is a small table: save and load it like any other.

    Returns:
        One row per statement (`ZONE_SCHEMA`): what one id stands for in one table, from the first
        message that said so on.  The same said again is the same statement, unless something else was
        said about the id and table in between.

    Raises:
        MissingColumns, WrongColumnType: *metadata* or *known* has other columns.

    Cost: two small shuffles by schema id.

    Source:
        Replicate, "save the data schemas … in a customer defined zone"; nothing says that an id is that
        of one version of a table alone.

    >>> from cdckit.replicate import decode
    >>> made = schema_zone(metadata(decode(records)))
    >>> made.select("table", "table_version", "timestamp", "other_tables").show()
    +--------+-------------+-------------------+------------+
    |   table|table_version|          timestamp|other_tables|
    +--------+-------------+-------------------+------------+
    |AIRLINES|            1|2013-02-07 04:59:00|          []|
    +--------+-------------+-------------------+------------+
    <BLANKLINE>
    """
    require_types(metadata, METADATA_SCHEMA, function="schema_zone")
    require_batch(metadata, "metadata", INSTEAD, function="schema_zone")
    names = [field.name for field in _TABLE_FIELDS]
    place = F.struct(*_PLACE).alias("place")
    entries = metadata.where(F.col(ERROR_CODE).isNull()).select(*names, place)
    if known is not None:
        require_types(known, ZONE_SCHEMA, function="schema_zone")
        places = F.array_distinct(F.array(F.struct(*_PLACE), F.col("latest")))
        entries = entries.unionByName(known.select(*names, F.explode(places).alias("place")))
    about = ("schema_id", *LINEAGE)
    in_order = Window.partitionBy(*about).orderBy("place")
    what = F.struct(*_SAID)
    is_new = ~what.eqNullSafe(F.lag(what).over(in_order))
    said_first = [name for name in names if name not in about] + [f"place.{name}" for name in _PLACE]
    statements = (
        entries.withColumn("number", F.sum(is_new.cast("int")).over(in_order))
        .groupBy(*about, "number")
        .agg(
            F.min_by(F.struct(*said_first), "place").alias("first"),
            F.max("place").alias("latest"),
        )
        .select(*about, "first.*", "latest")
    )
    tables = F.collect_set(_table_text()).over(Window.partitionBy("schema_id"))
    others = F.array_sort(F.array_except(tables, F.array(_table_text())))
    return statements.withColumn("other_tables", others).select(*ZONE_SCHEMA.fieldNames())


def _table_text() -> Column:
    return F.concat(F.concat_ws("/", "server", "task"), F.lit(" "), F.concat_ws(".", "schema", "table"))


def _with_conflicts(read: DataFrame, known: DataFrame | None) -> DataFrame:
    """Put an error on every message by whose schema the data messages of its id would decode differently."""
    usable = F.col(ERROR_CODE).isNull()
    what = F.struct("layout", *LINEAGE)
    in_order = Window.partitionBy("schema_id").orderBy(*_PLACE)
    first = F.first(F.when(usable, what), ignorenulls=True).over(
        in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    if known is not None:
        require_types(known, ZONE_SCHEMA, function="metadata")
        earlier = known.groupBy("schema_id").agg(F.min_by(what, F.struct(*_PLACE)).alias("known"))
        read = read.join(F.broadcast(earlier), on="schema_id", how="left")
        first = F.coalesce(F.col("known"), first)
    contradicts = usable & ~F.col("layout").eqNullSafe(F.col("first_word.layout"))
    return (
        read.withColumn("first_word", first)
        .withColumn(
            ERROR_DESCRIPTION, F.when(contradicts, _conflict_text()).otherwise(F.col(ERROR_DESCRIPTION))
        )
        .withColumn(
            ERROR_CODE, F.when(contradicts, ReplicateFault.SCHEMA_CONFLICT.value).otherwise(F.col(ERROR_CODE))
        )
        .select(*METADATA_SCHEMA.fieldNames())
    )


def _conflict_text() -> Column:
    """What differs: the fields that only one of the two schemas has."""

    def table(prefix: str) -> list[Column]:
        return [F.coalesce(F.col(f"{prefix}{name}"), F.lit("?")) for name in LINEAGE]

    def only(these: str, those: str) -> Column:
        lines = F.array_join(F.array_except(these, those), "; ")
        return F.substring(F.when(lines != "", lines).otherwise("the same in another order"), 1, 90)

    return F.format_string(
        f"{ReplicateFault.SCHEMA_CONFLICT.sentence}"
        " Here, for %s/%s %s.%s, it has %s; before, for %s/%s %s.%s, it had %s.",
        *table(""),
        only("layout", "first_word.layout"),
        *table("first_word."),
        only("first_word.layout", "layout"),
    )


def _read_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One message at a time: there is one of them for ten thousand data messages."""
    for batch in batches:
        tables: list[dict[str, Any]] = []
        findings: Findings = {}
        for row, (form, schema, message) in enumerate(
            zip(
                *(batch.column(name).to_pylist() for name in ("form", "message_schema", "message")),
                strict=True,
            )
        ):
            try:
                tables.append(_table(_message(form, schema, message)))
            except FoundFault as unusable:
                tables.append({})
                findings[row] = (unusable.fault, unusable.finding)
        columns = [
            pa.array([table.get(name) for table in tables], kind) for name, kind in _ARROW_TYPES.items()
        ]
        record = [batch.column(name) for name in RECORD_COLUMNS]
        yield pa.RecordBatch.from_arrays(
            [*record, *columns, *error_columns(findings, len(tables))], names=METADATA_SCHEMA.fieldNames()
        )


_ARROW_TYPES = {field.name: arrow_type(field.dataType) for field in _TABLE_FIELDS}


def _message(form: str, schema: str | None, message: bytes) -> Any:
    if form == "json":
        return json.loads(message)
    try:
        parsed = avro.parse_schema(schema or "")
    except avro.SchemaRefused as refused:
        raise FoundFault(ReplicateFault.METADATA_SCHEMA_INVALID, str(refused)) from refused
    decoded = avro.decode(pa.array([message], pa.binary()), parsed)
    if decoded.errors[0].is_valid:
        raise FoundFault(ReplicateFault.METADATA_UNREADABLE, decoded.errors[0].as_py())
    return decoded.values[0].as_py()


def _table(message: Any) -> dict[str, Any]:
    """The columns of `METADATA_SCHEMA` behind those of the record, or `FoundFault`."""
    try:
        lineage, structure = message["lineage"], message["tableStructure"]["tableColumns"]
        table: dict[str, Any] = {
            "schema_id": _text(message["schemaId"]),
            "server": _text(lineage["server"]),
            "task": _text(lineage["task"]),
            "schema": _text(lineage["schema"]),
            "table": _text(lineage["table"]),
            "table_version": _int(lineage["tableVersion"]),
            "lineage_timestamp": _text(lineage["timestamp"]),
            # A map is a list of pairs when it comes from Avro, an object when it comes from JSON.
            "columns": sorted(map(_column, dict(structure).items()), key=lambda column: column["ordinal"]),
            "data_schema": _schema_text(message["dataSchema"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, f"{type(error).__name__}: {error}.") from error
    columns = table["columns"]
    _check_columns(columns)
    if len(table["schema_id"].encode()) != SCHEMA_ID_BYTES:
        raise FoundFault(ReplicateFault.SCHEMA_ID_LENGTH, f"It is {table['schema_id']!r:.80}.")
    places = match_columns(
        [(column["name"], column["ordinal"]) for column in columns], _data_fields(table["data_schema"])
    )
    strangers = [each["name"] for each in columns if each["key_position"] > 0 and each["name"] not in places]
    if strangers:
        raise FoundFault(
            ReplicateFault.METADATA_INCOMPLETE, f"The data schema lacks the key {', '.join(strangers)}."
        )
    return {**table, "layout": layout(avro.parse_schema(table["data_schema"]).root)}


def _column(entry: tuple[str, Any]) -> dict[str, Any]:
    name, facts = entry
    numbers = {fact: _int(facts[fact]) for fact in ("ordinal", "length", "precision", "scale")}
    return {
        "name": _text(name),
        "type": _text(facts["type"]),
        "key_position": _int(facts["primaryKeyPosition"]),
        **numbers,
    }


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not text")
    return value


def _int(value: object) -> int:
    """A number that fits in 32 bits; JSON form may write it as text."""
    number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if number is None or not -(2**31) <= number < 2**31:
        raise ValueError(f"{value!r:.80} is not a number of 32 bits")
    return number


def _schema_text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else _text(value)


def _check_columns(columns: list[dict[str, Any]]) -> None:
    ordinals = [column["ordinal"] for column in columns]
    in_range = all(1 <= ordinal <= MAX_ORDINAL for ordinal in ordinals)
    if not columns or not in_range or len(set(ordinals)) < len(ordinals):
        needed = f"The ordinals must be distinct and from 1 to {MAX_ORDINAL:,}"
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, f"{needed}; they are {ordinals!s:.200}.")


def _data_fields(text: str) -> list[str]:
    """The names of the fields of a row, if the data schema *text* can be used."""
    try:
        record = avro.parse_schema(text).arrow_type
    except avro.SchemaRefused as refused:
        raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, str(refused)) from refused
    for name in ("data", "headers"):
        if not pa.types.is_struct(record) or record.get_field_index(name) < 0:
            raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, f"It is not a record with the field {name}.")
        if not pa.types.is_struct(record.field(name).type):
            raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, f"Its field {name} is not a record.")
    row, before = record.field("data").type, record.get_field_index("beforeData")
    if before >= 0 and record.field(before).type not in (row, pa.null()):
        raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, "Its field beforeData is not a row like data.")
    misfits = misfit_headers(record.field("headers").type)
    if misfits:
        raise FoundFault(
            ReplicateFault.DATA_SCHEMA_INVALID, f"Its headers are not as a data message has them: {misfits}."
        )
    return [field.name for field in row]
