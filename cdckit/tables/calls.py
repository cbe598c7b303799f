"""What a call says of a table, looked up in it: all that is wrong is collected, and said at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.arguments import (
    as_meant,
    nearest,
    perhaps,
    quoted,
    quoted_if_needed,
    require_name,
    said_again,
)
from cdckit.parts.values import as_text, is_collated
from cdckit.tables.frames import Cells, Table, UnfitTable
from cdckit.tables.times import (
    NEEDED_ORDER,
    NEEDED_TIME,
    TEXTS,
    Typed,
    Unreadable,
    as_instant,
    in_order,
    is_time,
    readings,
)

_NAME = re.compile(r"[^\W\d]\w*")
_NO_KEYS = (T.FloatType, T.DoubleType, T.ArrayType, T.MapType, T.StructType, T.VariantType)


class Call:
    """
    A call of *function* about *frame*, with *columns* of its own; *first* names its first argument.

    What its *cells* say is for errors alone.
    """

    def __init__(
        self, function: str, first: str, frame: DataFrame, columns: Sequence[str], cells: Cells
    ) -> None:
        self.function, self.first, self.frame, self.columns = function, first, frame, list(columns)
        self.cells = cells
        self.wrong: list[str] = []
        # Of the arguments that were given: what the call that would do says of them, and which it cannot say.
        self.right: dict[str, Any] = {}
        self.unsaid: list[str] = []
        self._meant: dict[str, tuple[str, T.DataType]] = {}

    def require_sound(self) -> None:
        """Raise `UnfitTable` with all that was found wrong, if anything was."""
        if self.wrong:
            found = [f"{name} {self.frame.schema[name].dataType.simpleString()}" for name in self.columns]
            example = f"{self.function}({self.first}{said_again(self.right)})"
            raise UnfitTable(self.function, self.wrong, found, example, list(dict.fromkeys(self.unsaid)))

    def keys(self, said: Sequence[str | Column]) -> list[str]:
        """The key columns: at least one, each of a type with an exact text."""
        names = self.names(said, "keys")
        fit = [name for name in names if self._can_be_key(name)]
        self.wrong += [self._unfit_key(name) for name in names if name not in fit]
        if isinstance(said, Sequence) and not isinstance(said, str) and not said:
            self.wrong.append("keys is empty")
        meant = [name for name in self.right["keys"] if self._could_be_key(name)]
        if not meant or len(meant) < len(self.right["keys"]):
            # Entities by fewer keys, or by others, would be other entities.
            self.unsaid.append("keys")
        # A column with empty cells would be a key that ends the job.
        others = sorted(filter(self._could_be_key, self.columns), key=self.cells.have_empty)
        self.right["keys"] = meant or others[:1]
        self._make_whole(self.right["keys"])
        return names

    def _unfit_key(self, name: str) -> str:
        unfit = f"the key {name} is {self._kind(name).simpleString()}"
        if self.cells.are_whole(name):
            why = ", since a cell of it is empty" if self.cells.have_empty(name) else ""
            return f"{unfit}{why}: `{self.first}.convert_dtypes()` makes whole numbers of it"
        cast = "cast it, such as to bigint or string (in pandas, `frame.convert_dtypes()`)"
        return f"{unfit}, which has no exact text: {cast}"

    def _make_whole(self, keys: Sequence[str]) -> None:
        """Let the call that would do begin with a table in which these columns can be keys."""
        if all(map(self._can_be_key, keys)):
            return
        alone = len(keys) == 1 and self.cells.have_empty(keys[0])
        self.first += f".dropna(subset={list(keys)!r}).convert_dtypes()" if alone else ".convert_dtypes()"

    def names(self, said: Sequence[str | Column], argument: str) -> list[str]:
        """Columns of the table, named by texts or by `col(…)`, in a list."""
        if not isinstance(said, Sequence) or isinstance(said, str):
            self.wrong.append(f"{argument} is {said!r}, and must be a list of columns")
            self._say(argument, [str(said)])
            return []
        named = [self._name(each) for each in said]
        known = [name for name in named if name in self.columns]
        for name in named:
            if name not in self.columns:
                self.wrong.append(f"{argument} names {name}, which is no column{perhaps(name, self.columns)}")
        if len(set(known)) < len(known):
            self.wrong.append(f"{argument} names a column twice: {', '.join(known)}")
        self._say(argument, named)
        return list(dict.fromkeys(known))

    def _say(self, argument: str, named: Sequence[str]) -> None:
        """Let the call that would do name these columns, a misspelt one as it is probably meant."""
        meant = as_meant(named, self.columns)
        if not meant.whole:
            self.unsaid.append(argument)
        self.right[argument] = meant.names

    def parts(self, said: str | Column | Sequence[str | Column] | None, argument: str) -> list[Typed]:
        """The columns, or expressions, that a table is sequenced by."""
        if said is None:
            return []
        several = [said] if isinstance(said, str | Column) else list(said)
        found = [self.expression(each, argument) for each in several]
        typed = [each for each in found if each is not None]
        for each in typed:
            if in_order([each]) is None:
                self.wrong.append(f"{argument} is {each.kind.simpleString()}, and must be {NEEDED_ORDER}")
        if not several:
            self.wrong.append(f"{argument} is empty")
        if len(typed) == len(several) and typed and in_order(typed) is not None:
            self._keep(argument, said)
        elif len(several) == 1 and not typed:
            self._keep_meant(argument, lambda kind: in_order([Typed(F.lit(None), kind)]) is not None)
        else:
            self.unsaid.append(argument)
        return typed

    def condition(self, said: str | Column | None, argument: str) -> Column:
        """A condition; where it is null it does not hold."""
        if said is None:
            return F.lit(False)
        found = self.expression(said, argument)
        if found is None:
            self._keep_meant(argument, lambda kind: isinstance(kind, T.BooleanType))
            return F.lit(False)
        if not isinstance(found.kind, T.BooleanType):
            needed = "must be a condition, such as \"operation = 'D'\""
            self.wrong.append(f"{argument} is {found.kind.simpleString()}, and {needed}")
            self.unsaid.append(argument)
        else:
            self._keep(argument, said)
        return F.coalesce(found.value, F.lit(False))

    def instant(self, said: str | Column, argument: str) -> Column:
        """Instants of a column or an expression; null where a text is no ISO 8601."""
        found = self.expression(said, argument)
        instant = None if found is None else as_instant(*found)
        if found is None:
            self._keep_meant(argument, lambda kind: as_instant(F.lit(None), kind) is not None)
        elif instant is None:
            self.wrong.append(f"{argument} is {found.kind.simpleString()}, and must be {NEEDED_TIME}")
            self.unsaid.append(argument)
        else:
            self._keep(argument, said)
        return F.lit(None).cast("timestamp") if instant is None else instant

    def unreadable(self, said: object, argument: str, table: Table) -> Unreadable:
        """What to say of rows whose time, *said* by a column or an expression, cannot be read."""
        found = None
        if isinstance(said, str | Column):
            with suppress(AnalysisException):
                value = said if isinstance(said, Column) else self._parsed(said)
                kind = self.frame.select(value.alias("value")).schema["value"].dataType
                found = as_text(value, kind)
        words = said if isinstance(said, str) else argument
        left_out = f'frame.where("{words} is not null")'
        if words in self.columns:
            words, left_out = quoted_if_needed(words), table.without(words)
        nothing = F.lit(None).cast("string")
        return Unreadable(argument, words, nothing if found is None else found, left_out)

    def unreadable_time(self, effective: object, sequence_by: object, table: Table) -> Unreadable:
        """What to say of rows without a time: it is *effective*, or what comes first in *sequence_by*."""
        if isinstance(effective, str | Column):
            return self.unreadable(effective, "effective", table)
        several = sequence_by if isinstance(sequence_by, list | tuple) else [sequence_by]
        return self.unreadable(several[0] if several else None, "sequence_by", table)

    def value(self, said: str | Column, argument: str) -> Typed | None:
        """A column of the table, or an expression over them, of any type."""
        found = self.expression(said, argument)
        if found is None:
            self._keep_meant(argument, lambda kind: True)
        else:
            self._keep(argument, said)
        return found

    def source(self, said: str | Column) -> Column:
        """Who says so: a name, or a column whose values are names."""
        self.keep("source", said, unless="table")
        if not isinstance(said, Column):
            return F.lit(require_name(said, "source", function=self.function))
        found = self.expression(said, "source")
        return F.lit(None).cast("string") if found is None else as_text(*found)

    def lacks_time(self, kind: T.DataType, sequence: object) -> None:
        """Note that nothing says when a row is true, its *sequence* being of *kind*."""
        self.wrong.append(
            f"effective is not said, and the sequence, {kind.simpleString()}, is no time: name a column (of "
            f"texts in a form of their own, \"try_to_timestamp(column, 'dd.MM.yyyy HH:mm')\", "
            f"of several forms a coalesce of such; what says no zone "
            f"is of UTC, unless \"to_utc_timestamp(…, 'Europe/Berlin')\"), "
            f"or one instant for the whole table"
        )
        first = sequence[0] if isinstance(sequence, list | tuple) and sequence else sequence
        self._say_time("effective", first, datetime(2024, 1, 1, tzinfo=UTC))

    def lacks_taken(self) -> None:
        """Note that nothing tells the lists of one table apart."""
        self.wrong.append("taken is not said: it is what tells the lists of one table apart")
        keys = self.right["keys"]
        texts = [name for name in self.columns if name not in keys and self._is_text(name)]
        self._say_time("taken", texts[0] if texts else None, "timestamp'2024-01-01 00:00:00Z'")

    def _say_time(self, argument: str, likely: object, otherwise: Any) -> None:
        """Let the call that would do name a column of times: a *likely* one where no other is known."""
        known = next((name for name in self.columns if is_time(self._kind(name))), None)
        named = [likely] if isinstance(likely, str) and likely in self.columns else []
        texts = filter(self._is_text, [*named, *self.columns])
        times_of = (self._as_time(text, argument, may_be_number=text in named) for text in map(str, texts))
        found: Any = known or next(filter(None, times_of), None)
        if found is None:
            self.unsaid.append(argument)
            nobody_looked = self.cells.frame is None and named and self._is_text(likely)
            found = likely if nobody_looked else otherwise
        self.right[argument] = found

    def _as_time(self, name: str, argument: str, *, may_be_number: bool) -> str | None:
        """The column, or an expression over it, as a time, where all its texts are known to write one."""
        if self.cells.frame is None:
            return None
        text = F.col(quoted(name))
        instant = as_instant(text, self._kind(name))
        assert instant is not None
        is_one = F.lit(may_be_number) | ~text.rlike(r"^\d+$")
        none = F.array().cast("array<string>")
        ways_of = F.when(is_one, readings(text, quoted_if_needed(name))).otherwise(none)
        rows = self.frame.where(text.isNotNull())
        is_iso, several = rows.agg(F.bool_and(instant.isNotNull()), F.collect_set(ways_of)).collect()[0]
        if is_iso:
            return name
        ways = [way for way in several[0] if all(way in each for each in several)] if several else []
        if len(ways) > 1:
            self.wrong.append(f"{name} can be read by {' or by '.join(ways)}, and does not say which")
            self.unsaid.append(argument)
        return ways[0] if ways else None

    def _is_text(self, name: Any) -> bool:
        return isinstance(self._kind(name), TEXTS)

    def expression(self, said: str | Column, argument: str) -> Typed | None:
        """A column of the table by its name, or an expression over them; None where that is wrong."""
        if not isinstance(said, str | Column):
            self.wrong.append(f"{argument} is {said!r}, and must be a column, an expression or its text")
            return None
        try:
            value = said if isinstance(said, Column) else self._parsed(said)
            return Typed(value, self.frame.select(value.alias("value")).schema["value"].dataType)
        except AnalysisException as error:
            self.wrong.append(f"{argument}: {self._reason(error, said)}")
            self._note_meant(argument, error, said)
            return None

    def fields(
        self,
        keys: Sequence[str],
        column_list: Sequence[str | Column] | None,
        except_column_list: Sequence[str | Column] | None,
    ) -> list[str]:
        """The columns that become fields: the keys, and those that are listed, or all others."""
        if column_list is not None and except_column_list is not None:
            self.wrong.append("column_list and except_column_list are both given: one says it")
        if column_list is not None:
            listed = self.names(column_list, "column_list")
        elif except_column_list is not None:
            left_out = self.names(except_column_list, "except_column_list")
            for name in set(left_out) & set(keys):
                self.wrong.append(f"except_column_list leaves out the key {name}")
            listed = [name for name in self.columns if name not in left_out]
        else:
            listed = self.columns
        return [name for name in self.columns if name in keys or name in listed]

    def keep(self, argument: str, said: Any, *, unless: Any) -> None:
        """Let the call that would do say an argument as it was said, unless that goes without saying."""
        if isinstance(said, Column) or said != unless:
            self._keep(argument, said)

    def _keep(self, argument: str, said: Any) -> None:
        parts = said if isinstance(said, list) else [said]
        if any(isinstance(each, Column) for each in parts):
            self.unsaid.append(argument)  # nobody can write it down
        else:
            self.right[argument] = said

    def _note_meant(self, argument: str, error: AnalysisException, said: str | Column) -> None:
        """Remember an expression with the column that is probably meant in the place of the one it names."""
        name = (error.getMessageParameters() or {}).get("objectName", "").strip("`")
        close = nearest(name, self.columns)
        if not isinstance(said, str) or not name or close is None:
            return
        corrected = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _: close, said)
        # A name of several words was read as an expression.
        for meant in filter(None, (corrected, nearest(said, self.columns))):
            with suppress(AnalysisException):
                kind = self.frame.select(self._parsed(meant).alias("value")).schema["value"].dataType
                self._meant[argument] = meant, kind
                return

    def _keep_meant(self, argument: str, is_fit: Callable[[T.DataType], bool]) -> None:
        """Let the call that would do say what was probably meant, if its type is fit."""
        meant, kind = self._meant.get(argument, ("", None))
        if kind is not None and is_fit(kind):
            self.right[argument] = meant
        else:
            self.unsaid.append(argument)

    def _name(self, said: str | Column) -> str:
        if not isinstance(said, Column):
            return str(said)
        try:
            return self.frame.select(said).columns[0]
        except AnalysisException as error:
            return error.getMessageParameters().get("objectName", str(said)).strip("`")  # type: ignore[union-attr]

    def _parsed(self, text: str) -> Column:
        if text in self.columns:
            return F.col(quoted(text))
        try:
            return F.expr(text)
        except ParseException:
            # One word that SQL keeps for itself is a name that is misspelt.
            if _NAME.fullmatch(text):
                return F.col(quoted(text))
            raise

    def _reason(self, error: AnalysisException, said: str | Column) -> str:
        named = (error.getMessageParameters() or {}).get("objectName")
        if named is None or "UNRESOLVED" not in (error.getCondition() or ""):
            return f"Spark cannot read {said!r} ({str(error).strip().splitlines()[0]})"
        name = named.strip("`")
        return f"{name} is no column{perhaps(name, self.columns)}"

    def _kind(self, name: str) -> T.DataType:
        return self.frame.schema[name].dataType

    def _could_be_key(self, name: str) -> bool:
        return self._can_be_key(name) or self.cells.are_whole(name)

    def _can_be_key(self, name: str) -> bool:
        return not isinstance(self._kind(name), _NO_KEYS) and not is_collated(self._kind(name))
