"""One value in valid time and system time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from operator import attrgetter
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import DELETED, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO, require_bitemporal
from cdckit.notebook.display import as_zone
from cdckit.notebook.pictures.axes import CellValue, InstantFormat, Labels, time_axis
from cdckit.notebook.pictures.style import (
    HATCH,
    INK,
    PALETTE,
    ROWS,
    SECOND,
    days,
    draw_key,
    duration_text,
    entity_rows,
    entity_text,
    exact_text,
    first_rows,
    ink_on,
    new_figure,
    open_end_mark,
    require_limit,
    text_figure,
    value_shades,
    with_number,
)
from cdckit.parts.arguments import quoted, require_fields
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

    def has_same_value(self, other: Area) -> bool:
        return (self.value, self.deleted) == (other.value, other.deleted)

    def touches(self, other: Area) -> bool:
        """Whether the two share more than a corner."""
        across = min(self.x1, other.x1) - max(self.x0, other.x0)
        upwards = min(self.y1, other.y1) - max(self.y0, other.y0)
        return min(across, upwards) >= 0 and max(across, upwards) > 0

    def was_believed(self, areas: Iterable[Area]) -> bool:
        """Whether the same was believed of its beginning before: then a cut made it, and no news."""
        return any(a.has_same_value(self) and a.x0 <= self.x0 < a.x1 and a.y0 < self.y0 for a in areas)


def fold_areas(areas: Sequence[Area]) -> list[Area]:
    """The same plane without the borders that other fields of the entity made."""
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


def group_areas(areas: Sequence[Area]) -> dict[Area, int]:
    """Which rectangles look like one area, since they say the same and touch: by rectangle, its number."""
    piece = {area: number for number, area in enumerate(areas)}
    for area in areas:
        for other in areas:
            if piece[area] != piece[other] and area.has_same_value(other) and area.touches(other):
                joined, left = piece[area], piece[other]
                piece = {each: joined if number == left else number for each, number in piece.items()}
    return piece


def latest_known(areas: list[Area]) -> Area | None:
    """What became known longest after it began; None where nothing became known a second later, or more."""
    news = [area for area in areas if not area.was_believed(areas)]
    latest = max(news, key=lambda area: area.y0 - area.x0, default=None)
    return latest if latest is not None and latest.y0 - latest.x0 >= SECOND else None


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
        MissingColumns, WrongColumnType: *table* lacks one of the columns that `bitemporal` returns.
        InvalidArgument: *key* or *field* name no field; a timestamp in *key* is naive; *limit* is not a
            positive number; or there is no such zone.

    Cost: one job: two filters over the table.

    Source:
        Snodgrass, "Developing Time-Oriented Database Applications in SQL", bitemporal time diagrams.

    >>> from cdckit import bitemporal

    >>> from cdckit.notebook import pictures
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> pictures.bitemporal_plane(table, {"number": 1}, "name").get_suptitle()
    'name of 1: each value was known when it began'
    """
    function = "bitemporal_plane"
    table = require_bitemporal(table, "guid", VALID_FROM, VALID_TO, DELETED, function=function)
    (field,) = require_fields([field], history_fields(table).fieldNames(), "field", function=function)
    require_limit(limit, function)
    clock = as_zone(zone, function=function)
    kind = table.schema[field].dataType
    times = [F.col(name) for name in (SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO, DELETED)]
    found = entity_rows(table, key, [*times, exact_text(F.col(quoted(field)), kind).alias("value")], function)
    rows, more = first_rows(found.orderBy(SYSTEM_FROM, VALID_FROM), limit)
    if not rows:
        return text_figure(f"The table has no entity {entity_text(key, clock)}.")
    return _picture(rows, more, limit, field, kind, key, clock)


def _picture(
    rows: list[dict[str, Any]],
    more: bool,
    limit: int,
    field: str,
    kind: T.DataType,
    key: Mapping[str, Any],
    zone: tzinfo,
) -> Figure:
    areas = fold_areas([Area.of(row) for row in rows])
    legend = dict.fromkeys(area.value for area in sorted(areas, key=lambda area: area.x0) if not area.deleted)
    values = {value: CellValue(value, kind) for value in legend}
    writing = InstantFormat.of([values.values()], zone)
    latest = latest_known(areas)
    several = rows[0]["matching"] - 1
    notes = [
        f"the first {limit:,} beliefs" if more else "",
        f"{several:,} more with this key" if several else "",
        with_number(len(values), "value"),
        writing.note,
    ]
    subtitle = f"across when it held, upwards when that was believed; {'; '.join(filter(None, notes))}"
    title = f"{field} of {entity_text(key, zone)}: {_finding(latest, values, writing)}"
    figure, axes = new_figure(title, subtitle)
    shades = value_shades(values)
    forms = {value: writing.forms(cell) for value, cell in values.items()}
    _draw_areas(figure, axes, areas, shades, forms, latest, zone)
    return figure


