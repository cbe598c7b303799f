"""
Whether tables are sound: suites of sentences that a table keeps (`check`, `check_all`), a `gate` before a
stream's batches, the rows of changes and histories that are not sound, and what became of every record.
"""

from cdckit.quality.checks import BrokenPromises
from cdckit.quality.data_docs import check_all, gate
from cdckit.quality.unsound_rows import (
    coalesce_versions,
    find_contradictions,
    find_gaps,
    find_overlaps,
    find_uncovered,
    record_outcomes,
)

__all__ = [
    "BrokenPromises",
    "check_all",
    "coalesce_versions",
    "find_contradictions",
    "find_gaps",
    "find_overlaps",
    "find_uncovered",
    "gate",
    "record_outcomes",
]
