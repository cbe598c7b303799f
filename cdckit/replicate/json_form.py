"""Data messages in JSON form: the same rows, read by Spark's own JSON functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS
from cdckit.parts.values import within_years
from cdckit.replicate.envelope import DATA, ReplicateFault, decode
from cdckit.replicate.schema_messages import HEADER_TYPES, OPERATIONS
from cdckit.replicate.table_versions import Table, row_fields, row_type

# Date, hour and minute, second, zone; all but the date may be missing.
_ISO_8601 = (
    r"^((?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:([T ][0-9]{2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$"
)

_TEXTS = T.MapType(T.StringType(), T.StringType())
_MESSAGE = T.StructType(
    [
        T.StructField("data", _TEXTS),
        T.StructField("beforeData", _TEXTS),
        T.StructField(
            "headers", T.StructType([T.StructField(name, T.StringType()) for name in HEADER_TYPES])
        ),
    ]
)


def json_rows(records: DataFrame, table: Table, topics: Collection[str]) -> DataFrame:
    """
    The data messages in JSON form of *topics*, in the columns that the Avro road's workers give.

    A message names no version: it is read as one of the newest, whose columns and ordinals hold
    those of the older ones.  A column was sent if its mask says so or, without a mask, if the
    object has it.  A column may go by any of its names (`_names`), in letters of any case where that
    leaves one column: `id` for `ID`.
    """
    opened = decode(records.where(F.col("topic").isin(list(topics))), skip_metadata=True)
    of_table = opened.where((F.col("form") == "json") & (F.col("type") == DATA) & F.col(ERROR_CODE).isNull())
    read = of_table.withColumn("m", F.from_json(F.decode("message", "UTF-8"), _MESSAGE))
    read = read.withColumns(
        {"entries": _entries("m.data", table), "entries_before": _entries("m.beforeData", table)}
    )
    data, before = _texts_by_name("entries"), _texts_by_name("entries_before")
    header = {name: F.col("m.headers").getField(name) for name in HEADER_TYPES}
    is_delete = header["operation"] == "DELETE"
    rows = read.withColumns(
        {
            "old": before,
            "new": F.when(is_delete, F.coalesce(data, before)).otherwise(data),
            "instant": _instant(header["timestamp"]),
        }
    )
    found, typed = _faults(table, header), _typed_headers(header)
    wrong = F.coalesce(*(F.when(condition, F.lit(fault.value)) for fault, condition, _ in found))
    described = F.coalesce(
        *(F.when(condition, F.concat(F.lit(fault.sentence), shown)) for fault, condition, shown in found)
    )
    return rows.withColumns({ERROR_CODE: wrong, ERROR_DESCRIPTION: described}).select(
        *(_error_bytes(name) for name in RECORD_COLUMNS),
        F.lit(len(table.versions) - 1).alias("version"),
        header["operation"].alias("operation"),
        header["changeSequence"].alias("change_sequence"),
        F.col("instant").alias("change_timestamp"),
        header["streamPosition"].alias("stream_position"),
        header["transactionId"].alias("transaction_id"),
        typed["transactionEventCounter"].alias("transaction_event_counter"),
        typed["transactionLastEvent"].alias("transaction_last_event"),
        *(
            column.alias(field.name)
            for field, column in zip(row_fields(table), _images(table, header), strict=True)
        ),
        ERROR_CODE,
        ERROR_DESCRIPTION,
    )


def _entries(texts: str, table: Table) -> Column:
    """The entries of a row as it was sent, under the table's own names."""
    names = _names(table)
    columns = defaultdict(set)
    for name, column in names.items():
        columns[name.lower()].add(column)
    in_doubt = [small for small, true_names in columns.items() if len(true_names) > 1]
    known = {small: min(true_names) for small, true_names in columns.items() if len(true_names) == 1}
    known |= {name: column for name, column in names.items() if name.lower() in in_doubt}
    by_name = F.create_map(*(F.lit(text) for pair in known.items() for text in pair))
    as_is = [name for name, column in names.items() if name == column]

    def own(name: Column) -> Column:
        written = F.when(F.lower(name).isin(in_doubt), name).otherwise(F.lower(name))
        # A map is searched from its beginning, but for the names that most rows have Spark makes a set.
        return F.when(name.isin(as_is), name).otherwise(F.coalesce(F.try_element_at(by_name, written), name))

    return F.transform(
        F.map_entries(texts),
        lambda entry: F.struct(own(entry["key"]).alias("key"), entry["value"].alias("value")),
    )


