"""A field of an entity, another value for a period, what that would change, and a button that applies it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.changes import union_changes
from cdckit.history import VALID_FROM, business_fields
from cdckit.ledger import Ledger
from cdckit.ledger.columns import Kind
from cdckit.merging import merge
from cdckit.notebook import show
from cdckit.notebook.options import as_zone
from cdckit.notebook.widgets.explorer import MOST_CHOICES, Entity, find_entities
from cdckit.notebook.widgets.panel import Area, Page, Panel, show_in_zone
from cdckit.query.corrections import correct
from cdckit.query.differences import diff


def correction_form(ledger: Ledger, *, rows: int | None = None, zone: tzinfo | str | None = None) -> Panel:
    """
    A steward's correction: which value for which period, what it would change, and then its application.

    Args:
        ledger: What is corrected; something was applied to it before.
        rows: As for `show`, for each of the two tables.
        zone: As for `show`; an instant that is written without an offset is on its clocks.

    Returns:
        A panel: a choice of entities by key, at most 300 at once, with a text that their keys have to
        contain; of a field that is no key; and what `correct` is told: the value as text (empty is null),
        from when and until when in ISO 8601 (an empty end is none), by whom and why.  Below, the versions of
        the entity.  *Show* tells what the correction would change; *Apply* applies what was shown, and
        nothing that was altered since.  `Ledger.revoke` takes it back.

    Raises:
        InvalidArgument: *zone* is none.  And when it is displayed, NoSuchTable: nothing was ever applied.

    Cost: nothing at the call.  *Show* reads the versions and changes of the entity, and merges these anew.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"], buckets=1)
    ...     _ = ledger.apply(changes)
    ...     print(repr(correction_form(ledger)).splitlines()[0])
    1: its versions
    """
    form = _Form(ledger, rows, as_zone(zone, function="correction_form"))
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
        return [each for each in business_fields(self.ledger.history()).names if each not in self.kind.keys]

    def entities(self, containing: str) -> list[Entity]:
        return find_entities(self.ledger.history(), self.kind.keys, containing)

    def first(self) -> Page:
        return self.versions(next(iter(self.entities("")), None))

    def versions(self, entity: Entity | None) -> Page:
        if entity is None:
            return Page((("There is no such entity", None),))
        told = self.ledger.history(entity.guid).orderBy(VALID_FROM)
        return Page(((f"{entity.label}: its versions", show(told, rows=self.rows, zone=self.zone)),))

    def correction(
        self, entity: Entity, field: str, value: str, start: str, end: str, by: str, reason: str
    ) -> DataFrame:
        history = self.ledger.history(entity.guid)
        right = F.lit(value or None).cast(history.schema[field].dataType)
        period = self._instant(start), self._instant(end) if end else None
        told = correct(history, {field: right}, *period, keys=self.kind.keys, by=by, reason=reason)
        return told.withColumn("guid", F.lit(entity.guid)) if self.kind.by_guid else told

    def difference(self, entity: Entity, right: DataFrame) -> Page:
        history = self.ledger.history(entity.guid)
        both = union_changes(self.ledger.changes(entity.guid), right)
        told = diff(history, merge(both, entity=self.kind.entity, keys=self.kind.keys)).drop("guid")
        told = show_in_zone(self.zone, told, business_fields(history), "a_value", "b_value")
        return Page((("What it would change", show(told, rows=self.rows, zone=self.zone)),))

    def _instant(self, text: str) -> datetime:
        instant = datetime.fromisoformat(text)
        return instant if instant.tzinfo else instant.replace(tzinfo=self.zone)


class _FormWidget:
    """The controls of a form; what was shown can be applied, and nothing else."""

    right: DataFrame

    def __init__(self, library: Any, form: _Form, first: Callable[[], Page]) -> None:
        self.form = form
        self.containing = library.Text(description="containing", continuous_update=False)
        self.entity = library.Dropdown(description="entity")
        self.field = library.Dropdown(description="field", options=form.fields)
        told = ("value", f"from ({form.zone})", "until", "by", "reason")
        self.texts = [library.Text(description=each) for each in told]
        self.show = library.Button(description="Show")
        self.apply = library.Button(description="Apply", disabled=True)
        self.versions, self.difference = Area(library), Area(library)
        self._list()
        self.versions.show(first, "versions")
        self.containing.observe(lambda _: self._list(), names="value")
        self.entity.observe(lambda _: self._read(), names="value")
        for each in (self.entity, self.field, *self.texts):
            each.observe(lambda _: self._forget(), names="value")
        self.show.on_click(lambda _: self.difference.show(self._difference, "what it would change"))
        self.apply.on_click(lambda _: self.difference.show(self._applied, "what was applied"))
        rows = ([self.containing, self.entity, self.field], [*self.texts, self.show, self.apply])
        controls = [library.HBox(row, layout=library.Layout(flex_flow="row wrap")) for row in rows]
        self.widget = library.VBox([*controls, self.versions.widget, self.difference.widget])

    def _list(self) -> None:
        found = self.form.entities(self.containing.value)[:MOST_CHOICES]
        self.entity.options = [(each.label, each) for each in found]
        self.entity.index, self.show.disabled = 0 if found else None, not found

    def _read(self) -> None:
        self.versions.show(lambda: self.form.versions(self.entity.value), "versions")

    def _forget(self) -> None:
        self.apply.disabled = True
        self.difference.show(lambda: Page(()), "nothing")

    def _difference(self) -> Page:
        self.apply.disabled = True
        texts = (each.value.strip() for each in self.texts)
        self.right = self.form.correction(self.entity.value, self.field.value, *texts).localCheckpoint()
        page = self.form.difference(self.entity.value, self.right)
        self.apply.disabled = self.right.isEmpty()
        return page

    def _applied(self) -> Page:
        self.apply.disabled = True
        self.form.ledger.apply(self.right)
        self._read()
        (message,) = self.right.select("message_id").head(1)
        return Page(((f"Applied as “{message[0]}”", None),))
