"""Tables to look at: histories, changes, rejects and answers, in Jupyter and as text."""

from cdckit.display.clock import short_instants
from cdckit.display.pages import NULL
from cdckit.display.showing import Table, show

__all__ = ["NULL", "Table", "short_instants", "show"]
