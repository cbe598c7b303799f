"""One value in valid time and system time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from operator import attrgetter
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.forms import beliefs_with
from cdckit.model.history import DELETED, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import Labels, ValueTexts, draw_bar, time_axis
from cdckit.notebook.pictures.style import (
    INK,
    PALETTE,
    ROWS,
    SECOND,
    Picture,
    days,
    duration_text,
    entity_rows,
    entity_text,
    exact_text,
    first_rows,
    in_style,
    ink_on,
    open_end_mark,
    text_figure,
    value_shades,
)
from cdckit.parts.argument_forms import COUNT, takes
from cdckit.parts.arguments import quoted, require_fields, with_number
from cdckit.query.bitemporal import history_fields

NO_END = float("inf")


class Area(NamedTuple):
    """A rectangle of the plane: what was believed from y0 to y1 of the time from x0 to x1."""

    x0: float
    x1: float
    y0: float
    y1: float
    value: str | None
    deleted: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Area:
        ends = [NO_END if row[name] is None else days(row[name]) for name in (VALID_TO, SYSTEM_TO)]
        starts = [days(row[name]) for name in (VALID_FROM, SYSTEM_FROM)]
        return cls(starts[0], ends[0], starts[1], ends[1], row["value"], row[DELETED])

    def box(self, ends: tuple[float, float]) -> Bbox:
        """The rectangle in a chart that ends there."""
        return Bbox([[self.x0, self.y0], [min(self.x1, ends[0]), min(self.y1, ends[1])]])

    def has_same_value(self, other: Area) -> bool:
        return (self.value, self.deleted) == (other.value, other.deleted)

    def was_believed(self, areas: Iterable[Area]) -> bool:
        """Tell whether the same was believed of its beginning before: then a cut made it, and no news."""
        return any(a.has_same_value(self) and a.x0 <= self.x0 < a.x1 and a.y0 < self.y0 for a in areas)


def fold_areas(areas: Sequence[Area]) -> list[Area]:
    """Fold the plane: without the borders that other fields of the entity made."""
    for begin, end, *others in (("x0", "x1", "y0", "y1"), ("y0", "y1", "x0", "x1")):
        joined: list[Area] = []
        for area in sorted(areas, key=attrgetter(*others, begin)):
            last = joined[-1] if joined else None
            beside = attrgetter(*others, begin)(area)
            if last and last.has_same_value(area) and attrgetter(*others, end)(last) == beside:
                joined[-1] = last._replace(**{end: getattr(area, end)})
            else:
                joined.append(area)
        areas = joined
    return list(areas)


def latest_known(areas: list[Area]) -> Area | None:
    """Find what became known longest after it began; None where nothing was a second late."""
    news = [area for area in areas if not area.was_believed(areas)]
    latest = max(news, key=lambda area: area.y0 - area.x0, default=None)
    return latest if latest is not None and latest.y0 - latest.x0 >= SECOND else None


@takes(table=beliefs_with("guid", VALID_FROM, VALID_TO, DELETED), limit=COUNT)
def bitemporal_plane(
    table: DataFrame,
    key: Mapping[str, Any],
    field: str,
    *,
    limit: int = 400,
    zone: tzinfo | str | None = None,
) -> Figure:
    """
    One value in two times: when it held, across, and when that was believed, upwards.

    A horizontal line is a moment of knowledge: what it crosses was believed then.  On the diagonal one
    asks, at each moment, about that moment: to its left lies the past, to its right the future.

    Args:
        table: What `bitemporal` returned.
        key: Value by field; `guid` may be one of them.  If several entities have these values the one
            with the first guid is drawn, and the figure says so.
        field: The field to draw.
        limit: How many rows of *table* to draw: those that were believed first.
        zone: The zone of all instants, those that are values too; a tzinfo or its name; without it
            `options.zone`.

    Returns:
        The figure; without such an entity, a figure that says so.  Its title says which value became known
        latest, and that value is written in any case.  Arrows are ends that are open.

    Raises:
        InvalidArgument: *key* or *field* name no field; a timestamp in *key* is naive; or there is no such
            zone.

    Cost: one job: two filters over the table.

    Source:
        Snodgrass, "Developing Time-Oriented Database Applications in SQL", bitemporal time diagrams.

    >>> from cdckit import bitemporal

    >>> from cdckit.notebook import pictures
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> pictures.bitemporal_plane(table, {"number": 1}, "name").get_suptitle()
    'name of 1: each value was known when it began'
    """
    (field,) = require_fields([field], history_fields(table).fieldNames(), "field")
    clock = as_zone(zone)
    kind = table.schema[field].dataType
    times = [F.col(name) for name in (SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO, DELETED)]
    beliefs = entity_rows(table, key, [*times, exact_text(F.col(quoted(field)), kind).alias("value")])
    rows, more = first_rows(beliefs.orderBy(SYSTEM_FROM, VALID_FROM), limit)
    if not rows:
        return text_figure(f"The table has no entity {entity_text(key, clock)}.")
    return _draw(rows, field, kind, key, clock, f"the first {limit:,} beliefs" if more else "")


@in_style
def _draw(
    rows: list[dict[str, Any]], field: str, kind: T.DataType, key: Mapping[str, Any], zone: tzinfo, cut: str
) -> Figure:
    areas = fold_areas([Area.of(row) for row in rows])
    latest, last = latest_known(areas), max(areas, key=lambda area: (area.y1, area.x0))
    alive = [area.value for area in sorted(areas, key=lambda area: area.x0) if not area.deleted]
    shades = value_shades(dict.fromkeys(alive))
    texts = ValueTexts.of([(value, kind) for value in shades], zone)
    several = rows[0]["matching"] - 1
    notes = [
        cut,
        f"{several:,} more with this key" if several else "",
        with_number(len(shades), "value"),
        texts.note,
    ]
    picture = Picture(
        f"{field} of {entity_text(key, zone)}: {_finding(latest, texts, kind, len(shades))}",
        f"across when it held, upwards when that was believed; {'; '.join(filter(None, notes))}",
    )
    ends = _draw_areas(picture, areas, shades, zone)
    picture.settle()
    labels, named = Labels(picture.chart), set[tuple[str | None, bool]]()

    def turn(area: Area) -> tuple[bool, bool, float]:
        box = area.box(ends)
        return area != latest, area != last, -box.width * box.height

    for area in sorted(areas, key=turn):
        what = area.value, area.deleted
        if what not in named or area in (latest, last):
            forms = ["deleted"] if area.deleted else texts.forms(area.value, kind)
            colour = INK if area.deleted else ink_on(shades[area.value])
            ground = "none" if area.deleted else shades[area.value]
            must = area in (latest, last)
            if labels.write_in(forms, area.box(ends), colour=colour, behind=ground, must=must):
                named.add(what)
    unnamed = [value for value in shades if (value, False) not in named][:ROWS]
    if unnamed:
        patches = {texts.forms(value, kind)[0]: Patch(facecolor=shades[value]) for value in unnamed}
        picture.key(others=patches, loc="outside lower right")
    return picture


def _finding(latest: Area | None, texts: ValueTexts, kind: T.DataType, values: int) -> str:
    if latest is None:
        return f"{'its one' if values == 1 else 'each'} value was known when it began"
    text = "its deletion" if latest.deleted else texts.forms(latest.value, kind)[-1]
    if not latest.deleted and isinstance(kind, T.StringType) and latest.value is not None:
        text = f"“{text}”"
    return f"{text} became known {duration_text((latest.y0 - latest.x0) / SECOND)} after it began"


def _draw_areas(
    picture: Picture, areas: list[Area], shades: Mapping[str | None, str], zone: tzinfo
) -> tuple[float, float]:
    """Draw the rectangles and the diagonal, and say where the axes end."""
    axes = picture.chart
    xs = [x for area in areas for x in (area.x0, area.x1) if x != NO_END]
    ys = [y for area in areas for y in (area.y0, area.y1) if y != NO_END]
    right = time_axis(axes.xaxis, "valid time: when it held", min(xs), max(xs), pad=0.12, zone=zone)
    top = time_axis(axes.yaxis, "system time: when it was believed", min(ys), max(ys), pad=0.12, zone=zone)
    axes.grid(False)
    for area in areas:
        shade = PALETTE["delete"].colour if area.deleted else shades[area.value]
        box = area.box((right, top))
        middle = (box.y0 + box.y1) / 2
        draw_bar(
            axes, middle, box.x0, box.x1, shade, high=box.height, deleted=area.deleted, edge=shade, zorder=1
        )
        arrow: dict[str, Any] = {"color": shade, "markersize": 7, "clip_on": False}
        if area.x1 == NO_END:
            axes.plot(right, middle, ">", **arrow)
        if area.y1 == NO_END:
            axes.plot((box.x0 + box.x1) / 2, top, "^", **arrow)
    low, high = max(axes.get_xlim()[0], axes.get_ylim()[0]), min(right, top)
    others: dict[str, Artist] = {}
    if low < high:
        diagonal: dict[str, Any] = {"linestyle": "--", "color": "#c8702a", "linewidth": 0.9}
        axes.plot([low, high], [low, high], scalex=False, scaley=False, **diagonal)
        others["each moment as believed at that moment"] = Line2D([], [], **diagonal)
    picture.key(others=others | (open_end_mark() if NO_END in {x for a in areas for x in a[:4]} else {}))
    return right, top
