"""Writers that end at a certain step."""

from __future__ import annotations

from typing import Any

import pytest


class Died(BaseException):
    """The end of a writer, at a certain step."""


def dies_at(monkeypatch: pytest.MonkeyPatch, where: Any, what: str, after: int) -> None:
    """Let a function end its writer when it is called for the next time after so many."""
    calls: list[str] = []
    real = getattr(where, what)

    def ends(*given: Any, **named: Any) -> Any:
        if len(calls) == after:
            raise Died
        calls.append(what)
        return real(*given, **named)

    monkeypatch.setattr(where, what, ends)
