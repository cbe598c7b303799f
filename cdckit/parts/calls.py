"""Calls about a table, looked up in it: all that is wrong is said at once, with the names that are near."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from inspect import signature
from typing import Any, ClassVar

from pyspark.sql import Column

from cdckit.errors import CdcError
from cdckit.parts import instants
from cdckit.parts.arguments import nearest_name, suggest_name


class UnfitCall(CdcError, ValueError):
    """
    All that is wrong with a call about a table; its kinds have their own words.

    *example* is the call with all of that mended, None where only the caller can know what was meant.
    """

    cannot: ClassVar[str]
    """What the function cannot do."""
    what: ClassVar[str]
    """What was given."""

    def __init__(
        self, function: str, wrong: Sequence[str], found: Sequence[str], example: str | None = None
    ) -> None:
        self.function, self.wrong, self.found, self.example = function, tuple(wrong), tuple(found), example
        super().__init__(function, self.wrong, self.found, example)

    def __str__(self) -> str:
        said = (
            f"{self.function}() {self.cannot}: {'; '.join(self.wrong)}. "
            f"The {self.what} has {', '.join(self.found) or 'no columns'}."
        )
        return said if self.example is None else f"{said} A call that would do: {self.example}"


class Call:
    """
    A call of *function* about the table in its argument *first*.

    *said* are its other arguments by name, but for those that go without saying.
    """

    unfit: ClassVar[type[UnfitCall]]
    kind: ClassVar[str]
    """What a name stands for: a column, or a field."""

    def __init__(self, function: str, first: str, said: Mapping[str, Any]) -> None:
        self.function, self.first, self.said = function, first, dict(said)
        self.wrong: list[str] = []
        self._is_mended = True

    def refuse(self, sentence: str, *, is_mended: bool = False) -> None:
        """Note what is wrong, and whether what is said by now is right."""
        self.wrong.append(sentence)
        self._is_mended &= is_mended

    def names(self, named: Sequence[str], argument: str, known: Sequence[str]) -> list[str]:
        """The names that are known, each once, a misspelt one as the one that is near."""
        found = []
        for name in named:
            near = name if name in known else nearest_name(name, known)
            if near != name:
                sentence = f"{argument} names {name}, which is no {self.kind}{suggest_name(name, known)}"
                self.refuse(sentence, is_mended=near is not None)
            if near is not None:
                found.append(near)
        if len(set(named)) < len(named):
            sentence = f"{argument} names a {self.kind} twice: {', '.join(named)}"
            self.refuse(sentence, is_mended=True)
        self.said[argument] = list(dict.fromkeys(found))
        return list(self.said[argument])

    def require_sound(self, found: Iterable[str]) -> None:
        """Raise with all that was found wrong, if anything was; *found* are the columns that there are."""
        if self.wrong:
            raise self.unfit(self.function, self.wrong, list(found), self._example())

    def _example(self) -> str | None:
        values = list(self.said.values())
        parts = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
        # What is a column, nobody can write down.
        if not self._is_mended or any(isinstance(part, Column) for part in parts):
            return None
        said = "".join(f", {name}={_literal_text(value)}" for name, value in self.said.items())
        return f"{self.function}({self.first}{said})"


def stated_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, without the first one and those that go without saying."""
    _, *others = signature(function).parameters.values()
    given = {each.name: (arguments[each.name], each.default) for each in others}
    return {
        name: value
        for name, (value, default) in given.items()
        if isinstance(value, Column) or value != default
    }


def _literal_text(value: Any) -> str:
    """A value as a program says it; an instant in UTC."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return instants.instant_literal(value)
    return repr(value).removeprefix("datetime.")
