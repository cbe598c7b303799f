"""
Tables to look at, in Jupyter and as text: histories, changes, rejects and answers.

`cdckit.notebook.pictures` and `cdckit.notebook.widgets` are imported by name; the extra `notebooks`
brings what they need.
"""

from cdckit.notebook.columns import NULL
from cdckit.notebook.tables import Table, show

__all__ = ["NULL", "Table", "show"]
