"""Two versions of one key at once: how a question that has no answer then says so."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.values import as_text


def where_sound(rows: DataFrame, *, overlap: Column, text: Column, keep: Column) -> DataFrame:
    """
    The rows for which *keep* is true; an error that says *text* if *overlap* is true for any row.

    The error comes also if the caller filters the result: Spark puts no filter before one that may give
    another answer each time, so every row comes to this one.
    """
    not_to_be_passed = F.monotonically_increasing_id() >= 0
    return rows.where(not_to_be_passed & F.when(overlap, F.raise_error(text)).otherwise(keep))


def overlap_text(
    of: Column, key: Iterable[tuple[Column, T.DataType]], at: Column, *, function: str
) -> Column:
    """
    What to say of a version that begins while another one of its key is in force.

    Args:
        of: Which history that is, after "in the".
        key: The parts of the key, each with its type.
        at: When it begins.
        function: Who asks.
    """
    values = F.to_json(F.array(*(as_text(part, kind) for part, kind in key)))
    return F.concat(
        F.lit(f"{function}() needs one version at a time per key in the "),
        of,
        F.lit("; of the key "),
        values,
        F.lit(" two overlap at "),
        as_text(at, T.TimestampType()),
        F.lit(": the history is not sound, or `on` does not tell one entity from the next."),
    )
