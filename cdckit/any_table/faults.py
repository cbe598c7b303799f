"""Why a table cannot become changes: everything that is wrong with a call, in one error."""

from __future__ import annotations

from cdckit.parts.meant import UnfitCall


class UnfitTable(UnfitCall):
    """A table lacks columns that the call names, or has them in types that cannot mean what it says."""

    cannot, what = "cannot read the table so", "table"
