"""Sequences that are settled: what is remembered of their parts, and what a part is that comes after."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_types
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.sequences import PARTS_SCHEMA, contradiction

_TOLD = ("message_type", "message_class", "tenant_jisc_id", "generator")
_PIECES = "array<struct<position int, total int, content string>>"

SETTLED_SCHEMA = T.StructType(
    [
        T.StructField("sequence_id", T.StringType()),
        T.StructField("outcome", T.StringType()),
        T.StructField(
            "pieces",
            T.ArrayType(
                T.StructType(
                    [
                        T.StructField("position", T.IntegerType()),
                        T.StructField("total", T.IntegerType()),
                        T.StructField("content", T.StringType()),
                    ]
                )
            ),
        ),
    ]
)
"""One row is one sequence that is `complete` or `contradicting`, and what each of its parts was."""


def settled(parts: DataFrame) -> DataFrame:
    """
    What is to be remembered of the sequences that wait for nothing more.

    Args:
        parts: What `parts` returned.

    Returns:
        One row per sequence that is complete or contradicting (`SETTLED_SCHEMA`).

    Raises:
        MissingColumns, WrongColumnType: *parts* are not what `parts` returned.

    Cost: one shuffle by sequence.

    >>> from cdckit import rdss
    >>> settled(rdss.parts(rdss.decode(records_of(b"?")))).columns
    ['sequence_id', 'outcome', 'pieces']
    """
    require_types(parts, PARTS_SCHEMA, function="settled")
    known = parts.where(F.col("part").isin("complete", "contradicting"))
    return known.groupBy("sequence_id").agg(
        F.first("part").alias("outcome"), F.collect_list(_piece()).cast(_PIECES).alias("pieces")
    )


def late_parts(decoded: DataFrame, sequences: DataFrame) -> DataFrame:
    """
    The parts that come when their sequence is settled already.

    Of a complete sequence the same part again is a duplicate; another one in its place contradicts what was
    put together and stands.  A part of a contradicting sequence is one that contradicts.

    Args:
        decoded: Parts of longer messages, as `decode` returned them.
        sequences: What is remembered of sequences (`SETTLED_SCHEMA`).

    Returns:
        The rows of *decoded* whose sequence is among *sequences*, and `part`: `duplicate` or `contradicting`,
        those with their verdict, GENERR004.

    Raises:
        MissingColumns, WrongColumnType: As their names say.

    Cost: a join by sequence.

    >>> late_parts(decoded, session().createDataFrame([], SETTLED_SCHEMA)).count()
    0
    """
    require_types(decoded, DECODED_SCHEMA, function="late_parts")
    require_types(sequences, SETTLED_SCHEMA, function="late_parts")
    found = decoded.join(sequences.select(*SETTLED_SCHEMA.fieldNames()), on="sequence_id", how="inner")
    same = (F.col("outcome") == "complete") & F.array_contains("pieces", _piece())
    told = found.withColumn("part", F.when(same, "duplicate").otherwise("contradicting"))
    verdict = {name: F.when(~same, said) for name, said in contradiction().items()}
    return told.withColumns(verdict).select(*decoded.columns, "part")


def _piece() -> Column:
    return F.struct(
        F.col("sequence_position").alias("position"),
        F.col("sequence_total").alias("total"),
        F.sha2(F.concat_ws("\n", *_TOLD, "body"), 256).alias("content"),
    )
