"""Why a history cannot take the form that was asked for: all that is wrong with a call, in one error."""

from __future__ import annotations

from cdckit.errors import CdcError
from cdckit.parts.suggestions import UnfitCall


class UnfitHistory(UnfitCall):
    """A history lacks what a table is made of, or has a new column's name already; or fields are misnamed."""

    cannot, what = "cannot make its table so", "history"


class TooManyRows(CdcError, ValueError):
    """There are more rows than were said to be wanted in this program."""

    def __init__(self, limit: int, columns: int) -> None:
        self.limit, self.columns = limit, columns
        super().__init__(limit, columns)

    def __str__(self) -> str:
        return (
            f"to_pandas() needs at most {self.limit:,} rows, and there are at least {self.limit + 1:,} of "
            f"{self.columns} columns; none was left out silently. Ask for fewer: "
            "to_pandas(frame.where(…)), to_pandas(frame.groupBy(…).count()), or the first ones of an order, "
            f"to_pandas(frame.orderBy(…).limit({self.limit})). Or take more into the memory of this program: "
            f"to_pandas(frame, limit={10 * self.limit})"
        )
