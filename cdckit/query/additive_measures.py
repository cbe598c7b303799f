"""Measures that are told row by row, so that a difference can be taken apart: sums, counts and means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import DELETED
from cdckit.parts.arguments import (
    quoted,
    wrong_argument,
    wrong_type,
)
from cdckit.parts.near_names import nearest_name
from cdckit.parts.values import comparable

MEASURES = ("sum", "count", "mean")
DIGITS = 38
MEAN_TYPE = T.DecimalType(DIGITS, 6)


class AdditiveMeasure(NamedTuple):
    """A measure, in columns over the fields of one row of a report."""

    measure: str
    number: Column
    """What the row adds: to the sum, or to the count."""
    weight: Column
    """How much it counts: 1, or 0 where there is no value."""
    amounts: T.DataType
    by: list[tuple[str, Column, T.DataType]]

    @property
    def counted(self) -> Column:
        """What a row adds, and to which of the `groups`; null where the entity is not there."""
        groups = F.struct(F.lit(0).alias("of"), *(column.alias(name) for name, column, _ in self.by))
        columns = {"groups": groups, "number": self.number.cast(self.amounts), "weight": self.weight}
        # Null is no version at all: `merge` made those that there are.
        return F.when(~F.col(DELETED), F.struct(*(column.alias(name) for name, column in columns.items())))

    @property
    def scale(self) -> int:
        """How many digits an amount has after the point."""
        return self.amounts.scale if isinstance(self.amounts, T.DecimalType) else 0

    def same_group(self, row: Column, other: Column) -> Column:
        """Tell whether two rows that are `counted` are of one group; never null."""
        same = (
            comparable(row.groups[name], kind).eqNullSafe(comparable(other.groups[name], kind))
            for name, _, kind in self.by
        )
        return reduce(and_, same, F.lit(True))


def require_additive(
    fields: DataFrame,
    measure: str,
    value: str | Column | None,
    by: str | Column | Sequence[str | Column],
    *,
    taken: Sequence[str],
) -> AdditiveMeasure:
    """
    The measure, told of one row; raises where it has no exact parts.

    *fields* is a table of the fields; *taken* are names that no group may have.
    """
    if measure not in MEASURES:
        needed = "sum, count or mean, which are told entity by entity"
        remedy = (
            "No message has a part of its own in a minimum, a median or a distinct count: explain the count "
            "or the sum of the rows that decide it, with a condition in value, such as F.when(condition, 1)."
        )
        raise wrong_argument("measure", needed, measure, remedy=remedy)
    groups = [by] if isinstance(by, str | Column) else list(by)
    named = []
    for group in groups:
        column, name, kind = _row_expression(fields, group, "by")
        named.append((name, column, kind))
    names = [name for name, _, _ in named]
    if {name.lower() for name in names} & {*taken} or len(set(names)) < len(names):
        needed = f"of distinct names, none of them {', '.join(taken)}: use alias"
        raise wrong_argument("by", needed, names)
    if value is None:
        if measure != "count":
            needed = f"what the {measure} is of: only a count needs none"
            raise wrong_argument("value", needed, value)
        return AdditiveMeasure(measure, F.lit(1), F.lit(1), T.LongType(), named)
    column, name, kind = _row_expression(fields, value, "value")
    weight = F.when(column.isNull(), 0).otherwise(1)
    if measure == "count":
        return AdditiveMeasure(measure, weight, weight, T.LongType(), named)
    amounts = _amount_type(name, kind)
    number = F.coalesce(column.cast(amounts), F.lit(0).cast(amounts))
    return AdditiveMeasure(measure, number, weight, amounts, named)


def _row_expression(
    fields: DataFrame, expression: str | Column, argument: str
) -> tuple[Column, str, T.DataType]:
    """An expression, its name and its type; raises unless it can be told of one row."""
    if not isinstance(expression, str | Column):
        raise wrong_argument(argument, "a field, an SQL expression or a column", expression)
    columns = fields.columns
    try:
        text = quoted(expression) if isinstance(expression, str) and expression in columns else expression
        column = F.expr(text) if isinstance(text, str) else text
        # Beside the fields: so an aggregate, which would be told of many rows, cannot pass for one of a row.
        field = fields.select("*", column).schema[-1]
    except AnalysisException as error:
        needed = f"a field, or an expression of one row, of {', '.join(columns)}"
        unknown = str(error.getCondition()).startswith("UNRESOLVED_COLUMN")
        close = nearest_name(expression, columns) if unknown and isinstance(expression, str) else None
        reason = f"Is it {close}?" if close else f"Spark says: {str(error).splitlines()[0]}"
        raise wrong_argument(argument, needed, str(expression), remedy=reason) from error
    return column, field.name, field.dataType


def _amount_type(name: str, kind: T.DataType) -> T.DecimalType:
    """The type of a difference of two such numbers; raises where it would not be exact."""
    if isinstance(kind, T.IntegralType):
        return T.DecimalType(20, 0)
    # Where Spark has not the digits for a difference, it gives up those beyond the sixth after the point.
    if isinstance(kind, T.DecimalType) and (kind.precision < DIGITS - 1 or kind.scale <= MEAN_TYPE.scale):
        return T.DecimalType(min(DIGITS, kind.precision + 1), kind.scale)
    needed = "a whole number or a decimal (of more than 36 digits, at most six behind the point)"
    remedy = (
        "Parts of floating numbers would not add up: cast them, such as F.col('…').cast('decimal(18,2)')."
    )
    raise wrong_type(name, needed, kind.simpleString(), remedy)
