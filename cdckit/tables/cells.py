"""What the cells of a table of pandas say of its columns, so that an error can say what would do."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
from pandas.api.types import is_float_dtype


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
