"""A bucket is kept up as one merge of everything would have it: the worker's part, without Spark."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from cdckit.ledger.buckets import bucket_merge
from cdckit.ledger.buckets import bucket_upkeep as under_test
from cdckit.ledger.buckets.bucket_upkeep import keep_up_bucket
from cdckit.ledger.buckets.tasks import FOLD, FileRange, Paths, Targets, Task
from cdckit.ledger.columns import BUCKET, HIDDEN, IDENTITY, OPEN, UNBORN_SCHEMA, stored_history_columns
from cdckit.merging.arrow_changes import GUID, InvalidChanges, Layout
from cdckit.parts.arrow_types import arrow_schema
from cdckit.store.files import Target
from cdckit.store.locations import locate
from cdckit.store.reading import read_batches
from cdckit.store.writing import OpenFiles
from support.fold import fold, identity
from support.histories import EXTREME_PRIORITIES, Row, assert_same, change_schema, plain, random_changes
from support.ledger_programs import FIELDS, KEYS, all_of, batches
from tools.tiers import seeds


class Bucket:
    """One bucket and its files, as the driver would know them."""

    def __init__(self, folder: Path, *, by_guid: bool = False, ends: bool = False) -> None:
        changes = change_schema(FIELDS, ends=ends)
        log = T.StructType(
            [
                T.StructField(GUID, T.StringType()),
                T.StructField(IDENTITY, T.LongType()),
                T.StructField(BUCKET, T.IntegerType()),
                *changes.fields,
            ]
        )
        data = changes["data"].dataType
        assert isinstance(data, T.StructType)
        names = list(FIELDS)
        place = locate(folder, None, None)
        self.targets = Targets(
            tables={
                "log": Target(place, "log", log, (BUCKET,)),
                "history": Target(place, "history", stored_history_columns(data), (BUCKET, OPEN)),
                "unborn": Target(place, "unborn", UNBORN_SCHEMA, (BUCKET,)),
            },
            layout=Layout(
                fields=tuple(names),
                keys=tuple(names.index(key) for key in KEYS),
                field_priorities=frozenset(range(len(names))),
                by_guid=by_guid,
                entity=None,
                has_guid=True,
            ),
        )
        for name in ("log", "history", "unborn"):
            place.make_folder(name)
        self.task = Task(0)

    def apply(self, changes: Sequence[Row]) -> int:
        """How many of the changes were news."""
        target = self.targets.log
        rows = [
            {**change, GUID: identity(change, "e", KEYS), IDENTITY: hashed(change), BUCKET: 0}
            for change in changes
        ]
        files = OpenFiles(target)
        files.take(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(target.stored, large=True)))
        fresh = held(files.close())
        return self._done(replace(self.task, fresh=fresh))

    def rebuild(self) -> None:
        """Merge all again."""
        self._done(replace(self.task, anew=True))

    def compact(self) -> None:
        """Write small files of closed versions as one."""
        self._done(replace(self.task, fold=2))

    def _done(self, task: Task) -> int:
        kept = keep_up_bucket(task, self.targets)
        log = [one for one in task.log if one.path not in kept.removed["log"]]
        log += [one for one in task.fresh if one.path in kept.keep]
        log += held(kept.added["log"])
        added = kept.added["history"]
        versions = {
            name: [one for one in before if one.path not in kept.removed["history"]]
            + held(one for one in added if one["partition"][OPEN] == is_open)
            for name, before, is_open in (("open", task.open, True), ("closed", task.closed, False))
        }
        unborn = [one for one in task.unborn if one.path not in kept.removed["unborn"]]
        unborn += held(kept.added["unborn"])
        self.task = Task(0, [], log, versions["open"], versions["closed"], unborn)
        return kept.news

    def history(self) -> list[Row]:
        """The versions, in the order in which the fold has them."""
        return sorted(
            ({name: value for name, value in row.items() if name not in HIDDEN} for row in self.versions()),
            key=lambda row: (row["guid"], row["valid_from_timestamp"]),
        )

    def versions(self) -> list[Row]:
        """The versions as they are kept."""
        return self._rows(self.targets.history, [*self.task.open, *self.task.closed])

    def log(self) -> list[Row]:
        """The changes as they are kept."""
        return self._rows(self.targets.log, self.task.log)

    @staticmethod
    def _rows(target: Target, files: Paths) -> list[Row]:
        return [row for one in files for batch in read_batches(target, one.path) for row in batch.to_pylist()]


def held(reports: Iterable[dict[str, Any]]) -> Paths:
    """What was written, as tasks are told of it."""
    return [
        FileRange(
            one["path"],
            one["size"],
            one["numRecords"],
            one["minValues"].get(GUID, "").encode(),
            one["maxValues"][GUID].encode() if GUID in one["maxValues"] else None,
            (one["minValues"]["message_id"], one["maxValues"]["message_id"])
            if "message_id" in one["maxValues"]
            else None,
        )
        for one in reports
    ]


def hashed(change: Row) -> int:
    """A hash of what makes it the same change again."""
    word = (
        identity(change, "e", KEYS),
        change["source"],
        change["message_id"],
        change["arrival"]["record_number"],
    )
    return int.from_bytes(hashlib.sha256(repr(word).encode()).digest()[:7])


def assert_is_one_merge(bucket: Bucket, changes: list[Row]) -> None:
    expected = fold(changes, entity="e", keys=KEYS, fields=list(FIELDS))
    if not bucket.targets.layout.by_guid:
        # Every version shows its key, carried or not.
        shown = {identity(each, "e", KEYS): {key: each["data"][key] for key in KEYS} for each in changes}
        expected = [{**row, **shown[row["guid"]]} for row in expected]
    assert_same(bucket.history(), expected, changes, lambda change: identity(change, "e", KEYS))


@pytest.mark.parametrize(
    ("messages", "may"),
    [
        (["m3"], True), (["m5"], True), (["m4"], True), (["m1", "m4", "m9"], True),
        (["m2"], False), (["m6"], False), (["m1", "m6"], False), ([], False),
    ],
)  # fmt: skip
def test_a_file_of_other_messages_is_not_searched_for_repeats(messages: list[str], may: bool) -> None:
    assert FileRange("a", 1, messages=("m3", "m5")).may_name(messages) is may
    assert FileRange("a", 1).may_name(messages)


PROGRAMS: list[dict[str, Any]] = [
    {},
    {"keys_carried": False},
    {"guids": True},
    {"guids": True, "keys_carried": False},
    {"priorities": EXTREME_PRIORITIES},
    {"priorities": (0,)},
    {"ends": (False, False, True)},
    {"ends": (*(False,) * 30, True), "guids": True},
]


@pytest.mark.parametrize("options", PROGRAMS, ids=lambda each: ",".join(each) or "plain")
@seeds(1, soak=40)
def test_any_batches_give_the_rows_of_one_merge(tmp_path: Path, seed: int, options: dict[str, Any]) -> None:
    bucket = Bucket(tmp_path, by_guid="guids" in options, ends="ends" in options)
    so_far: list[Row] = []
    for batch in batches(seed, 30, **options):
        bucket.apply(batch)
        so_far += batch
        assert_is_one_merge(bucket, so_far)
    assert_is_one_merge(bucket, bucket.log())
    bucket.rebuild()
    assert_is_one_merge(bucket, so_far)


@seeds(0, soak=40)
def test_files_of_few_versions_give_the_rows_of_one_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The versions of one bucket lie in many files, as those of a large ledger do."""
    for name, rows in (("OPEN_ROWS", 1), ("CLOSED_ROWS", 2)):
        monkeypatch.setattr(under_test, name, rows)
    bucket = Bucket(tmp_path)
    so_far: list[Row] = []
    most = 0
    for number, batch in enumerate(batches(seed, 60)):
        bucket.apply(batch)
        so_far += batch
        assert_is_one_merge(bucket, so_far)
        assert_ranges_are_apart(bucket.task.open)
        most = max(most, len(bucket.task.open))
        if number % 3 == 0:
            bucket.compact()
            assert_is_one_merge(bucket, so_far)
    assert most > 2
    bucket.rebuild()
    assert_is_one_merge(bucket, so_far)
    assert_ranges_are_apart(bucket.task.open)


