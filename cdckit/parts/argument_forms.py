"""Arguments of public functions, checked once, where a function is called, by what its signature says."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial, wraps
from inspect import Parameter, Signature, cleandoc, isfunction, signature
from textwrap import fill
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongCall
from cdckit.parts.arguments import (
    microseconds,
    require_batch,
    require_columns,
    require_flag,
    require_int,
    require_name,
    require_names,
    require_types,
)
from cdckit.parts.near_names import suggest_name
from cdckit.parts.public_calls import UNDER_WAY, PublicCall

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


class Form(NamedTuple):
    """
    What an argument must be.

    Args:
        check: Is given the value and the name of the argument; answers the value that the function works
            with, or raises.
        raises: What the docstring says of that: the errors, a colon, and when, `{}` being the argument.
    """

    check: Callable[[Any, str], Any]
    raises: str

    def or_none(self) -> Form:
        """Let the form be None, too."""
        return self._replace(
            check=lambda value, argument: None if value is None else self.check(value, argument)
        )


def _check_instant(value: Any, argument: str) -> Any:
    microseconds(value, argument)
    return value


def _check_count(value: Any, argument: str) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(None, argument, "a positive whole number", value)
    return value


def _check_above_zero(value: Any, argument: str) -> Any:
    if require_int(value, argument) < 1:
        raise InvalidArgument(None, argument, "a number above 0", value)
    return value


def _check_duration(value: Any, argument: str) -> Any:
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise InvalidArgument(None, argument, "a timedelta that is not negative", value)
    return value


FLAG = Form(require_flag, "InvalidArgument: {} is neither True nor False")
NAME = Form(require_name, "InvalidArgument: {} is no text, or an empty one")
NAMES = Form(require_names, "InvalidArgument: {} is one text")
INT = Form(require_int, "InvalidArgument: {} is no whole number of 32 bits")
ABOVE_ZERO = Form(_check_above_zero, "InvalidArgument: {} is no whole number above 0")
COUNT = Form(_check_count, "InvalidArgument: {} is no positive whole number")
DURATION = Form(_check_duration, "InvalidArgument: {} is no timedelta, or a negative one")
INSTANT = Form(_check_instant, "InvalidArgument: {} is a naive datetime: no instant without its zone")


def one_of(*choices: str) -> Form:
    """One of these texts."""
    *others, last = map(repr, choices)
    needed = f"{', '.join(others)} or {last}"

    def check(value: Any, argument: str) -> Any:
        if value not in choices:
            raise InvalidArgument(None, argument, needed, value)
        return value

    return Form(check, f"InvalidArgument: {{}} is not {needed}")


def instance_of(kind: type, needed: str) -> Form:
    """An instance of a class, which errors call *needed*."""

    def check(value: Any, argument: str) -> Any:
        if not isinstance(value, kind):
            raise InvalidArgument(None, argument, needed, value)
        return value

    return Form(check, f"InvalidArgument: {{}} is no `{kind.__name__}`")


def rows_with(*columns: str, remedy: str | None = None) -> Form:
    """A table of Spark that has these columns; *remedy* says what makes one."""

    def check(frame: Any, argument: str) -> Any:
        require_columns(frame, columns, remedy=remedy)
        return frame

    return Form(
        check,
        f"MissingColumns: {{}} lacks {' or '.join(columns)}"
        if columns
        else "InvalidArgument: {} is no table of Spark",
    )


def rows_of(schema: T.StructType, wrong: str) -> Form:
    """A table of Spark that has these columns in their types; *wrong* says what another table is not."""

    def check(frame: Any, argument: str) -> Any:
        require_types(frame, schema)
        return frame

    return Form(check, f"MissingColumns, WrongColumnType: {wrong}")


def no_stream(instead: str) -> Form:
    """A batch of rows; of a stream, *instead* names the way."""

    def check(frame: Any, argument: str) -> Any:
        require_batch(frame, argument, instead)
        return frame

    return Form(check, "InvalidArgument: {} is a stream")


FOR_EACH_BATCH = no_stream("hand its batches to a function: writeStream.foreachBatch(…)")


def takes(**forms: Form | Sequence[Form]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """
    Decorate a public function, or a method of a public class, with the forms of its arguments.

    Each argument is checked, and replaced by what its form answers; one that is left out is not.  A call that
    leaves out an argument, or has one that there is not, raises `WrongCall`, which says how it is called.
    Errors that the function raises, or what it calls, name it where they name nobody else.  What the forms
    raise is written into the docstring.

    >>> @takes(minutes=INT)
    ... def brew(water: float, *, leaves: int, minutes: int = 3) -> None: ...
    >>> try:
    ...     brew(0.5, leafs=2)
    ... except WrongCall as error:
    ...     print(str(error).replace(". ", ".\\n"))
    brew() cannot be called: it needs leaves; leafs is no argument (is it leaves?).
    It is called as brew(water, *, leaves, minutes=3).
    >>> brew(0.5, leaves=2, minutes="three")
    Traceback (most recent call last):
    ...
    cdckit.errors.InvalidArgument: brew() needs minutes to be a whole number from ...
    """
    every = [
        (name, form)
        for name, listed in forms.items()
        for form in ([listed] if isinstance(listed, Form) else listed)
    ]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called_as = signature(function)
        if unknown := forms.keys() - called_as.parameters:
            raise TypeError(f"{function.__name__} has no argument {', '.join(sorted(unknown))}")

        is_method = next(iter(called_as.parameters), "") == "self"
        # A class is called, not its `__init__`.
        is_class = function.__name__ == "__init__"
        function_name = function.__qualname__.split(".")[-2] if is_class else function.__name__
        given_as = called_as.replace(parameters=[*called_as.parameters.values()][is_method:])
        places = [
            f"*{name}" if parameter.kind is Parameter.VAR_POSITIONAL else name
            for name, parameter in given_as.parameters.items()
        ]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            given = args[is_method:]
            owner = _name_owner(args[0]) if args and is_method and not is_class else ""
            written = owner + function_name
            try:
                bound = called_as.bind(*args, **kwargs)
            except TypeError:
                raise _wrong_call(function_name, written, given_as, given, kwargs) from None
            by_place = dict(zip(places, given, strict=False))
            call = UNDER_WAY.set(PublicCall(function_name, by_place, kwargs, written))
            try:
                for argument, form in every:
                    if argument in bound.arguments:
                        bound.arguments[argument] = form.check(bound.arguments[argument], argument)
                return function(*bound.args, **bound.kwargs)
            finally:
                UNDER_WAY.reset(call)

        checked.__doc__ = _with_raises(function.__doc__, every)
        vars(checked)["is_checked"] = True
        return checked

    return decorate


def checked_calls(of_class: type[C]) -> type[C]:
    """
    Decorate the public methods of a class, and its `__init__`, by `takes`, if they are not yet.

    >>> @checked_calls
    ... class Kettle:
    ...     def boil(self, *, litres: float) -> None: ...
    >>> try:
    ...     Kettle().boil(liters=1)
    ... except WrongCall as error:
    ...     print(error.called_as)
    kettle.boil(*, litres)
    """
    for name, member in list(vars(of_class).items()):
        is_public = isfunction(member) and (name == "__init__" or not name.startswith("_"))
        if is_public and "is_checked" not in vars(member):
            setattr(of_class, name, takes()(member))
    return of_class


def _name_owner(owner: object) -> str:
    """What stands before a method in a call."""
    return f"{getattr(owner, '_in_calls', type(owner).__name__.lower())}."


def _with_raises(docstring: str | None, forms: Sequence[tuple[str, Form]]) -> str | None:
    """The docstring, with what the forms raise before what the function raises itself."""
    entries: dict[str, list[str]] = {}
    for name, form in forms:
        errors, _, reason = form.raises.partition(": ")
        entries.setdefault(errors, []).append(reason.format(f"*{name}*"))
    if docstring is None or not entries:
        return docstring
    wrap = partial(fill, width=100, initial_indent=" " * 4, subsequent_indent=" " * 8)
    lines = "".join(wrap(f"{errors}: {'; '.join(reasons)}.") + "\n" for errors, reasons in entries.items())
    text = cleandoc(docstring)
    if "\nRaises:\n" in text:
        return text.replace("\nRaises:\n", f"\nRaises:\n{lines}", 1)
    place = re.search(r"^(Cost:|Source:|>>> )", text, re.MULTILINE)
    end = place.start() if place else len(text) + 2
    return f"{text[:end].rstrip()}\n\nRaises:\n{lines}\n{text[end:]}"


def _wrong_call(
    function: str, written: str, called_as: Signature, args: Sequence[object], kwargs: Collection[str]
) -> WrongCall:
    """The error about a call of a *function*, which a program has *written* so."""
    parameters, several = called_as.parameters, (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    single = [name for name, parameter in parameters.items() if parameter.kind not in several]
    by_place = [name for name in single if parameters[name].kind is Parameter.POSITIONAL_OR_KEYWORD]
    placed = by_place[: len(args)]
    others = [name for name in single if name not in placed]
    needed = [name for name in others if parameters[name].default is Parameter.empty and name not in kwargs]
    wrong = [f"it needs {' and '.join(needed)}"] if needed else []
    if len(args) > len(placed):
        wrong.append(f"it takes {len(placed)} of its arguments by their place, and got {len(args)}")
    wrong += [f"{name} is given twice" for name in kwargs if name in placed]
    wrong += [f"{name} is no argument{suggest_name(name, others)}" for name in kwargs if name not in single]
    shown = Signature([_without_types(parameter) for parameter in parameters.values()])
    return WrongCall(function, wrong, f"{written}{shown}")


class _Name(str):
    """A name that stands in a signature as it is."""

    __repr__ = str.__str__


def _without_types(parameter: Parameter) -> Parameter:
    """A parameter as a reader needs it: without its type, a function as its default by its name."""
    default = parameter.default
    if isfunction(default):
        default = _Name(default.__name__)
    return parameter.replace(annotation=Parameter.empty, default=default)
