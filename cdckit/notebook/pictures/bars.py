"""Entities, and the fields of one entity, below each other through time: a bar for each version or value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.forms import history_with
from cdckit.model.history import (
    DELETED,
    FIELD_PROVENANCE,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    business_fields,
    is_deleted,
)
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import Bar, Labels, ValueTexts, draw_bars, rows_axis
from cdckit.notebook.pictures.style import (
    PALETTE,
    ROWS,
    Picture,
    days,
    days_or_none,
    deleted_mark,
    entity_rows,
    entity_text,
    exact_text,
    first_rows,
    in_style,
    one_line,
    open_end_mark,
    source_looks,
    source_name,
    text_figure,
    with_ends,
    with_sources,
)
from cdckit.parts.argument_forms import COUNT, takes
from cdckit.parts.arguments import quoted, require_columns, require_fields, require_struct, with_number
from cdckit.parts.values import as_text
from cdckit.query.as_of import with_operation

_NEEDED = ("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE)
_OPERATIONS = ("insert", "update", "delete", "recreate")


_MOST_VERSIONS = 2_000


@takes(history=history_with(*_NEEDED), limit=COUNT)
def validity_bars(
    history: DataFrame, *, label: str | Sequence[str], limit: int = ROWS, zone: tzinfo | str | None = None
) -> Figure:
    """
    Entities below each other, a bar for each version from when to when it was valid.

    Its colour says what the version did to its entity (see `with_operation`).  A bar with an arrow has no end
    yet; one that is hatched is a time in which the entity was deleted.

    Args:
        history: One row per version, all versions of each entity.  An end in the year 9999 or later is
            taken for an open one.
        label: The field, or the fields, that name an entity on the axis: the values of its last version
            that is not deleted and has one of them; without any, the guid.
        limit: How many entities to draw, in the order of their labels: if not all, those that were
            deleted, then those with the most versions.  Of their versions at most 2,000 are drawn, which
            is what fits in the width of a page.
        zone: The zone whose clocks the axis shows, a tzinfo or its name; without it `options.zone`.

    Returns:
        The figure.  Its title says how many of all entities are deleted in the end, also of those that
        are not drawn.

    Raises:
        InvalidArgument: *label* names no field, or there is no such zone.

    Cost: one job: an aggregate by entity; the few entities then meet the history in a broadcast join.

    >>> from cdckit.notebook import pictures
    >>> figure = pictures.validity_bars(history, label="name")
    >>> figure.get_suptitle()
    '1 of 2 entities is deleted in the end'
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['mug', 'teapot']
    """
    fields = business_fields(history)
    names = require_fields(label, ["guid", *fields.fieldNames()], "label")
    clock = as_zone(zone)

    texts = [as_text(F.col(quoted(name)), history.schema[name].dataType) for name in names]
    kept = with_ends(history).where(F.col(VALID_FROM).isNotNull())
    named = kept.select(*_NEEDED, F.nullif(F.concat_ws(" ", *texts), F.lit("")).alias("label"))
    alive = F.when(~is_deleted() & F.col("label").isNotNull(), F.col(VALID_FROM))
    of_entities = named.groupBy("guid").agg(
        F.coalesce(F.max_by("label", alive), F.max("label"), F.lit("")).alias("entity"),
        F.count("*").alias("number"),
        F.bool_or(is_deleted()).alias("ever"),
        F.max_by(is_deleted(), VALID_FROM).alias("at_last"),
    )
    by_interest = F.desc("ever"), F.desc("number"), "entity", "guid"
    drawn = of_entities.orderBy(*by_interest).limit(limit).select("guid", "entity")
    total = of_entities.agg(
        F.count("*").alias("entities"),
        F.count_if("at_last").alias("gone"),
        F.count_if(F.col("ever") & ~F.col("at_last")).alias("back"),
    )
    versions = with_operation(named.drop("label").join(F.broadcast(drawn), on="guid", how="inner"))
    ordered = versions.crossJoin(F.broadcast(total)).orderBy("entity", "guid", VALID_FROM)
    rows, more = first_rows(ordered, _MOST_VERSIONS)
    if not rows:
        return text_figure("The history has no version.")
    return _bars_of_entities(rows, more, clock)


@in_style
def _bars_of_entities(rows: list[dict[str, Any]], more: bool, zone: tzinfo) -> Figure:
    labels = {row["guid"]: one_line(row["entity"], 40) or row["guid"] for row in rows}
    places = {guid: place for place, guid in enumerate(labels)}
    bars = [
        Bar(
            *(places[row["guid"]], days(row[VALID_FROM]), days_or_none(row[VALID_TO])),
            *(PALETTE[row["operation"]], row[DELETED]),
        )
        for row in rows
    ]
    counted = Counter(row["operation"] for row in rows)
    seen = {name: PALETTE[name] for name in _OPERATIONS if name in counted}
    of = ", ".join(with_number(counted[name], name) for name in seen)
    total = rows[0]["entities"]
    entities = with_number(total, "entity")
    if total > len(labels):
        entities = f"{len(labels):,} of {entities}, those with deletes and the most versions first"
    subtitle = f"{'the first ' if more else ''}{with_number(len(rows), 'version')} of {entities}: {of}"
    picture = Picture(_outcome_text(rows[0], list(labels.values())), subtitle, rows=len(labels))
    rows_axis(picture.chart, list(labels.values()))
    draw_bars(picture.chart, bars, high=0.64 * min(1.0, (len(labels) + 1) / 7), pad=0.1, zone=zone)
    others = open_end_mark() if any(bar.end is None for bar in bars) else {}
    picture.key(seen, hollow=("delete",), others=others)
    picture.settle()
    return picture


def _outcome_text(counts: Mapping[str, Any], labels: Sequence[str]) -> str:
    """Say what became of the entities: how many are deleted in the end, how many came back."""
    entities = counts["entities"]
    ends = [(counts["gone"], "is", "are", "deleted in the end"),
            (counts["back"], "was", "were", "deleted and came back")]  # fmt: skip
    parts = [(number, f"{one if number == 1 else many} {what}") for number, one, many, what in ends if number]
    if entities == 1:
        return f"{labels[0]} {parts[0][1] if parts else 'is never deleted'}"
    of_all = [f" of {entities:,} entities", ""]
    lines = [f"{number:,}{of} {words}" for (number, words), of in zip(parts, of_all, strict=False)]
    return ", ".join(lines) or f"None{of_all[0]} is ever deleted"


_MOST_NAMED = 2
"""As many sources as a title has room for."""


@takes(history=history_with("guid", VALID_FROM, VALID_TO, DELETED), limit=COUNT)
def provenance_map(
    history: DataFrame,
    changes: DataFrame,
    key: Mapping[str, Any],
    *,
    fields: Sequence[str] | None = None,
    limit: int = 200,
    zone: tzinfo | str | None = None,
) -> Figure:
    """
    One entity through time: of each field the value, in the colour of the source that it comes from.

    A new cell begins where the value or the message behind it changes.  A hatched cell is a time in which
    the entity was deleted, and its colour is that of who deleted it.  Where nothing is drawn, nobody had
    set the field.  The last value of a field, and one with which another source takes over, are written in
    any case; the line below the title says how many others have no room.

    Args:
        history: One row per version, with `field_provenance`.
        changes: One row per change: `message_id` and `source` are read.
        key: Value by field; `guid` may be one of them.  If several entities have these values the one
            with the first guid is drawn, and the figure says so.
        fields: The fields to draw, from top to bottom; by default all that were ever set, in the order
            of the history.
        limit: How many versions to draw: the first.
        zone: The zone of all instants, those in the cells and in the title too; a tzinfo or its name;
            without it `options.zone`.

    Returns:
        The figure; without such an entity, a figure that says so.  Of the instants in cells the day is said
        where it is another one than before, or once for all in the line below the title.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks a field of `field_provenance`; *changes* lack a
            column that changes have, or have it in another type.
        InvalidArgument: *key* is empty or names no field; a timestamp in it is naive; *fields* names no
            field; or there is no such zone.

    Cost: one job: two filters over the history, and a join with the messages of *changes*.

    Source:
        Data hub, `field_provenance`.

    >>> from cdckit.notebook import pictures
    >>> pictures.provenance_map(history, changes, {"number": 2}).get_suptitle()
    '2: deleted in the end, 1 value from shop'
    """
    provenance = require_struct(history, FIELD_PROVENANCE)
    every_field = [name for name in provenance.fieldNames() if name != "guid"]
    require_columns(history, every_field)
    names = every_field if fields is None else require_fields(fields, every_field, "fields")
    clock = as_zone(zone)

    cells = [
        F.struct(
            F.lit(place).alias("place"),
            exact_text(F.col(quoted(name)), history.schema[name].dataType).alias("value"),
            F.col(FIELD_PROVENANCE).getField(name).getField("m").alias("message"),
        )
        for place, name in enumerate(names)
    ]
    interval = [F.col(name) for name in (VALID_FROM, VALID_TO, DELETED)]
    versions = entity_rows(with_ends(history), key, [*interval, F.array(*cells).alias("cells")])
    first = versions.orderBy(VALID_FROM).limit(limit + 1)
    single = first.select("matching", VALID_FROM, VALID_TO, DELETED, F.inline("cells"))
    values = with_sources(single, changes).orderBy(VALID_FROM, "place")
    rows, _ = first_rows(values, (limit + 1) * len(names))
    if not rows:
        return text_figure(f"The history has no entity {entity_text(key, clock)}.")
    instants = sorted({row[VALID_FROM] for row in rows})
    cut = len(instants) > limit
    if cut:
        rows = [row for row in rows if row[VALID_FROM] < instants[limit]]
    kinds = [history.schema[name].dataType for name in names]
    shown = [place for place in range(len(names)) if fields or any(_is_set(row, place) for row in rows)]
    after = f"after {with_number(limit, 'version')}" if cut else "in the end"
    title = f"{entity_text(key, clock)}: {_finding(rows, after)}"
    drawn = [cell for place in shown for cell in _cells([row for row in rows if row["place"] == place])]
    return _map(title, drawn, rows, {place: (names[place], kinds[place]) for place in shown}, clock)


def _is_set(row: Mapping[str, Any], place: int) -> bool:
    return row["place"] == place and row["message"] is not None


class _Cell(NamedTuple):
    """What is drawn of a field: a value by one message; and whether it must be read, as the last or new."""

    place: int
    start: float
    end: float | None
    value: str | None
    deleted: bool
    message: str
    source: str
    must: bool

    def goes_on(self, other: _Cell) -> bool:
        """Tell whether *other* begins where this one ends, and says the same by the same message."""
        same = (self.value, self.deleted, self.message) == (other.value, other.deleted, other.message)
        return same and self.end == other.start


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[_Cell]:
    """The cells of one field, in the order of time: neighbours that say the same are one."""
    cells: list[_Cell] = []
    for row in rows:
        if row["message"] is None:
            continue
        begin, end = days(row[VALID_FROM]), days_or_none(row[VALID_TO])
        what = row["value"], row[DELETED], row["message"], source_name(row)
        takes_over = bool(cells) and cells[-1].source != what[-1]
        cell = _Cell(row["place"], begin, end, *what, must=takes_over)
        if cells and cells[-1].goes_on(cell):
            cells[-1] = cells[-1]._replace(end=end)
        else:
            cells.append(cell)
    return [*cells[:-1], *(cell._replace(must=True) for cell in cells[-1:])]


@in_style
def _map(
    title: str,
    cells: Sequence[_Cell],
    rows: Sequence[Mapping[str, Any]],
    fields: Mapping[int, tuple[str, T.DataType]],
    zone: tzinfo,
) -> Figure:
    seen = {cell.source for cell in cells}
    looks, row_of = source_looks(rows[0]["sources"], seen), {place: row for row, place in enumerate(fields)}
    picture = Picture(title, rows=len(fields))
    rows_axis(picture.chart, [name for name, _ in fields.values()])
    bars = [Bar(row_of[cell.place], cell.start, cell.end, looks[cell.source], cell.deleted) for cell in cells]
    draw_bars(picture.chart, bars, high=0.84, pad=0.16, zone=zone)
    others = deleted_mark() if any(cell.deleted for cell in cells) else {}
    others |= open_end_mark() if any(cell.end is None for cell in cells) else {}
    picture.key({name: look for name, look in looks.items() if name in seen}, others=others)
    picture.settle()
    texts = ValueTexts.of([(cell.value, fields[cell.place][1]) for cell in cells], zone)
    labels, unread = Labels(picture.chart), 0
    right = picture.chart.get_xlim()[1]
    alive = [pair for pair in zip(cells, bars, strict=True) if not pair[0].deleted]
    for cell, bar in sorted(alive, key=lambda pair: (not pair[0].must, -pair[0].start)):
        end = right if cell.end is None else cell.end
        box = Bbox([[cell.start, bar.place - 0.42], [end, bar.place + 0.42]])
        forms = texts.forms(cell.value, fields[cell.place][1])
        unread += not labels.write_in(forms, box, left=True, must=cell.must, behind=bar.look.colour)
    several = rows[0]["matching"] - 1
    notes = [
        "each value in the colour of its source",
        texts.note,
        f"{with_number(unread, 'value')} without room" if unread else "",
        f"{several:,} more with this key" if several else "",
    ]
    picture.settle("; ".join(filter(None, notes)))
    return picture


def _finding(rows: Sequence[Mapping[str, Any]], after: str) -> str:
    """Whose values stand *after* what is drawn."""
    final = [row for row in rows if row[VALID_FROM] == rows[-1][VALID_FROM] and row["value"] is not None]
    counted = Counter(source_name(row) for row in final)
    parts = [f"{with_number(counted[name], 'value')} from {name}" for name in sorted(counted)]
    if len(parts) > _MOST_NAMED:
        parts = [f"{with_number(counted.total(), 'value')} from {with_number(len(parts), 'source')}"]
    if rows[-1][DELETED]:
        return ", ".join([f"deleted {after}", *parts])
    return f"{after} {' and '.join(parts)}" if parts else "no field was set"
