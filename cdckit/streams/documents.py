"""The document of an entity, or of a schema, and its patches, taken one after the other: a fold."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any

import pyarrow as pa

from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.streams.catalogue import CREATED, DELETED, LOG_ORDER, LOGS, REQUEST, UPDATED, Status
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.patches import ADD, MISSING, TEST, Operation, PatchError, apply_patch, operations

STATE = pa.schema(
    [
        ("document", pa.string()),
        ("answered", pa.list_(pa.string())),
        ("revision", pa.int64()),
        ("changed", pa.int64()),
        ("taught", pa.string()),
    ]
)
"""What is known of an entity, behind its identity: its document as JSON text, null where it does not
exist; the names of its last patches; how often it was changed; when the last patch was answered; and the
document as it was when a patch last let it be learnt from."""

ANSWER = pa.schema(
    [
        ("status", pa.int32()),
        ("errors", pa.list_(pa.string())),
        ("before", pa.string()),
        ("after", pa.string()),
        ("action", pa.string()),
        ("revision_after", pa.int64()),
        ("ended", pa.int64()),
        ("taught_before", pa.string()),
        ("is_repeat", pa.bool_()),
    ]
)
"""What becomes of a patch; all but the last are null where it was there before."""

ANSWERED_AT, IS_REJECT = "answered at", "is a reject"
"""When a patch is answered, and whether it could not be read: names that no column of a caller has."""

_REPEAT: Result = (*(None for _ in ANSWER.names[1:]), True)


MOST_CHARACTERS, REMEMBERED = 1_000_000, 100


def patch_plan(scope: tuple[str, ...], most: int = MOST_CHARACTERS, remember: int = REMEMBERED) -> FoldPlan:
    """Plan how patches are answered, of entities or of schemas, within the limits of a `PatchedDocument`."""
    reads = ("errors", *REQUEST, "part", "ops", "learning", ANSWERED_AT)
    begin = partial(PatchedDocument, most=most, remember=remember)
    return FoldPlan(scope, reads, ANSWER, begin, STATE, order=LOG_ORDER, logs=LOGS, skip=IS_REJECT)


def answered_at(timestamp: int | None, begun: int | None) -> int:
    """Tell when a patch is answered (ms): at the time of its record (µs), if it has one."""
    return (begun or 0) if timestamp is None else timestamp // 1_000


class PatchedDocument(Fold):
    """
    A document, and which patches of it were answered.

    Args:
        state: What is known of it (`STATE`); None if nothing is.
        most: How many characters its JSON text may have.
        remember: How many of the last patches are remembered: one of them that comes again has no effect.
    """

    def __init__(self, state: Result | None = None, *, most: int, remember: int) -> None:
        text, answered, revision, changed, taught = state or (None,) * 5
        self.most, self.remember = most, remember
        self.value: Any = MISSING if text is None else read(text)
        self.text: str | None = text
        self.size = len(text or "")
        self.answered = OrderedDict.fromkeys(answered or ())
        self.revision, self.ended, self.taught = revision or 0, changed or 0, taught
        self._forget()

    def state(self) -> Result:
        """Write down what is known behind the last patch."""
        return column_text(self._text()), list(self.answered), self.revision, self.ended, self.taught

    def take(
        self,
        errors: list[str] | None,
        client: str,
        request: int,
        part: int | None,
        ops: str | None,
        learning: bool | None,
        at: int,
    ) -> Result:
        """
        Answer one patch (`ANSWER`), with the document before and after it, asked for or not.

        Args:
            errors: Why it cannot be applied, if that is known before it is tried.
            client, request, part, ops, learning: As the patch has them.
            at: When it is answered; of one document that never goes back.
        """
        name = f"{client}/{request}/{part}"
        if name in self.answered:
            return _REPEAT
        self.answered[name] = None
        self._forget()
        self.ended = max(self.ended, at)
        before = column_text(self._text())
        try:
            action = self._apply(errors, ops)
        except _Failure as failure:
            status, reasons = failure.args
            return status, reasons, None, None, None, self.revision, self.ended, None, False
        after, taught = column_text(self._text()), None
        if action is not None:
            self.revision += 1
            if learning:
                taught, self.taught = self.taught, after
        return Status.DONE, None, before, after, action, self.revision, self.ended, taught, False

    def _forget(self) -> None:
        # With each patch: what is remembered must not depend on where one call ends and the next begins.
        while len(self.answered) > self.remember:
            self.answered.popitem(last=False)

    def _apply(self, errors: list[str] | None, ops: str | None) -> str | None:
        """Apply a patch, wholly or not at all: what it did; None if it asked for no change, but for tests."""
        if errors:
            raise _Failure(Status.NOT_APPLIED, errors)
        patch = _read_operations(ops)
        was_there = self.value is not MISSING
        if not was_there and not any(operation.name == ADD for operation in patch):
            reason = "it does not exist, and the patch adds nothing to create it with"
            raise _Failure(Status.NO_ENTITY, [reason])
        try:
            value, grown = apply_patch(self.value, patch, self.most)
            if all(operation.name == TEST for operation in patch):
                return None
            text, size = self._measure(value, self.size + grown + len(ops or ""))
        except PatchError as error:
            raise _Failure(Status.NOT_APPLIED, [str(error)]) from None
        self.value, self.text, self.size = value, text, size
        if value is MISSING:
            return DELETED if was_there else None
        return UPDATED if was_there else CREATED

    def _measure(self, value: Any, size: int) -> tuple[str | None, int]:
        """The text where it had to be written to know its size, and the size, which may be less than said."""
        if value is MISSING or size <= self.most:
            return None, 0 if value is MISSING else size
        text = to_text(value)
        if len(text) > self.most:
            raise PatchError(f"the document would have {len(text):,} characters; the most are {self.most:,}")
        return text, len(text)

    def _text(self) -> str | None:
        if self.text is None and self.value is not MISSING:
            self.text = to_text(self.value)
        return self.text


class _Failure(Exception):
    """A patch is not applied: its status, and the reasons."""


def _read_operations(ops: str | None) -> list[Operation]:
    if ops is None:
        return []
    try:
        patch, reasons = operations(read(ops))
    except ValueError as error:
        patch, reasons = [], [f"the ops cannot be read: {error}"]
    if reasons:
        raise _Failure(Status.NOT_APPLIED, reasons)
    return patch
