"""A given table of Spark or pandas, as Spark has it, and the faults of a call about it or of a row in it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
from pandas.api.types import is_float_dtype
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.notebook.sessions import session
from cdckit.parts.arguments import UnfitCall, quoted, quoted_if_needed
from cdckit.parts.faults import Fault
from cdckit.parts.tables import AnyTable, as_arrow, spark_table, void_as_text


class UnfitTable(UnfitCall):
    """A table lacks columns that the call names, or has them in types that cannot mean what it says."""

    cannot, what = "cannot read the table so", "table"


class TableFault(Fault):
    """
    The codes of the rejects among the rows of a table, in the order in which a row is looked at.

    >>> TableFault.KEY_MISSING.describe("The keys are id, part.")
    'All key columns of the row are null: it is about no entity. The keys are id, part.'
    """

    ROW_UNREADABLE = "ROW_UNREADABLE", "Spark could not read the row in the columns of its table."
    TIME_MISSING = "TIME_MISSING", "The row does not say when it is true."
    TIME_UNREADABLE = "TIME_UNREADABLE", "The row says when it is true in a way that is not known."
    KEY_MISSING = "KEY_MISSING", "All key columns of the row are null: it is about no entity."


class Cells(NamedTuple):
    """The cells of a table of pandas; of one of Spark, which nobody reads before it is asked for, nothing."""

    frame: pd.DataFrame | None = None

    def have_empty(self, name: str) -> bool:
        """Whether some cell of the column is known to be empty."""
        return self.frame is not None and bool(self._column(name).isna().any())

    def are_whole(self, name: str) -> bool:
        """Whether the column holds floats, and all of them whole: what pandas makes of empty cells."""
        if self.frame is None or not is_float_dtype(self._column(name).dtype):
            return False
        said = self._column(name).dropna()
        return bool(len(said)) and bool((said == said.round()).all())

    def _column(self, name: str) -> pd.Series:
        assert self.frame is not None
        return self.frame.iloc[:, [str(each) for each in self.frame.columns].index(name)]


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
