"""What a caller did wrong, as exceptions that carry the facts.

In a door bad *data* never raises: it becomes a reject (see `cdckit.rejects`).  What raises is a call that
cannot mean anything: a column that is not there, an argument that is not of the needed form.  Behind the
doors, data that break what a function needs of them end the job that reads them: changes without an
instant in `merge`, versions that overlap in `as_of_join`.

A *function* of None is the public one that is being called (`cdckit.parts.argument_forms.takes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, dataclass_transform

from cdckit.parts.public_calls import called_function

__all__ = [
    "CdcError",
    "InvalidArgument",
    "MissingColumns",
    "MissingExtra",
    "UnfitList",
    "WrongCall",
    "WrongColumnType",
]


class CdcError(Exception):
    """The base of every error that cdckit raises itself."""


@dataclass_transform(eq_default=False)
class ErrorWithFacts(CdcError):
    """
    The base of an error whose text is one sentence: its fields are the facts, and `{field}` names one in it.

    What a class computes for its text, such as the names of a list, needs a `__str__` of its own.
    """

    sentence: ClassVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        super().__init__(*vars(self).values())

    def __str__(self) -> str:
        return self.sentence.format(**vars(self))


class MissingColumns(CdcError, ValueError):
    """
    A DataFrame lacks columns that the called function reads.

    *remedy*, where there is one, is a sentence that says what makes them.
    """

    def __init__(
        self, function: str | None, missing: Iterable[str], found: Iterable[str], remedy: str | None = None
    ) -> None:
        self.function, self.missing, self.found = called_function(function), tuple(missing), tuple(found)
        self.remedy = remedy
        super().__init__(self.function, self.missing, self.found, remedy)

    def __str__(self) -> str:
        sentence = (
            f"{self.function}() needs the columns {', '.join(self.missing)}; "
            f"the DataFrame has {', '.join(self.found) or 'none'}."
        )
        return sentence if self.remedy is None else f"{sentence} {self.remedy}"


class WrongColumnType(CdcError, TypeError):
    """A column is there, but is not of the type that the called function reads; *remedy* says what to do."""

    def __init__(
        self, function: str | None, column: str, needed: str, found: str, remedy: str | None = None
    ) -> None:
        self.function, self.column, self.needed, self.found = called_function(function), column, needed, found
        self.remedy = remedy
        super().__init__(self.function, column, needed, found, remedy)

    def __str__(self) -> str:
        sentence = f"{self.function}() needs the column {self.column} as {self.needed}; it is {self.found}."
        return sentence if self.remedy is None else f"{sentence} {self.remedy}"


class InvalidArgument(CdcError, ValueError):
    """
    An argument is not of the form that the called function needs.

    *example*, where there is one, is a call that would do, made of what the caller said; *remedy* a sentence
    that says what to do, or what was probably meant.
    """

    def __init__(
        self,
        function: str | None,
        argument: str,
        needed: str,
        found: object,
        example: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.function, self.argument, self.needed, self.found = (
            called_function(function),
            argument,
            needed,
            found,
        )
        self.example, self.remedy = example, remedy
        super().__init__(self.function, argument, needed, found, example, remedy)

    def __str__(self) -> str:
        sentence = f"{self.function}() needs {self.argument} to be {self.needed}; it is {self.found!r}."
        if self.remedy is not None:
            sentence = f"{sentence} {self.remedy}"
        return sentence if self.example is None else f"{sentence} A call that would do: {self.example}"


class WrongCall(CdcError, TypeError):
    """
    A call leaves out an argument, or has one that the function has not; *called_as* is how it is called.
    """

    def __init__(self, function: str, wrong: Iterable[str], called_as: str) -> None:
        self.function, self.wrong, self.called_as = function, tuple(wrong), called_as
        super().__init__(function, self.wrong, called_as)

    def __str__(self) -> str:
        wrong = "; ".join(self.wrong)
        return f"{self.function}() cannot be called: {wrong}. It is called as {self.called_as}."


class UnfitList(CdcError, ValueError):
    """A full list of a source cannot be taken, or taken back; *remedy* says what to do."""

    def __init__(self, function: str, source: str | None, taken: datetime, reason: str, remedy: str) -> None:
        self.function, self.source, self.taken_at = function, source, taken
        self.reason, self.remedy = reason, remedy
        super().__init__(function, source, taken, reason, remedy)

    def __str__(self) -> str:
        which = f"the list of {self.source!r} taken at {self.taken_at.isoformat()}"
        return f"{self.function}() refuses {which}: {self.reason}. {self.remedy}"


class MissingExtra(ErrorWithFacts, ImportError):
    """A part of cdckit needs a package that only one of its extras brings."""

    part: str
    package: str
    extra: str
    sentence = (
        "{part} needs {package}, which the extra `{extra}` brings: "
        "pip install 'cdckit[{extra}]', then restart the kernel."
    )
