"""Arguments that name fields of a history, and what the history lacks: all that is wrong at once."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.model.history import HISTORY_SCHEMA, business_fields, require_history
from cdckit.parts import tables
from cdckit.parts.arguments import require_columns


class UnfitHistory(tables.UnfitArguments):
    """A history lacks what a table is made of, or has a new column's name already; or fields are misnamed."""

    cannot, what = "cannot make its table", "history"


class HistoryArguments(tables.NamedArguments):
    """Arguments of a call about *history*; what was wrong with the standard columns is noted."""

    unfit, kind = UnfitHistory, "field"

    def __init__(self, history: DataFrame) -> None:
        require_columns(history, [])
        super().__init__()
        self.known = business_fields(history)
        self._found = history.schema
        missing = [name for name in HISTORY_SCHEMA.fieldNames() if name not in history.columns]
        for field in HISTORY_SCHEMA:
            needed = field.dataType.simpleString()
            if field.name in missing:
                self.refuse(f"the column {field.name} ({needed}) is missing: `merge` makes it")
            elif (kind := history.schema[field.name].dataType.simpleString()) != needed:
                self.refuse(f"{field.name} is {kind}, and must be {needed}")
        self.history = history if missing else require_history(history)
        """The history, with null for an end that is open."""

    def fields(
        self, names: Iterable[str] | None, argument: str, *, empty: bool = False
    ) -> list[T.StructField]:
        """The business fields that are named, in the order in which they are."""
        if not isinstance(names, Iterable):
            self.refuse(f"{argument} is {names!r}, and must be a list of fields")
            return []
        listed = [names] if isinstance(names, str) else list(names)
        for item in listed:
            if not isinstance(item, str):
                self.refuse(f"{argument} names {item!r}, which is no text")
        if not listed and not empty:
            self.refuse(f"{argument} is empty")
        texts = [item for item in listed if isinstance(item, str)]
        return [self.known[name] for name in self.names(texts, argument, self.known.fieldNames())]

    def new_columns(self, names: Iterable[str]) -> None:
        """Note which columns that the table gets are in the history already, in any case, or come twice."""
        taken = {name.lower(): name for name in self.history.columns}
        for name in names:
            other = taken.get(name.lower())
            if other is None:
                taken[name.lower()] = name
            elif other in self.history.columns:
                rename = f"`history.withColumnRenamed({other!r}, {f'{other}_before'!r})`"
                self.refuse(
                    f"the history has a column {other} already, which would be lost: rename it, {rename}"
                )
            else:
                self.refuse(f"two columns would have the name {name}")

    def require_all(self) -> DataFrame:
        """The history; raises `UnfitHistory` with all that was found wrong, if anything was."""
        self.require_sound(f"{field.name} {field.dataType.simpleString()}" for field in self._found)
        return self.history
