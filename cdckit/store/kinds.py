"""What a store is kept for: whoever keeps tables of one kind is not to write among those of another."""

from __future__ import annotations

from cdckit.store.errors import OtherKind
from cdckit.store.snapshot import Snapshot

KIND = "cdckit.kind"
"""The note that says it, such as "data hub (form 1)": the kind, and the form of its tables."""


def require_kind(tables: Snapshot, kind: str) -> None:
    """
    Raise `OtherKind` for a store that has tables of another kind, or none that anything is said of.

    Args:
        tables: The store at a commit; one in which there is nothing may become anything.
        kind: What is needed, as it is noted.
    """
    found = tables.note_of(KIND)
    if found is None and not tables.names():
        return
    if found != kind:
        others = f"a store of the tables {', '.join(tables.names())}"
        raise OtherKind(tables.root, f"a {kind}", found or others)
