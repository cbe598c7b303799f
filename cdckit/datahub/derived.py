"""From the statements about all targets to the changes of each, wherever statements are kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

from pyspark.sql import DataFrame

from cdckit.datahub.absences import cascade_events, list_events, mentions, refresh_events
from cdckit.datahub.existence import with_statement, without
from cdckit.datahub.resolution import UNPROCESSED, Kept, Resolution, needed_links
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.stated_changes import absence_changes, record_changes
from cdckit.parts.complete_lists import absences


class Derived:
    """
    What follows from statements: guids, links, what is applied, changes.

    The rules are here; where statements, and what is found on the way, are kept is for others to say: a hub
    keeps them in its tables (`State`), `changes` nowhere.
    """

    statements: Callable[[str], DataFrame]
    """All statements about a target (`statement_schema`)."""
    looked_up: Kept
    """Rows in a form that can be looked at again and again; None if they are known to be none."""
    waiting: Callable[[], DataFrame | None]
    """The statements that wait (`statement`, see `with_statement`); None if there are none."""
    may_be_refreshed: Callable[[str], bool]
    """Whether a message may have given a list of all entities of the target."""
    known_history: Callable[[str], DataFrame | None]
    """The history of a target that is a parent of others; None if there is none."""
    messages: Callable[[], DataFrame]
    """The messages that were read, each once (`MESSAGE_SCHEMA`)."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @property
    @abstractmethod
    def entities(self) -> Sequence[str]:
        """The targets that are looked at."""

    @cached_property
    def resolution(self) -> Resolution:
        """The statements of all targets, with what can be looked up."""
        return Resolution(self.schema, self.statements, self.looked_up, self.entities)

    @property
    def may_wait(self) -> bool:
        """Whether a statement of the targets that are looked at may need another one."""
        return any(needed_links(self.schema, entity) is not None for entity in self.entities)

    def resolved(self, entity: str) -> DataFrame:
        """The statements of a target that are processed, with their guids and links."""
        rows = self.resolution.resolved(entity)
        # What no record holds or makes is always processed.
        is_within = self.schema.is_within(entity)
        return rows.where(f"NOT error_code <=> '{UNPROCESSED}'") if is_within else rows

    def applied(self, entity: str) -> DataFrame:
        """The statements of a target that are applied."""
        valid, waiting = self.resolved(entity).where("error_code IS NULL"), self.waiting()
        if waiting is None:
            return valid
        return without(with_statement(valid, entity), waiting).drop("statement")

    def changes(self, entity: str, touched: DataFrame | None = None) -> DataFrame:
        """The changes of a target; of the entities *touched* alone, where they are given."""
        applied = self.applied(entity)
        own = record_changes(self.schema, entity, _of_guids(applied, touched))
        events = self._events(entity, applied)
        if not events:
            return own
        said = _of_guids(self.resolved(entity), touched)
        missed = absences(mentions(said, self.schema.parent_fields(entity)), events)
        return own.unionByName(absence_changes(missed, own))

    def _events(self, entity: str, applied: DataFrame) -> list[tuple[str | None, DataFrame]]:
        """The ends of all complete lists that may not have named an entity of the target."""
        found: list[tuple[str | None, DataFrame]] = []
        if self.may_be_refreshed(entity):
            found.append((None, refresh_events(self.schema, applied)))
        for field in self.schema.parent_fields(entity):
            found.append((field, list_events(self.schema, applied, field)))
            cascade = cascade_events(self.schema, entity, field, self.known_history, self.messages())
            if cascade is not None:
                found.append((field, cascade))
        return found


def _of_guids(statements: DataFrame, touched: DataFrame | None) -> DataFrame:
    """The statements about the entities *touched*; ends of lists are about none."""
    return statements if touched is None else statements.join(touched, "guid", "left_semi")
