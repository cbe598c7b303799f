"""From one number to another, step by step: what `explain` told, added up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from decimal import Decimal, localcontext
from itertools import accumulate
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import draw_bar, rows_axis
from cdckit.notebook.pictures.style import (
    INK,
    PALETTE,
    ROWS,
    Look,
    Picture,
    first_rows,
    in_style,
    one_line,
    source_looks,
    text_figure,
    value_shades,
)
from cdckit.parts.argument_forms import COUNT, NAME, rows_with, takes
from cdckit.parts.arguments import quoted, require_columns, with_number, wrong_argument
from cdckit.parts.values import as_text, utc_clock

_KINDS = {
    **dict.fromkeys(("late", "new", "newly valid"), PALETTE["insert"]),
    **dict.fromkeys(("corrected", "updated", "reclassified", "reranked"), PALETTE["update"]),
    **dict.fromkeys(("deleted", "expired", "revoked"), PALETTE["delete"]),
}
_OPERATIONS = {"came": PALETTE["insert"], "changed": PALETTE["update"], "gone": PALETTE["delete"]}
_TOTAL = Look("#5a6b7b", "|")
_OTHERS, _NOTHING = "all others", "no value"
_NEAR = 0.25
"""Where the steps take a smaller share of the axis than that, it does not begin at 0."""


@takes(parts=rows_with(), measure=NAME, limit=COUNT)
def waterfall(
    parts: DataFrame,
    *,
    before: int | Decimal = 0,
    by: str = "kind",
    measure: str = "amount",
    limit: int = ROWS,
    zone: tzinfo | str | None = None,
) -> Figure:
    """
    Draw the way from one number to another: a bar for each step, which begins where the one before ended.

    Args:
        parts: What `explain` returned, or some of its rows, such as those of one group.
        before: The number of the earlier report; that of the later one follows.
        by: The column whose values are the steps: "kind", "source", a group, a key; of a timestamp, such as
            "arrival_timestamp", its days.
        measure: What the number is, in words, for the title and the axis.
        limit: How many steps to draw: the largest.  The others are one more step, so that nothing is missing.
        zone: The zone whose days count, a tzinfo or its name; without it `options.zone`.

    Returns:
        The figure.  Its title says both numbers and which steps are the largest.  Kinds and groups stand in
        the order of their size, days in their own.

    Raises:
        MissingColumns: *parts* lack `amount`, `message_id` or the column *by*.
        InvalidArgument: *before* is no exact number; or there is no such zone.

    Cost: one job: an aggregate by *by*, of which the largest rows are collected.

    >>> from datetime import datetime, timezone
    >>> from cdckit.notebook import pictures
    >>> from cdckit.query import Belief, explain
    >>> ten, noon = (datetime(2024, 1, 1, hour, 30, tzinfo=timezone.utc) for hour in (10, 12))
    >>> then, now = Belief(changes, noon, known_at=ten), Belief(changes, noon)
    >>> parts = explain(then, now, "count", entity="product", keys=["number"])
    >>> pictures.waterfall(parts, before=2, measure="products").get_suptitle()
    'products: 1 instead of 2; deleted -1'
    """
    require_columns(parts, ["amount", "message_id", by])
    if isinstance(before, bool) or not isinstance(before, int | Decimal):
        raise wrong_argument("before", "an int or a Decimal, the number of before", before)
    kind = parts.schema[by].dataType
    is_day = isinstance(kind, T.TimestampType)
    step = _day_of(F.col(quoted(by)), as_zone(zone)) if is_day else None
    named = parts.select(
        as_text(F.col(quoted(by)), kind).alias("step") if step is None else step.alias("step"),
        "amount",
        "message_id",
    )
    total = named.agg(F.sum("amount").alias("total"), F.count_distinct("message_id").alias("messages"))
    added = named.groupBy("step").agg(F.sum("amount").alias("amount"), F.count("*").alias("parts"))
    largest = added.crossJoin(F.broadcast(total)).orderBy(F.desc(F.abs("amount")), "step")
    rows, more = first_rows(largest, limit)
    if not rows:
        return text_figure(f"{measure}: {_number(Decimal(before))}, in both reports")
    steps = [_Step(_NOTHING if row["step"] is None else row["step"], Decimal(row["amount"])) for row in rows]
    if is_day:
        steps.sort(key=lambda step: step.name)
    note = f"the parts of {with_number(rows[0]['messages'], 'message')}, by {'day of ' if is_day else ''}{by}"
    # Amounts have up to 38 digits, of which Python's sums keep 28 otherwise.
    with localcontext(prec=76):
        remainder = Decimal(rows[0]["total"]) - sum(step.amount for step in steps)
        drawn = [*steps, *([_Step(_OTHERS, remainder)] if more else [])]
        return _picture(drawn, Decimal(before), measure, note, _looks(by, steps), by_kind=by == "kind")


class _Step(NamedTuple):
    name: str
    amount: Decimal


def _day_of(instant: Column, zone: tzinfo) -> Column:
    there = F.convert_timezone(F.lit("UTC"), F.lit(str(zone)), utc_clock(instant))
    return F.to_date(there).cast("string")


def _looks(by: str, steps: Sequence[_Step]) -> dict[str, Look]:
    names = [step.name for step in steps]
    if by == "kind":
        return {name: _KINDS.get(name, PALETTE["update"]) for name in names}
    if by == "source":
        return source_looks([name for name in names if name != _NOTHING])
    return {name: Look(next(iter(value_shades(["one"]).values())), "o") for name in names}


@in_style
def _picture(
    steps: Sequence[_Step], before: Decimal, measure: str, note: str, looks: dict[str, Look], *, by_kind: bool
) -> Figure:
    levels: list[Decimal] = list(accumulate((step.amount for step in steps), initial=before))
    after = levels[-1]
    largest = sorted((step for step in steps if step.amount), key=lambda step: -abs(step.amount))[:2]
    finding = ", ".join(f"{one_line(step.name, 20)} {_signed(step.amount)}" for step in largest)
    low, high = float(min(levels)), float(max(levels))
    from_zero = high - low >= _NEAR * max(abs(low), abs(high))
    picture = Picture(
        f"{one_line(measure, 40)}: {_number(after)} instead of {_number(before)}"
        + (f"; {finding}" if finding else ""),
        note + ("" if from_zero else "; the axis does not begin at 0"),
        rows=len(steps) + 2,
    )
    axes = picture.chart
    names = ["before", *(one_line(step.name, 30) for step in steps), "after"]
    rows_axis(axes, names)
    first, last = _span(min(low, 0) if from_zero else low, max(high, 0) if from_zero else high)
    axes.set_xlim(first, last)
    start = Decimal(min(max(0.0, first), last))
    bars = [
        (0, start, before, _TOTAL, _number(before)),
        (len(names) - 1, start, after, _TOTAL, _number(after)),
    ]
    for place, (step, begin, end) in enumerate(zip(steps, levels, levels[1:], strict=False), 1):
        bars.append((place, begin, end, looks.get(step.name, PALETTE["no source"]), _signed(step.amount)))
    for place, begin, end, look, text in bars:
        ends, is_gone = (float(begin), float(end)), look == PALETTE["delete"]
        bar = draw_bar(axes, place, *ends, look.colour, high=0.62, deleted=is_gone, zorder=2)
        axes.bar_label(bar, [text], padding=4)
    for place, level in enumerate(levels):
        axes.plot([float(level)] * 2, [place - 0.35, place + 1.35], color=INK, linewidth=0.8, zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(True, axis="x")
    axes.set_xlabel(one_line(measure, 80))
    if by_kind:
        seen = {name: look for name, look in _OPERATIONS.items() if look in looks.values()}
        picture.key(seen, hollow={"gone"})
    picture.settle()
    return picture


def _span(low: float, high: float) -> tuple[float, float]:
    """The ends of the axis, with room for what is written beside the bars."""
    room = 0.12 * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _number(value: Decimal) -> str:
    """A number with its thousands set apart and without zeros at its end."""
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(value: Decimal) -> str:
    return f"{'+' if value > 0 else ''}{_number(value)}"
