"""What was probably meant: the nearest of the names that there are, and the call that would do with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from cdckit.errors import CdcError
from cdckit.parts import instants


class UnfitCall(CdcError, ValueError):
    """All that is wrong with a call about a table, and one that would do; its kinds have their own words."""

    cannot: ClassVar[str]
    """What the function cannot do."""
    what: ClassVar[str]
    """What was given."""

    def __init__(
        self,
        function: str,
        wrong: Sequence[str],
        found: Sequence[str],
        example: str,
        unsaid: Sequence[str] = (),
    ) -> None:
        self.function, self.wrong, self.found = function, tuple(wrong), tuple(found)
        self.example, self.unsaid = example, tuple(unsaid)
        super().__init__(function, self.wrong, self.found, example, self.unsaid)

    def __str__(self) -> str:
        return (
            f"{self.function}() {self.cannot}: {'; '.join(self.wrong)}. "
            f"The {self.what} has {', '.join(self.found) or 'no columns'}. "
            f"{that_would_do(self.example, self.unsaid)}"
        )


class Meant(NamedTuple):
    """Names as they were probably meant, each once, and whether each of them was like one that there is."""

    names: list[str]
    whole: bool


def nearest(name: object, known: Iterable[str]) -> str | None:
    """
    The one of the *known* names that is most like *name*, upper and lower case being alike, if one is.

    >>> nearest("Nmae", ["number", "name"]), nearest("colour", ["number", "name"])
    ('name', None)
    """
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def perhaps(name: object, known: Iterable[str]) -> str:
    """The question that follows a name that is unknown; nothing where no name is like it."""
    close = nearest(name, known)
    return "" if close is None else f" (is it {close}?)"


def perhaps_each(names: Iterable[object], known: Sequence[str]) -> str | None:
    """The question for all names that are unknown, as a sentence; None where no name is like one of them."""
    near = {str(name): nearest(name, known) for name in names if name not in known}
    asked = [f"{close} for {name}" for name, close in near.items() if close is not None]
    return f"Is it {' and '.join(asked)}?" if asked else None


def as_meant(names: Iterable[str], known: Sequence[str]) -> Meant:
    """
    The names, an unknown one as the one that is nearest to it; what is like none is left out, and told.

    >>> as_meant(["number", "nmae"], ["number", "name"])
    Meant(names=['number', 'name'], whole=True)
    """
    meant = [name if name in known else nearest(name, known) for name in names]
    return Meant(list(dict.fromkeys(each for each in meant if each is not None)), None not in meant)


def said_again(arguments: Mapping[str, Any]) -> str:
    """Arguments by name, as they stand in a call behind its first one."""
    return "".join(f", {name}={written(value)}" for name, value in arguments.items())


def written(value: Any) -> str:
    """A value as a program says it; an instant in UTC."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return instants.written(value)
    return repr(value).removeprefix("datetime.")


def that_would_do(example: str, unsaid: Iterable[str] = ()) -> str:
    """The last sentence of an error: a call that would do, and which arguments of it nobody else can say."""
    missing = list(dict.fromkeys(unsaid))
    if not missing:
        return f"A call that would do: {example}"
    said = f"in which {' and '.join(missing)} must still be said as you mean it"
    return f"A call that would run, {said}: {example}"
