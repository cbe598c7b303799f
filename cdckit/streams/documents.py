"""What is known of one document while the patches of it are applied one after the other."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from cdckit.streams.codes import Status
from cdckit.streams.json_values import column_text, read, written
from cdckit.streams.operations import ADD, operations
from cdckit.streams.patch_application import MISSING, Unfit, patched

CREATED, UPDATED, DELETED = "created", "updated", "deleted"

Answer = tuple[Any, ...]
"""Status, errors, before, after, action, revision and ended; of a patch that teaches, the document that was
taught last; and whether the patch was there before."""


class Document:
    """
    A document, and which patches of it were answered: a `Fold`.

    Args:
        most: How many characters its JSON text may have.
        remember: How many of the last patches are remembered: one of them that comes again has no effect.
    """

    def __init__(self, *, most: int, remember: int) -> None:
        self.most, self.remember = most, remember
        self.begin()

    def begin(self) -> None:
        """Forget all: another document."""
        self.value: Any = MISSING
        self.text: str | None = None
        self.size = self.revision = self.ended = 0
        self.answered: OrderedDict[str, None] = OrderedDict()
        self.taught: str | None = None

    def load(
        self,
        document: str | None,
        answered: list[str] | None,
        revision: int | None,
        ended: int | None,
        taught: str | None,
    ) -> None:
        """Begin with what was known of it."""
        self.value = MISSING if document is None else read(document)
        self.text, self.size = document, len(document or "")
        self.revision, self.ended = revision or 0, ended or 0
        self.answered, self.taught = OrderedDict.fromkeys(answered or ()), taught
        self._forget()

    def state(self) -> tuple[str | None, list[str], int, int, str | None]:
        """What is known behind the last patch."""
        return column_text(self._text()), list(self.answered), self.revision, self.ended, self.taught

    def step(
        self,
        against: list[str] | None,
        client: str,
        request: int,
        part: int | None,
        ops: str | None,
        include_before: bool | None,
        include_after: bool | None,
        learning: bool | None,
        at: int,
        shown: bool,
    ) -> tuple[Answer, int]:
        """Answer one patch; *shown* is whether `before` and `after` are there, asked for or not."""
        name = f"{client}/{request}/{part}"
        if name in self.answered:
            return (*(None,) * 8, True), 0
        self.answered[name] = None
        if len(self.answered) > self.remember:
            self._forget()
        self.ended = max(self.ended, at)
        before = self._text() if include_before or shown else None
        status, reasons, action = self._applied(against, ops)
        if status != Status.DONE:
            return (status, reasons, None, None, None, self.revision, self.ended, None, False), 200
        if action is not None:
            self.revision += 1
        teaches = learning and action is not None
        after = self._text() if include_after or teaches or shown else None
        texts = (column_text(before), column_text(after))
        taught = self.taught if teaches else None
        if teaches:
            self.taught = texts[1]
        size = len(before or "") + len(after or "") + len(taught or "")
        return (status, None, *texts, action, self.revision, self.ended, taught, False), size

    def _forget(self) -> None:
        # With each patch: what is remembered must not depend on where one call ends and the next begins.
        while len(self.answered) > self.remember:
            self.answered.popitem(last=False)

    def _applied(
        self, against: list[str] | None, ops: str | None
    ) -> tuple[int, list[str] | None, str | None]:
        """Status, reasons and action; after a failure all is as it was."""
        if against:
            return Status.NOT_APPLIED, against, None
        found, reasons = _read_operations(ops)
        if reasons:
            return Status.NOT_APPLIED, reasons, None
        was_there = self.value is not MISSING
        if not was_there and not any(operation.name == ADD for operation in found):
            return Status.NO_ENTITY, ["it does not exist, and the patch adds nothing to create it with"], None
        if not found:
            return Status.DONE, None, None
        try:
            value, grown = patched(self.value, found, self.most)
            text, size = self._measured(value, self.size + grown + len(ops or ""))
        except Unfit as error:
            return Status.NOT_APPLIED, [str(error)], None
        self.value, self.text, self.size = value, text, size
        if value is MISSING:
            return Status.DONE, None, DELETED if was_there else None
        return Status.DONE, None, UPDATED if was_there else CREATED

    def _measured(self, value: Any, size: int) -> tuple[str | None, int]:
        """The text where it had to be written to know its size, and the size, which may be less than said."""
        if value is MISSING or size <= self.most:
            return None, 0 if value is MISSING else size
        text = written(value)
        if len(text) > self.most:
            raise Unfit(f"the document would have {len(text):,} characters; the most are {self.most:,}")
        return text, len(text)

    def _text(self) -> str | None:
        if self.text is None and self.value is not MISSING:
            self.text = written(self.value)
        return self.text


def _read_operations(ops: str | None) -> tuple[list[Any], list[str]]:
    if ops is None:
        return [], []
    try:
        return operations(read(ops))
    except ValueError as error:
        return [], [f"the ops cannot be read: {error}"]
