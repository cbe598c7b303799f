"""A table of Spark or of pandas, as Spark has it, with the place of each row where there is one."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.notebook.sessions import session
from cdckit.parts.schemas import quoted, quoted_if_needed
from cdckit.parts.tables import AnyTable, as_arrow, spark_table, void_as_text
from cdckit.tables.cells import Cells


class Table(NamedTuple):
    """A table's rows, its own columns, the place of a row, where rows have an order, and the cells."""

    frame: DataFrame
    columns: list[str]
    row: Column | None
    cells: Cells = Cells()

    def typed(self) -> Table:
        """The table with a type for columns that have none, since nothing stands in them: text."""
        return self._replace(frame=void_as_text(self.frame))

    def without(self, column: str) -> str:
        """The call that leaves out the rows in which this column is null, in the caller's words."""
        if self.row is not None:
            return f"frame.dropna(subset={[column]!r})"
        return f'frame.where("{quoted_if_needed(column)} is not null")'


def as_table(frame: AnyTable, *, function: str) -> Table:
    """The table as Spark's (`cdckit.parts.tables`), and of one of pandas the number of each row."""
    if isinstance(frame, pd.DataFrame):
        columns = [str(name) for name in frame.columns]
        row = free_name("row number", columns)
        arrow = as_arrow(frame, function=function)
        numbered = arrow.append_column(row, pa.array(range(1, len(frame) + 1), pa.int64()))
        return Table(session().createDataFrame(numbered), columns, F.col(quoted(row)), Cells(frame))
    found = spark_table(frame, function=function)
    return Table(found, list(found.columns), None)


def free_name(wanted: str, columns: Collection[str]) -> str:
    """A name for a further column: *wanted*, or one like it that none of *columns* has."""
    while wanted in columns:
        wanted += "_"
    return wanted