def _names(table: Table) -> dict[str, str]:
    """
    The column that each name stands for: what the source calls it, and what the data schema does.

    Where a name is in both for different columns it is the source's, since JSON can hold any name; and
    newer versions go before older ones.
    """
    found: dict[str, str] = {}
    for version in reversed(table.versions):
        for column, name in version.source_names.items():
            found.setdefault(name, column)
        for column in version.places:
            found.setdefault(column, column)
    return found


def _texts_by_name(entries: str) -> Column:
    """The entries as a map; null where a name is there twice, which Spark would end the job for."""
    return F.when(_twice(entries) == 0, F.map_from_entries(entries))


def _twice(entries: str) -> Column:
    names = F.col(entries)["key"]
    return F.size(names) - F.size(F.array_distinct(names))


def _error_bytes(name: str) -> Column:
    if name in ("key", "value", "headers"):
        return F.when(F.col(ERROR_CODE).isNotNull(), F.col(name)).alias(name)
    return F.col(name)


def _images(table: Table, header: dict[str, Column]) -> list[Column]:
    """`data`, `before`, `sent` and `changed`."""
    fields = row_type(table)
    changed = F.struct(
        *(_is_marked(header["changeMask"], table, name).alias(name) for name in fields.fieldNames())
    )
    return [
        _row(F.col("new"), fields),
        _row(F.col("old"), fields),
        F.struct(*(_is_sent(table, header, name).alias(name) for name in fields.fieldNames())),
        F.when(header["changeMask"].isNotNull(), changed),
    ]


def _row(texts: Column, fields: T.StructType) -> Column:
    typed = [_typed_value(texts.getItem(field.name), field.dataType).alias(field.name) for field in fields]
    return F.when(texts.isNotNull(), F.struct(*typed))


def _typed_value(text: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.BinaryType):
        return F.try_to_binary(text, F.lit("hex"))
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType):
        return within_years(F.from_json(text, kind.json()), kind)
    return _instant(text) if isinstance(kind, T.TimestampType) else within_years(text.try_cast(kind), kind)


def _instant(text: Column) -> Column:
    """
    An instant in ISO 8601 form, UTC where no zone is said; null for any other text.

    Spark's own cast takes more, a time without a date among it, and reads in the session's zone.
    """
    date, *others = (F.nullif(F.regexp_extract(text, _ISO_8601, i), F.lit("")) for i in (1, 2, 3, 4))
    missing = ("T00:00", ":00", "Z")
    parts = [F.coalesce(part, F.lit(other)) for part, other in zip(others, missing, strict=True)]
    return within_years(F.concat(date, *parts).try_cast("timestamp_ltz"), T.TimestampType())


def _is_sent(table: Table, header: dict[str, Column], name: str) -> Column:
    named = F.coalesce(F.map_contains_key("new", name), F.lit(False))
    if name not in table.versions[-1].ordinals:
        return named
    mask = header["columnMask"]
    return F.when(mask.isNotNull(), _is_marked(mask, table, name)).otherwise(named)


def _is_marked(mask: Column, table: Table, name: str) -> Column:
    """Whether a mask in hex text marks a column; a shorter mask goes on with zeros."""
    ordinal = table.versions[-1].ordinals.get(name)
    return F.lit(False) if ordinal is None else _bit(mask, ordinal)


def _bit(mask: Column, ordinal: int) -> Column:
    byte, bit = divmod(ordinal - 1, 8)
    return F.coalesce(F.getbit(_byte(mask, F.lit(2 * byte + 1)), F.lit(bit)) == 1, F.lit(False))


def _byte(mask: Column, position: Column) -> Column:
    """The two hex digits at *position*, from 1, as a number; null beyond the end."""
    return F.conv(F.substring(mask, position, F.lit(2)), 16, 10).try_cast("int")


