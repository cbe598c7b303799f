"""One value in valid time and system time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.history import (
    DELETED,
    SYSTEM_FROM,
    SYSTEM_INTERVAL,
    SYSTEM_TO,
    VALID_FROM,
    VALID_TO,
    standard_columns,
)
from cdckit.parts.arguments import require_fields
from cdckit.parts.schemas import quoted, require_types
from cdckit.pictures.asked import exact_text, fields_of, first_rows, of_one_entity, require_limit
from cdckit.pictures.look import (
    HATCH,
    INK,
    PALETTE,
    ROWS,
    SECOND,
    ink_on,
    new_figure,
    only_words,
    time_axis,
    write_beside,
    write_in,
)
from cdckit.pictures.words import days, duration_text, entity_text, forms_of, with_number

_VALUES = LinearSegmentedColormap.from_list("values", ["#e3edf5", "#9fb8cd", "#4f7291", "#24405c"])


def bitemporal_plane(table: DataFrame, key: Mapping[str, Any], field: str, *, limit: int = 400) -> Figure:
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

    Returns:
        The figure; without such an entity, a figure that says so.  Arrows are ends that are open.  Times
        are UTC, those that are values too.

    Raises:
        MissingColumns, WrongColumnType: *table* lacks one of the columns that `bitemporal` returns.
        InvalidArgument: *key* or *field* name no field; a timestamp in *key* is naive; or *limit* is not
            a positive number.

    Cost: one job: two filters over the table.

    Source:
        Snodgrass, "Developing Time-Oriented Database Applications in SQL", bitemporal time diagrams.

    >>> from cdckit import bitemporal, pictures
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> pictures.bitemporal_plane(table, {"number": 1}, "name").get_suptitle()
    'name of 1: 2 values, each known when it began'
    """
    function = "bitemporal_plane"
    require_types(table, SYSTEM_INTERVAL, function=function)
    require_types(table, standard_columns("guid", VALID_FROM, VALID_TO, DELETED), function=function)
    (field,) = require_fields([field], fields_of(table).fieldNames(), "field", function=function)
    require_limit(limit, function)
    kind = table.schema[field].dataType
    times = [F.col(name) for name in (SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO, DELETED)]
    found = of_one_entity(
        table, key, [*times, exact_text(F.col(quoted(field)), kind).alias("value")], function
    )
    rows, more = first_rows(found.orderBy(SYSTEM_FROM, VALID_FROM), limit)
    if not rows:
        return only_words(f"The table has no entity {entity_text(key)}.")
    areas = _folded([_Area.of(row) for row in rows])
    values = list(
        dict.fromkeys(area.value for area in sorted(areas, key=lambda area: area.x0) if not area.deleted)
    )
    late = max((area.y0 - area.x0 for area in areas if not area.was_believed(areas)), default=0.0) / SECOND
    known = "each known when it began" if late < 1 else f"known up to {duration_text(late)} after they began"
    gone = ", deleted" if rows[-1][DELETED] else ""
    title = f"{field} of {entity_text(key)}: {with_number(len(values), 'value')}{gone}, {known}"
    left_out = f"the first {limit:,} beliefs; " if more else ""
    several = rows[0]["matching"] - 1
    others = f"{several:,} more entities have these values; " if several else ""
    figure, axes = new_figure(title, f"{left_out}{others}across when it held, upwards when that was believed")
    shades = {value: to_hex(_VALUES((place + 0.5) / len(values))) for place, value in enumerate(values)}
    _draw_areas(figure, axes, areas, shades, kind)
    return figure


class _Area(NamedTuple):
    """A rectangle of the plane: what was believed from y0 to y1 of the time from x0 to x1."""

    x0: float
    x1: float
    y0: float
    y1: float
    value: str | None
    deleted: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Area:
        ends = [float("inf") if row[name] is None else days(row[name]) for name in (VALID_TO, SYSTEM_TO)]
        starts = [days(row[name]) for name in (VALID_FROM, SYSTEM_FROM)]
        return cls(starts[0], ends[0], starts[1], ends[1], row["value"], row[DELETED])

    def says_as(self, other: _Area) -> bool:
        return (self.value, self.deleted) == (other.value, other.deleted)

    def was_believed(self, areas: Iterable[_Area]) -> bool:
        """Whether the same was believed of its beginning before: then a cut made it, and no news."""
        return any(a.says_as(self) and a.x0 <= self.x0 < a.x1 and a.y0 < self.y0 for a in areas)


