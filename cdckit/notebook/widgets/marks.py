"""What a move changed: the rows after it, marked against those before, and those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook import NULL, Table
from cdckit.notebook.table_formats import as_html_table
from cdckit.notebook.widgets.texts import instant_of
from cdckit.parts.schemas import quoted
from cdckit.parts.values import as_text

MARK = "what changed"
"""The column of marks, before all others."""

NEW, GONE = "new", "gone"
_LONGEST = 24


def marked(now: DataFrame, before: DataFrame, fields: Sequence[T.StructField], zone: tzinfo) -> DataFrame:
    """
    The rows of *now*, and those of *before* that are gone, each with a mark before its columns.

    The mark is "new", "gone", or what *fields* were before ("a was 10; b was NULL"); empty where all of them
    are as they were.  Both tables have the same columns, among them `guid`, and a row for each guid.
    """
    whole = F.struct(*(F.col(quoted(name)) for name in now.columns))
    pairs = now.select("guid", whole.alias("now")).join(
        before.select("guid", whole.alias("old")), on="guid", how="full"
    )
    here, there = F.col("now"), F.col("old")
    was = [_was(field, zone) for field in fields]
    mark = (
        F.when(there.isNull(), F.lit(NEW))
        .when(here.isNull(), F.lit(GONE))
        .otherwise(F.concat_ws("; ", *was) if was else F.lit(""))
    )
    rows = pairs.select(mark.alias("mark"), F.coalesce(here, there).alias("row"))
    kept = [F.col("row").getField(name).alias(name) for name in now.columns]
    return rows.select(F.col("mark").alias(MARK), *kept)


def counts(rows: DataFrame) -> str:
    """How many rows of `marked` are new, changed and gone, in words.  A job."""
    mark = F.col(MARK)
    changed = ~mark.isin("", NEW, GONE)
    (found,) = rows.agg(
        F.count_if(mark == NEW).alias(NEW),
        F.count_if(changed).alias("changed"),
        F.count_if(mark == GONE).alias(GONE),
    ).collect()
    return (
        ", ".join(f"{number:,} {word}" for word, number in found.asDict().items() if number)
        or "nothing changed"
    )


class Marked(Table):
    """A table of marked rows, in which those that are gone are struck through."""

    @classmethod
    def of(cls, table: Table) -> Marked:
        """The same table; its first column are the marks."""
        return cls(table._cells, table._changes, table._look)

    def _repr_html_(self) -> str:
        gone = [row[0].text == GONE for row in self._page.rows]
        return as_html_table(self._page._replace(deleted=gone))


def _was(field: T.StructField, zone: tzinfo) -> Column:
    new, old = (as_text(F.col(side).getField(field.name), field.dataType) for side in ("now", "old"))
    told = instant_of(old, zone) if isinstance(field.dataType, T.TimestampType) else old
    shown = F.coalesce(
        F.when(F.length(told) > _LONGEST, F.concat(F.left(told, F.lit(_LONGEST)), F.lit("…"))).otherwise(
            told
        ),
        F.lit(NULL),
    )
    return F.when(~new.eqNullSafe(old), F.concat(F.lit(f"{field.name} was "), shown))
