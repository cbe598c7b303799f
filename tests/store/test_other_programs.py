"""Other programs write to the Delta tables of a store: nothing of it is reversed, and no table is broken."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import Field, PrimitiveType
from deltalake.transaction import AddAction
from pyspark.sql import SparkSession

from cdckit.store import DamagedTable, ForeignChange, Store, Transaction, delta_log, table_plans
from cdckit.store.delta_log import DeltaLog
from support.store_numbers import add, held, listing, numbers


@pytest.fixture
def table(store: Store, place: Path) -> str:
    """A Delta table of three small files, and where it lies."""
    for number in (1, 2, 3):
        add(store, "log", number)
    return str(place / "log")


def everything(folder: str) -> list[int]:
    return sorted(DeltaTable(folder).to_pyarrow_table().column("n").to_pylist())


def delete(folder: str) -> None:
    DeltaTable(folder).delete("n = 2")


def update(folder: str) -> None:
    DeltaTable(folder).update(updates={"n": "20"}, predicate="n = 2")


def append(folder: str) -> None:
    write_deltalake(folder, numbers(9), mode="append")


def restore(folder: str) -> None:
    DeltaTable(folder).restore(1)


def new_column(folder: str) -> None:
    DeltaTable(folder).alter.add_columns([Field("more", PrimitiveType("string"))])


CHANGES = [
    (delete, "DELETE", [1, 3]),
    (update, "UPDATE", [1, 3, 20]),
    (append, "WRITE", [1, 2, 3, 9]),
    (restore, "RESTORE", [1, 2]),
    (new_column, "ADD COLUMN", [1, 2, 3]),
]


@pytest.mark.parametrize(("change", "operation", "after"), CHANGES)
def test_a_change_of_rows_is_refused_until_it_is_adopted(
    store: Store, table: str, change: Callable[[str], None], operation: str, after: list[int]
) -> None:
    change(table)
    said = rf"'log': {operation} by delta-rs:py-[\d.]+ is its version 3\..*`adopt\(\)`.*`rebuild\(\)`"
    with pytest.raises(ForeignChange, match=said):
        add(store, "log", 4)
    with pytest.raises(ForeignChange, match=said):
        store.check()
    assert everything(table) == after
    assert held(store, "log") == [1, 2, 3]
    assert store.adopt("log") == 4
    store.check()
    assert (held(store, "log"), held(store.snapshot(version=3), "log")) == (after, [1, 2, 3])
    assert add(store, "log", 4) == 5
    assert held(store, "log") == everything(table) == sorted([*after, 4])
    assert store.adopt("log") == 5


@pytest.mark.parametrize("change", [delete, append, restore])
def test_a_table_that_is_replaced_is_made_anew_only_where_that_is_meant(
    store: Store, table: str, change: Callable[[str], None]
) -> None:
    """Such as one of what waits, batch by batch: what somebody erased there must not come back."""
    change(table)
    after = everything(table)
    for work in (lambda tx: tx.replace("log", numbers(5)), lambda tx: tx.drop("log")):
        with store.begin() as transaction:
            work(transaction)
            with pytest.raises(ForeignChange, match="by delta-rs"):
                transaction.commit()
    assert everything(table) == after
    with store.begin() as transaction:
        transaction.renew("log")
        transaction.replace("log", numbers(5))
        transaction.commit()
    store.check()
    assert held(store, "log") == everything(table) == [5]


def comment_on_the_table(folder: str) -> None:
    DeltaTable(folder).alter.set_table_description("Numbers of the shop.")


def comment_on_a_column(folder: str) -> None:
    DeltaTable(folder).alter.set_column_metadata("n", {"comment": "which one"})


def set_a_property(folder: str) -> None:
    DeltaTable(folder).alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})


@pytest.mark.parametrize("change", [comment_on_the_table, comment_on_a_column, set_a_property])
def test_what_others_say_of_a_table_is_no_change_of_rows_and_stays(
    store: Store, table: str, change: Callable[[str], None]
) -> None:
    change(table)
    said = spoken(table)
    store.check(deep=True)
    assert add(store, "log", 4) == 4
    with store.begin() as transaction:
        transaction.append("log", numbers(5).append_column("more", pa.array(["x"])))
        transaction.commit()
    change(table)
    with store.begin() as transaction:
        transaction.replace("log", pa.table({"n": ["text"]}))
        transaction.commit()
    store.check(deep=True)
    assert spoken(table) == said
    assert everything(table) == ["text"]  # type: ignore[comparison-overlap]
    assert held(store.snapshot(version=5), "log") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("change", [comment_on_the_table, set_a_property])
def test_what_others_say_of_the_table_of_commits_stays(
    store: Store, place: Path, table: str, change: Callable[[str], None]
) -> None:
    commits = str(place / "commits")
    change(commits)
    DeltaTable(commits).alter.set_column_metadata("version", {"comment": "counted from 0"})
    said = spoken(commits)
    for number in range(4, 20):
        assert add(Store(None, place), "log", number) == number
    store.check()
    assert (held(store, "log"), spoken(commits)) == (list(range(1, 20)), said)


def spoken(folder: str) -> tuple[object, ...]:
    metadata, [first, *_] = DeltaTable(folder).metadata(), DeltaTable(folder).schema().fields
    return metadata.description, metadata.configuration.get("delta.logRetentionDuration"), first.metadata


def add_deletion_vectors(folder: str) -> None:
    DeltaTable(folder).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)


def add_a_constraint(folder: str) -> None:
    DeltaTable(folder).alter.add_constraint({"small": "n < 5"})


def limit_bounds(folder: str) -> None:
    DeltaTable(folder).alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "0"})


def let_it_only_grow(folder: str) -> None:
    DeltaTable(folder).alter.set_table_properties({"delta.appendOnly": "true"})


def forbid_nulls(folder: str) -> None:
    """As Spark's ALTER COLUMN n SET NOT NULL; deltalake has no such thing."""
    version = DeltaTable(folder).version() + 1
    entries = Path(folder) / "_delta_log"
    first = map(json.loads, (entries / f"{0:020}.json").read_text().splitlines())
    [metadata] = [action["metaData"] for action in first if "metaData" in action]
    metadata["schemaString"] = metadata["schemaString"].replace('"nullable":true', '"nullable":false')
    actions = [{"commitInfo": {"operation": "CHANGE COLUMN"}}, {"metaData": metadata}]
    (entries / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def let_the_log_forget(folder: str) -> None:
    DeltaTable(folder).alter.set_table_properties({EXPIRY: "interval 30 days"})


EXPIRY = "delta.setTransactionRetentionDuration"
DEMANDS = [
    (add_deletion_vectors, "the feature deletionVectors: .*DROP FEATURE deletionVectors"),
    (add_a_constraint, r"the CHECK constraint small \(n < 5\): .*DROP CONSTRAINT small"),
    (limit_bounds, r"delta\.dataSkippingNumIndexedCols = 0: .*SET TBLPROPERTIES .*'-1'"),
    (forbid_nulls, "NOT NULL of the column n: .*DROP NOT NULL"),
    (let_the_log_forget, r"delta\.setTransactionRetentionDuration = interval 30 days: .*UNSET TBLPROPERTIES"),
    (let_it_only_grow, r"delta\.appendOnly = true: .*SET TBLPROPERTIES \('delta.appendOnly' = 'false'\)"),
]
"""What others can ask of who writes to a table, and how it is refused."""


@pytest.mark.parametrize(("change", "demand"), DEMANDS)
def test_a_table_that_asks_more_than_we_keep_to_is_refused_by_name(
    store: Store, table: str, change: Callable[[str], None], demand: str
) -> None:
    """Rows that a deletion vector takes away are in the file still: they must not come back."""
    change(table)
    before = listing(Path(table))

    def renew(transaction: Transaction) -> None:
        transaction.renew("log")

    def replace(transaction: Transaction) -> None:
        transaction.replace("log", numbers(5))

    def swap(transaction: Transaction) -> None:
        transaction.swap("log", transaction.files("log")[:1], numbers(5))

    refused = f"cdckit keeps up no tables with {demand}"
    for call in (store.check, lambda: store.adopt("log")):
        with pytest.raises(ForeignChange, match=refused):
            call()
    for work in (renew, replace, swap):
        with store.begin() as transaction:
            work(transaction)
            with pytest.raises(ForeignChange, match=refused):
                transaction.commit()
    if change is not let_it_only_grow:
        with pytest.raises(ForeignChange, match=refused):
            add(store, "log", 4)
    assert {name: before[name] for name in before} == {
        name: stat for name, stat in listing(Path(table)).items() if name in before
    }
    assert held(store, "log") == [1, 2, 3]


def test_a_batch_that_others_let_the_log_forget_is_not_applied_twice(store: Store, place: Path) -> None:
    def monday() -> None:
        with Store(None, place).begin() as transaction:
            transaction.append("log", numbers(1))
            transaction.commit(batch="monday")

    monday()
    commits = DeltaTable(str(place / "commits"))
    commits.alter.set_table_properties({EXPIRY: "interval 0 seconds"})
    time.sleep(0.01)
    with pytest.raises(ForeignChange, match=f"{EXPIRY} = interval 0 seconds"):
        monday()
    assert held(store, "log") == [1]


def test_a_table_that_others_partition_is_made_anew_once_it_is_restored(store: Store, place: Path) -> None:
    """Readers of Delta take such a column from the log, where our files would have it null."""
    table, rows = str(place / "log"), pa.table({"n": [1, 2], "part": ["a", "b"]})

    def renew() -> None:
        with store.begin() as transaction:
            transaction.renew("log")
            transaction.replace("log", rows.slice(1))
            transaction.commit()

    def parts() -> list[list[str]]:
        theirs = DeltaTable(table).to_pyarrow_table()
        return [sorted(some.column("part").to_pylist()) for some in (theirs, store.snapshot().arrow("log"))]

    renew()
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["part"])
    for call in (renew, lambda: store.adopt("log")):
        with pytest.raises(
            ForeignChange, match="partitioned by part, and cdckit partitions it by nothing: RES"
        ):
            call()
    assert parts() == [["a", "b"], ["b"]]
    DeltaTable(table).restore(0)
    renew()
    store.check()
    assert parts() == [["b"], ["b"]]


