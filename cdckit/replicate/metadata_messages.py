"""
Metadata messages: which table and version a schema id stands for, and how its data messages are written.

A metadata message describes itself, so it is decoded with the schema that is in its envelope (Replicate,
"Decoding a self-describing message").  `MetadataMessage` says what is read of it, in the producer's names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from cdckit.model.faults import FoundFault
from cdckit.parts import avro
from cdckit.parts.avro.schema import Node
from cdckit.replicate.envelopes import SCHEMA_ID_BYTES, ReplicateFault

Number = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""JSON form may write it as text."""


class Lineage(msgspec.Struct, rename="camel"):
    """Where a table is: a task of one name may run on two servers, and is another one then."""

    server: str
    task: str
    schema: str
    table: str
    table_version: Number
    timestamp: str


class Column(msgspec.Struct, rename="camel"):
    """A column of the source; `primary_key_position` counts from 1, 0 = not in the key."""

    ordinal: Number
    type: str
    length: Number
    precision: Number
    scale: Number
    primary_key_position: Number


class TableStructure(msgspec.Struct, rename="camel"):
    """The columns by name; a map is a list of pairs when it comes from Avro, an object when from JSON."""

    table_columns: dict[str, Column] | list[tuple[str, Column]]


class MetadataMessage(msgspec.Struct, rename="camel"):
    """What is read of a metadata message; `data_schema` is Avro, as JSON text or an object."""

    schema_id: str
    lineage: Lineage
    table_structure: TableStructure
    data_schema: str | dict[str, Any]


LINEAGE = ("server", "task", "schema", "table")
"""What names a table."""


def table_text(names: Mapping[str, Any]) -> str:
    """
    The name of a table as one text: of two tables never the same.

    >>> table_text({"server": "ny1", "task": "orders", "schema": "SHOP", "table": "ITEMS"})
    'ny1/orders SHOP.ITEMS'
    >>> table_text({"server": "ny1", "task": "my orders", "schema": "S.HOP", "table": "ITEMS"})
    'ny1/"my orders" "S.HOP".ITEMS'
    """
    parts = [str(names[name]) for name in LINEAGE]
    text = ""
    for part, end in zip(parts, ("/", " ", ".", ""), strict=True):
        is_clear = not part.startswith('"') and (not end or end not in part)
        text += (part if is_clear else json.dumps(part, ensure_ascii=False)) + end
    return text


_COLUMN_TYPE = pa.struct(
    {
        **{"name": pa.string(), "ordinal": pa.int32(), "type": pa.string()},
        **dict.fromkeys(("length", "precision", "scale", "key_position"), pa.int32()),
    }
)
METADATA_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("schema_id", *LINEAGE), pa.string()),
    "table_version": pa.int32(),
    "lineage_timestamp": pa.string(),
    "columns": pa.list_(pa.field("element", _COLUMN_TYPE)),
    "data_schema": pa.string(),
    "layout": pa.list_(pa.field("element", pa.string())),
}
"""What a metadata message says, in the columns of `metadata`; the layout is that of its data messages."""

MAX_ORDINAL = 10_000
"""The greatest ordinal of a column that is taken: what a mask takes in memory hangs on it."""


def read_metadata(form: str, message_schema: str | None, message: bytes) -> dict[str, Any]:
    """
    Read what a metadata message says (`METADATA_TYPES`).

    Raises:
        FoundFault: It, or the data schema in it, cannot be used.
    """
    content = json.loads(message) if form == "json" else _decode(message_schema or "", message)
    try:
        metadata = msgspec.convert(content, MetadataMessage, strict=False)
    except msgspec.ValidationError as error:
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, f"{error}.") from error
    columns = sorted(dict(metadata.table_structure.table_columns).items(), key=lambda named: named[1].ordinal)
    _check_ordinals([column.ordinal for _, column in columns])
    if len(metadata.schema_id.encode()) != SCHEMA_ID_BYTES:
        raise FoundFault(ReplicateFault.SCHEMA_ID_LENGTH, f"It is {metadata.schema_id!r:.80}.")
    data_schema = (
        metadata.data_schema if isinstance(metadata.data_schema, str) else json.dumps(metadata.data_schema)
    )
    schema = _require_data_schema(data_schema)
    fields = [field.name for field in schema.arrow_type.field("data").type]
    positions = match_columns([(name, column.ordinal) for name, column in columns], fields)
    strangers = [
        name for name, column in columns if column.primary_key_position > 0 and name not in positions
    ]
    if strangers:
        lacking = f"The data schema lacks the key {', '.join(strangers)}."
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, lacking)
    if not positions:
        # No mask could be read: whatever it left out would count as sent.
        lacking = f"The data schema has none of the columns; it has {', '.join(fields) or 'no field':.200}."
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, lacking)
    return {
        "schema_id": metadata.schema_id,
        **{name: getattr(metadata.lineage, name) for name in (*LINEAGE, "table_version")},
        "lineage_timestamp": metadata.lineage.timestamp,
        "columns": [_column(name, column) for name, column in columns],
        "data_schema": data_schema,
        "layout": layout(schema.root),
    }