def _folded(areas: list[_Area]) -> list[_Area]:
    """The same plane without the borders that other fields of the entity made."""
    across: list[_Area] = []
    for area in sorted(areas, key=lambda area: (area.y0, area.y1, area.x0)):
        last = across[-1] if across else None
        if last and last.says_as(area) and (last.y0, last.y1, last.x1) == (area.y0, area.y1, area.x0):
            across[-1] = last._replace(x1=area.x1)
        else:
            across.append(area)
    upwards: list[_Area] = []
    for area in sorted(across, key=lambda area: (area.x0, area.x1, area.y0)):
        last = upwards[-1] if upwards else None
        if last and last.says_as(area) and (last.x0, last.x1, last.y1) == (area.x0, area.x1, area.y0):
            upwards[-1] = last._replace(y1=area.y1)
        else:
            upwards.append(area)
    return upwards


def _draw_areas(
    figure: Figure, axes: Axes, areas: list[_Area], shades: Mapping[str | None, str], kind: T.DataType
) -> None:
    xs = [x for area in areas for x in (area.x0, area.x1) if x != float("inf")]
    ys = [y for area in areas for y in (area.y0, area.y1) if y != float("inf")]
    right = time_axis(axes.xaxis, "valid time: when it held (UTC)", min(xs), max(xs), pad=0.12)
    top = time_axis(axes.yaxis, "system time: when it was believed (UTC)", min(ys), max(ys), pad=0.12)
    axes.grid(False)
    cut = [area._replace(x1=min(area.x1, right), y1=min(area.y1, top)) for area in areas]
    for area, whole in zip(cut, areas, strict=True):
        shade = "white" if area.deleted else shades[area.value]
        axes.add_patch(
            Rectangle(
                (area.x0, area.y0),
                area.x1 - area.x0,
                area.y1 - area.y0,
                facecolor=shade,
                edgecolor=PALETTE["delete"].colour if area.deleted else shade,
                hatch=HATCH if area.deleted else None,
                linewidth=0.8,
            )
        )
        ends = {">": (right, (area.y0 + area.y1) / 2), "^": ((area.x0 + area.x1) / 2, top)}
        open_ends = {">": whole.x1 == float("inf"), "^": whole.y1 == float("inf")}
        for marker, (x, y) in ends.items():
            if open_ends[marker]:
                axes.plot(x, y, marker, color=shade if not area.deleted else PALETTE["delete"].colour,
                          markersize=7, clip_on=False)  # fmt: skip
    low, high = max(axes.get_xlim()[0], axes.get_ylim()[0]), min(right, top)
    if low < high:
        axes.plot([low, high], [low, high], "--", color="#b35806", linewidth=0.9, alpha=0.7)
    figure.draw_without_rendering()
    if low < high:
        write_beside(
            axes, "now, of now", (low + 0.06 * (high - low), low + 0.06 * (high - low)), [], colour="#b35806"
        )
    written: Counter[str | None] = Counter()
    for area in sorted(cut, key=lambda area: -(area.x1 - area.x0) * (area.y1 - area.y0)):
        forms = ["deleted"] if area.deleted else forms_of(area.value, kind)
        box = Bbox([[area.x0, area.y0], [area.x1, area.y1]])
        ink = INK if area.deleted else ink_on(shades[area.value])
        # One rectangle above the diagonal and one below it say enough of a value.
        if area.deleted or written[area.value] < 2:
            has_room = write_in(axes, forms, box, colour=ink, boxed=area.deleted)
            written[area.value] += has_room and not area.deleted
    unnamed = {value: shade for value, shade in shades.items() if not written[value]}
    if unnamed:
        patches = [Patch(facecolor=shade, label=forms_of(value, kind)[0]) for value, shade in unnamed.items()]
        legend = figure.legend(
            handles=patches[:ROWS], loc="outside lower right", ncols=6, frameon=False, fontsize=8
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
