"""One entity through time, each value in the colour of its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.history import DELETED, FIELD_PROVENANCE, VALID_FROM, VALID_TO, require_history
from cdckit.parts.arguments import require_fields
from cdckit.parts.schemas import quoted, require_columns, require_struct
from cdckit.pictures.asked import exact_text, first_rows, of_one_entity, require_limit, with_sources
from cdckit.pictures.look import draw_key, new_figure, only_words, source_looks, write_in
from cdckit.pictures.rows import Bar, draw_bars, rows_axis
from cdckit.pictures.words import days, days_or_none, entity_text, forms_of, source_name, with_number


def provenance_map(
    history: DataFrame,
    changes: DataFrame,
    key: Mapping[str, Any],
    *,
    fields: Sequence[str] | None = None,
    limit: int = 200,
) -> Figure:
    """
    One entity through time: of each field the value, in the colour of the source that it comes from.

    A new cell begins where the value or the message behind it changes.  A hatched cell is a time in which
    the entity was deleted, and its colour is that of who deleted it.  Where nothing is drawn, nobody had
    set the field.

    Args:
        history: One row per version, with `field_provenance`.
        changes: One row per change: `message_id` and `source` are read.
        key: Value by field; `guid` may be one of them.  If several entities have these values the one
            with the first guid is drawn, and the figure says so.
        fields: The fields to draw, from top to bottom; by default all that were ever set, in the order
            of the history.
        limit: How many versions to draw: the first.

    Returns:
        The figure; without such an entity, a figure that says so.  Times are UTC, those in the cells too.

    Raises:
        MissingColumns, WrongColumnType: *history* lacks a column that a history has, or *changes* one
            that changes have, or has it in another type.
        InvalidArgument: *key* is empty or names no field; a timestamp in it is naive; *fields* names no
            field; or *limit* is not a positive number.

    Cost: one job: two filters over the history, and a join with the messages of *changes*.

    Source:
        Data hub, `field_provenance`.

    >>> from cdckit import pictures
    >>> pictures.provenance_map(history, changes, {"number": 2}).get_suptitle()
    '2: deleted, 2 values from shop'
    """
    function = "provenance_map"
    require_history(history, "guid", VALID_FROM, VALID_TO, DELETED, function=function)
    provenance = require_struct(history, FIELD_PROVENANCE, function=function)
    known = [name for name in provenance.fieldNames() if name != "guid"]
    require_columns(history, known, function=function)
    names = known if fields is None else require_fields(fields, known, "fields", function=function)
    require_limit(limit, function)

    cells = [
        F.struct(
            F.lit(place).alias("place"),
            exact_text(F.col(quoted(name)), history.schema[name].dataType).alias("value"),
            F.col(FIELD_PROVENANCE).getField(name).getField("m").alias("message"),
        )
        for place, name in enumerate(names)
    ]
    interval = [F.col(name) for name in (VALID_FROM, VALID_TO, DELETED)]
    found = of_one_entity(history, key, [*interval, F.array(*cells).alias("cells")], function)
    first = found.orderBy(VALID_FROM).limit(limit + 1)
    single = first.select("matching", VALID_FROM, VALID_TO, DELETED, F.inline("cells"))
    told = with_sources(single, changes, "message", function).orderBy(VALID_FROM, "place")
    rows, _ = first_rows(told, (limit + 1) * len(names))
    if not rows:
        return only_words(f"The history has no entity {entity_text(key)}.")
    instants = sorted({row[VALID_FROM] for row in rows})
    if len(instants) > limit:
        rows = [row for row in rows if row[VALID_FROM] < instants[limit]]
    left_out = f", the first {limit:,} versions" if len(instants) > limit else ""
    texts = [
        [] if row["message"] is None else forms_of(row["value"], history.schema[names[row["place"]]].dataType)
        for row in rows
    ]
    return _map(rows, texts, names, key, keep_empty=fields is not None, left_out=left_out)


def _map(
    rows: list[dict[str, Any]],
    texts: list[list[str]],
    names: list[str],
    key: Mapping[str, Any],
    *,
    keep_empty: bool,
    left_out: str,
) -> Figure:
    looks = source_looks(rows[0]["sources"])
    ever_set = {row["place"] for row in rows if row["message"] is not None}
    shown = [place for place in range(len(names)) if keep_empty or place in ever_set]
    bars: dict[tuple[Any, ...], tuple[Bar, list[str]]] = {}
    last: dict[int, tuple[Any, ...]] = {}
    for row, forms in zip(rows, texts, strict=True):
        place = row["place"]
        if row["message"] is None:
            last.pop(place, None)
            continue
        begin, end = days(row[VALID_FROM]), days_or_none(row[VALID_TO])
        said = (place, row["value"], row["message"], row[DELETED])
        before = bars.get(last.get(place, ()))
        goes_on = before is not None and last[place][:4] == said and before[0].end == begin
        cell = last[place] if goes_on else (*said, begin)
        start = before[0].start if before is not None and goes_on else begin
        look = looks[source_name(row)]
        bars[cell] = (Bar(shown.index(place), start, end, look, row[DELETED]), forms)
        last[place] = cell
    final = [row for row in rows if row[VALID_FROM] == rows[-1][VALID_FROM] and row["message"] is not None]
    counted = Counter(source_name(row) for row in final)
    parts = [f"{with_number(counted[name], 'value')} from {name}" for name in looks if name in counted]
    deleted = ["deleted"] if rows[-1][DELETED] else []
    title = f"{entity_text(key)}: {', '.join([*deleted, *parts]) or 'no field was set'}"
    several = rows[0]["matching"] - 1
    others = f"; {several:,} more entities have these values" if several else ""
    figure, axes = new_figure(title, f"which source each value comes from{left_out}{others}", rows=len(shown))
    rows_axis(axes, [names[place] for place in shown])
    drawn = list(bars.values())
    draw_bars(axes, [bar for bar, _ in drawn], thick=0.84)
    seen = {source_name(row) for row in rows if row["message"] is not None}
    draw_key(
        figure,
        {name: look for name, look in looks.items() if name in seen},
        deleted=any(bar.deleted for bar, _ in drawn),
    )
    figure.draw_without_rendering()
    right = axes.get_xlim()[1]
    for bar, forms in drawn:
        if not bar.deleted:
            stop = right if bar.end is None else bar.end
            write_in(axes, forms, Bbox([[bar.start, bar.place - 0.42], [stop, bar.place + 0.42]]), left=True)
    return figure