def _decode(message_schema: str, message: bytes) -> Any:
    try:
        parsed = avro.parse_schema(message_schema)
    except avro.SchemaRefused as refused:
        raise FoundFault(ReplicateFault.METADATA_SCHEMA_INVALID, str(refused)) from refused
    decoded = avro.decode(pa.array([message], pa.binary()), parsed)
    if decoded.errors[0].is_valid:
        raise FoundFault(ReplicateFault.METADATA_UNREADABLE, decoded.errors[0].as_py())
    return decoded.values[0].as_py()


def _column(name: str, column: Column) -> dict[str, Any]:
    facts = msgspec.structs.asdict(column)
    return {"name": name, "key_position": facts.pop("primary_key_position"), **facts}


def _check_ordinals(ordinals: Sequence[int]) -> None:
    in_range = all(1 <= ordinal <= MAX_ORDINAL for ordinal in ordinals)
    if not ordinals or not in_range or len(set(ordinals)) < len(ordinals):
        needed = f"The ordinals must be distinct and from 1 to {MAX_ORDINAL:,}"
        raise FoundFault(ReplicateFault.METADATA_INCOMPLETE, f"{needed}; they are {ordinals!s:.200}.")


# The data schema -------------------------------------------------------------------------------------------

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


def _require_data_schema(text: str) -> avro.AvroSchema:
    """The data schema, if data messages can be read by it."""
    try:
        schema = avro.parse_schema(text)
    except avro.SchemaRefused as refused:
        raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, str(refused)) from refused
    record = schema.arrow_type
    for name in ("data", "headers"):
        if not pa.types.is_struct(record) or record.get_field_index(name) < 0:
            raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, f"It is not a record with the field {name}.")
        if not pa.types.is_struct(record.field(name).type):
            raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, f"Its field {name} is not a record.")
    row, before = record.field("data").type, record.get_field_index("beforeData")
    if before >= 0 and record.field(before).type not in (row, pa.null()):
        raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, "Its field beforeData is not a row like data.")
    headers = record.field("headers").type
    misfits = ["operation"] if headers.get_field_index("operation") < 0 else []
    for name, needed in HEADER_TYPES.items():
        index = headers.get_field_index(name)
        if index >= 0 and not _readable(headers.field(index).type, needed):
            misfits.append(f"{name} is {headers.field(index).type}")
    if misfits:
        sentence = f"Its headers are not as a data message has them: {', '.join(misfits)}."
        raise FoundFault(ReplicateFault.DATA_SCHEMA_INVALID, sentence)
    return schema


def _readable(kind: pa.DataType, needed: pa.DataType) -> bool:
    return kind in (needed, pa.null()) or (pa.types.is_integer(kind) and pa.types.is_integer(needed))


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
    Find where each column of a table stands in a row.

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
    positions = {name: position for position, name in enumerate(fields)}
    if all(name in positions for name, _ in columns):
        return {name: positions[name] for name, _ in columns}
    in_order = {name: ordinal - 1 for name, ordinal in columns}
    if all(index < len(fields) and _can_bear(fields[index], name) for name, index in in_order.items()):
        return in_order
    matched = {name: positions[name] for name, _ in columns if name in positions}
    for is_of in (_is_but_for_case, _can_bear):
        for name, _ in columns:
            free = (index for index in range(len(fields)) if index not in matched.values())
            index = next((index for index in free if is_of(fields[index], name)), None)
            if name not in matched and index is not None:
                matched[name] = index
    return {name: matched[name] for name, _ in columns if name in matched}


def _is_but_for_case(field: str, column: str) -> bool:
    return field.lower() == column.lower()


def _can_bear(field: str, column: str) -> bool:
    """
    Tell whether *field* may be the name under which Avro got *column*.

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
