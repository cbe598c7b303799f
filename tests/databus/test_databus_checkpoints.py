"""Checkpoints and filters: their texts, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdckit import databus
from cdckit.errors import InvalidArgument

CASES = Path(__file__).parents[1] / "cases/databus"
CHECKPOINTS = json.loads((CASES / "checkpoints.json").read_text())["cases"]
FILTERS = json.loads((CASES / "filters.json").read_text())["cases"]


@pytest.mark.parametrize("case", CHECKPOINTS, ids=[case["name"] for case in CHECKPOINTS])
def test_checkpoint_case(case: dict[str, Any]) -> None:
    text = json.dumps(case["checkpoint"])
    if "error" in case:
        with pytest.raises(InvalidArgument, match=case["error"]):
            databus.Checkpoint.from_json(text)
        return
    found = databus.Checkpoint.from_json(text)
    assert found.consumed_scn == case["passed"]
    assert databus.Checkpoint.from_json(found.as_json()) == found


@pytest.mark.parametrize("case", FILTERS, ids=[case["name"] for case in FILTERS])
def test_filter_case(case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(InvalidArgument, match=case["error"]):
            databus.parse_filters(case["settings"])
        return
    found = databus.parse_filters(case["settings"])
    only = found.get("flights")
    for key in case.get("passes", []):
        assert only is None or only.accepts(key), key
    for key in case.get("stays", []):
        assert only is not None
        assert not only.accepts(key), key


def test_a_file_that_is_not_there_is_a_consumer_that_begins_anywhere(tmp_path: Path) -> None:
    file = databus.CheckpointFile(tmp_path / "new" / "checkpoint.json")
    assert file.load() == databus.Checkpoint()
    file.store(databus.Checkpoint.of_window(7))
    assert file.load().consumed_scn == 7
    assert [each.name for each in file.path.parent.iterdir()] == ["checkpoint.json"]
