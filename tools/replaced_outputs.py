"""
Outputs that are replaced, as nbval is to compare them: by what stands there when the cell has ended.

A board that is drawn anew while a stream runs is one output, and a page keeps its last state.  nbval knows no
output that is replaced: it compares the first state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class LastStates:
    """
    Hands on what a kernel says in the place of *read*: a cell at a time, with its replacements carried out.

    >>> def shown(kind, name, data):
    ...     return {"msg_type": kind, "content": {"data": data, "transient": {"display_id": name}}}
    >>> said = [shown("display_data", "board", "noon"), shown("update_display_data", "board", "one")]
    >>> said += [{"msg_type": "status", "content": {"execution_state": "idle"}}]
    >>> read = LastStates(lambda timeout=None, stream="iopub": said.pop(0))
    >>> [read()["content"].get("data") for _ in range(2)]
    ['one', None]
    """

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._said: deque[Any] = deque()

    def __call__(self, timeout: float | None = None, stream: str = "iopub") -> Any:
        if not self._said:
            self._read_cell(timeout, stream)
        return self._said.popleft()

    def _read_cell(self, timeout: float | None, stream: str) -> None:
        shown: dict[str, Any] = {}
        message: Any = {"msg_type": "", "content": {}}
        # Of a cell that fails nbval itself reads the rest.
        while message["msg_type"] != "error" and message["content"].get("execution_state") != "idle":
            message = self._read(timeout=timeout, stream=stream)
            content = message["content"]
            name = content.get("transient", {}).get("display_id")
            if message["msg_type"] == "update_display_data":
                if name in shown:
                    shown[name]["data"] = content["data"]
                continue
            if name is not None:
                shown[name] = content
            self._said.append(message)
