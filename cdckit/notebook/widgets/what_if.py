"""Widgets that try: another order of sources, or another value for a period, and what that would change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from decimal import Context, Decimal
from functools import cached_property, reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger import Ledger
from cdckit.ledger.kind import Kind
from cdckit.merging.merge import merge
from cdckit.model.history import VALID_FROM, VALID_TO, business_fields
from cdckit.model.rejected_records import usable_changes
from cdckit.model.unions import union_changes
from cdckit.notebook.options import as_zone
from cdckit.notebook.tables import Table, show
from cdckit.notebook.widgets.explorer import CUT_CHOICES, MOST_CHOICES, Entity, find_entities
from cdckit.notebook.widgets.panel import (
    Area,
    Controls,
    Page,
    Panel,
    Values,
    choose_from,
    in_zone,
    instant_text,
    mark_changes,
)
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_instant, require_struct
from cdckit.query.as_of import as_of, current
from cdckit.query.corrections import correct
from cdckit.query.differences import diff

_MOST_SOURCES = 50
_LOWEST_PRIORITY, _HIGHEST_PRIORITY = -(2**31), 2**31 - 1


@takes()
def priority_board(
    changes: DataFrame,
    *,
    entity: str,
    keys: Sequence[str],
    valid_at: datetime | None = None,
    rows: int | None = None,
    provenance: bool = True,
    zone: tzinfo | str | None = None,
) -> Panel:
    """
    Show what stands if the sources' words weighed otherwise: the changes, merged under other priorities.

    There is a number for each source, the entity priority of its changes.  Fields that have a priority
    of their own (`field_priorities`) keep it, and so do the changes of a source whose number stands where it
    began: where they differ, that is the highest.

    Args:
        changes: One row per change, of at most 50 sources.
        entity: As for `merge`.
        keys: As for `merge`.
        valid_at: The instant to show, aware; None shows what is current.
        rows: As for `show`, for each of the two tables.
        provenance: As for `show`.
        zone: As for `show`, of the changed values too.

    Returns:
        A panel: the numbers; the entities as they stand at *valid_at*, by key, after a move each with what
        the move changed, those that are gone struck through; and the values at *valid_at* that it changed,
        with the messages they came from.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: As `merge` and `show`; *valid_at* is naive.  And
            when it is displayed: the changes are of more than 50 sources.

    Cost: nothing at the call.  At the first display one job over the sources and one merge; at each move
    four merges of all changes.

    >>> print(priority_board(changes, entity="product", keys=["number"], provenance=False))
    current, with the priorities shop 0
    valid_from  valid_to  number  name    message  guid
    10:00       …         1       teapot  m2       7165d408…
    (1 row; instants of 2024-01-01, UTC; … is an open end)
    """
    clock = as_zone(zone)
    merge(changes, entity=entity, keys=keys)
    board = _Board(usable_changes(changes), entity, tuple(keys), valid_at, rows, provenance, clock)
    if valid_at is not None:
        require_instant(valid_at, "valid_at")
    board.check()

    def build(library: Any, first: Callable[[], Page]) -> Any:
        numbers = {}
        for source in board.sources:
            label = _label(source)
            layout = library.Layout(width="auto", min_width=f"{len(label) + 16}ch")
            numbers[source.source] = library.BoundedIntText(
                value=source.highest,
                min=_LOWEST_PRIORITY,
                max=_HIGHEST_PRIORITY,
                description=label,
                style={"description_width": "initial"},
                layout=layout,
            )
        return Controls(
            library, numbers, first, board.page, lambda now: board.heading(board.chosen(now))
        ).widget

    return Panel(board.first, build)


class _Source(NamedTuple):
    """A source, and the lowest and highest entity priority of its changes."""

    source: str | None
    lowest: int
    highest: int


@dataclass(frozen=True)
class _Board:
    """The changes, and how to show them; *chosen* is the priority by source, where it was touched."""

    changes: DataFrame
    entity: str
    keys: tuple[str, ...]
    valid_at: datetime | None
    rows: int | None
    provenance: bool
    zone: tzinfo

    @cached_property
    def sources(self) -> list[_Source]:
        ends = F.min("priority").alias("lowest"), F.max("priority").alias("highest")
        rows = self.changes.groupBy("source").agg(*ends).orderBy("source").limit(_MOST_SOURCES + 1).collect()
        if len(rows) > _MOST_SOURCES:
            needed = f"of at most {_MOST_SOURCES} sources"
            raise InvalidArgument("priority_board", "changes", needed, f"of {len(rows)} or more")
        return [_Source(*row) for row in rows]

    @cached_property
    def _rule(self) -> str:
        """What the caption has to add, where numbers do not decide about every field."""
        if "field_priorities" not in self.changes.columns:
            return ""
        fields = require_struct(self.changes, "field_priorities").names
        has_priority = [F.col("field_priorities").getField(name).isNotNull() for name in fields]
        examples = self.changes.where(reduce(Column.__or__, has_priority, F.lit(False))).limit(1).collect()
        return "; fields with a priority of their own keep it" if examples else ""

    def heading(self, chosen: Mapping[str | None, int]) -> str:
        """Say what the table stands for: the instant, and the priorities of all sources."""
        order = ", ".join(
            f"{_name(source.source)} {chosen.get(source.source, _priority_range(source))}"
            for source in self.sources
        )
        return f"{self._when}, with the priorities {order}{self._rule}"

    def chosen(self, numbers: Values) -> dict[str | None, int]:
        """The priorities of the sources whose number is another one than in the beginning."""
        highest = {source.source: source.highest for source in self.sources}
        return {name: number for name, number in numbers.items() if number != highest[name]}

    def first(self) -> Page:
        return Page(((self.heading({}), self._table(self._standing_versions({}, deletes=False))),))

    def page(self, numbers_before: Values, numbers: Values) -> Page:
        before, after = self.chosen(numbers_before), self.chosen(numbers)
        moved = [name for name, number in numbers.items() if number != numbers_before[name]]
        words = ", ".join(f"{_name(name)} was {numbers_before[name]}" for name in moved)
        data = require_struct(self.changes, "data")
        differences = self._differences(before, after)
        changed = show(differences, rows=self.rows, order_by=[*self.keys, "field"], zone=self.zone)
        now, then = (self._standing_versions(priorities, deletes=False) for priorities in (after, before))
        marked = mark_changes(now, then, data.fields)
        return Page(
            (
                (self.heading(after), marked.show(self._table(marked.rows), data.fields, self.zone)),
                (f"Values that this changed: {words}", in_zone(changed, data, self.zone, "before", "after")),
            )
        )

    def check(self) -> None:
        """Raise what `show` finds wrong; nothing is read."""
        self._table(self._standing_versions({}, deletes=False))

    def _table(self, standing: DataFrame) -> Table:
        return show(standing, rows=self.rows, order_by=self.keys, provenance=self.provenance, zone=self.zone)

    @property
    def _when(self) -> str:
        return "current" if self.valid_at is None else f"as of {instant_text(self.valid_at, self.zone)}"

    def _standing_versions(self, chosen: Mapping[str | None, int], *, deletes: bool) -> DataFrame:
        priority = F.col("priority")
        for source, number in chosen.items():
            is_source = F.col("source").eqNullSafe(F.lit(source).cast("string"))
            priority = F.when(is_source, F.lit(number)).otherwise(priority)
        ranked = self.changes.withColumn("priority", priority.cast("int"))
        history = merge(ranked, entity=self.entity, keys=self.keys)
        if self.valid_at is None:
            return current(history, deletes=deletes)
        return as_of(history, self.valid_at, deletes=deletes)

    def _differences(self, before: Mapping[str | None, int], after: Mapping[str | None, int]) -> DataFrame:
        both = (self._standing_versions(priorities, deletes=True) for priorities in (before, after))
        ends = F.col(VALID_TO)
        # Of versions that stand now the differences end never; those of another instant may lie around it.
        stands = ends.isNull()
        if self.valid_at is not None:
            stands = (F.col(VALID_FROM) <= F.lit(self.valid_at)) & (stands | (ends > F.lit(self.valid_at)))
        values = F.col("a_value").alias("before"), F.col("b_value").alias("after")
        names = [quoted(name) for name in self.keys]
        differences = diff(*both, keys=self.keys).where(stands)
        return differences.select(*names, "field", *values, "a_message", "b_message")


def _name(source: str | None) -> str:
    return "(no source)" if source is None else source


def _label(source: _Source) -> str:
    """Write what stands before the number, which begins with the highest where a source has several."""
    several = source.lowest != source.highest
    return f"{_name(source.source)} ({_priority_range(source)})" if several else _name(source.source)


def _priority_range(source: _Source) -> str:
    is_single = source.lowest == source.highest
    return str(source.highest) if is_single else f"{source.lowest} to {source.highest}"


@takes()
def correction_form(ledger: Ledger, *, rows: int | None = None, zone: tzinfo | str | None = None) -> Panel:
    """
    A steward's correction: which value for which period, what it would change, and then its application.

    Args:
        ledger: What is corrected; something was applied to it before.
        rows: As for `show`, for each of the two tables.
        zone: As for `show`; an instant that is written without an offset is on its clocks, as a value too.

    Returns:
        A panel: a choice of entities by key, at most 300 at once, with a text that their keys have to
        contain; of a field that is no key; and what `correct` is told: the value as text (empty is null; a
        number with more decimal places than its field has is refused, not rounded), from when and until when
        in ISO 8601 (an empty end is none), by whom and why.  Below, the versions of the entity.  *Show* tells
        what the correction would change; *Apply* applies what was shown, and nothing that was altered since.
        `Ledger.revoke` takes it back.

    Raises:
        InvalidArgument: *zone* is none.  And when it is displayed, NoSuchTable: nothing was ever applied.

    Cost: nothing at the call.  *Show* reads the versions and changes of the entity, and merges these anew.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     _ = ledger.apply(changes)
    ...     print(repr(correction_form(ledger)).splitlines()[0])
    1: its versions
    """
    form = _Form(ledger, rows, as_zone(zone))
    return Panel(form.first, lambda library, first: _FormWidget(library, form, first).widget)


@dataclass(frozen=True)
class _Form:
    """A ledger, and what to ask of it."""

    ledger: Ledger
    rows: int | None
    zone: tzinfo

    @property
    def kind(self) -> Kind:
        return self.ledger.at_commit().kind

    @property
    def fields(self) -> list[str]:
        return [name for name in business_fields(self.ledger.history()).names if name not in self.kind.keys]

    def entities(self, containing: str) -> list[Entity]:
        return find_entities(self.ledger.history(), self.kind.keys, containing)

    def first(self) -> Page:
        return self.versions(next(iter(self.entities("")), None))

    def versions(self, entity: Entity | None) -> Page:
        if entity is None:
            return Page((("There is no such entity", None),))
        versions = self.ledger.history(entity.guid).orderBy(VALID_FROM)
        return Page(((f"{entity.label}: its versions", show(versions, rows=self.rows, zone=self.zone)),))

    def correction(
        self, entity: Entity, field: str, value: str, start: str, end: str, by: str, reason: str
    ) -> DataFrame:
        history = self.ledger.history(entity.guid)
        right = _typed_value(value, history.schema[field].dataType, self.zone)
        period = _instant(start, self.zone), _instant(end, self.zone) if end else None
        corrected = correct(history, {field: right}, *period, keys=self.kind.keys, by=by, reason=reason)
        return corrected.withColumn("guid", F.lit(entity.guid)) if self.kind.by_guid else corrected

    def difference(self, entity: Entity, right: DataFrame) -> Page:
        history = self.ledger.history(entity.guid)
        both = union_changes(self.ledger.changes(entity.guid), right)
        differences = diff(history, merge(both, entity=self.kind.entity, keys=self.kind.keys)).drop("guid")
        table = show(differences, rows=self.rows, zone=self.zone)
        changed = in_zone(table, business_fields(history), self.zone, "a_value", "b_value")
        return Page((("What it would change", changed),))


def _instant(text: str, zone: tzinfo) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant if instant.tzinfo else instant.replace(tzinfo=zone)


def _typed_value(text: str, kind: T.DataType, zone: tzinfo) -> Column:
    if text and isinstance(kind, T.TimestampType):
        return require_instant(_instant(text.strip(), zone), "value")
    if text and isinstance(kind, T.DecimalType):
        number = Decimal(text)
        # A cast would round without a word.
        if Context(prec=100).quantize(number, Decimal(1).scaleb(-kind.scale)) != number:
            needed = f"a number of at most {kind.scale} decimal places"
            raise InvalidArgument("correction_form", "value", needed, text)
    # Where Spark's ANSI mode is off, a cast makes null of what it cannot read.
    refused = F.raise_error(f"correction_form() needs value to be of {kind.simpleString()}; it is {text!r}.")
    return F.coalesce(F.lit(text).try_cast(kind), refused.cast(kind)) if text else F.lit(None).cast(kind)


class _FormWidget:
    """The controls of a form; what was shown can be applied, and nothing else."""

    right: DataFrame
    is_cut = False

    def __init__(self, library: Any, form: _Form, first: Callable[[], Page]) -> None:
        self.form = form
        containing = library.Text(description="containing", continuous_update=False)
        self.entity = library.Dropdown(description="entity")
        self.field = library.Dropdown(description="field", options=form.fields)
        labels = ("value", f"from ({form.zone})", "until", "by", "reason")
        self.texts = [library.Text(description=label) for label in labels]
        self.show = library.Button(description="Show")
        self.apply = library.Button(description="Apply", disabled=True)
        self.difference = Area(library)

        def begin() -> Page:
            self._find("")
            return self._with_note(first())

        choice = {"containing": containing, "entity": self.entity}
        self.versions = Controls(library, choice, begin, self._versions, lambda now: "versions")
        for control in (self.entity, self.field, *self.texts):
            control.observe(lambda _: self._forget(), names="value")
        self.show.on_click(lambda _: self.difference.show(self._difference, "what it would change"))
        self.apply.on_click(lambda _: self.difference.show(self._applied_page, "what was applied"))
        controls = [self.field, *self.texts, self.show, self.apply]
        row = library.HBox(controls, layout=library.Layout(flex_flow="row wrap"))
        self.widget = library.VBox([self.versions.widget, row, self.difference.widget])

    def _find(self, containing: str) -> None:
        entities = self.form.entities(containing)
        self.is_cut = len(entities) > MOST_CHOICES
        choose_from(self.entity, [(entity.label, entity) for entity in entities[:MOST_CHOICES]])
        self.show.disabled = not entities

    def _versions(self, before: Values, now: Values) -> Page:
        if now["containing"] != before["containing"]:
            self._find(now["containing"])
        return self._with_note(self.form.versions(self.entity.value))

    def _with_note(self, page: Page) -> Page:
        return Page.of([CUT_CHOICES] * self.is_cut, [page])

    def _forget(self) -> None:
        self.apply.disabled = True
        self.difference.show(lambda: Page(()), "nothing")

    def _difference(self) -> Page:
        self.apply.disabled = True
        value, *texts = (text.value for text in self.texts)  # blanks at its ends are part of a value
        stripped = (text.strip() for text in texts)
        right = self.form.correction(self.entity.value, self.field.value, value, *stripped)
        self.right = right.localCheckpoint()
        page = self.form.difference(self.entity.value, self.right)
        self.apply.disabled = self.right.isEmpty()
        return page

    def _applied_page(self) -> Page:
        self.apply.disabled = True
        self.form.ledger.apply(self.right)
        self.versions.follow()
        (message,) = self.right.select("message_id").head(1)
        return Page(((f"Applied as “{message[0]}”", None),))
