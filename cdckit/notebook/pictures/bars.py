"""Entities below each other, a bar for each version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.history import DELETED, SOURCE_MESSAGE, VALID_FROM, VALID_TO, business_fields, require_history
from cdckit.notebook.options import as_zone
from cdckit.notebook.pictures.axes import Bar, draw_bars, rows_axis
from cdckit.notebook.pictures.look import (
    PALETTE,
    ROWS,
    days,
    days_or_none,
    deleted_mark,
    draw_key,
    new_figure,
    one_line,
    only_words,
    open_end_mark,
    source_looks,
    source_name,
    with_number,
)
from cdckit.notebook.pictures.picture_queries import first_rows, require_limit, with_ends, with_sources
from cdckit.parts.arguments import quoted, require_fields
from cdckit.parts.values import as_text
from cdckit.query.as_of import with_operation

_OPERATIONS = ("insert", "update", "delete", "recreate")


_MOST_VERSIONS = 2_000


def validity_bars(
    history: DataFrame,
    *,
    label: str | Sequence[str],
    colour_by: str = "operation",
    changes: DataFrame | None = None,
    limit: int = ROWS,
    zone: tzinfo | str | None = None,
) -> Figure:
    """
    Entities below each other, a bar for each version from when to when it was valid.

    A bar with an arrow has no end yet; one that is hatched is a time in which the entity was deleted.

    Args:
        history: One row per version, all versions of each entity.  An end in the year 9999 or later is
            taken for an open one.
        label: The field, or the fields, that name an entity on the axis: the values of its last version
            that is not deleted and has one of them; without any, the guid.
        colour_by: "operation", what a version did to its entity (see `with_operation`), or "source",
            whose message began it.
        changes: One row per change; needed to colour by source.
        limit: How many entities to draw, in the order of their labels: if not all, those that were
            deleted, then those with the most versions.  Of their versions at most 2,000 are drawn, which
            is what fits in the width of a page.
        zone: The zone whose clocks the axis shows, a tzinfo or its name; without it `options.zone`.

    Returns:
        The figure.  Its title says how many of all entities are deleted in the end, also of those that
        are not drawn; by source, who began how many of the versions that are drawn.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks a column that a history has, or *changes* one
            that changes have, or has it in another type.
        InvalidArgument: *label* names no field, *colour_by* is something else, *changes* are missing,
            *limit* is not a positive number; or there is no such zone.

    Cost: one job: an aggregate by entity; the few entities then meet the history in a broadcast join.
    By source also a join with the messages of *changes*.

    >>> from cdckit.notebook import pictures
    >>> figure = pictures.validity_bars(history, label="name")
    >>> figure.get_suptitle()
    '1 of 2 entities is deleted in the end'
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['mug', 'teapot']
    """
    function = "validity_bars"
    needed = ("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE)
    history = require_history(history, *needed, function=function)
    fields = business_fields(history)
    names = require_fields(label, ["guid", *fields.fieldNames()], "label", function=function)
    if colour_by not in ("operation", "source"):
        raise InvalidArgument(function, "colour_by", "operation or source", colour_by)
    if colour_by == "source" and changes is None:
        raise InvalidArgument(function, "changes", "given, to know the sources of the messages", changes)
    require_limit(limit, function)
    clock = as_zone(zone, function=function)

    texts = [as_text(F.col(quoted(name)), history.schema[name].dataType) for name in names]
    kept = with_ends(history).where(F.col(VALID_FROM).isNotNull())
    named = kept.select(*needed, F.nullif(F.concat_ws(" ", *texts), F.lit("")).alias("label"))
    alive = F.when(~F.col(DELETED) & F.col("label").isNotNull(), F.col(VALID_FROM))
    of_entities = named.groupBy("guid").agg(
        F.coalesce(F.max_by("label", alive), F.max("label"), F.lit("")).alias("entity"),
        F.count("*").alias("number"),
        F.bool_or(DELETED).alias("ever"),
        F.max_by(DELETED, VALID_FROM).alias("at_last"),
    )
    by_interest = F.desc("ever"), F.desc("number"), "entity", "guid"
    drawn = of_entities.orderBy(*by_interest).limit(limit).select("guid", "entity")
    total = of_entities.agg(
        F.count("*").alias("entities"),
        F.count_if("at_last").alias("gone"),
        F.count_if(F.col("ever") & ~F.col("at_last")).alias("back"),
    )
    versions = with_operation(named.drop("label").join(F.broadcast(drawn), on="guid", how="inner"))
    if changes is not None and colour_by == "source":
        versions = with_sources(versions, changes, SOURCE_MESSAGE, function)
    ordered = versions.crossJoin(F.broadcast(total)).orderBy("entity", "guid", VALID_FROM)
    rows, more = first_rows(ordered, _MOST_VERSIONS)
    if not rows:
        return only_words("The history has no version.")
    return _bars_of_entities(rows, more, colour_by, clock)


def _bars_of_entities(rows: list[dict[str, Any]], more: bool, colour_by: str, zone: tzinfo) -> Figure:
    labels = {row["guid"]: one_line(row["entity"], 40) or row["guid"] for row in rows}
    places = {guid: place for place, guid in enumerate(labels)}
    by_source = colour_by == "source"
    looks = source_looks(rows[0]["sources"]) if by_source else {name: PALETTE[name] for name in _OPERATIONS}
    said = [source_name(row) if by_source else row["operation"] for row in rows]
    bars = [
        Bar(
            places[row["guid"]], days(row[VALID_FROM]), days_or_none(row[VALID_TO]), looks[name], row[DELETED]
        )
        for row, name in zip(rows, said, strict=True)
    ]
    counted = Counter(said)
    seen = [name for name in looks if name in counted]
    of = [] if by_source else [with_number(counted[name], name) for name in seen]
    total = rows[0]["entities"]
    entities = with_number(total, "entity")
    if total > len(labels):
        entities = f"{len(labels):,} of {entities}, those with deletes and the most versions first"
    subtitle = f"{'the first ' if more else ''}{with_number(len(rows), 'version')} of {entities}"
    title = _who_began(counted) if by_source else _what_became(rows[0], list(labels.values()))
    figure, axes = new_figure(title, ": ".join([subtitle, *filter(None, [", ".join(of)])]), rows=len(labels))
    rows_axis(axes, list(labels.values()))
    draw_bars(axes, bars, thick=0.64 * min(1.0, (len(labels) + 1) / 7), pad=0.1, zone=zone)
    others = deleted_mark() if by_source and any(bar.deleted for bar in bars) else {}
    draw_key(
        figure,
        {name: looks[name] for name in seen},
        hollow={name for name in seen if not by_source and name == "delete"},
        others=others | (open_end_mark() if any(bar.end is None for bar in bars) else {}),
    )
    return figure


def _what_became(found: Mapping[str, Any], labels: Sequence[str]) -> str:
    """What became of the entities: how many are deleted in the end, how many came back."""
    entities, gone, back = found["entities"], found["gone"], found["back"]
    if entities == 1:
        end = "is deleted in the end" if gone else "was deleted and came back" if back else "is never deleted"
        return f"{labels[0]} {end}"
    ends = [(gone, "is deleted in the end", "are deleted in the end"),
            (back, "was deleted and came back", "were deleted and came back")]  # fmt: skip
    parts = [(number, one if number == 1 else several) for number, one, several in ends if number]
    told = [
        f"{number:,} {'' if place else f'of {entities:,} entities '}{words}"
        for place, (number, words) in enumerate(parts)
    ]
    return ", ".join(told) or f"None of {entities:,} entities is ever deleted"


def _who_began(counted: Counter[str]) -> str:
    """Which source began how many of the versions, the busiest first."""
    (first, most), *others = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = "".join(f", {name} {number:,}" for name, number in others)
    return f"{first} began {most:,} of {with_number(counted.total(), 'version')}{rest}"