def assert_ranges_are_apart(files: Paths) -> None:
    """No guid can be in two of the files of open versions."""
    ordered = sorted(files, key=lambda one: one.low)
    for one, other in pairwise(ordered):
        assert one.high is not None
        assert one.high.decode()[:32] <= other.low.decode()[:32]


def test_a_batch_about_few_entities_touches_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "OPEN_ROWS", 8)
    monkeypatch.setattr(under_test, "CLOSED_ROWS", 8)
    bucket = Bucket(tmp_path)
    template = next(each for each in all_of(batches(0, 5)) if each["operation"] == "upsert")

    def change(key: int, day: int) -> Row:
        data = {**template["data"], "h": key, "a": str(day)}
        instant = template["effective_timestamp"] + timedelta(days=day)
        return {
            **template,
            "data": data,
            "effective_timestamp": instant,
            "message_id": f"{key} {day}",
            "carried": dict.fromkeys(template["carried"], True),
        }

    everything = [change(key, day) for key in range(200) for day in (0, 10)]
    bucket.apply(everything)
    opened, closed = set(bucket.task.open), set(bucket.task.closed)
    assert len(opened) >= 14
    assert len(closed) >= 14
    assert all(one.rows >= 8 for one in opened | closed)
    in_order, late = change(7, 20), change(9, 5)
    bucket.apply([in_order])
    assert len(opened - set(bucket.task.open)) == 1
    assert closed <= set(bucket.task.closed)
    opened, closed = set(bucket.task.open), set(bucket.task.closed)
    bucket.apply([late])
    assert len(opened - set(bucket.task.open)) == 1
    assert len(closed - set(bucket.task.closed)) == 1
    assert_is_one_merge(bucket, [*everything, in_order, late])


