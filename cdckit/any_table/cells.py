"""What the cells of a table of pandas say of its columns, so that an error can say what would do."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from pandas.api.types import is_float_dtype

from cdckit.any_table.times import format_of
from cdckit.parts.schemas import quoted_if_needed


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

    def as_time(self, name: str) -> str | None:
        """The column, or an expression over it, as a time, where all its texts are known to write one."""
        said = None if self.frame is None else self._column(name).dropna()
        if said is None or not len(said) or not all(isinstance(each, str) for each in said):
            return None
        written = format_of(said)
        if not written:
            return None if written is None else name
        return f"to_timestamp({quoted_if_needed(name)}, '{written}')"

    def _column(self, name: str) -> pd.Series:
        assert self.frame is not None
        return self.frame.iloc[:, [str(each) for each in self.frame.columns].index(name)]
