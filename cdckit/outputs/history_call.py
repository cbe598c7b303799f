"""A call about a history, checked when it is made: all that is wrong is said in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError
from cdckit.history import HISTORY_SCHEMA, VALID_FROM, VALID_TO, business_fields, require_history
from cdckit.parts.arguments import (
    UnfitCall,
    as_meant,
    perhaps,
    quoted,
    require_columns,
    require_flag,
    said_again,
)


class UnfitHistory(UnfitCall):
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


class Call:
    """A call of *function* about *history*, in which an open end is null once its columns were looked at."""

    def __init__(self, function: str, history: DataFrame) -> None:
        require_columns(history, [], function=function)
        self.function, self.history = function, history
        self.wrong: list[str] = []
        self._said: dict[str, Any] = {}
        self._unsaid: list[str] = []
        self._renamed: dict[str, str] = {}
        self.known = business_fields(history)

    def standard_columns(self) -> None:
        """Note which of the columns that every history has are missing, or of another type."""
        missing = [name for name in HISTORY_SCHEMA.fieldNames() if name not in self.history.columns]
        for field in HISTORY_SCHEMA:
            needed = field.dataType.simpleString()
            if field.name in missing:
                self.wrong.append(f"the column {field.name} ({needed}) is missing: `merge` makes it")
            elif (found := self.history.schema[field.name].dataType.simpleString()) != needed:
                self.wrong.append(f"{field.name} is {found}, and must be {needed}")
        if not missing:
            self.history = require_history(self.history, function=self.function)

    def flag(self, flag: bool, argument: str) -> bool:
        """The flag; said again in the call that would do."""
        if require_flag(flag, argument, function=self.function):
            self._said[argument] = True
        return flag

    def keep(self, argument: str, value: Any) -> None:
        """Say an argument that is right again in the call that would do."""
        if value is not None:
            self._said[argument] = value

    def fields(
        self, said: Iterable[str] | None, argument: str, *, empty: bool = False
    ) -> list[T.StructField]:
        """The business fields that are named, in the order in which they are."""
        names = self._names(said, argument)
        known = {field.name: field for field in self.known}
        for name in names:
            if name not in known:
                self.wrong.append(f"{argument} names {name}, which is no field{perhaps(name, known)}")
        if len(set(names)) < len(names):
            self.wrong.append(f"{argument} names a field twice: {', '.join(names)}")
        if not names and not empty:
            self.wrong.append(f"{argument} is empty")
        meant = as_meant(names, list(known))
        if not meant.whole or not (names or empty):
            self._unsaid.append(argument)
        self._said[argument] = meant.names if meant.names or empty else list(known)[:1]
        return [known[name] for name in dict.fromkeys(names) if name in known]

    def new_columns(self, names: Iterable[str]) -> None:
        """Note which columns that the table gets are in the history already, in any case, or come twice."""
        taken = {name.lower(): name for name in self.history.columns}
        for name in names:
            other = taken.get(name.lower())
            if other is not None and other in self.history.columns:
                self.wrong.append(f"the history has a column {other} already, which would be lost: rename it")
                self._renamed[other] = f"{other}_before"
            elif other is not None:
                self.wrong.append(f"two columns would have the name {name}")
            taken.setdefault(name.lower(), name)

    def require_sound(self) -> None:
        """Raise `UnfitHistory` with all that was found wrong, if anything was."""
        if self.wrong:
            found = [f"{field.name} {field.dataType.simpleString()}" for field in self.history.schema]
            table = "history"
            if self._renamed:
                table = f"history.withColumnsRenamed({self._renamed!r})"
            # Fields are called as that table calls them.
            said = {
                argument: [self._renamed.get(name, name) for name in value]
                if isinstance(value, list)
                else value
                for argument, value in self._said.items()
            }
            example = f"{self.function}({table}{said_again(said)})"
            raise UnfitHistory(self.function, self.wrong, found, example, self._unsaid)

    def _names(self, said: Iterable[str] | None, argument: str) -> list[str]:
        if said is not None and not isinstance(said, Iterable):
            self.wrong.append(f"{argument} is {said!r}, and must be a list of fields")
            self._unsaid.append(argument)
            return []
        listed = [said] if isinstance(said, str) else list(said or [])
        for each in listed:
            if not isinstance(each, str):
                self.wrong.append(f"{argument} names {each!r}, which is no text")
                self._unsaid.append(argument)
        return [each for each in listed if isinstance(each, str)]


def columns(names: Iterable[str]) -> list[Column]:
    """The columns of these names, whatever stands in the names."""
    return [F.col(quoted(name)) for name in names]


def free(taken: Sequence[str], name: str) -> str:
    """A name for a column that is needed on the way, which no column has."""
    while name.lower() in {each.lower() for each in taken}:
        name += "_"
    return name


def in_force_at_some_time(history: DataFrame) -> DataFrame:
    """The versions without those that are over as they begin."""
    begins, ends = F.col(VALID_FROM), F.col(VALID_TO)
    return history.where(begins.isNotNull() & (ends.isNull() | (ends > begins)))