def test_the_programs_go_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open versions are gone on from, and changes are read from the log: neither way is left out."""
    resumed, again = [], []

    def counted_resumed(versions: pa.RecordBatch, layout: Layout) -> pa.RecordBatch:
        resumed.append(versions.num_rows)
        return plain_resumed(versions, layout)

    def counted_again(*arguments: Any) -> Any:
        found = plain_again(*arguments)
        again.append(found.rows.num_rows - found.news.num_rows)
        return found

    plain_resumed, plain_again = bucket_merge.resume_changes, bucket_merge._merge_again
    monkeypatch.setattr(bucket_merge, "resume_changes", counted_resumed)
    monkeypatch.setattr(bucket_merge, "_merge_again", counted_again)
    bucket = Bucket(tmp_path)
    for batch in batches(0, 150):
        bucket.apply(batch)
    assert sum(resumed) > 50
    assert sum(again) > 50


def test_every_change_again_is_no_news_and_changes_nothing(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    changes = all_of(batches(7, 50))
    assert bucket.apply(changes) > 0
    before = bucket.task
    assert bucket.apply(changes) == 0
    assert bucket.apply(changes[::2]) == 0
    assert bucket.task == before


@seeds(0, soak=200)
def test_what_is_news_does_not_depend_on_where_batches_are_cut(tmp_path: Path, seed: int) -> None:
    """Changes as they arrive, one message at two offsets among them: the log is the same for every cut."""
    generator = random.Random(seed)
    changes = random_changes(seed, 60, FIELDS)
    generator.shuffle(changes)
    changes.sort(key=lambda change: list(change["arrival"].values())[:-1])
    found = []
    for number, size in enumerate((len(changes), 1 + len(changes) // 2, 20)):
        (tmp_path / str(number)).mkdir()
        bucket = Bucket(tmp_path / str(number))
        news = [bucket.apply(changes[start : start + size]) for start in range(0, len(changes), size)]
        assert sum(news) == len(bucket.log())
        found.append(sorted(str(plain(row)) for row in bucket.log()))
        assert_is_one_merge(bucket, changes)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) < len(changes) - 20


def test_a_message_at_two_offsets_of_one_batch_is_one_change(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    (first, *_) = all_of(batches(0, 1))
    again = {**first, "arrival": {**first["arrival"], "offset": first["arrival"]["offset"] + 4}}
    assert bucket.apply([again, first]) == 1
    assert [row["arrival"]["offset"] for row in bucket.log()] == [first["arrival"]["offset"]]
    assert bucket.apply([again]) == 0


def test_of_two_deliveries_of_which_neither_came_first_both_stay_in_the_log(tmp_path: Path) -> None:
    """The one that stands first counts; but who asks what was known before it came needs the other one."""
    bucket = Bucket(tmp_path)
    (later, *_) = all_of(batches(0, 1))
    first = {**later, "effective_timestamp": later["effective_timestamp"] - timedelta(days=1)}
    assert bucket.apply([later, first, later]) == 2
    assert bucket.apply([later, first]) == 0
    assert len(bucket.log()) == 2


def test_closed_versions_of_timely_changes_are_not_written_again(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    changes = sorted(all_of(batches(3, 80)), key=lambda change: change["effective_timestamp"])
    changes = list({hashed(change): change for change in reversed(changes)}.values())
    first = [change for change in changes if change["effective_timestamp"].year < 2024]
    bucket.apply(first)
    bucket.apply([change for change in changes if change["effective_timestamp"].month == 1])
    closed = bucket.task.closed
    assert closed
    bucket.apply([change for change in changes if change["effective_timestamp"].month == 6])
    assert set(closed) <= set(bucket.task.closed)


def test_many_small_batches_leave_few_files(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    changes = sorted(all_of(batches(5, 60)), key=lambda change: change["effective_timestamp"])
    changes = changes[: 2 * (2 * FOLD + 2)]
    for start in range(0, len(changes), 2):
        bucket.apply(changes[start : start + 2])
    assert len(changes) > 2 * 2 * FOLD
    assert len(bucket.task.log) <= FOLD
    assert len(bucket.task.closed) <= FOLD
    assert len(bucket.task.open) == 1
    assert_is_one_merge(bucket, changes)


@pytest.mark.parametrize("column", ["effective_timestamp", "message_id", "operation", "data", "arrival"])
def test_a_change_that_lacks_what_it_needs_is_refused(tmp_path: Path, column: str) -> None:
    bucket = Bucket(tmp_path)
    change = all_of(batches(0, 1))[0]
    guid = identity(change, "e", KEYS)
    files = OpenFiles(bucket.targets.log)
    row = {**change, column: None, GUID: guid, IDENTITY: 1, BUCKET: 0}
    files.take(pa.RecordBatch.from_pylist([row], schema=arrow_schema(bucket.targets.log.stored, large=True)))
    fresh = held(files.close())
    with pytest.raises(InvalidChanges):
        keep_up_bucket(Task(0, fresh), bucket.targets)
