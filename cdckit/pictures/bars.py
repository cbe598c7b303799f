"""Entities below each other, a bar for each version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.asking.between import with_operation
from cdckit.errors import InvalidArgument
from cdckit.history import DELETED, SOURCE_MESSAGE, VALID_FROM, VALID_TO, business_fields, require_history
from cdckit.parts.arguments import require_fields
from cdckit.parts.schemas import quoted
from cdckit.parts.values import as_text
from cdckit.pictures.asked import first_rows, require_limit, with_sources
from cdckit.pictures.look import PALETTE, ROWS, draw_key, new_figure, only_words, source_looks
from cdckit.pictures.rows import Bar, draw_bars, rows_axis
from cdckit.pictures.words import days, days_or_none, one_line, source_name, with_number

_OPERATIONS = ("insert", "update", "delete", "recreate")


_MOST_VERSIONS = 2_000


def validity_bars(
    history: DataFrame,
    *,
    label: str | Sequence[str],
    colour_by: str = "operation",
    changes: DataFrame | None = None,
    limit: int = ROWS,
) -> Figure:
    """
    Entities below each other, a bar for each version from when to when it was valid.

    A bar with an arrow has no end yet; one that is hatched is a time in which the entity was deleted.

    Args:
        history: One row per version, all versions of each entity.
        label: The field, or the fields, that name an entity on the axis: the values of its last version
            that is not deleted.
        colour_by: "operation", what a version did to its entity (see `with_operation`), or "source",
            whose message began it.
        changes: One row per change; needed to colour by source.
        limit: How many entities to draw: the first in the order of their labels.  Of their versions at
            most 2,000 are drawn, which is what fits in the width of a page.

    Returns:
        The figure.  Times are UTC.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks a column that a history has, or *changes* one
            that changes have, or has it in another type.
        InvalidArgument: *label* names no field, *colour_by* is something else, *changes* are missing, or
            *limit* is not a positive number.

    Cost: one job: an aggregate by entity; the few entities then meet the history in a broadcast join.
    By source also a join with the messages of *changes*.

    >>> from cdckit import pictures
    >>> figure = pictures.validity_bars(history, label="name")
    >>> figure.get_suptitle()
    '4 versions of 2 entities: 2 inserts, 1 update, 1 delete'
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['mug', 'teapot']
    """
    function = "validity_bars"
    needed = ("guid", VALID_FROM, VALID_TO, DELETED, SOURCE_MESSAGE)
    require_history(history, *needed, function=function)
    fields = business_fields(history)
    names = require_fields(label, ["guid", *fields.fieldNames()], "label", function=function)
    if colour_by not in ("operation", "source"):
        raise InvalidArgument(function, "colour_by", "operation or source", colour_by)
    if colour_by == "source" and changes is None:
        raise InvalidArgument(function, "changes", "given, to know the sources of the messages", changes)
    require_limit(limit, function)

    texts = [as_text(F.col(quoted(name)), history.schema[name].dataType) for name in names]
    kept = history.where(F.col(VALID_FROM).isNotNull())
    named = kept.select(*needed, F.concat_ws(" ", *texts).alias("label"))
    alive = F.when(~F.col(DELETED), F.col(VALID_FROM))
    of_entities = named.groupBy("guid").agg(
        F.coalesce(F.max_by("label", alive), F.max("label")).alias("entity")
    )
    drawn = of_entities.orderBy("entity", "guid").limit(limit)
    total = of_entities.agg(F.count("*").alias("entities"))
    versions = with_operation(named.drop("label").join(F.broadcast(drawn), on="guid", how="inner"))
    if changes is not None and colour_by == "source":
        versions = with_sources(versions, changes, SOURCE_MESSAGE, function)
    ordered = versions.crossJoin(F.broadcast(total)).orderBy("entity", "guid", VALID_FROM)
    rows, more = first_rows(ordered, _MOST_VERSIONS)
    if not rows:
        return only_words("The history has no version.")
    return _bars_of_entities(rows, more, colour_by)


def _bars_of_entities(rows: list[dict[str, Any]], more: bool, colour_by: str) -> Figure:
    labels = {row["guid"]: one_line(row["entity"], 40) or row["guid"] for row in rows}
    places = {guid: place for place, guid in enumerate(labels)}
    by_source = colour_by == "source"
    looks = source_looks(rows[0]["sources"]) if by_source else {name: PALETTE[name] for name in _OPERATIONS}
    said = [source_name(row) if by_source else row["operation"] for row in rows]
    bars = [
        Bar(
            places[row["guid"]],
            days(row[VALID_FROM]),
            days_or_none(row[VALID_TO]),
            looks[name],
            row[DELETED],
        )
        for row, name in zip(rows, said, strict=True)
    ]
    counted = Counter(said)
    seen = [name for name in looks if name in counted]
    if by_source:
        parts = [f"{counted[name]:,} begun by {name}" for name in seen]
    else:
        parts = [with_number(counted[name], name) for name in seen]
    title = f"{with_number(len(rows), 'version')} of {with_number(len(labels), 'entity')}: {', '.join(parts)}"
    total = rows[0]["entities"]
    left_out = [f"{len(labels):,} of {total:,} entities"] if total > len(labels) else []
    left_out += [f"the first {len(rows):,} of their versions"] if more else []
    figure, axes = new_figure(title, ", ".join(left_out) or "valid from when to when", rows=len(labels))
    rows_axis(axes, list(labels.values()))
    draw_bars(axes, bars, thick=0.64 * min(1.0, (len(labels) + 1) / 7))
    draw_key(
        figure,
        {name: looks[name] for name in seen},
        hollow={name for name in seen if not by_source and name == "delete"},
        deleted=by_source and any(bar.deleted for bar in bars),
    )
    return figure
