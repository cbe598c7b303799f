"""Events that are put down while they are read: where it is said, reachable, and gone afterwards."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdckit.databus.relay_tables import EVENTS, Place
from cdckit.errors import InvalidArgument
from cdckit.store import NoFileSystem
from cdckit.store.locations import Location

ROWS = pa.table({"topic": ["t"], "partition": [0], "physical_partition": [1], "window": [1]})


def test_what_is_put_down_lies_below_the_folder_and_is_deleted_at_the_end(tmp_path: Path) -> None:
    for folder in (tmp_path, f"file://{tmp_path}"):
        with Place(folder).with_events(None, ROWS, function="EventStream") as found:
            assert len(list(tmp_path.iterdir())) == 1
            assert found.arrow(EVENTS).num_rows == 1
        assert not list(tmp_path.iterdir())


def test_without_a_folder_nobody_else_can_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Place().with_events(None, ROWS, function="EventStream") as found:
        [folder] = tmp_path.glob("databus-*")
        assert folder.stat().st_mode & 0o077 == 0
        assert found.arrow(EVENTS).num_rows == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_that_the_workers_reach_and_the_driver_does_not_is_named(tmp_path: Path) -> None:
    def read() -> None:
        with Place(tmp_path).with_events(None, ROWS, function="EventStream") as found:
            [file] = tmp_path.glob("*/events*/cdc-*.parquet")
            file.unlink()
            found.arrow(EVENTS)

    with pytest.raises(InvalidArgument, match="that this program and Spark's workers both reach"):
        read()
    assert not list(tmp_path.iterdir())


def test_a_uri_whose_scheme_nobody_knows_is_told_at_once() -> None:
    with (
        pytest.raises(NoFileSystem, match="gopher"),
        Place("gopher://bucket/x").with_events(None, ROWS, function="EventStream"),
    ):
        pass


def test_a_location_that_is_no_folder_of_this_machine_is_emptied_too(tmp_path: Path) -> None:
    """Through the file system of deltalake, as for an object store."""
    (tmp_path / "one" / "of").mkdir(parents=True)
    (tmp_path / "one" / "of" / "file").write_text("x")
    (tmp_path / "other").write_text("x")
    Location(f"file://{tmp_path}/one", False).delete_all()
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["other"]
