"""The call of a public function that is under way: its name for errors, and how it could be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

from cdckit.parts.instants import instant_literal, is_datetime

UNDER_WAY: ContextVar[PublicCall | None] = ContextVar("the public call under way", default=None)
"""The innermost call of a function that `takes` decorates; what it calls raises errors in its name."""


class PublicCall(NamedTuple):
    """
    A call of a public *function*, with its arguments by their place and by their name.

    *written_as* is how a program names it, such as `ledger.apply`.
    """

    function: str
    by_place: Mapping[str, object]
    by_name: Mapping[str, object]
    written_as: str

    def written(self, values: Mapping[str, str]) -> str:
        """The call as a program has it, with other *values*, as they are written, for some arguments."""
        placed = [values.get(name) or literal(name, value) for name, value in self.by_place.items()]
        named = (f"{name}={values.get(name) or literal(name, value)}" for name, value in self.by_name.items())
        return f"{self.written_as}({', '.join([*placed, *named])})"


def called_function(function: str | None = None) -> str:
    """The function that errors name: *function* where it is said, else the one of the call under way."""
    call = UNDER_WAY.get()
    return function or (call.function if call is not None else "cdckit")


@contextmanager
def called(function: str) -> Iterator[None]:
    """Let errors name *function*: for what is public and no function, such as an attribute."""
    token = UNDER_WAY.set(PublicCall(function, {}, {}, function))
    try:
        yield
    finally:
        UNDER_WAY.reset(token)


def called_or(function: str) -> AbstractContextManager[None]:
    """Let errors name *function* where no call of another one is under way: for what is its inside, too."""
    return called(function) if UNDER_WAY.get() is None else nullcontext()


def literal(name: str, value: object) -> str:
    """A value as a program says it, the name of the argument where nobody would write the value down."""
    if is_datetime(value):
        return instant_literal(value)
    return repr(value) if isinstance(value, str | int | float | list | tuple | dict | None) else name