def _finding(latest: Area | None, values: Mapping[str | None, CellValue], writing: InstantFormat) -> str:
    if latest is None:
        return f"{'its one' if len(values) == 1 else 'each'} value was known when it began"
    if latest.deleted:
        what = "its deletion"
    else:
        last_value = values[latest.value]
        text = writing.forms(last_value)[-1]
        what = (
            f"“{text}”"
            if isinstance(last_value.kind, T.StringType) and last_value.value is not None
            else text
        )
    return f"{what} became known {duration_text((latest.y0 - latest.x0) / SECOND)} after it began"


def _draw_areas(
    figure: Figure,
    axes: Axes,
    areas: list[Area],
    shades: Mapping[str | None, str],
    forms: Mapping[str | None, Sequence[str]],
    latest: Area | None,
    zone: tzinfo,
) -> None:
    xs = [x for area in areas for x in (area.x0, area.x1) if x != NO_END]
    ys = [y for area in areas for y in (area.y0, area.y1) if y != NO_END]
    right = time_axis(axes.xaxis, "valid time: when it held", min(xs), max(xs), pad=0.12, zone=zone)
    top = time_axis(axes.yaxis, "system time: when it was believed", min(ys), max(ys), pad=0.12, zone=zone)
    axes.grid(False)
    for area in areas:
        _draw_area(axes, area, right, top, shades)
    low, high = max(axes.get_xlim()[0], axes.get_ylim()[0]), min(right, top)
    others: dict[str, Artist] = {}
    if low < high:
        diagonal: dict[str, Any] = {"linestyle": "--", "color": "#b35806", "linewidth": 0.9, "alpha": 0.7}
        axes.plot([low, high], [low, high], **diagonal)
        others["each moment as believed at that moment"] = Line2D([], [], **diagonal)
    if any(NO_END in (area.x1, area.y1) for area in areas):
        others |= open_end_mark()
    draw_key(figure, {}, others=others)
    figure.draw_without_rendering()
    named = _name_areas(axes, areas, (right, top), shades, forms, latest)
    unnamed = [value for value in shades if value not in named]
    if unnamed:
        patches = {forms[value][0]: Patch(facecolor=shades[value]) for value in unnamed[:ROWS]}
        draw_key(figure, {}, others=patches, loc="outside lower right")


def _draw_area(axes: Axes, area: Area, right: float, top: float, shades: Mapping[str | None, str]) -> None:
    shade = "white" if area.deleted else shades[area.value]
    edge = PALETTE["delete"].colour if area.deleted else shade
    x1, y1 = min(area.x1, right), min(area.y1, top)
    hatch = HATCH if area.deleted else None
    axes.add_patch(
        Rectangle(
            (area.x0, area.y0), x1 - area.x0, y1 - area.y0,
            facecolor=shade, edgecolor=edge, hatch=hatch, linewidth=0.8,
        )
    )  # fmt: skip
    if area.x1 == NO_END:
        axes.plot(right, (area.y0 + y1) / 2, ">", color=edge, markersize=7, clip_on=False)
    if area.y1 == NO_END:
        axes.plot((area.x0 + x1) / 2, top, "^", color=edge, markersize=7, clip_on=False)


def _name_areas(
    axes: Axes,
    areas: list[Area],
    ends: tuple[float, float],
    shades: Mapping[str | None, str],
    forms: Mapping[str | None, Sequence[str]],
    latest: Area | None,
) -> set[str | None]:
    """Write values into their areas: the latest known, the one that stands last, then the largest first."""
    labels, written = Labels(axes), Counter[str | None]()
    pieces, named = group_areas(areas), set[int]()
    last = max(areas, key=lambda area: (area.y1, area.x0))

    def turn(area: Area) -> tuple[bool, bool, float]:
        size = (min(area.x1, ends[0]) - area.x0) * (min(area.y1, ends[1]) - area.y0)
        return area != latest, area != last, -size

    for area in sorted(areas, key=turn):
        # What looks like one area has one name; and two areas of a value say enough of it.
        if pieces[area] in named or (not area.deleted and written[area.value] >= 2):
            continue
        box = Bbox([[area.x0, area.y0], [min(area.x1, ends[0]), min(area.y1, ends[1])]])
        ink, behind = (INK, "white") if area.deleted else (ink_on(shades[area.value]), shades[area.value])
        texts = ["deleted"] if area.deleted else forms[area.value]
        has_room = labels.write_in(texts, box, colour=ink, behind=behind, must=area in (latest, last))
        if has_room:
            named.add(pieces[area])
        written[area.value] += has_room and not area.deleted
    return {value for value, times in written.items() if times}
