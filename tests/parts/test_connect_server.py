"""A server of Spark Connect whose Python has no cdckit is refused before anything is sent to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from cdckit.parts.workers import NoPackageOnServer, require_package_on_server


class ConnectSession:
    """As much of a session as is asked: its workers are this program."""

    def __init__(self, session_id: str) -> None:
        self.session_id, self.jobs = session_id, 0

    def range(self, count: int) -> ConnectSession:
        return self

    def mapInArrow(self, function: Callable[..., Any], columns: str) -> ConnectSession:  # noqa: N802 - as PySpark names it
        self._function = function
        return self

    def collect(self) -> list[dict[str, Any]]:
        self.jobs += 1
        return pa.Table.from_batches(self._function([pa.record_batch({"id": [0]})])).to_pylist()


def test_a_server_without_the_package_is_refused_and_one_with_it_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ConnectSession("with")
    require_package_on_server(server)
    require_package_on_server(server)
    assert server.jobs == 1
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for _ in range(2):
        with pytest.raises(NoPackageOnServer, match=r"need cdckit, and their Python has none .*python"):
            require_package_on_server(ConnectSession("without"))
    require_package_on_server(object())
