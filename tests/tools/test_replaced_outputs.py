"""What nbval compares of an output that is replaced: its last state, in its first place."""

from __future__ import annotations

from queue import Empty
from typing import Any

import pytest

from tools.replaced_outputs import LastStates

IDLE = {"msg_type": "status", "content": {"execution_state": "idle"}}


def shown(data: str, name: str | None = None, kind: str = "display_data") -> Any:
    """What a kernel says of an output; one that can be replaced has a name."""
    transient = {} if name is None else {"display_id": name}
    return {"msg_type": kind, "content": {"data": {"text/plain": data}, "transient": transient}}


def replaced(data: str, name: str) -> Any:
    return shown(data, name, "update_display_data")


def outputs(*said: Any) -> list[str]:
    """The outputs that are read of what a kernel says."""
    messages = iter(said)
    read = LastStates(lambda timeout, stream: next(messages))
    found = []
    while (message := read())["msg_type"] != "status":
        found.append(message["content"]["data"]["text/plain"])
    return found


def test_the_last_state_stands_in_the_first_place() -> None:
    board = [shown("nine", "board"), shown("beside"), replaced("noon", "board"), replaced("three", "board")]
    assert outputs(*board, IDLE) == ["three", "beside"]


def test_each_name_has_its_own_state() -> None:
    said = [shown("a", "one"), shown("b", "two"), replaced("c", "two"), replaced("d", "unknown")]
    assert outputs(*said, IDLE) == ["a", "c"]


def test_the_next_cell_is_another_one() -> None:
    """A name is known in its cell alone, as for nbval a cell's outputs end with it."""
    messages = iter([shown("a", "one"), IDLE, replaced("b", "one"), shown("c"), IDLE])
    read = LastStates(lambda timeout, stream: next(messages))
    said = [read()["content"] for _ in range(4)]
    assert [each["data"]["text/plain"] for each in said if "data" in each] == ["a", "c"]


def test_what_comes_after_an_error_is_left_to_nbval() -> None:
    """It waits by itself for the end of a cell that failed."""
    messages = iter([shown("a"), {"msg_type": "error", "content": {"ename": "KeyError"}}, IDLE])
    read = LastStates(lambda timeout, stream: next(messages))
    assert [read()["msg_type"], read()["msg_type"]] == ["display_data", "error"]
    assert next(messages) == IDLE


def test_a_kernel_that_says_nothing_more_is_told_of() -> None:
    def silent(timeout: float | None, stream: str) -> Any:
        raise Empty

    with pytest.raises(Empty):
        LastStates(silent)(timeout=1)
