"""
Why a report says something else, the naive way: each message by itself, in the order of arrival.

After each of them everything is folded anew, and the two reports are held against each other row by row.
Nothing is shared with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, NamedTuple

from support.fold import content, fold, holds, identity, place, same_value, without_redeliveries
from support.histories import Row

UNDONE, BEGAN, ENDED, TOLD = "undone", "began", "ended", "told"


class Step(NamedTuple):
    """What one message did to one entity: the rows of the two reports, None where there is none."""

    guid: str
    step: str
    message: str
    source: str | None
    effective: datetime
    restated: bool
    was: Row | None
    now: Row | None
    place: tuple[Any, ...]
    """Where it stands among all steps of its kind."""


class Report(NamedTuple):
    """The changes that it was made from, and the instant that it is about."""

    changes: Sequence[Row]
    valid_at: datetime


class World(NamedTuple):
    """Of what kind the entities are."""

    entity: str
    keys: Sequence[str]
    fields: Sequence[str]

    def row(self, changes: Iterable[Row], at: datetime) -> Row | None:
        """The one entity that the changes are of, as it stands then."""
        for version in fold(list(changes), entity=self.entity, keys=self.keys, fields=self.fields):
            begun = version["valid_from_timestamp"] <= at
            ended = version["valid_to_timestamp"] is not None and version["valid_to_timestamp"] <= at
            if begun and not ended and not version["deleted_indicator"]:
                return {name: version[name] for name in self.fields}
        return None

    def rows(self, report: Report) -> list[Row]:
        """Every entity of a report that is there."""
        rows = (self.row(some, report.valid_at) for some in self.by_guid(report.changes).values())
        return [row for row in rows if row is not None]

    def by_guid(self, changes: Iterable[Row]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for change in changes:
            found.setdefault(identity(change, self.entity, self.keys), []).append(change)
        return found

    def steps(self, before: Report, after: Report) -> list[Step]:
        """Every step of every entity that changes its row, in order."""
        mine, theirs = (self.by_guid(each.changes) for each in (before, after))
        found: list[Step] = []
        for guid in sorted(mine.keys() | theirs.keys()):
            one, other = (known.get(guid, []) for known in (mine, theirs))
            core = [change for change in one if change in other]
            found += self._undone(guid, core, one, other, before.valid_at)
            found += self._passed(guid, core, before.valid_at, after.valid_at)
            found += self._told(guid, core, other, one, after.valid_at)
        return [each for each in found if not same(each.was, each.now)]

    def _told(
        self, guid: str, core: list[Row], known: list[Row], others: list[Row], at: datetime, step: str = TOLD
    ) -> Iterator[Step]:
        so_far = list(core)
        for message in messages([change for change in known if change not in core]):
            was = self.row(so_far, at)
            so_far += message
            counting = [change for change in without_redeliveries(so_far) if change in message]
            first = min(counting or message, key=place)
            again = any(whose(each) == whose(first) for each in others if each not in core)
            yield Step(
                guid, step, first["message_id"], first["source"], first["effective_timestamp"], again,
                was, self.row(so_far, at), place_of(first),
            )  # fmt: skip

    def _undone(
        self, guid: str, core: list[Row], known: list[Row], others: list[Row], at: datetime
    ) -> list[Step]:
        told = list(self._told(guid, core, known, others, at, UNDONE))
        return [each._replace(was=each.now, now=each.was) for each in reversed(told)]

    def _passed(self, guid: str, core: list[Row], before: datetime, after: datetime) -> Iterator[Step]:
        counting = sorted(without_redeliveries(core), key=place)
        ends = {each["effective_until"] for each in counting if each.get("effective_until")}
        times = {each["effective_timestamp"] for each in counting} | ends
        was = self.row(core, before)
        for at in sorted(time for time in times if before < time <= after):
            now = self.row(core, at)
            if not same(was, now):
                change, step = self._last_word(counting, at), BEGAN
                if change is None or change["effective_timestamp"] < at:
                    change, step = [each for each in counting if each.get("effective_until") == at][-1], ENDED
                arrived, *_, message, has, source = place_of(change)
                yield Step(
                    guid, step, change["message_id"], change["source"],
                    change["effective_timestamp"], False, was, now, (at, arrived, message, has, source),
                )  # fmt: skip
            was = now

    def _last_word(self, changes: Iterable[Row], at: datetime) -> Row | None:
        """Of the changes that hold at an instant, the last that made another state of it."""
        held = [
            {**each, "effective_until": None}
            for each in changes
            if holds({"effective_until": None} | each, at)
        ]
        found, before = None, "None"
        for count, change in enumerate(held, 1):
            history = fold(held[:count], entity=self.entity, keys=self.keys, fields=self.fields)
            now = content(history[-1] if history else None)
            if now != before:
                found, before = change, now
        return found


def same(one: Row | None, other: Row | None) -> bool:
    return same_value(one, other)


def whose(change: Row) -> tuple[Any, ...]:
    return change["message_id"], change["source"]


def place_of(change: Row) -> tuple[Any, ...]:
    """Where a message stands among all arrivals."""
    arrival = change["arrival"]
    known = (arrival[name] for name in ("timestamp", "topic", "partition", "offset"))
    return (*known, change["message_id"], change["source"] is not None, change["source"] or "")


def messages(changes: Iterable[Row]) -> list[list[Row]]:
    """The changes of each message, in the order in which the messages arrived."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for change in changes:
        found.setdefault(place_of(change), []).append(change)
    return [found[key] for key in sorted(found)]


