"""Checkpoints: where they are kept, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdckit import databus
from cdckit.errors import InvalidArgument


def test_a_file_that_is_not_there_is_a_consumer_that_begins_anywhere(tmp_path: Path) -> None:
    file = databus.CheckpointFile(tmp_path / "new" / "checkpoint")
    assert file.load() == -1
    file.store(7)
    assert file.load() == 7
    assert [path.name for path in file.path.parent.iterdir()] == ["checkpoint"]


def test_what_is_no_checkpoint_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a window")
    with pytest.raises(InvalidArgument, match="the SCN of a window, a whole number"):
        databus.CheckpointFile(tmp_path / "checkpoint").load()
