"""Widgets that ask: a table as of an instant; the timeline of one entity, who is to blame, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import STANDARD_COLUMNS, VALID_FROM, business_fields
from cdckit.notebook.clock import short_instants, with_day
from cdckit.notebook.options import as_zone
from cdckit.notebook.tables import Table, show
from cdckit.notebook.widgets.panel import (
    Controls,
    Page,
    Panel,
    Values,
    choose_from,
    collect_rows,
    in_zone,
    instant_text,
    join_texts,
    mark_changes,
)
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_fields, require_instant, require_struct, wrong_argument
from cdckit.parts.instants import EPOCH
from cdckit.parts.values import as_text
from cdckit.query.as_of import as_of, with_operation
from cdckit.query.provenance import blame
from cdckit.query.why import why

_MOST_INSTANTS = 10_000
# JupyterLab cuts what stands beside a slider after some twenty characters: a day and a time with its offset.
_WHOLE_LABELS = (
    "<style>.cdckit-slider .widget-readout{min-width:max-content;max-width:none;overflow:visible}</style>"
)


@takes()
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
    valid_from  valid_to  number  name    message
    09:00       10:00     1       kettle  m1
    09:00       11:00     2       mug     m1
    (2 rows; instants of 2024-01-01, UTC)
    """
    listed, clock = _instants(instants), as_zone(zone)
    every_field = business_fields(history)
    shown = every_field.names if fields is None else require_fields(fields, every_field.names, "fields")
    kept = history.select(
        *(quoted(name) for name in shown), *(name for name in STANDARD_COLUMNS if name in history.columns)
    )
    shown_fields = [every_field[name] for name in shown]
    sortable = [
        field.name
        for field in shown_fields
        if isinstance(field.dataType, T.AtomicType) and not isinstance(field.dataType, T.VariantType)
    ]
    comparable = "guid" in kept.columns

    def table(frame: DataFrame, order: str | Sequence[str] | None) -> Table:
        wanted = None if fields is None else [*shown, *(set(frame.columns) - set(kept.columns))]
        return show(frame, columns=wanted, rows=rows, order_by=order, provenance=provenance, zone=clock)

    order = order_by or sortable or None

    def page(at: datetime, before: datetime | None = None) -> Page:
        heading, now = f"as of {instant_text(at, clock)}", as_of(kept, at)
        if before is None or not comparable:
            return Page(((heading, table(now, order)),))
        marked = mark_changes(now, as_of(kept, before), shown_fields)
        since = f"{heading}; since {instant_text(before, clock)}: {marked.counts}"
        return Page(((since, marked.show(table(marked.rows, order), shown_fields, clock)),))

    page(listed[0])  # says at once what is wrong with the arguments; a page that nobody reads runs no job

    def build(library: Any, first: Callable[[], Page]) -> Any:
        labels, _ = short_instants(listed, clock)
        slider = library.SelectionSlider(
            options=list(zip(labels, listed, strict=True)),
            description="as of",
            continuous_update=False,
            layout=library.Layout(width="95%"),
        )
        slider.add_class("cdckit-slider")
        controls = Controls(
            library,
            {"at": slider},
            first,
            lambda before, now: page(now["at"], before["at"]),
            lambda now: f"as of {instant_text(now['at'], clock)}",
        )
        whole_labels = library.HTML(_WHOLE_LABELS, layout=library.Layout(display="none"))
        return library.VBox([whole_labels, controls.widget])

    return Panel(partial(page, listed[0]), build)


def _instants(instants: Sequence[datetime] | tuple[datetime, datetime, timedelta]) -> list[datetime]:
    listed: list[Any] = list(instants)
    if len(listed) == 3 and isinstance(listed[2], timedelta):
        return _steps(*listed)
    for instant in listed:
        require_instant(instant, "instants")
    if not 1 <= len(listed) <= _MOST_INSTANTS:
        raise wrong_argument("instants", f"1 to {_MOST_INSTANTS} instants", f"{len(listed)} instants")
    return listed


