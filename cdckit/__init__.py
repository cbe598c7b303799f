"""
cdckit: any change feed into one trustworthy history.

The spine, in the order in which data passes it: `session` for notebooks and tests; the doors, each
of which turns records into changes (`cdckit.replicate`); `merge`, from changes to a history; and
the questions that a history answers.
"""

from cdckit import replicate
from cdckit.bitemporal import as_known, bitemporal, known_at
from cdckit.changes import Priority, union_changes, with_priorities
from cdckit.errors import CdcError, InvalidArgument, MissingColumns, WrongColumnType
from cdckit.history import as_of, current
from cdckit.merge import merge
from cdckit.rejects import drop_rejects, rejects
from cdckit.sessions import session
from cdckit.why import why

__all__ = [
    "CdcError",
    "InvalidArgument",
    "MissingColumns",
    "Priority",
    "WrongColumnType",
    "as_known",
    "as_of",
    "bitemporal",
    "current",
    "drop_rejects",
    "known_at",
    "merge",
    "rejects",
    "replicate",
    "session",
    "union_changes",
    "why",
    "with_priorities",
]
