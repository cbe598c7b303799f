"""Calls without an argument, or with one that there is not, answer as calls with wrong values do."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

import cdckit
from cdckit.errors import CdcError, InvalidArgument, WrongCall
from cdckit.parts.argument_forms import FLAG, INSTANT, INT, takes
from cdckit.parts.arguments import microseconds, wrong_argument
from cdckit.parts.public_calls import called_function


@takes()
def merge(changes: object, *, entity: str, keys: list[str], at: datetime | None = None) -> object:
    """A function of which calls are wrong."""
    return changes


CALLED_AS = "It is called as merge(changes, *, entity, keys, at=None)."
RIGHT = {"entity": "e", "keys": ["id"]}
CASES: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((1,), {}, "it needs entity and keys"),
    ((1,), {"entity": "e", "key": ["id"]}, "it needs keys; key is no argument (is it keys?)"),
    ((1, "e", ["id"]), {}, "it needs entity and keys; it takes 1 of its arguments by their place, and got 3"),
    ((1,), {**RIGHT, "att": datetime(2024, 1, 1, tzinfo=UTC)}, "att is no argument (is it at?)"),
    ((1,), {**RIGHT, "colour": "red"}, "colour is no argument"),
    ((1,), {"changes": 1, **RIGHT}, "changes is given twice"),
    ((), RIGHT, "it needs changes"),
]


@pytest.mark.parametrize(("args", "kwargs", "wrong"), CASES)
def test_a_call_that_does_not_fit_says_what_is_wrong_and_how_it_is_called(
    args: tuple[Any, ...], kwargs: dict[str, Any], wrong: str
) -> None:
    with pytest.raises(TypeError) as error:
        merge(*args, **kwargs)
    assert str(error.value) == f"merge() cannot be called: {wrong}. {CALLED_AS}"


@takes(number=INT, at=INSTANT.or_none(), loud=FLAG)
def ring(number: int = "many", *, at: datetime | None = None, loud: bool = False) -> int:  # type: ignore[assignment]
    """
    Ring a bell.

    Cost: none.
    """
    if loud:
        with pytest.raises(InvalidArgument, match=r"^answer\(\) needs number"):
            answer("no number")
    if number == 0:
        raise wrong_argument("number", "more than nothing", number)
    return number


@takes(number=INT)
def answer(number: Any) -> None:
    """Called as another function is: the innermost is named."""


def test_an_argument_is_checked_where_it_is_given() -> None:
    """A default is the function's own affair."""
    assert (ring(), ring(3), ring(3, at=None)) == ("many", 3, 3)
    with pytest.raises(InvalidArgument, match=r"^ring\(\) needs number to be a whole number from"):
        ring("3")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^ring\(\) needs loud to be True or False"):
        ring(3, loud="yes")  # type: ignore[arg-type]


def test_an_error_names_the_innermost_function_that_is_called() -> None:
    """And the outer one again, once that has returned or raised; outside of all calls, the library."""
    with pytest.raises(InvalidArgument, match=r"^ring\(\) needs number to be more than nothing"):
        ring(0, loud=True)
    assert called_function() == "cdckit"
    assert called_function("expire") == "expire"


def test_an_instant_without_a_zone_is_shown_within_the_call_that_had_it() -> None:
    with pytest.raises(InvalidArgument) as refused:
        ring(3, at=datetime(2024, 1, 1), loud=False)
    assert refused.value.example == (
        "ring(3, at=datetime(2024, 1, 1, tzinfo=UTC), loud=False)  # or in another zone"
    )


@takes()
def toll(bells: list[datetime]) -> None:
    """Ring several."""
    for bell in bells:
        microseconds(bell, "bells")


def test_an_instant_among_several_is_shown_without_a_call() -> None:
    """No call that would do can be written of it alone."""
    with pytest.raises(InvalidArgument, match=r"^toll\(\) needs bells to be an aware datetime") as refused:
        toll([datetime(2024, 1, 1)])
    assert refused.value.example is None


def test_a_form_of_no_argument_is_refused_where_the_function_is_defined() -> None:
    """Such as of one that has another name by now."""
    with pytest.raises(TypeError, match="toll has no argument bell"):
        takes(bell=INT)(toll)


def test_what_the_forms_raise_stands_in_the_docstring() -> None:
    assert ring.__doc__ == (
        "Ring a bell.\n\nRaises:\n"
        "    InvalidArgument: *number* is no whole number of 32 bits; *at* is a naive datetime: no instant\n"
        "        without its zone; *loud* is neither True nor False.\n\nCost: none."
    )


def test_functions_of_the_library_answer_so() -> None:
    """No table is looked at, so none is needed."""
    for name in ("changes_from", "changes_from_snapshots", "merge", "union_changes", "as_of", "why"):
        with pytest.raises(WrongCall, match=re.escape(f"{name}() cannot be called: it needs ")) as error:
            getattr(cdckit, name)()
        assert isinstance(error.value, CdcError)
    assert merge("a", entity="e", keys=["id"]) == "a"
