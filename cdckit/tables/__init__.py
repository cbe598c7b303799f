"""
The door for any table: rows of Spark or pandas that say what is so, and know nothing of change feeds.

`changes_from` reads a log of rows, one statement each: an export, a CSV, a table with a time of change;
`rejects(table_rows(…))` are the rows of it that nobody can use.  `changes_from_snapshots` reads full lists
of a source, taken at several times.  Both make changes (`cdckit.model`), which `merge` and a `Ledger` take.
`profile` says what stands in a table, and how `changes_from` could read it.
Words are those of Spark's `create_auto_cdc_flow`.
"""

from cdckit.tables.from_lists import changes_from_snapshots
from cdckit.tables.from_rows import changes_from, table_rows
from cdckit.tables.profiles import ColumnProfile, Profile, profile
from cdckit.tables.statements import TableFault
from cdckit.tables.table_arguments import UnfitTable

__all__ = [
    "ColumnProfile",
    "Profile",
    "TableFault",
    "UnfitTable",
    "changes_from",
    "changes_from_snapshots",
    "profile",
    "table_rows",
]
