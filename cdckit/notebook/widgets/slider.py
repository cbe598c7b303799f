"""A table as of the instant that a slider stands at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.history import STANDARD_COLUMNS, business_fields
from cdckit.notebook import Table, short_instants, show
from cdckit.notebook.options import as_zone
from cdckit.notebook.widgets.panel import (
    MARK,
    Area,
    MarkedTable,
    Page,
    Panel,
    counts,
    instant_text,
    mark_changes,
)
from cdckit.parts.arguments import quoted, require_fields, require_instant
from cdckit.query.as_of import as_of

_MOST_INSTANTS = 10_000
# JupyterLab cuts what stands beside a slider after some twenty characters: a day and a time with its offset.
_WHOLE_LABELS = (
    "<style>.cdckit-slider .widget-readout{min-width:max-content;max-width:none;overflow:visible}</style>"
)


def as_of_slider(
    history: DataFrame,
    instants: Sequence[datetime] | tuple[datetime, datetime, timedelta],
    *,
    fields: Sequence[str] | None = None,
    rows: int | None = None,
    order_by: str | Sequence[str] | None = None,
    provenance: bool = False,
    zone: tzinfo | str | None = None,
) -> Panel:
    """
    A history as it stood at the instant that a slider chooses.

    Args:
        history: One row per version.
        instants: The instants to choose from, aware, at most 10,000 of them: as a sequence, or as (start,
            end, step), where *end* is one of them if the steps meet it.
        fields: The business fields to show, and no more; without it all, and since when, until when and by
            which message they stand so.
        rows: As for `show`.
        order_by: As for `show`; without it the table is ordered by the fields that it shows, from the left.
        provenance: As for `show`.
        zone: As for `show`.

    Returns:
        A panel: the slider and the table, which begins with the first of *instants*.  After a move each row
        says what the move changed: that it is new, or what its fields were before; rows that are gone stay
        for this one time, struck through.

    Raises:
        MissingColumns, WrongColumnType: As `as_of`.
        InvalidArgument: An instant is naive, there are none or too many, or the step is not positive; a
            field is none of *history*; as `show`.

    Cost: nothing at the call; at the first display one job that reads *history*, at each move two that
    read it twice each.

    >>> from datetime import datetime, timedelta, timezone
    >>> nine = datetime(2024, 1, 1, 9, tzinfo=timezone.utc)
    >>> slider = as_of_slider(history.drop("guid"), (nine, nine.replace(hour=11), timedelta(minutes=30)))
    >>> print(slider)
    as of 2024-01-01 09:00 UTC
    number  name    valid_from  valid_to  message
    1       kettle  09:00       10:00     m1
    2       mug     09:00       11:00     m1
    (2 rows; instants of 2024-01-01, UTC)
    """
    listed, clock = _instants(instants), as_zone(zone, function=_SLIDER)
    known = business_fields(history)
    shown = known.names if fields is None else require_fields(fields, known.names, "fields", function=_SLIDER)
    kept = history.select(
        *(quoted(name) for name in shown),
        *(name for name in STANDARD_COLUMNS if name in history.columns),
    )
    shown_fields = [known[name] for name in shown]
    sortable = [
        field.name
        for field in shown_fields
        if isinstance(field.dataType, T.AtomicType) and not isinstance(field.dataType, T.VariantType)
    ]
    comparable = "guid" in kept.columns

    def table(frame: DataFrame, order: str | Sequence[str] | None) -> Table:
        wanted = None if fields is None else [name for name in (MARK, *shown) if name in frame.columns]
        return show(frame, columns=wanted, rows=rows, order_by=order, provenance=provenance, zone=clock)

    order = order_by or sortable or None

    def page(at: datetime, before: datetime | None = None) -> Page:
        heading, now = f"as of {instant_text(at, clock)}", as_of(kept, at)
        if before is None or not comparable:
            return Page(((heading, table(now, order)),))
        both = mark_changes(now, as_of(kept, before), shown_fields, clock)
        since = f"{heading}; since {instant_text(before, clock)}: {counts(both)}"
        return Page(((since, MarkedTable.of(table(both, order))),))

    page(listed[0])  # says at once what is wrong with the arguments; a page that nobody reads runs no job

    def build(library: Any, first: Callable[[], Page]) -> Any:
        labels, _ = short_instants(listed, clock)
        slider = library.SelectionSlider(
            options=list(zip(labels, listed, strict=True)),
            description="as of",
            continuous_update=False,
            layout=library.Layout(width="95%"),
        )
        area = Area(library)
        area.show(first, "the first state")

        def move(change: Mapping[str, Any]) -> None:
            at, before = change["new"], change["old"]
            area.show(partial(page, at, before), f"as of {instant_text(at, clock)}")

        slider.observe(move, names="value")
        slider.add_class("cdckit-slider")
        whole_labels = library.HTML(_WHOLE_LABELS, layout=library.Layout(display="none"))
        return library.VBox([whole_labels, slider, area.widget])

    return Panel(partial(page, listed[0]), build)


_SLIDER = "as_of_slider"


def _instants(instants: Sequence[datetime] | tuple[datetime, datetime, timedelta]) -> list[datetime]:
    listed: list[Any] = list(instants)
    if len(listed) == 3 and isinstance(listed[2], timedelta):
        return _steps(*listed)
    for instant in listed:
        require_instant(instant, "instants", function=_SLIDER)
    if not 1 <= len(listed) <= _MOST_INSTANTS:
        raise InvalidArgument(
            _SLIDER, "instants", f"1 to {_MOST_INSTANTS} instants", f"{len(listed)} instants"
        )
    return listed


def _steps(start: Any, end: Any, step: timedelta) -> list[datetime]:
    for instant in (start, end):
        require_instant(instant, "instants", function=_SLIDER)
    # In UTC: Python counts the hours between two datetimes of one zone on the clock at the wall.
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    if step <= timedelta(0) or last < first or (last - first) // step >= _MOST_INSTANTS:
        needed = f"a start, an end not before it, and a step that makes at most {_MOST_INSTANTS} instants"
        raise InvalidArgument(_SLIDER, "instants", needed, (start.isoformat(), end.isoformat(), str(step)))
    return [first + number * step for number in range((last - first) // step + 1)]
