"""Values of any type as text, and in a form in which Spark can compare them."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

EXACT_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    # Spark's own cuts a timestamp without a zone to milliseconds: two values would share a text.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "ignoreNullFields": "true",
}
"""Options for `to_json`, spelled out because Spark's defaults follow the session, and a text must not."""


def as_text(value: Column, kind: T.DataType) -> Column:
    """
    A value of any type as text, null for null; different values have different texts.

    Instants are in UTC whatever the session's zone, nested values are JSON, binary is hex digits.
    """
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType | T.VariantType):
        return F.to_json(value, EXACT_JSON)
    if isinstance(kind, T.TimestampType):
        return _utc(value).cast("string")
    return F.lower(F.hex(value)) if isinstance(kind, T.BinaryType) else value.cast("string")


def _utc(instant: Column) -> Column:
    """The wall clock of UTC: an interval from 1970 on, since every cast would go by the session's zone."""
    seconds = F.unix_micros(instant).cast("decimal(20,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    nothing = F.lit(0)
    since_1970 = F.make_dt_interval(nothing, nothing, nothing, seconds.cast("decimal(18,6)"))
    return F.expr("timestamp_ntz'1970-01-01 00:00:00'") + since_1970


def comparable(value: Column, kind: T.DataType) -> Column:
    """A value in a form that has equality in Spark: maps as their sorted entries, variants as JSON."""
    if _has_equality(kind):
        return value
    if isinstance(kind, T.MapType):
        key, entry = kind.keyType, kind.valueType
        entries = F.transform(
            F.map_entries(value),
            lambda pair: F.struct(
                comparable(pair.getField("key"), key).alias("key"),
                comparable(pair.getField("value"), entry).alias("value"),
            ),
        )
        return F.array_sort(entries)
    if isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: comparable(each, element))
    if isinstance(kind, T.StructType):
        parts = (comparable(value.getField(each.name), each.dataType).alias(each.name) for each in kind)
        return F.when(value.isNotNull(), F.struct(*parts))
    return F.to_json(value, EXACT_JSON)


def _has_equality(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return all(_has_equality(field.dataType) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return _has_equality(kind.elementType)
    return not isinstance(kind, T.MapType | T.VariantType)
