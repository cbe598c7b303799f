"""A call about a history, checked when it is made: all that is wrong is said in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError
from cdckit.history import HISTORY_SCHEMA, business_fields, require_history
from cdckit.parts import calls
from cdckit.parts.arguments import quoted, require_columns


class UnfitHistory(calls.UnfitCall):
    """A history lacks what a table is made of, or has a new column's name already; or fields are misnamed."""

    cannot, what = "cannot make its table so", "history"


class TooManyRows(CdcError, ValueError):
    """There are more rows than were said to be wanted in this program."""

    def __init__(self, limit: int, columns: int) -> None:
        self.limit, self.columns = limit, columns
        super().__init__(limit, columns)

    def __str__(self) -> str:
        return (
            f"to_pandas() needs at most {self.limit:,} rows, and there are at least {self.limit + 1:,} of "
            f"{self.columns} columns; none was left out silently. Ask for fewer: "
            "to_pandas(frame.where(…)), to_pandas(frame.groupBy(…).count()), or the first ones of an order, "
            f"to_pandas(frame.orderBy(…).limit({self.limit})). Or take more into the memory of this program: "
            f"to_pandas(frame, limit={10 * self.limit})"
        )


class Call(calls.Call):
    """A call of *function* about *history*; what was wrong with the standard columns is noted."""

    unfit, kind = UnfitHistory, "field"

    def __init__(self, function: str, history: DataFrame, **said: Any) -> None:
        require_columns(history, [], function=function)
        given = {name: value for name, value in said.items() if value is not None and value is not False}
        super().__init__(function, "history", given)
        self.known = business_fields(history)
        self._found = history.schema
        missing = [name for name in HISTORY_SCHEMA.fieldNames() if name not in history.columns]
        for field in HISTORY_SCHEMA:
            needed = field.dataType.simpleString()
            if field.name in missing:
                self.refuse(f"the column {field.name} ({needed}) is missing: `merge` makes it")
            elif (found := history.schema[field.name].dataType.simpleString()) != needed:
                self.refuse(f"{field.name} is {found}, and must be {needed}")
        self.history = history if missing else require_history(history, function=function)
        """The history, with null for an end that is open."""

    def fields(
        self, said: Iterable[str] | None, argument: str, *, empty: bool = False
    ) -> list[T.StructField]:
        """The business fields that are named, in the order in which they are."""
        if not isinstance(said, Iterable):
            self.refuse(f"{argument} is {said!r}, and must be a list of fields")
            return []
        listed = [said] if isinstance(said, str) else list(said)
        for each in listed:
            if not isinstance(each, str):
                self.refuse(f"{argument} names {each!r}, which is no text")
        if not listed and not empty:
            self.refuse(f"{argument} is empty")
        texts = [each for each in listed if isinstance(each, str)]
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


def quoted_columns(names: Iterable[str]) -> list[Column]:
    """The columns of these names, whatever stands in the names."""
    return [F.col(quoted(name)) for name in names]


def free_name(taken: Sequence[str], name: str) -> str:
    """A name for a column that is needed on the way, which no column has."""
    while name.lower() in {each.lower() for each in taken}:
        name += "_"
    return name
