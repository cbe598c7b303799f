"""RDSS, "Metadata Error Codes", "Digital Object Versioning": whether an object existed."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.rdss.findings import RdssFault
from cdckit.rdss.message_types import CREATE, READ, REMOVE, UPDATE

FAULTS = {
    UPDATE: RdssFault.UPDATE_OF_UNKNOWN,
    REMOVE: RdssFault.DELETE_OF_UNKNOWN,
    READ: RdssFault.READ_OF_UNKNOWN,
}
"""By the type of a message what is said of it, where its object is unknown."""

UNKNOWN_CODES = tuple(fault.value for fault in FAULTS.values())
"""The codes of what is about an unknown object."""


def is_right(kind: str, existed: Iterable[bool]) -> bool:
    """
    Tell whether a message was right to be sent: its object existed, or one of which it is a version.

    A create never is an error: an object that is known to some already, and becomes public, comes as one.
    """
    return kind == CREATE or any(existed)


def exists_after(kind: str, existed: bool, *, keeps_deleted: bool) -> bool:
    """Tell whether an object exists after a message that is right: a read says nothing of it."""
    if kind == REMOVE:
        return keeps_deleted and existed
    return kind in (CREATE, UPDATE) or existed


class PublishedStatements(Fold):
    """
    What is said of objects, in the order in which it was published.

    Args:
        keeps_deleted: Whether a deleted object exists still.
    """

    def __init__(self, keeps_deleted: bool) -> None:
        self._keeps_deleted = keeps_deleted
        self._exist: dict[str, bool] = {}
        self._known: dict[tuple[str, str], bool] = {}
        self._verdicts: dict[str, bool] = {}

    def take(self, message_id: str, kind: str | None, objects: list[str], exists: bool | None) -> Result:
        """
        Say whether a message is about an unknown object.

        Args:
            message_id: A message that comes again has the verdict of the first time.
            kind: The type of the message; null for what was known before.
            objects: The object that the message is about, and those of which that is a version.
            exists: Whether the object existed from then on; of what was known before.
        """
        about = objects[0]
        existed = self._exist.get(about, False)
        if kind is None:
            self._known.setdefault((about, message_id), existed)
            if exists or not self._keeps_deleted:
                self._exist[about] = bool(exists)
            return (False,)
        if message_id in self._verdicts:
            return (not self._verdicts[message_id],)
        existed = self._known.get((about, message_id), existed)
        right = is_right(kind, (existed, *(self._exist.get(name, False) for name in objects[1:])))
        if right:
            self._exist[about] = exists_after(kind, existed, keeps_deleted=self._keeps_deleted)
        elif len(objects) > 1:
            # Nor does it by what is known of this very message.
            self._exist[about] = False
        self._verdicts[message_id] = right
        return (not right,)


def published_statements(keeps_deleted: bool) -> FoldPlan:
    """Plan how statements are taken, in the order in which they were published."""
    return FoldPlan(
        scope=("family",),
        reads=("message_id", "message_type", "objects", "known"),
        makes=pa.schema([("is_wrong", pa.bool_())]),
        begin=lambda _: PublishedStatements(keeps_deleted),
    )
