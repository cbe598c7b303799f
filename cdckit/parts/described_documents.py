"""Documents that say how something is to be done: JSON objects, every fault in them named by its path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from cdckit.errors import CdcError

_Item = TypeVar("_Item")


class InvalidDocument(CdcError, ValueError):
    """A document cannot be followed."""

    def __init__(self, path: str, needed: str, found: object) -> None:
        self.path, self.needed, self.found = path, needed, found
        super().__init__(path, needed, found)

    def __str__(self) -> str:
        return f"{self.path} must be {self.needed}; it is {self.found!r}."

    @classmethod
    def unless(cls, sound: object, path: str, needed: str, found: object) -> None:
        """Raise this error unless it is sound."""
        if not sound:
            raise cls(path, needed, found)


class Described:
    """
    A JSON object of a document, and where in the document it stands.

    Whatever is not as it is needed raises the *error*.  A property that is null is one that is left out.

    Args:
        value: What stands there.
        path: Where.
        known: The properties that it may have; another one would be a rule that silently does not hold.

    >>> Described({"name": "a", "keys": "x, y"}, "$", {"name", "keys"}).names("keys")
    ('x', 'y')
    >>> Described({"nmae": "a"}, "$.queue", {"name"})
    Traceback (most recent call last):
    ...
    cdckit.parts.described_documents.InvalidDocument: $.queue must be an object of name; it is ['nmae'].
    """

    error: type[InvalidDocument] = InvalidDocument

    def __init__(self, value: Any, path: str, known: set[str]) -> None:
        self.value, self.path = value, path
        self.error.unless(isinstance(value, Mapping), path, "an object", value)
        unknown = sorted(set(value) - known)
        self.error.unless(not unknown, path, f"an object of {', '.join(sorted(known))}", unknown)

    def require(self, sound: object, name: str, needed: str, found: object) -> None:
        """Raise the error unless the property of that *name* is sound."""
        self.error.unless(sound, f"{self.path}.{name}", needed, found)

    def _value(self, name: str, needed: str, fits: Callable[[Any], object]) -> Any:
        """A property that may be left out; if it is there, it is as *needed*."""
        found = self.value.get(name)
        self.require(found is None or fits(found), name, needed, found)
        return found

    def text(self, name: str) -> str | None:
        """A text that may be left out."""
        found: str | None = self._value(name, "a text that is not empty", is_name)
        return found

    def needed_text(self, name: str) -> str:
        """A text that may not."""
        self.require(self.text(name), name, "a text that is not empty", None)
        return str(self.text(name))

    def flag(self, name: str) -> bool:
        """True or false; false without it."""
        return bool(self._value(name, "true or false", lambda found: isinstance(found, bool)))

    def number(self, name: str, allowed: range) -> int | None:
        """A whole number that may be left out."""
        needed = f"a whole number from {allowed.start} to {allowed.stop - 1}"
        found: int | None = self._value(name, needed, lambda found: type(found) is int and found in allowed)
        return found

    def config(self, name: str) -> Mapping[str, Any]:
        """An object of anything; empty without it."""
        found = self._value(name, "an object", lambda found: isinstance(found, Mapping))
        return MappingProxyType(dict(found or {}))

    def names(self, name: str) -> tuple[str, ...]:
        """Distinct names, as a list or a text with commas; none without it."""
        found = self.value.get(name)
        listed = [part.strip() for part in found.split(",")] if isinstance(found, str) else found
        if listed is None:
            return ()
        are_names = isinstance(listed, Sequence) and listed and all(map(is_name, listed))
        self.require(are_names, name, "one or more names: a list, or a text with commas", found)
        self.require(len(set(listed)) == len(listed), name, "distinct names", found)
        return tuple(listed)

    def items(self, name: str, of: Callable[[Any, str], _Item]) -> tuple[_Item, ...]:
        """What *of* makes of each of a list that must be there, with something in it, and of its path."""
        found: Any = self.value.get(name)
        is_list = isinstance(found, Sequence) and not isinstance(found, str) and found
        self.require(is_list, name, "a list that is not empty", found)
        return tuple(of(each, f"{self.path}.{name}[{place}]") for place, each in enumerate(found))


def is_name(value: Any) -> bool:
    """Whether it is a text that is not empty."""
    return isinstance(value, str) and value != ""