def _stray(mask: Column, table: Table) -> Column:
    """Whether a mask is not hex text, or marks a column that the table does not have."""
    known = set(table.versions[-1].ordinals.values())
    width = -(-max(known) // 8)
    unknown = sum(1 << (ordinal - 1) for ordinal in range(1, 8 * width + 1) if ordinal not in known)
    not_known = F.lit(unknown.to_bytes(width, "little").hex())
    # One expression for all bytes: metadata, which may be hostile, says how many there are.
    bytes_begin = F.sequence(F.lit(1), F.lit(2 * width), F.lit(2))
    stray = F.exists(bytes_begin, lambda at: _byte(mask, at).bitwiseAND(_byte(not_known, at)) != 0)
    beyond = mask.rlike(f"^.{{{2 * width}}}.*[^0]")
    misshapen = ~mask.rlike("^([0-9A-Fa-f]{2})*$")
    return F.coalesce(misshapen | beyond | F.coalesce(stray, F.lit(False)), F.lit(False))


def _unknown(table: Table, entries: str) -> tuple[ReplicateFault, Column, Column]:
    """Names that are none of the table's, or of one column twice."""
    names = F.col(entries)["key"]
    strangers = F.array_except(names, F.array(*(F.lit(field.name) for field in table.fields)))
    # Equal names are neighbours once sorted: each against each would take hours of a hostile message.
    in_order = F.sort_array(names)
    doubles = F.zip_with(
        in_order,
        F.slice(in_order, 2, F.size(in_order)),
        lambda name, following: F.when(name == following, name),
    )
    shown = F.substring(F.array_join(F.array_union(strangers, F.array_compact(doubles)), ", "), 1, 200)
    found = F.coalesce((F.size(strangers) > 0) | (_twice(entries) > 0), F.lit(False))
    return ReplicateFault.COLUMN_UNKNOWN, found, F.concat(F.lit(" It says: "), shown)


def _faults(table: Table, header: dict[str, Column]) -> list[tuple[ReplicateFault, Column, Column]]:
    """What may be wrong with a message, in the order of looking: the code, when, and what to show."""

    def says(shown: Column) -> Column:
        return F.concat(F.lit(" It says: "), F.coalesce(F.substring(shown, 1, 200), F.lit("nothing")))

    nothing = F.lit("")
    unread = F.col("m.headers").isNull()
    known = F.coalesce(header["operation"].isin(*OPERATIONS), F.lit(False))
    says_no_time = (F.coalesce(header["timestamp"], F.lit("")) == "") & F.col("timestamp").isNotNull()
    stray = _stray(header["columnMask"], table) | _stray(header["changeMask"], table)
    found = [
        (ReplicateFault.MESSAGE_UNREADABLE, unread, F.lit(" The message has no headers.")),
        (ReplicateFault.UNKNOWN_OPERATION, ~known, says(header["operation"])),
        (
            ReplicateFault.TIMESTAMP_INVALID,
            F.col("instant").isNull() & ~says_no_time,
            says(header["timestamp"]),
        ),
        *(_unknown(table, entries) for entries in ("entries", "entries_before")),
        (ReplicateFault.NO_ROW, F.col("new").isNull(), nothing),
        (ReplicateFault.MASK_INVALID, stray, nothing),
    ]
    for field in row_type(table):
        for texts in ("new", "old"):
            text = F.col(texts).getItem(field.name)
            bad = text.isNotNull() & _typed_value(text, field.dataType).isNull()
            found.append((ReplicateFault.VALUE_INVALID, bad, F.concat(F.lit(f" {field.name}:"), says(text))))
    for name, column in _typed_headers(header).items():
        bad = header[name].isNotNull() & column.isNull()
        found.append((ReplicateFault.VALUE_INVALID, bad, F.concat(F.lit(f" {name}:"), says(header[name]))))
    return found


def _typed_headers(header: dict[str, Column]) -> dict[str, Column]:
    """The headers that are no texts."""
    kinds = {"transactionEventCounter": "long", "transactionLastEvent": "boolean"}
    return {name: header[name].try_cast(kind) for name, kind in kinds.items()}