def _steps(start: Any, end: Any, step: timedelta) -> list[datetime]:
    for instant in (start, end):
        require_instant(instant, "instants")
    # In UTC: Python counts the hours between two datetimes of one zone on the clock at the wall.
    first, last = start.astimezone(UTC), end.astimezone(UTC)
    if step <= timedelta(0) or last < first or (last - first) // step >= _MOST_INSTANTS:
        needed = f"a start, an end not before it, and a step that makes at most {_MOST_INSTANTS} instants"
        raise wrong_argument("instants", needed, (start.isoformat(), end.isoformat(), str(step)))
    return [first + number * step for number in range((last - first) // step + 1)]


MOST_CHOICES = 300
CUT_CHOICES = Page(((f"the first {MOST_CHOICES} entities of more; say a part of the key", None),))


_LONGEST_VALUE = 300  # the reasons of `why` are sentences


_END_OF_TIME = datetime(9999, 12, 31, tzinfo=UTC)


@takes()
def entity_explorer(
    history: DataFrame,
    changes: DataFrame,
    *,
    keys: Sequence[str],
    rows: int | None = None,
    zone: tzinfo | str | None = None,
) -> Panel:
    """
    One entity after another: its versions, who is responsible for its values, and why one of them stands.

    Args:
        history: One row per version, all versions of each entity.
        changes: The changes that it was merged from.
        keys: As for `merge`.
        rows: As for `show`, for each of the three tables.
        zone: As for `show`, of the values that `blame` gives too.

    Returns:
        A panel: a choice of entities, by key, at most 300 at once, with a text that their keys have to
        contain, in any case; a choice of instants, those at which its last 300 versions begin, and
        the end of time, when all that is known has come into force; and a choice of fields.  Below,
        the timeline of the entity, `blame` of it at that instant, and `why` of the field.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `with_operation`, `blame`, `why` and `show`.

    Cost: nothing at the call.  Choosing an entity reads *history* four times (with its text once more)
    and *changes* once; another instant reads *history* twice and *changes* once; another field reads
    *changes* once.

    >>> explorer = entity_explorer(history.where("number = 2"), changes, keys=["number"])
    >>> versions, values, reasons = repr(explorer).split("\\n\\n")
    >>> print(versions)
    2: its versions
    valid_from  valid_to  number  name  operation  state    message  guid
    09:00       11:00     2       mug   insert              m1       3c4fe84a…
    11:00       …         2       NULL  delete     deleted  m3       3c4fe84a…
    (2 rows; instants of 2024-01-01, UTC; … is an open end)
    >>> print(values.splitlines()[0], "|", reasons.splitlines()[0])
    who is responsible, at the end of time | why name is what it is, at the end of time
    """
    clock = as_zone(zone)
    explorer = _Explorer(history, changes, tuple(keys), rows, clock)
    explorer.check()
    return Panel(explorer.first, lambda library, first: _ExplorerWidget(library, explorer, first).widget)


class Entity(NamedTuple):
    """An entity to choose: its key as text, its guid, its key values."""

    label: str
    guid: str
    key: tuple[Any, ...]


def find_entities(history: DataFrame, keys: Sequence[str], containing: str) -> list[Entity]:
    """The entities whose key contains a text, by key: at most one more than can be chosen from."""
    types = business_fields(history)
    columns = [F.col(quoted(name)) for name in keys]
    label = join_texts(as_text(F.col(quoted(name)), types[name].dataType) for name in keys)
    places = [str(place) for place in range(len(keys))]
    named = (column.alias(place) for column, place in zip(columns, places, strict=True))
    rows = (
        history.select(label.alias("label"), "guid", *named)
        .where(F.lower("label").contains(containing.lower()))
        .distinct()
        .orderBy(*places, "guid")
        .limit(MOST_CHOICES + 1)
    )
    return [Entity(row.pop("label"), row.pop("guid"), tuple(row.values())) for row in collect_rows(rows)]


@dataclass(frozen=True)
class _Explorer:
    """A history and its changes, and what to ask them of one entity."""

    history: DataFrame
    changes: DataFrame
    keys: tuple[str, ...]
    rows: int | None
    zone: tzinfo

    def check(self) -> None:
        """Raise what is wrong with the arguments; lazy frames are made and nothing is read."""
        names = business_fields(self.history).names
        require_fields(self.keys, names, "keys")
        nobody = Entity("", "", (None,) * len(self.keys))
        self.timeline(nobody)
        self.blame(nobody, None)
        self.why(nobody, self.fields[0], None)

    @property
    def fields(self) -> list[str]:
        """The fields to choose from; the keys, of which little is to be said, come last."""
        data = require_struct(self.changes, "data").names
        both = [name for name in business_fields(self.history).names if name in data]
        require_fields(self.keys, both, "keys")
        return [name for name in both if name not in self.keys] + list(self.keys)

    @cached_property
    def all(self) -> list[Entity]:
        return self.entities("")

    def entities(self, containing: str) -> list[Entity]:
        return find_entities(self.history, self.keys, containing)

    def beginnings(self, entity: Entity) -> list[datetime]:
        """Find where its versions begin, the last first."""
        begins = F.unix_micros(VALID_FROM).alias("begins")
        rows = self._versions(entity).select(begins).orderBy(F.desc("begins")).limit(MOST_CHOICES)
        return [EPOCH + timedelta(microseconds=row["begins"]) for row in rows.collect()]

    def first(self) -> Page:
        return Page.of(self.parts(self.all[0], None, self.fields[0]).values()) if self.all else _NOBODY

    def parts(self, entity: Entity, at: datetime | None, field: str) -> dict[tuple[Any, ...], Page]:
        """The pages of what is chosen, by what they depend on; nothing is read."""
        return {
            ("timeline", entity): self.timeline(entity),
            ("blame", entity, at): self.blame(entity, at),
            ("why", entity, field, at): self.why(entity, field, at),
        }

    def timeline(self, entity: Entity) -> Page:
        versions = with_operation(self._versions(entity)).orderBy(VALID_FROM)
        # Without provenance: blame says it below, and since when.
        return self._page(f"{entity.label}: its versions", versions)

    def blame(self, entity: Entity, at: datetime | None) -> Page:
        answer = blame(self.history, {"guid": entity.guid}, valid_at=at).select(
            "field", "value", "message", "priority", F.col("since_timestamp").alias("since")
        )
        ((heading, table),) = self._page(f"who is responsible, {self.when(at)}", answer).sections
        assert table is not None
        return Page(((heading, in_zone(table, business_fields(self.history), self.zone, "value")),))

    def why(self, entity: Entity, field: str, at: datetime | None) -> Page:
        by_guid = "guid" in self.changes.columns
        key = {"guid": entity.guid} if by_guid else dict(zip(self.keys, entity.key, strict=True))
        answer = why(
            self.changes, key, field, keys=self.keys, valid_at=_END_OF_TIME if at is None else at
        ).select(
            "step",
            F.col("effective_timestamp").alias("effective"),
            F.col("arrival_timestamp").alias("arrival"),
            F.col("message_id").alias("message"),
            *("source", "operation", "value", "priority", "verdict", "reason"),
        )
        return self._page(f"why {field} is what it is, {self.when(at)}", answer)

    def when(self, at: datetime | None) -> str:
        return "at the end of time" if at is None else f"at {instant_text(at, self.zone)}"

    def _page(self, heading: str, rows: DataFrame) -> Page:
        return Page(
            ((heading, show(rows, rows=self.rows, provenance=False, width=_LONGEST_VALUE, zone=self.zone)),)
        )

    def _versions(self, entity: Entity) -> DataFrame:
        return self.history.where(F.col("guid") == F.lit(entity.guid))


_NOBODY = Page((("There is no such entity", None),))


class _ExplorerWidget:
    """The controls of an explorer: what is found chooses the entities, an entity the instants."""

    def __init__(self, library: Any, explorer: _Explorer, first: Callable[[], Page]) -> None:
        self.explorer = explorer
        # As wide as its longest choice, below the others where that is wider than the page.
        wide = library.Layout(width="auto", min_width="300px", max_width="100%")
        words = {"placeholder": "part of a key", "continuous_update": False}
        at = {"description": f"at ({explorer.zone})", "style": {"description_width": "initial"}}
        self.entity = library.Dropdown(description="entity", layout=wide)
        self.at = library.Dropdown(layout=wide, **at)
        controls = {
            "containing": library.Text(description="containing", **words),
            "entity": self.entity,
            "at": self.at,
            "field": library.Dropdown(description="field", options=explorer.fields, layout=wide),
        }
        self.is_cut = False
        self.parts: dict[tuple[Any, ...], Page] = {}

        def begin() -> Page:
            self._find("")
            self._begin(controls["field"].value)
            # Its tables were read already where it was displayed.
            self.parts = dict(zip(self.parts, map(first().section, range(len(self.parts))), strict=True))
            return self._read(None, controls["field"].value)

        self.widget = Controls(library, controls, begin, self._page, self._words).widget

    def _page(self, before: Values, now: Values) -> Page:
        if now["containing"] != before["containing"]:
            self._find(now["containing"])
        if self.entity.value != before["entity"]:
            return self._begin(now["field"])
        return self._read(now["at"], now["field"])

    def _find(self, containing: str) -> None:
        # What was found before may not stay in the list if the search fails.
        choose_from(self.entity, [])
        entities = self.explorer.entities(containing) if containing else self.explorer.all
        self.is_cut = len(entities) > MOST_CHOICES
        choose_from(self.entity, [(entity.label, entity) for entity in entities[:MOST_CHOICES]])

    def _begin(self, field: str) -> Page:
        """The page of an entity at the end of time, with the instants to choose from."""
        entity = self.entity.value
        begins = [] if entity is None else self.explorer.beginnings(entity)
        labels = [with_day(begin, self.explorer.zone) for begin in begins]
        choose_from(self.at, [("the end of time", None), *zip(labels, begins, strict=True)])
        return self._read(None, field)

    def _read(self, at: datetime | None, field: str) -> Page:
        """The page of what is chosen; what stands there already is not read once more."""
        if self.entity.value is None:
            return _NOBODY
        parts = self.explorer.parts(self.entity.value, at, field)
        self.parts = {key: self.parts.get(key, page) for key, page in parts.items()}
        return Page.of([CUT_CHOICES] * self.is_cut, self.parts.values())

    def _words(self, now: Values) -> str:
        entity = now["entity"].label if now["entity"] else "nobody"
        return f"{entity}, {self.explorer.when(now['at'])}, and why {now['field']} is what it is"
