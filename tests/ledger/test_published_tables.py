"""A published table, without a session: what lies beside it, what others do to it, what it forgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import Row

from cdckit.errors import InvalidArgument
from cdckit.ledger.publication import delta_table
from cdckit.ledger.publication.catalogue_table import CatalogueTable
from cdckit.ledger.publication.delta_table import PublishedTable, Shown
from cdckit.store import ForeignChange
from support.optimize import begin_optimize

SOURCE = "store/é's"
NO_SESSION: Any = None


def looked_at(target: Path) -> PublishedTable:
    return PublishedTable(NO_SESSION, target, SOURCE, None)


def people(*names: str) -> pa.Table:
    return pa.table({"guid": list(names), "name": list(names)})


def publish(target: Path, shown: Shown, *names: str) -> None:
    assert looked_at(target).put(people(*names), None, shown)


def lay(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("zoe")


def lying(folder: Path) -> set[str]:
    """What lies there beside the files and the log of the table."""
    paths = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {path for path in paths if not path.startswith(("cdc-", "_delta_log/"))}


@pytest.mark.parametrize("other", ["report.xlsx", "old/part-0.parquet", "dim/_delta_log/0.json"])
def test_a_folder_in_which_somebody_keeps_files_is_refused(tmp_path: Path, other: str) -> None:
    lay(tmp_path / "exports", other)
    with pytest.raises(InvalidArgument, match=rf"an empty place.*exports, in which {other} lies"):
        looked_at(tmp_path / "exports")
    assert lying(tmp_path / "exports") == {other}


def test_what_a_writer_left_that_died_and_hidden_files_are_no_hindrance(tmp_path: Path) -> None:
    lay(tmp_path / "t", f"cdc-{'0' * 32}.parquet", "_delta_log/_commit_1.json.tmp", ".DS_Store")
    publish(tmp_path / "t", Shown(1, 10, 1, 1), "bob")
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table() == people("bob")
    assert len([*(tmp_path / "t").glob("cdc-*")]) == 1  # Who was erased since may have been in the other one.


def test_an_optimize_that_an_erasure_overtakes_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file goes, in which somebody may be that was erased: if it landed, the table would be damaged."""
    monkeypatch.setattr(delta_table, "forget_versions", lambda *_: 0)  # It knows the log that goes.
    target = tmp_path / "t"
    publish(target, Shown(1, 10, 1, 1), "zoe", "bob")
    publish(target, Shown(2, 20, 2, 1), "bob")
    land = begin_optimize(target)
    assert looked_at(target).forget_before(15)
    with pytest.raises(CommitFailedError, match="Metadata changed"):
        land()
    assert DeltaTable(str(target)).to_pyarrow_table() == people("bob")
    looked_at(target).require_untouched()


def test_an_erasure_deletes_data_that_is_not_needed_and_nothing_else(tmp_path: Path) -> None:
    """Parquet files as Delta's VACUUM does: also those of writers that died, and of partitions of others."""
    target = tmp_path / "t"
    publish(target, Shown(1, 10, 1, 1), "zoe", "bob")
    publish(target, Shown(2, 20, 2, 1), "bob")
    kept = {"report.xlsx", "notes/of/zoe.txt", "_symlink_format_manifest/manifest", ".mine/part-3.parquet"}
    lay(target, *kept, "part-1.parquet", "name=zoe/part-2.parquet", "_change_data/cdc-4.parquet")
    assert looked_at(target).forget_before(15)
    assert lying(target) == kept
    [data] = target.glob("cdc-*.parquet")
    assert b"zoe" not in data.read_bytes()
    assert DeltaTable(str(target)).to_pyarrow_table() == people("bob")


def test_it_forgets_also_where_its_oldest_version_shows_a_later_number(tmp_path: Path) -> None:
    """The store was restored from a copy: it is erased in its commit 61, and counted to 95 before."""
    target = tmp_path / "t"
    publish(target, Shown(95, 950, 7, 1), "zoe", "bob")
    for _ in range(2):
        publish(target, Shown(61, 1061, 8, 1), "bob")
        assert looked_at(target).forget_before(1061)
    assert not any(b"zoe" in path.read_bytes() for path in target.rglob("*") if path.is_file())
    # There is nothing more to delete: what is old now is no older than the erasure.
    publish(target, Shown(62, 1062, 9, 1), "carl")
    before = DeltaTable(str(target)).version()
    assert looked_at(target).forget_before(1061)
    assert DeltaTable(str(target)).version() == before


def test_a_table_that_others_partition_is_refused_until_it_is_restored(tmp_path: Path) -> None:
    """Readers of Delta take such a column from the log, where our files would have it null."""
    target = str(tmp_path / "t")
    publish(tmp_path / "t", Shown(1, 10, 1, 1), "zoe")
    write_deltalake(target, people("zoe"), mode="overwrite", schema_mode="overwrite", partition_by=["name"])
    refused = (
        r"t': WRITE by delta-rs.*its version 1\. Nothing was written\. The table is partitioned by name, and "
        r"cdckit partitions it by nothing: RESTORE it.*, or publish to another place"
    )
    with pytest.raises(ForeignChange, match=refused):
        looked_at(tmp_path / "t").require_writable()
    DeltaTable(target).restore(0)
    looked_at(tmp_path / "t").require_writable()
    publish(tmp_path / "t", Shown(2, 20, 2, 1), "bob")
    assert DeltaTable(target).to_pyarrow_table() == people("bob")


# Of a catalogue --------------------------------------------------------------------------------------------

OURS = json.dumps({"cdckit": {SOURCE: Shown(1, 10, 1, 1)._asdict()}})


def catalogue(operations: list[str], **properties: str) -> CatalogueTable:
    """A table of this history, the first commit in it being ours where it is a MERGE."""
    history = [
        Row(version=version, operation=operation, userMetadata=OURS if operation == "MERGE" else None)
        for version, operation in enumerate(operations, 7)
    ]
    spark = MagicMock()
    spark.sql = lambda text: MagicMock(
        collect=lambda: [Row(properties=properties)] if "DETAIL" in text else history
    )
    return CatalogueTable(spark, "dim", SOURCE)


@pytest.mark.parametrize("upkeep", ["REORG", "DROP FEATURE", "Deletion Vector Tombstones", "Empty Commit"])
def test_who_purges_deletion_vectors_changes_no_rows(upkeep: str) -> None:
    """As Microsoft advises where a person is to be forgotten, and as DROP FEATURE does by itself."""
    table = catalogue(["MERGE", upkeep])
    table.require_untouched()
    assert table.shown == Shown(1, 10, 1, 1)
    with pytest.raises(ForeignChange, match="'dim': DELETE by somebody is its version 8"):
        catalogue(["MERGE", "DELETE", upkeep]).require_untouched()


def test_a_table_whose_history_was_shortened_is_ours_and_to_be_made_anew() -> None:
    """A catalogue keeps thirty days of commits: who publishes each quarter finds none of its own."""
    table = catalogue(["OPTIMIZE", "VACUUM END"], **{"cdckit.source": "store/%C3%A9%27s"})
    with pytest.raises(ForeignChange, match=r"'dim': a commit by somebody.*anew=True"):
        table.require_untouched()
    assert table.shown is None
    for others in ({}, {"cdckit.source": "another/e"}):
        with pytest.raises(
            InvalidArgument, match="an empty place, or a table that this ledger has published"
        ):
            catalogue(["OPTIMIZE", "VACUUM END"], **others)
