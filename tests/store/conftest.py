"""What the tests of the store share: a store without Spark, and small tables for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdckit.parts import at_home
from cdckit.store import Store


@pytest.fixture(autouse=True)
def _all_is_read_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of tests are small, and would be read without it; and written, which workers do here."""
    monkeypatch.setattr(at_home, "READ_ROWS", 0)
    monkeypatch.setattr(at_home, "WORK_BYTES", -1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a store will be."""
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Store:
    """An empty store that needs no Spark."""
    return Store(None, place)
