"""
Tables to look at, in Jupyter and as text: histories, changes, rejects and answers.

`cdckit.notebook.pictures` and `cdckit.notebook.widgets` are imported by name; the extra `notebooks`
brings what they need.
"""

from cdckit.notebook.display import Table, show
from cdckit.notebook.tables import NULL, short_instants

__all__ = ["NULL", "Table", "short_instants", "show"]
