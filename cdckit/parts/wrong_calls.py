"""Calls that leave out an argument, or name one that there is not: told as a wrong value is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from cdckit.errors import WrongCall
from cdckit.parts.arguments import nearest_name, suggest_name
from cdckit.parts.instants import instant_literal

P = ParamSpec("P")
R = TypeVar("R")


def with_answers(function: Callable[P, R]) -> Callable[P, R]:
    """
    Wrap a function: a call that does not fit its arguments raises `WrongCall`, with what would.

    >>> @with_answers
    ... def brew(water: float, *, leaves: int, minutes: int = 3) -> None: ...
    >>> try:
    ...     brew(0.5, leafs=2)
    ... except WrongCall as error:
    ...     print(str(error).replace(". ", ".\\n"))
    brew() cannot be called: it needs leaves; leafs is no argument (is it leaves?).
    It is called as brew(water, *, leaves, minutes=3).
    A call that would do: brew(water, leaves=2)
    """
    called_as = signature(function)

    @wraps(function)
    def answering(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            called_as.bind(*args, **kwargs)
        except TypeError:
            raise _wrong_call(function.__name__, called_as, args, kwargs) from None
        return function(*args, **kwargs)

    return answering


def _wrong_call(
    function: str, called_as: Signature, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> WrongCall:
    parameters = called_as.parameters
    by_place = [
        parameter.name
        for parameter in parameters.values()
        if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    placed, others = by_place[: len(args)], [name for name in parameters if name not in by_place[: len(args)]]
    needed = [name for name in others if _is_needed(parameters[name]) and name not in kwargs]
    wrong = [f"it needs {' and '.join(needed)}"] if needed else []
    values = dict(kwargs)
    if len(args) > len(placed):
        wrong.append(f"it takes {len(placed)} of its arguments by their place, and got {len(args)}")
        free = [name for name in others if name not in kwargs]
        values |= dict(zip(free, args[len(placed) :], strict=False))
    for name in kwargs:
        if name in placed:
            wrong.append(f"{name} is given twice")
            del values[name]
        elif name not in parameters:
            wrong.append(f"{name} is no argument{suggest_name(name, others)}")
            near = nearest_name(name, [name for name in others if name not in kwargs])
            value = values.pop(name)
            if near is not None:
                values[near] = value
    is_mended = len(values) + len(placed) >= len({*kwargs, *placed}) and not set(needed) - set(values)
    named = [f"{name}={_literal(name, value)}" for name, value in values.items()]
    plain = [parameter.replace(annotation=Parameter.empty) for parameter in parameters.values()]
    shown = Signature(plain)
    example = f"{function}({', '.join([*placed, *named])})" if is_mended else None
    return WrongCall(function, wrong, f"{function}{shown}", example)


def _is_needed(parameter: Parameter) -> bool:
    is_one = parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return is_one and parameter.default is Parameter.empty


def _literal(name: str, value: Any) -> str:
    """A value as a program says it, the name of the argument where nobody would write the value down."""
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return instant_literal(value)
    return repr(value) if isinstance(value, str | int | float | list | tuple | dict | None) else name
