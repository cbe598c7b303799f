"""Facts and versions in one line: those of a key together, and sorted in the way that Spark does fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import quoted
from cdckit.query import join_rows as rows
from cdckit.query.join_rows import Asked
from cdckit.query.lookups import FUNCTION
from cdckit.query.overlapping_versions import overlap_text

_GROUP = "group"


def with_group(line: DataFrame, key: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """
    The rows with a number that all rows of a key have, and the columns that tell keys apart fastest.

    The first of these is the number.  Other keys may have it too, unless it is the whole key.
    """
    if len(key) > 1 or not isinstance(line.schema[key[0]].dataType, T.IntegralType):
        return line.withColumn(_GROUP, F.hash(*key)), [_GROUP, *key]
    return line, list(key)


def sorted_by_number(line: DataFrame, group: str, number: Column) -> DataFrame:
    """
    The rows of each partition about in the order of their group, and within it of a number.

    To sort by two columns, Spark compares row with row, each from anywhere in memory: that took most of
    the time of this join.  By one number it sorts without a look at the rows.  So they are sorted by a number
    first, which takes them near to their places, and the window's own sort has little left to do.
    """
    # The upper half is of the group, the lower of the number.
    upper, lower = (F.coalesce(each.cast("long"), F.lit(0)) for each in (F.col(group), number))
    return line.sortWithinPartitions(F.shiftleft(upper, 32).bitwiseOR(lower.bitwiseAND(F.lit((1 << 32) - 1))))


def carried(places: Mapping[str, str], asked: Asked) -> list[Column]:
    """The columns of facts that the rows do not have anyway."""
    there = (*asked.key, rows.AT)
    return [F.col(quoted(name)).alias(place) for name, place in places.items() if place not in there]


def of_facts(facts: DataFrame, line: DataFrame, places: Mapping[str, str]) -> list[Column]:
    """The columns of facts, from the rows of facts."""
    return [
        _of_fact(line, places[each.name]).alias(each.name, metadata=each.metadata) for each in facts.schema
    ]


def _of_fact(line: DataFrame, name: str) -> Column:
    """A column of facts, nullable as all that workers make: no option of a lookup changes the schema."""
    if line.schema[name].nullable:
        return F.col(name)
    return F.when(F.col(rows.SOURCE).isNull(), F.col(name))


def text_of_overlap(into: Column, line: DataFrame, asked: Asked) -> Column:
    """What to say of a version that begins while another one of its key is in force."""
    lookup = F.concat(F.lit("lookup '"), into, F.lit("'"))
    key = [(F.col(name), line.schema[name].dataType) for name in asked.key]
    return overlap_text(lookup, key, F.col(rows.AT), function=FUNCTION)
