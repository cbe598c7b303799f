"""Calls without an argument, or with one that there is not, answer as calls with wrong values do."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

import cdckit
from cdckit.errors import CdcError, WrongCall
from cdckit.parts.wrong_calls import with_answers


@with_answers
def merge(changes: object, *, entity: str, keys: list[str], at: datetime | None = None) -> object:
    """A function of which calls are wrong."""
    return changes


CALLED_AS = "It is called as merge(changes, *, entity, keys, at=None)."
MEANT = "A call that would do: merge(changes, entity='e', keys=['id'])"
RIGHT = {"entity": "e", "keys": ["id"]}
CASES: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
    ((1,), {}, "it needs entity and keys", ""),
    ((1,), {"entity": "e", "key": ["id"]}, "it needs keys; key is no argument (is it keys?)", MEANT),
    (
        (1, "e", ["id"]),
        {},
        "it needs entity and keys; it takes 1 of its arguments by their place, and got 3",
        MEANT,
    ),
    (
        (1,),
        {**RIGHT, "att": datetime(2024, 1, 1, tzinfo=UTC)},
        "att is no argument (is it at?)",
        f"{MEANT[:-1]}, at=datetime(2024, 1, 1, tzinfo=UTC))",
    ),
    ((1,), {**RIGHT, "colour": "red"}, "colour is no argument", ""),
    ((1,), {"changes": 1, **RIGHT}, "changes is given twice", MEANT),
    ((), RIGHT, "it needs changes", ""),
]


@pytest.mark.parametrize(("args", "kwargs", "wrong", "meant"), CASES)
def test_a_call_that_does_not_fit_says_what_is_wrong_and_what_would_do(
    args: tuple[Any, ...], kwargs: dict[str, Any], wrong: str, meant: str
) -> None:
    with pytest.raises(TypeError) as error:
        merge(*args, **kwargs)
    assert str(error.value) == f"merge() cannot be called: {wrong}. {CALLED_AS} {meant}".strip()


def test_functions_of_the_library_answer_so() -> None:
    """No table is looked at, so none is needed."""
    for name in ("changes_from", "changes_from_snapshots", "merge", "union_changes", "as_of", "why"):
        with pytest.raises(WrongCall, match=re.escape(f"{name}() cannot be called: it needs ")) as error:
            getattr(cdckit, name)()
        assert isinstance(error.value, CdcError)
    assert merge("a", entity="e", keys=["id"]) == "a"