def test_a_table_that_only_grows_takes_what_comes(store: Store, table: str) -> None:
    """And its small files are put together: that takes no row away."""
    let_it_only_grow(table)
    add(store, "log", 4)
    with store.begin() as transaction:
        transaction.swap("log", transaction.files("log"), numbers(1, 2, 3, 4), same_rows=True)
        transaction.commit()
    assert held(store, "log") == everything(table) == [1, 2, 3, 4]
    assert len(store.snapshot().files("log")) == 1
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
    with store.begin() as transaction:
        transaction.replace("log", numbers(5))
        transaction.commit()
    store.check()
    assert held(store, "log") == everything(table) == [5]


def test_a_dead_writers_table_that_asks_more_meanwhile_is_refused_by_name(
    store: Store, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was faster, and nobody is said to have been; the commit is read all the same."""
    monkeypatch.setattr(table_plans, "carry_out", lambda *_: True)
    with store.begin() as transaction:
        transaction.replace("log", numbers(5))
        transaction.commit()
    monkeypatch.undo()
    let_it_only_grow(table)
    for call in (store.check, store.vacuum, lambda: add(store, "log", 6)):
        with pytest.raises(ForeignChange, match=r"delta\.appendOnly = true"):
            call()
    assert held(store, "log") == [5]
    DeltaTable(table).alter.set_table_properties({"delta.appendOnly": "false"})
    add(store, "log", 6)
    assert held(store, "log") == everything(table) == [5, 6]


def test_another_writer_was_faster_only_where_one_was(store: Store, table: str) -> None:
    """What Delta refuses for another reason is said, and not tried thirty times."""
    let_it_only_grow(table)
    head = DeltaLog(store.snapshot().location, "log", "log")
    removed = [one.remove() for one in head.state.files.values()]
    with pytest.raises(CommitFailedError, match="append"):
        head.commit(removed, head.state.stored, delta_log.commit_properties(9))


def test_a_change_feed_is_adopted(store: Store, table: str) -> None:
    """Of files that come and go whole, Delta tells it by itself."""
    with store.begin() as transaction:
        transaction.append("log", numbers(4).append_column("at", pa.array([datetime(2024, 1, 1)])))
        transaction.commit()
    DeltaTable(table).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    store.adopt("log")
    add(store, "log", 5)
    feed = DeltaTable(table).load_cdf(starting_version=DeltaTable(table).version()).read_all()
    assert [(row["n"], row["_change_type"]) for row in pa.table(feed).to_pylist()] == [(5, "insert")]


def test_the_table_of_commits_is_put_together_by_others(store: Store, place: Path, table: str) -> None:
    """Whoever keeps all tables of a folder small keeps that one small, too."""
    for number in (4, 5):
        DeltaTable(str(place / "commits")).optimize.compact()
        DeltaTable(str(place / "commits")).vacuum(0, enforce_retention_duration=False, dry_run=False)
        store.check()
        assert held(store.snapshot(version=2), "log") == [1, 2]
        assert add(store, "log", number) == number
    for number in range(6, 40):
        add(store, "log", number)
    store.vacuum(timedelta(0))
    store.check()
    assert held(store, "log") == everything(table) == list(range(1, 40))
    assert store.snapshot().version == 40


@pytest.mark.parametrize("what", ["delete", "append", "restore"])
def test_a_change_of_the_table_of_commits_is_refused_until_it_is_taken_back(
    store: Store, place: Path, table: str, what: str
) -> None:
    commits = DeltaTable(str(place / "commits"))
    if what == "delete":
        commits.delete("version = 2")
    elif what == "append":
        write_deltalake(str(place / "commits"), commits.to_pyarrow_table().slice(1, 1), mode="append")
    else:
        commits.restore(2)
    for call in (lambda: held(store, "log"), lambda: add(store, "log", 4), store.check):
        with pytest.raises(ForeignChange, match=r"'commits': \w+ by delta-rs.*put it back to version 3"):
            call()
    DeltaTable(str(place / "commits")).restore(3)
    store.check()
    assert (add(store, "log", 4), held(store, "log")) == (4, [1, 2, 3, 4])


def test_files_that_others_have_put_together_are_taken_over(store: Store, table: str) -> None:
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(0, enforce_retention_duration=False, dry_run=False)
    store.check()
    # Of an older commit, too, the rows are those of then where its files are gone.
    assert held(store, "log") == held(store.snapshot(version=3), "log") == [1, 2, 3]
    assert add(store, "log", 4) == 4
    assert held(store, "log") == everything(table) == [1, 2, 3, 4]
    with store.begin() as transaction:
        transaction.replace("log", numbers(5))
        transaction.commit()
    assert everything(table) == [5]


def test_an_instant_is_found_in_files_that_others_have_put_together(store: Store, place: Path) -> None:
    """Of the greatest instant of a file they cut off what is below a millisecond."""
    instants = [datetime(2024, 1, 1, 12, 0, 0, micros, tzinfo=UTC) for micros in (123_456, 123_457)]
    for instant in instants:
        with store.begin() as transaction:
            transaction.append("ends", pa.table({"end": [instant]}))
            transaction.commit()
    DeltaTable(str(place / "ends")).optimize.compact()
    for least, rows in ((instants[1], 1), (instants[1] + timedelta(milliseconds=1), 0)):
        assert store.snapshot().arrow("ends", {"end": (least, None)}).num_rows == rows


def test_partitions_of_files_that_others_have_written_are_those_of_the_log(
    spark: SparkSession, place: Path
) -> None:
    """They leave out the columns that tell partitions apart; ours have them."""
    store, said = Store(spark, place), []
    for number in range(4):
        with store.begin() as transaction:
            rows = pa.table(
                {"n": [number, number + 10], "is_odd": [number % 2 == 1] * 2, "part": ["a b", None]}
            )
            transaction.append("log", rows, partition_by=["is_odd", "part"])
            transaction.commit()
        said += rows.to_pylist()
    DeltaTable(str(place / "log")).optimize.compact()
    key = lambda row: row["n"]  # noqa: E731
    snapshot = store.snapshot()
    assert all(one.path.endswith(".parquet") and "=" in one.path for one in snapshot.files("log"))
    assert sorted(snapshot.arrow("log").to_pylist(), key=key) == sorted(said, key=key)
    read = [row.asDict() for row in snapshot.read("log").collect()]
    assert sorted(read, key=key) == sorted(said, key=key)
    odd = snapshot.read("log", {"is_odd": [True], "part": ["a b"]})
    assert sorted(row["n"] for row in odd.collect()) == [1, 3]
    with store.begin() as transaction:
        transaction.append("log", pa.table({"n": [5], "is_odd": [True], "part": ["a b"]}))
        transaction.compact("log")
        transaction.commit()
    assert sorted(row["n"] for row in store.snapshot().read("log", {"is_odd": [True]}).collect()) == [
        1, 3, 5, 11, 13,
    ]  # fmt: skip


def test_others_come_between_a_commit_and_its_tables(
    store: Store, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has landed and stays; so does what the others did, until somebody decides."""
    real = table_plans.carry_out

    def late(*given: object) -> bool:
        append(table)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(table_plans, "carry_out", late)
    assert add(store, "log", 4) == 4
    monkeypatch.undo()
    assert (held(store, "log"), everything(table)) == ([1, 2, 3, 4], [1, 2, 3, 9])
    for call in (store.check, lambda: add(store, "log", 5)):
        with pytest.raises(ForeignChange, match="WRITE by delta-rs"):
            call()
    store.adopt("log")
    assert held(store, "log") == everything(table) == [1, 2, 3, 4, 9]


def test_a_dead_writers_table_is_put_together_by_others(
    store: Store, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit has not reached the Delta table yet: it replaces two files that are one now."""
    monkeypatch.setattr(table_plans, "carry_out", lambda *_: True)
    with store.begin() as transaction:
        one, two, _ = transaction.files("log")
        transaction.swap("log", [one, two], numbers(30))
        transaction.commit()
    monkeypatch.undo()
    left = held(store, "log")
    DeltaTable(table).optimize.compact()
    assert held(store, "log") == left
    add(store, "log", 5)
    assert held(store, "log") == everything(table) == sorted([*left, 5])


def test_tables_of_many_columns_are_read_as_they_were_written(store: Store) -> None:
    """Beyond 32 columns, those within structs among them, readers of Delta pass over what a log says."""
    parts = pa.array([{f"part {n}": n for n in range(40)}] * 2)
    with store.begin() as transaction:
        transaction.append("log", pa.table({"s": parts, **{f"n{n}": [n, n + 1] for n in range(50)}}))
        transaction.commit()
    [file] = store.snapshot().files("log")
    assert (file.rows, file.low["n20"], file.high["n20"]) == (2, 20, 21)


def test_streams_see_new_rows_alone(spark: SparkSession, table: str, place: Path) -> None:
    """A file that is written together with others is no change of rows to who follows the table."""
    store = Store(spark, place)
    with store.begin() as transaction:
        transaction.append("log", numbers(4))
        transaction.compact("log")
        transaction.commit()
    actions = delta_log.read_actions(store.snapshot().location, "log", 3)
    told = [
        (kind, one["dataChange"])
        for each in actions
        for kind, one in each.items()
        if kind in ("add", "remove")
    ]
    assert sorted(told) == [("add", False), ("add", True), *[("remove", False)] * 3]


def test_a_program_of_many_writers(store: Store, place: Path) -> None:
    """Random commits of ours between random upkeep and changes of others: all that was accepted is there."""
    chance = random.Random(5)
    expected = [0]
    add(store, "log", 0)
    folder = str(place / "log")
    for number in range(1, 13):
        what = chance.choice(["ours", "ours", "optimize", "vacuum", "delete"])
        if what == "ours":
            add(store, "log", number)
            expected.append(number)
        elif what == "optimize":
            DeltaTable(folder).optimize.compact()
        elif what == "vacuum":
            store.vacuum(timedelta(0))
            DeltaTable(folder).vacuum(0, enforce_retention_duration=False, dry_run=False)
        elif what == "delete":
            gone = chance.choice(expected) if expected else 0
            DeltaTable(folder).delete(f"n = {gone}")
            expected = [one for one in expected if one != gone]
            store.adopt("log")
        assert held(store, "log") == everything(folder) == expected
        store.check(deep=True)


def flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content))
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def test_a_flipped_bit_is_never_served_as_truth(store: Store, place: Path) -> None:
    """Of the log of a table and of its pages: the rows are those that were written, or an error."""
    chance = random.Random(7)
    for number in range(22):
        add(store, "log", number)
    expected = held(store, "log")
    logs = sorted((place / "log" / "_delta_log").iterdir())
    for path in chance.choices([*logs, *(place / "log").glob("*.parquet")], k=20):
        content = path.read_bytes()
        flipped(path, chance)
        try:
            found = held(Store(None, place), "log")
        except (DamagedTable, ForeignChange):
            found = expected
        assert found == expected, path.name
        path.write_bytes(content)


def test_a_file_under_a_name_with_odd_letters_is_found(store: Store, table: str) -> None:
    """A log has its path as a URI would, a%20b.parquet; in the folder it is as it is."""
    path = Path(table) / "a b.parquet"
    pq.write_table(numbers(9), path)
    added = AddAction("a b.parquet", path.stat().st_size, {}, 0, True, '{"numRecords": 1}')
    theirs = DeltaTable(table)
    theirs.create_write_transaction([added], "append", theirs.schema())
    store.adopt("log")
    store.check(deep=True)
    assert held(store, "log") == everything(table) == [1, 2, 3, 9]
    path.unlink()
    with pytest.raises(DamagedTable, match=r"log/a b\.parquet: the file is not there"):
        store.check()
