"""
The words of the library, as schemas and what they promise: records, changes, histories and full lists.

A door turns records (`RECORD_SCHEMA`) into changes (`CHANGE_SCHEMA`), and those of no use into rejects
(`REJECT_SCHEMA`); changes of several sources come together by `union_changes`, `with_fields` and
`with_priorities`.  A history is what `cdckit.merge` makes of them.
"""

from __future__ import annotations

from cdckit.model.changes import CHANGE_SCHEMA, with_sequence
from cdckit.model.frontiers import find_frontiers, find_missing_positions
from cdckit.model.records import RECORD_SCHEMA
from cdckit.model.rejected_records import REJECT_SCHEMA, drop_rejects, rejects
from cdckit.model.sources import (
    Priority,
    UnknownSource,
    find_unused_priorities,
    require_sources,
    with_fields,
    with_priorities,
)
from cdckit.model.unions import union_changes

__all__ = [
    "CHANGE_SCHEMA",
    "RECORD_SCHEMA",
    "REJECT_SCHEMA",
    "Priority",
    "UnknownSource",
    "drop_rejects",
    "find_frontiers",
    "find_missing_positions",
    "find_unused_priorities",
    "rejects",
    "require_sources",
    "union_changes",
    "with_fields",
    "with_priorities",
    "with_sequence",
]
