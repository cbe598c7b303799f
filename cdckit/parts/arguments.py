"""What questions have in common: instants, fields, names and flags, checked when a function is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Integral

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.parts import instants
from cdckit.parts.suggestions import perhaps_each

Call = Callable[[str], str]
"""The call that a function was asked by, given how an instant of it would be said."""


def require_instant(at: datetime, argument: str, *, function: str, call: Call | None = None) -> Column:
    """
    The instant as a column; raises `InvalidArgument` for a naive datetime: no instant without its zone.

    *call* writes the example of the error: by default, one in which *argument* is all there is.
    """
    return F.timestamp_micros(F.lit(microseconds(at, argument, function=function, call=call)))


def microseconds(at: datetime, argument: str, *, function: str, call: Call | None = None) -> int:
    """
    The instant as microseconds since 1970.

    Not by Spark's own literal, which counts instants before 1582 by another calendar.
    """
    if not instants.is_datetime(at) or at.utcoffset() is None:
        needed, example = "an aware datetime (one with tzinfo)", None
        if call is not None or argument.isidentifier():
            said = instants.written(at)
            written = f"{function}({argument}={said})" if call is None else call(said)
            example = f"{written}  # or in another zone"
        raise InvalidArgument(function, argument, needed, at, example)
    return instants.microseconds(at)


def require_period(start: datetime, end: datetime | None, *, function: str) -> tuple[Column, Column]:
    """Start and end of a half-open period as columns; an end of None is open, a null column."""

    def call(_: str) -> str:
        until = None if end is None else instants.written(end)
        return f"{function}(history, {instants.written(start)}, {until})"

    first = require_instant(start, "start", function=function, call=call)
    if end is None:
        return first, F.lit(None).cast("timestamp")
    last = require_instant(end, "end", function=function, call=call)
    # In UTC: Python compares two instants of one zone by their wall clocks, even in an hour that comes twice.
    if end.astimezone(UTC) <= start.astimezone(UTC):
        raise InvalidArgument(function, "end", f"after start, {start.isoformat()}", end.isoformat())
    return first, last


def require_fields(fields: Iterable[str], known: Sequence[str], argument: str, *, function: str) -> list[str]:
    """The fields as a list; raises `InvalidArgument` for none, for one twice, for one that is not known."""
    found = [fields] if isinstance(fields, str) else list(fields)
    if not found or set(found) - set(known) or len(set(found)) != len(found):
        needed = f"one or more fields among {', '.join(known)}"
        raise InvalidArgument(function, argument, needed, found, remedy=perhaps_each(found, known))
    return found


def both_sides(on: str | Iterable[str] | Mapping[str, str]) -> tuple[list[str], list[str]]:
    """
    The columns of one table and those of another that are equal to them, in their order.

    Without a mapping from these to those, a name, or each of several, stands for a column of both.
    """
    if isinstance(on, Mapping):
        return list(on), list(on.values())
    names = [on] if isinstance(on, str) else list(on)
    return names, names


def require_keys(keys: Sequence[str], known: Sequence[str], *, function: str) -> list[str]:
    """
    The key fields as a list; raises `InvalidArgument` for a text, for none, for one twice or not known.

    Also for a set: a guid is made of the key fields in their order.
    """
    listed = list(keys) if isinstance(keys, Sequence) and not isinstance(keys, str) else []
    if not listed or [name for name in listed if name not in known] or len(set(listed)) != len(listed):
        needed = f"a list of distinct fields among {', '.join(known)}"
        close = f"Say keys={[keys]!r}." if keys in known else perhaps_each(listed or [keys], known)
        raise InvalidArgument(function, "keys", needed, keys, remedy=close)
    return listed


def require_name(name: str, argument: str, *, function: str) -> str:
    """The name itself; raises `InvalidArgument` for what is no text, and for the empty one."""
    if not isinstance(name, str) or not name:
        raise InvalidArgument(function, argument, "a name: a text that is not empty", name)
    return name


class StreamBatch(str):
    """The id of a batch of a stream, which Spark counts: only the last one can come a second time."""

    stream: str
    number: int

    def __new__(cls, stream: str, number: int) -> StreamBatch:
        """The id of one batch, of the stream's name and the number."""
        made = super().__new__(cls, f"{stream}:{number}")
        made.stream, made.number = stream, number
        return made

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return self.stream, self.number


def require_batch_id(batch: str | int | None, *, function: str) -> str | None:
    """The id of a batch as text, None for no batch; raises `InvalidArgument` for an empty text."""
    if batch is None or (isinstance(batch, str | int) and not isinstance(batch, bool) and batch != ""):
        return str(batch) if isinstance(batch, int) else batch
    raise InvalidArgument(function, "batch", "a text or a number", batch)


def require_flag(flag: bool, argument: str, *, function: str) -> bool:
    """The flag itself; raises `InvalidArgument` for all but True and False: "no" would count as yes."""
    if not isinstance(flag, bool):
        raise InvalidArgument(function, argument, "True or False", flag)
    return flag


def require_int(number: int, argument: str, *, function: str, example: str | None = None) -> int:
    """The number itself; raises `InvalidArgument` for what a column of the type int cannot hold."""
    if not isinstance(number, Integral) or isinstance(number, bool) or int(number) not in _INTS:
        needed = f"a whole number from {_INTS[0]} to {_INTS[-1]}"
        raise InvalidArgument(function, argument, needed, number, example)
    return int(number)


_INTS = range(-(2**31), 2**31)


def require_instants(frame: DataFrame, at: Column, argument: str, *, function: str) -> Column:
    """*at* itself; raises `WrongColumnType` unless it is a column of timestamps over *frame*."""
    found = frame.select(at.alias("at")).schema["at"].dataType
    if not isinstance(found, T.TimestampType):
        raise WrongColumnType(function, argument, "timestamp", found.simpleString())
    return at
