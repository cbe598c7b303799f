"""Histories kept up: which entities the new messages of a run touch, and what they look like now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.state import HISTORY, MANY_FILES, State, table
from cdckit.merging import made_versions
from cdckit.parts.computed_once import computed
from cdckit.parts.schemas import quoted, text_literal
from cdckit.parts.threads import at_once
from cdckit.store import Transaction
from cdckit.store.store import put
from cdckit.store.writing import Rows

_Touched = Mapping[str, DataFrame | None]
"""By target the guids of the entities that are merged anew; None for all of them."""


class Histories:
    """
    The histories of a hub, in a run that writes them: *state* knows what came in it.

    Where the statements of all targets are *few*, this program merges them.
    """

    def __init__(self, state: State, tables: Transaction, *, few: bool) -> None:
        self._state, self._writes, self.schema, self._few = state, tables, state.schema, few

    def merge(self, entities: Collection[str]) -> None:
        """Merge everything that was ever said of these targets anew."""
        for generation in self.schema.generations:
            at_once(self._writes.spark, self._merge_all, [each for each in generation if each in entities])

    def keep_up(self, fresh: DataFrame, turned: DataFrame | None, refreshed: set[str]) -> None:
        """
        Merge those entities anew that the run touches.

        These are what *fresh* messages speak of, and those (`message_id`) of which a statement has *turned*,
        being applied now and not before, or the other way round; and all of the *refreshed* targets.
        """
        moved = self._moved(fresh, turned)
        if moved is None:
            return
        touched: _Touched = {}
        stated = set(self._state.stated)
        for generation in self.schema.generations:
            merge_some = partial(self._merge_some, moved=moved, touched=touched, refreshed=refreshed)
            for some in at_once(self._writes.spark, merge_some, [one for one in generation if one in stated]):
                touched = {**touched, **some}

    def with_children(self, entities: Collection[str]) -> set[str]:
        """These targets and those whose entities are their children, at any depth."""
        found = set(entities)
        for entity in self._state.stated:
            # Parents come before their children.
            if self.schema.parents(entity) & found:
                found.add(entity)
        return found & set(self._state.stated)

    def _merge_all(self, entity: str) -> None:
        self._writes.replace(table(HISTORY, entity), self._merged(entity))

    def _merged(self, entity: str, touched: DataFrame | None = None) -> Rows:
        """The history of a target, or of the entities *touched* alone."""
        changes, keys = self._state.changes(entity, touched), self.schema.targets[entity].keys
        made = made_versions(changes, entity=entity, keys=keys, few=self._few)
        return made.here() if self._few else made

    def _merge_some(self, entity: str, moved: DataFrame, touched: _Touched, refreshed: set[str]) -> _Touched:
        """Merge the entities of a target that the run touches, and say which these are."""
        name = table(HISTORY, entity)
        before = self._state.read(name)
        if before is None or entity in refreshed:
            self._merge_all(entity)
            return {entity: None}
        some = self._touched(entity, moved, touched)
        if some is None:
            return {}
        put(self._writes, name, some, self._merged(entity, some))
        self._writes.compact(name, files=MANY_FILES)
        return {entity: some}

    def _moved(self, messages: DataFrame, turned: DataFrame | None) -> DataFrame | None:
        """
        What the new messages speak of, and those of which a statement has *turned*; None for nothing.

        One row per statement: `entity`, `guid` (null for ends of lists), `parents`.
        """
        ids = messages.select(F.col("message_identifier").alias("message_id"))
        if turned is not None:
            ids = ids.unionByName(turned).distinct()
        found = []
        for entity in self._state.stated:
            rows = self._state.resolved(entity).join(ids, "message_id", "left_semi")
            parents = ", ".join(f"data.{quoted(name)}" for name in self.schema.parent_fields(entity))
            listed = f"CAST(array({parents}) AS array<string>) AS parents"
            found.append(rows.selectExpr(f"{text_literal(entity)} AS entity", "guid", listed))
        return computed(reduce(DataFrame.unionByName, found)) if found else None

    def _touched(self, entity: str, moved: DataFrame, touched: _Touched) -> DataFrame | None:
        """The guids whose versions may have changed; None if there are none."""
        ours = moved.where(F.col("entity") == entity)
        found = [ours.select("guid")]
        rows = self._state.resolved(entity)
        for place, (field, held_by) in enumerate(self.schema.parent_fields(entity).items()):
            scopes = [ours.selectExpr(f"parents[{place}] AS scope")]
            for parent in {self.schema.mapping(each).reference for each in held_by.values()} & set(touched):
                changed = touched[parent]
                if changed is None:
                    return rows.select("guid").where("guid IS NOT NULL").distinct()
                scopes.append(changed.selectExpr("guid AS scope"))
            below = rows.selectExpr("guid", f"data.{quoted(field)} AS scope")
            found.append(
                below.join(reduce(DataFrame.unionByName, scopes), "scope", "left_semi").drop("scope")
            )
        return computed(reduce(DataFrame.unionByName, found).where("guid IS NOT NULL").distinct())