class Measure(NamedTuple):
    """What is added up over the rows of a report, and by what they are grouped."""

    name: str
    value: Callable[[Row], Decimal | int | None]
    group: Callable[[Row], tuple[Any, ...]]

    def of(self, rows: Iterable[Row]) -> dict[tuple[Any, ...], Decimal]:
        """The measure of each group."""
        values: dict[tuple[Any, ...], list[Decimal | int]] = {}
        for row in rows:
            value = self.value(row)
            values.setdefault(self.group(row), []).extend([] if value is None else [value])
        return {group: self.told(some) for group, some in values.items()}

    def told(self, values: Sequence[Decimal | int]) -> Decimal:
        if self.name == "mean":
            return mean(values)
        return Decimal(sum(values)) if self.name == "sum" else Decimal(len(values))

    def parts(
        self, steps: Sequence[Step], before: Report, rows: Iterable[Row]
    ) -> dict[tuple[Any, ...], Decimal]:
        """
        What each message adds to each group: by (guid, group, kind, message, source).

        *rows* are those of the report before.
        """
        values: dict[tuple[Any, ...], list[Decimal | int]] = {}
        for row in rows:
            values.setdefault(self.group(row), []).extend(self.counted(row))
        found: dict[tuple[Any, ...], Decimal] = {}
        for step in in_order(steps):
            for group, kind, come, gone in self.pieces(step, before.valid_at):
                some = values.setdefault(group, [])
                was = self.told(some)
                some.extend(come)
                for value in gone:
                    some.remove(value)
                part = (step.guid, group, kind, step.message, step.source)
                found[part] = found.get(part, Decimal(0)) + self.told(some) - was
        return {part: amount for part, amount in found.items() if amount}

    def counted(self, row: Row | None) -> list[Decimal | int]:
        value = None if row is None else self.value(row)
        return [] if value is None else [value]

    def pieces(self, step: Step, then: datetime) -> Iterator[tuple[Any, ...]]:
        """Of each group: what became of the row, what came to it, and what went from it."""
        was, now = (None if row is None else self.group(row) for row in (step.was, step.now))
        gone, come = self.counted(step.was), self.counted(step.now)
        in_time = step.effective <= then
        kinds = {UNDONE: "revoked", BEGAN: "newly valid", ENDED: "expired", TOLD: None}
        kind = "reranked" if step.restated else kinds[step.step]
        if was is None:
            yield now, kind or ("late" if in_time else "new"), come, []
        elif now is None:
            yield was, kind or "deleted", [], gone
        elif was == now:
            yield now, kind or ("corrected" if in_time else "updated"), come, gone
        elif kind:
            yield was, kind, [], gone
            yield now, kind, come, []
        else:
            yield was, "reclassified", [], gone
            yield now, "reclassified", gone, []
            yield now, "corrected" if in_time else "updated", come, gone


def in_order(steps: Iterable[Step]) -> list[Step]:
    """All steps of all entities: what is undone, from the last to the first; what passes; what is told."""
    ways = [[each for each in steps if each.step in some] for some in ((UNDONE,), (BEGAN, ENDED), (TOLD,))]
    undone, passed, told = (sorted(some, key=lambda each: (each.place, each.guid)) for some in ways)
    return [*reversed(undone), *passed, *told]


def mean(values: Sequence[Decimal | int]) -> Decimal:
    """To six digits, and 0 of nothing."""
    if not values:
        return Decimal(0)
    with localcontext(prec=80):
        exact = Decimal(sum(values)) / len(values)
        return exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)
