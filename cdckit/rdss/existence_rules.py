"""RDSS, "Metadata Error Codes", "Digital Object Versioning": whether an object existed."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.rdss.validators import CREATE, REMOVE, UPDATE


class ObjectExistence(Fold):
    """
    What is said of one object, in the order in which it was published.

    A create makes it exist, a delete ends that.  An update that is a version of another object makes it
    exist, too, if it is right; what came after that depends on whether it is, which others decide.

    Args:
        state: None; it is always known from the beginning.
        keeps_deleted: Whether a deleted object exists still.
    """

    def __init__(self, state: Result | None, keeps_deleted: bool) -> None:
        self._keeps_deleted = keeps_deleted
        self._existed: tuple[bool | None, str | None] = None, None
        self._answers: dict[str, tuple[bool | None, str | None]] = {}

    def take(
        self,
        named: str,
        message_id: str,
        kind: str | None,
        own: str | None,
        is_version: bool,
        known: bool | None,
    ) -> Result:
        """
        Say whether the object existed before a message; or that it did if an update was right, and which.

        Args:
            named: The object.
            message_id: A message that comes again has the answer of the first time.
            kind: The type of the message; null for what was known before.
            own: The object that the message is about, which need not be this one.
            is_version: Whether that is a version of another object.
            known: Whether the object existed from then on; of what was known before.
        """
        answer = self._answers.setdefault(message_id, self._existed)
        if known is not None:
            self._existed = known, None
        elif own == named:
            if kind == CREATE:
                self._existed = True, None
            elif kind == REMOVE and not self._keeps_deleted:
                self._existed = False, None
            elif kind == UPDATE and is_version:
                self._existed = None, message_id
        return answer


def object_existence(keeps_deleted: bool) -> FoldPlan:
    """How the statements about each object are taken, in the order in which they were published."""
    return FoldPlan(
        scope=("named",),
        reads=("named", "message_id", "message_type", "object_uuid", "is_version", "known"),
        makes=pa.schema([("existed", pa.bool_()), ("follows", pa.string())]),
        begin=partial(ObjectExistence, keeps_deleted=keeps_deleted),
    )


class FollowingMessages(Fold):
    """Messages about objects that exist only if updates before them were right, as they were published."""

    def __init__(self, state: Result | None) -> None:
        self._wrong: set[str] = set()

    def take(self, message_id: str, follows: list[str], is_version: bool) -> Result:
        """Say whether a message is wrong: every update that it follows is, or there is none."""
        is_wrong = self._wrong.issuperset(follows)
        if is_wrong and is_version:
            self._wrong.add(message_id)
        return (is_wrong,)


FOLLOWING = FoldPlan(
    scope=("chain",),
    reads=("message_id", "follows", "is_version"),
    makes=pa.schema([("is_wrong", pa.bool_())]),
    begin=FollowingMessages,
)
