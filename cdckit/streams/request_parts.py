"""A request: the patches of a batch, and whether all responses to them are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.streams.catalogue import ARRIVAL, ENTITY, ENTITY_PATCHES, REQUEST, StreamFault
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.patches import show_value

_NAMES = ENTITY[1:]
_FIELDS = ENTITY_PATCHES.columns()
PATCH = pa.schema([*map(_FIELDS.field, (*_NAMES, "part", "parts", "ops")), ("errors", pa.list_(pa.string()))])
"""What one patch of a batch says, and why it cannot be applied, if it is known before it is tried."""

ERASED = "ERASED"
"""What stands in a batch in the place of a patch that was erased."""
ERASED_REASON = "the patch spoke of an entity that was erased"


def batch_patches(
    database: str, patches: Sequence[str], is_reject: bool, *, databases: frozenset[str] | None
) -> Iterator[Result]:
    """
    The patches of a batch (`PATCH`), part i of n; of a database that is not served none can be applied.

    A batch that is a reject says nothing, and is one row.
    """
    if is_reject:
        yield (None,) * len(PATCH)
        return
    against = foreign_reasons(database, databases)
    for part, text in enumerate(patches, 1):
        columns = {"part": part, "parts": len(patches), **read_patch(text, against)}
        yield tuple(columns.get(name) for name in PATCH.names)


def foreign_reasons(database: str, databases: frozenset[str] | None) -> list[str]:
    """Why a patch that names its database is not for these, if it is not."""
    if databases is None or database in databases:
        return []
    return [f"the database {show_value(database)} is not served here"]


def read_patch(text: str, against: Sequence[str] = ()) -> dict[str, Any]:
    """The columns of one patch of a batch; why it cannot be applied among them, also what is *against* it."""
    document = read(text)
    if document == ERASED:
        return {"errors": [ERASED_REASON]}
    if not isinstance(document, dict):
        return {"errors": [*against, f"the patch is {show_value(document)}, not an object"]}
    texts = {name: document[name] for name in _NAMES if isinstance(document.get(name), str)}
    reasons = [
        f"the patch has no {name}: it is {show_value(document.get(name))}"
        for name in _NAMES
        if name not in texts
    ]
    ops = document.get("ops")
    if ops is None:
        reasons.append("the patch has no ops")
    return {
        **{name: column_text(value) for name, value in texts.items()},
        "ops": None if ops is None else column_text(to_text(ops)),
        "errors": [*against, *reasons] or None,
    }


COMPLETE, WAITING, DUPLICATE, CONTRADICTING = "complete", "waiting", "duplicate", "contradicting"
GIVEN_UP = "given up"

PART = pa.schema(
    [
        ("part_is", pa.string()),
        ("waiting_since", pa.timestamp("us", "UTC")),
        ("waiting_for", pa.string()),
        (ERROR_CODE, pa.string()),
        (ERROR_DESCRIPTION, pa.string()),
    ]
)
"""Whether all responses to a request are there, said of each of them."""


class ResponseParts(Fold):
    """
    The responses to the patches of one request, sorted by part and arrival: "only after all parts have been
    completed will the aggregate message with all partial responses be written".

    Args:
        state: None, unless the request was complete before.
    """

    def __init__(self, state: Result | None) -> None:
        self.was_complete = state is not None
        self.parts: list[int] = []
        self.terms: set[tuple[int, str]] = set()
        self.since: Any = None

    def take(self, part: int, parts: int, user: str, timestamp: datetime | int | None) -> None:
        """Hold a response, which came at an instant of any kind: what becomes of it depends on all."""
        self.parts.append(part)
        self.terms.add((parts, user))
        if timestamp is not None and (self.since is None or timestamp < self.since):
            self.since = timestamp

    def settle(self) -> Iterable[Result]:
        """Tell what each response is, and for what it waits (`PART`)."""
        is_first = [part != before for before, part in zip([None, *self.parts], self.parts, strict=False)]
        if self.was_complete:
            return [(DUPLICATE, None, None, None, None) for _ in self.parts]
        if len(self.terms) > 1:
            fault = StreamFault.CONTRADICTING
            return [(CONTRADICTING, None, None, fault.value, fault.describe()) for _ in self.parts]
        [(parts, _)] = self.terms
        answered = set(self.parts)
        state: Result = (COMPLETE, None, None, None, None)
        if len(answered) < parts:
            lacking = next(part for part in range(1, parts + 1) if part not in answered)
            waits_for = f"{parts - len(answered)} of {parts} parts, the first of them part {lacking}"
            state = (WAITING, self.since, waits_for, None, None)
        return [state if first else (DUPLICATE, None, None, None, None) for first in is_first]


RESPONSE_PLAN = FoldPlan(
    REQUEST,
    ("part", "parts", "user", "timestamp"),
    PART,
    ResponseParts,
    # Of several responses to one part the first counts; of those that came at one place the fields decide.
    order=("part", *ARRIVAL.names, *ENTITY, "status", "ended"),
)
"""How the responses to a request are taken together."""
