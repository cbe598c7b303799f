"""Full lists of a source, each with the instant at which it was taken, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.parts.arguments import microseconds
from cdckit.parts.schemas import quoted, require_batch
from cdckit.parts.tables import AnyTable, require_distinct
from cdckit.parts.widening import as_type, common_spark_type
from cdckit.tables.cells import Cells
from cdckit.tables.frames import Table, as_table, free_name

_STREAMED = "keep the lists, and give those that came so far"

Lists = AnyTable | Mapping[datetime, AnyTable] | Sequence[tuple[datetime, AnyTable]]


class United(NamedTuple):
    """
    All lists as one table: its own columns, and when each row's list and the next one were taken.

    `taken` is None where the lists are one table already and the caller says what tells them apart; `lacking`
    are, by column, the instants of the lists that do not have it; `instants` are those of all lists that are
    known without reading them.
    """

    frame: DataFrame
    columns: list[str]
    taken: Column | None
    next_taken: Column | None
    lacking: Mapping[str, Sequence[datetime]]
    row: Column | None = None
    cells: Cells = Cells()
    instants: Sequence[datetime] = ()


def united(snapshots: Lists, *, function: str) -> United:
    """One table of all lists; columns of one name get a type that holds the values of all lists."""
    if not isinstance(snapshots, Mapping | list | tuple):
        table = as_table(snapshots, function=function).typed()  # type: ignore[arg-type]
        require_batch(table.frame, "snapshots", _STREAMED, function=function)
        return United(table.frame, table.columns, None, None, {}, table.row, table.cells)
    return _union(_in_order(snapshots, function=function), function=function)


def _in_order(snapshots: Any, *, function: str) -> list[tuple[datetime, Table]]:
    pairs = list(snapshots.items()) if isinstance(snapshots, Mapping) else list(snapshots)
    if not pairs or not all(isinstance(each, tuple) and len(each) == 2 for each in pairs):
        needed = (
            "a table, or full lists with the instants at which they were taken, such as "
            "{datetime(2024, 1, 1, tzinfo=UTC): frame}"
        )
        raise InvalidArgument(function, "snapshots", needed, [type(each).__name__ for each in pairs])
    by_time: dict[int, tuple[datetime, Table]] = {}
    for at, frame in pairs:
        table = as_table(frame, function=function)
        require_batch(table.frame, "snapshots", _STREAMED, function=function)
        place = microseconds(at, "the instant of a list", function=function)
        if place in by_time:
            raise InvalidArgument(function, "snapshots", "one list for each instant", at.isoformat())
        by_time[place] = at.astimezone(UTC), table
    return [by_time[place] for place in sorted(by_time)]


def _union(lists: Sequence[tuple[datetime, Table]], *, function: str) -> United:
    kinds: dict[str, T.DataType] = {}
    for _, table in lists:
        for name in table.columns:
            kinds[name] = _common(name, kinds.get(name), table.frame.schema[name].dataType, function)
    kinds = {name: T.StringType() if isinstance(kind, T.NullType) else kind for name, kind in kinds.items()}
    require_distinct(list(kinds), function=function)
    taken, after = free_name("taken", kinds), free_name("next taken", kinds)
    instants = [at for at, _ in lists]
    frames = [
        table.frame.select(
            *_columns(table, kinds),
            _literal(at, function).alias(taken),
            _literal(next_, function).alias(after),
        )
        for (at, table), next_ in zip(lists, [*instants[1:], None], strict=True)
    ]
    lacking = {name: [at for at, table in lists if name not in table.columns] for name in kinds}
    one = reduce(DataFrame.unionByName, frames)
    at, next_at = F.col(quoted(taken)), F.col(quoted(after))
    return United(one, list(kinds), at, next_at, lacking, instants=instants)


def _columns(table: Table, kinds: Mapping[str, T.DataType]) -> list[Column]:
    has = {name: table.frame.schema[name].dataType for name in table.columns}
    return [
        (as_type(F.col(quoted(name)), has[name], kind) if name in has else F.lit(None).cast(kind)).alias(name)
        for name, kind in kinds.items()
    ]


def _common(name: str, known: T.DataType | None, found: T.DataType, function: str) -> T.DataType:
    common = found if known is None else common_spark_type(known, found)
    if common is None:
        assert known is not None
        raise WrongColumnType(function, f"{name} of every list", known.simpleString(), found.simpleString())
    return common


def _literal(at: datetime | None, function: str) -> Column:
    if at is None:
        return F.lit(None).cast("timestamp")
    return F.timestamp_micros(F.lit(microseconds(at, "the instant of a list", function=function)))
