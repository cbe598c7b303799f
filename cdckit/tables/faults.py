"""What can be wrong with a call about a table, and with a row of it."""

from __future__ import annotations

from cdckit.parts.faults import Fault
from cdckit.parts.suggestions import UnfitCall


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
