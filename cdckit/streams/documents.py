"""One pass over sorted messages, carrying what is known of a document from one to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import quoted
from cdckit.parts.arrays import Bools
from cdckit.parts.arrow_types import arrow_schema, make_batch
from cdckit.parts.workers import WorkerPlan, without_garbage_collection
from cdckit.streams.catalogue import Status
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.patches import ADD, MISSING, Unfit, apply_patch, operations

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
        status, reasons, action = self._apply(against, ops)
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

    def _apply(self, against: list[str] | None, ops: str | None) -> tuple[int, list[str] | None, str | None]:
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
            value, grown = apply_patch(self.value, found, self.most)
            text, size = self._measure(value, self.size + grown + len(ops or ""))
        except Unfit as error:
            return Status.NOT_APPLIED, [str(error)], None
        self.value, self.text, self.size = value, text, size
        if value is MISSING:
            return Status.DONE, None, DELETED if was_there else None
        return Status.DONE, None, UPDATED if was_there else CREATED

    def _measure(self, value: Any, size: int) -> tuple[str | None, int]:
        """The text where it had to be written to know its size, and the size, which may be less than said."""
        if value is MISSING or size <= self.most:
            return None, 0 if value is MISSING else size
        text = to_text(value)
        if len(text) > self.most:
            raise Unfit(f"the document would have {len(text):,} characters; the most are {self.most:,}")
        return text, len(text)

    def _text(self) -> str | None:
        if self.text is None and self.value is not MISSING:
            self.text = to_text(self.value)
        return self.text


def _read_operations(ops: str | None) -> tuple[list[Any], list[str]]:
    if ops is None:
        return [], []
    try:
        return operations(read(ops))
    except ValueError as error:
        return [], [f"the ops cannot be read: {error}"]


IS_LAST = T.StructField("is_last", T.BooleanType())
"""Whether a row is the last of its entity: only such a row has the state behind it."""

# Names that no column of a caller has, by which messages may be ordered.
_KNOWN = "known before"
_GROUP = "number of the entity"
_ROWS_AT_ONCE = 1 << 14
_CHARACTERS_AT_ONCE = 1 << 26


class Fold(Protocol):
    """What is carried from message to message of one entity."""

    def begin(self) -> None:
        """Forget all: another entity."""

    def load(self, *state: Any) -> None:
        """Begin with what was known of it."""

    def step(self, *message: Any) -> tuple[tuple[Any, ...], int]:
        """Take a message; what is made of it, and about how many characters that has."""

    def state(self) -> tuple[Any, ...]:
        """What is known after the last message."""


@dataclass(frozen=True)
class Plan:
    """
    How messages are folded.

    Args:
        identity: The columns that tell entities apart; texts.
        reads: The columns of a message that a step is given; of those with lists, an empty one for null.
        keeps: The columns of a message that the result has, unchanged.
        made: What a step makes.
        state: What is known of an entity, before and after; a list that is null is loaded as an empty one.
        fold: Makes the `Fold` of a task.
    """

    identity: tuple[str, ...]
    reads: tuple[str, ...]
    keeps: T.StructType
    made: T.StructType
    state: T.StructType
    fold: Callable[[], Fold]

    def columns(self) -> T.StructType:
        """The columns of the result."""
        return T.StructType([*self.keeps.fields, *self.made.fields, IS_LAST, *self.state.fields])


def fold_messages(
    messages: DataFrame, known: DataFrame | None, plan: Plan, *, order: Sequence[str]
) -> DataFrame:
    """
    What the messages of each entity make, taken one after the other.

    Args:
        messages: One row per message, with the columns that *plan* names.
        known: One row per entity: the identity and the state; None if nothing is known.
        plan: How.
        order: The columns in whose order the messages of an entity count.

    Returns:
        One row per message (`plan.columns()`).  The columns of the state are null but where `is_last`.

    Cost: one shuffle by the identity, a sort, and a pass through Python that holds one entity's state at a
    time and never all messages of it.
    """
    needed = dict.fromkeys([*plan.keeps.fieldNames(), *plan.identity, *plan.reads, *order])
    given = messages.select(*map(quoted, needed)).withColumn(_KNOWN, F.lit(False))
    if known is not None:
        before = known.select(*map(quoted, plan.identity), *plan.state.fieldNames())
        given = given.unionByName(before.withColumn(_KNOWN, F.lit(True)), allowMissingColumns=True)
    # Arrow's lists count their rows anew from the last one that is no null, with each row that Spark adds.
    lists = {
        field.name: F.coalesce(quoted(field.name), F.array().cast(field.dataType))
        for field in given.schema
        if isinstance(field.dataType, T.ArrayType) and field.name not in plan.keeps.fieldNames()
    }
    identity = [quoted(name) for name in plan.identity]
    # To tell two rows apart by a number takes no look at their texts, whose first ones are mostly the same.
    filled = given.withColumns(lists) if lists else given
    together = filled.repartition(*identity).withColumn(_GROUP, F.hash(*identity))
    ranked = [F.col(_KNOWN).desc(), *(F.col(quoted(name)) for name in order)]
    ordered = together.sortWithinPartitions(_GROUP, *identity, *ranked).drop(_GROUP)
    return WorkerPlan(ordered, partial(_fold_batches, plan=plan), plan.columns()).rows()


def _fold_batches(batches: Iterable[pa.RecordBatch], *, plan: Plan) -> Iterator[pa.RecordBatch]:
    # Documents are no cycles: what is not referred to any more is gone at once.
    with without_garbage_collection():
        yield from _steps(batches, plan)


def _steps(batches: Iterable[pa.RecordBatch], plan: Plan) -> Iterator[pa.RecordBatch]:
    fold, types = plan.fold(), arrow_schema(plan.columns())
    for batch, first, last in _mark_bounds(batches, plan.identity):
        known = batch.column(_KNOWN).to_numpy(zero_copy_only=False)
        states = [batch.column(name) for name in plan.state.fieldNames() if known.any()]
        messages = zip(*(batch.column(name).to_pylist() for name in plan.reads), strict=True)
        rows: list[int] = []
        results: list[tuple[Any, ...]] = []
        size = 0
        for row, message in enumerate(messages):
            if first[row]:
                fold.begin()
            if known[row]:
                fold.load(*(column[row].as_py() for column in states))
                continue
            result, characters = fold.step(*message)
            rows.append(row)
            results.append(
                (*result, True, *fold.state()) if last[row] else (*result, False, *_no_state(plan))
            )
            size += characters
            if size > _CHARACTERS_AT_ONCE:
                yield _result_batch(batch, rows, results, plan, types)
                rows, results, size = [], [], 0
        if rows:
            yield _result_batch(batch, rows, results, plan, types)


def _no_state(plan: Plan) -> tuple[None, ...]:
    return (None,) * len(plan.state)


def _result_batch(
    batch: pa.RecordBatch, rows: list[int], results: list[tuple[Any, ...]], plan: Plan, types: pa.Schema
) -> pa.RecordBatch:
    kept = batch.select(plan.keeps.fieldNames())
    # Nearly always all of them: then nothing is copied.
    kept = kept if len(rows) == batch.num_rows else kept.take(pa.array(rows, pa.int64()))
    columns = {name: kept.column(name) for name in plan.keeps.fieldNames()}
    new = list(types)[len(columns) :]
    for field, values in zip(new, zip(*results, strict=True), strict=True):
        columns[field.name] = pa.array(values, field.type)
    return make_batch(columns, types)


def _mark_bounds(
    batches: Iterable[pa.RecordBatch], identity: tuple[str, ...]
) -> Iterator[tuple[pa.RecordBatch, Bools, Bools]]:
    """The batches, and for each row whether it is the first and the last of its entity in all of them."""
    before: pa.RecordBatch | None = None
    begins = True
    for batch in _pieces(batches):
        if before is not None:
            goes_on = _key(before, before.num_rows - 1, identity) == _key(batch, 0, identity)
            yield before, *_bounds(before, identity, begins, not goes_on)
            begins = not goes_on
        before = batch
    if before is not None:
        yield before, *_bounds(before, identity, begins, True)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield batch.slice(start, _ROWS_AT_ONCE)


def _key(batch: pa.RecordBatch, row: int, identity: tuple[str, ...]) -> list[Any]:
    return [batch.column(name)[row].as_py() for name in identity]


def _bounds(
    batch: pa.RecordBatch, identity: tuple[str, ...], begins: bool, ends: bool
) -> tuple[Bools, Bools]:
    differs = np.zeros(batch.num_rows + 1, dtype=bool)
    differs[0], differs[-1] = begins, ends
    for name in identity:
        column = batch.column(name)
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        equal = pc.fill_null(pc.equal(before, after), False)
        if column.null_count:
            equal = pc.or_(equal, pc.and_(before.is_null(), after.is_null()))
        differs[1:-1] |= ~equal.to_numpy(zero_copy_only=False)
    return differs[:-1], differs[1:]
