"""A Delta table in a place of its own that shows a history: what `Ledger.publish` writes there."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import CommitProperties
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.merging.arrow_changes import GUID
from cdckit.model.history import OPEN_END
from cdckit.parts.arguments import quoted
from cdckit.parts.workers import worker_reports
from cdckit.store import delta_log, foreign_changes
from cdckit.store.columns import storable_columns, stored_names
from cdckit.store.delta_log import DeltaLog
from cdckit.store.erasure import forget_versions, unneeded_files
from cdckit.store.errors import ForeignChange
from cdckit.store.files import OUR_FILES, File, Table, Target
from cdckit.store.locations import COMMITS, Location, locate
from cdckit.store.reading import read_spark
from cdckit.store.writing import Rows, row_columns, write

NEEDED = "an empty place, or a table that this ledger has published"
ANEW = "Nothing was written. Publish with `anew=True` to replace what is there, or publish to another place."
ELSEWHERE = ", or publish to another place"

_FILE = 64 << 20
"""About how many bytes a file of a published table gets."""

_SMALL_FILES = 16
"""With how many small files on they are written together with what is new."""

_HIDDEN = ("_", ".")
"""What begins so in the folder of a Delta table is none of its files, but for the change feed."""


class Shown(NamedTuple):
    """
    What a published table shows; each of our commits to it carries this.

    Args:
        commit: The number of the store's commit.
        made: When that was made, in microseconds since 1970.
        state: The digest of the history's files then: a store that was restored from a copy has other commits
            of the same numbers.
        form: A number for the form.
    """

    commit: int
    made: int
    state: int
    form: int


class PublishedTable:
    """
    The table as it stands when this is made.

    Each of our commits to it carries what it shows, and which store that is of: so nothing is written twice,
    and nothing over what others have changed.

    Raises `InvalidArgument` for something else, and for a place within a store, whose `vacuum` would take the
    files for its own.

    Args:
        source: What tells the store from all others.

    Attributes:
        shown: What it shows; None if there is no table yet.
    """

    def __init__(
        self, spark: SparkSession, target: str | Path, source: str, options: dict[str, str] | None
    ) -> None:
        whole = locate(target, options, spark)
        root, _, self._folder = whole.root.rpartition("/")
        self._spark, self._source = spark, source
        self._location = Location(root, whole.local, whole.options)
        self._head: DeltaLog | None = None
        self._orphans: list[str] = []
        self.shown: Shown | None = None
        if self._location.has_log(COMMITS) or whole.has_log(COMMITS):
            raise InvalidArgument("publish", "target", "a place outside of every store", str(target))
        if not self._location.has_log(self._folder):
            # What lies there is somebody's, and a Delta table takes Parquet files of its folder for its own.
            # An empty file may be what an object store has for a folder.
            infos = sorted(self._location.listed(self._folder, recursive=True).items())
            data = [path for path, info in infos if info.size and not path.startswith(_HIDDEN)]
            self._orphans = list(filter(OUR_FILES.fullmatch, data))
            other = next((path for path in data if path not in self._orphans), None)
            if other is not None:
                raise InvalidArgument("publish", "target", NEEDED, f"{target}, in which {other} lies")
        else:
            self._head = DeltaLog(self._location, self._location.delta(self._folder), self._folder)
            form = self._head.delta.transaction_version(delta_log.batch_names(source).digest)
            if form is None:
                raise InvalidArgument("publish", "target", NEEDED, str(target))
            made, state = map(self._head.delta.transaction_version, _mark_names(source))
            self.shown = Shown(self._head.mark, made or 0, state or 0, form)

    def require_untouched(self) -> None:
        """Raise `ForeignChange` if others have changed rows since our last commit."""
        if self._head is None:
            return
        foreign, oldest = None, self._head.version + 1
        for oldest, actions in delta_log.entries_until(self._location, self._folder, self._head.version):
            if delta_log.commit_mark(actions) is not None:
                break
            if foreign_changes.is_foreign_change(self._location, self._folder, oldest, actions):
                foreign = foreign_changes.describe_change(self._head.name, oldest, actions, ANEW)
        else:
            # Whoever shortened the log has left nothing that tells what came after ours.
            foreign = foreign or ForeignChange(self._head.name, oldest - 1, "a commit", "somebody", ANEW)
        if foreign is not None:
            raise foreign

    def require_writable(self) -> None:
        """Raise `ForeignChange` if others have given the table what we do not keep to."""
        if self._head is not None:
            foreign_changes.require_writable(self._head, by_bounds=False, instead=ELSEWHERE)

    def stored(self, columns: T.StructType) -> T.StructType:
        """The columns as the table has them, under their names there."""
        return stored_columns(columns, self._folder, None if self._head is None else self._head.state.stored)

    def has_columns(self, columns: T.StructType) -> bool:
        """Tell whether the table has just such columns."""
        return self._head is not None and self._head.state.stored == self.stored(columns)

    def files(self) -> list[File]:
        """Its files."""
        return [] if self._head is None else list(self._head.state.files.values())

    def put(self, rows: Rows, replaced: Iterable[File] | None, shown: Shown) -> bool:
        """
        Write rows in the place of some of its files, or of all and in columns of their own for None.

        False if another writer was faster, or the table had to be made ready: then look at it again.
        """
        table = Table(self._folder, self._folder, self.stored(row_columns(rows)))
        if self._head is not None and delta_log.add_features(self._head, table.stored):
            return False
        added = [file.add() for file in write(rows, Target.from_table(self._location, table)).files]
        carried = self._carried(shown)
        if self._head is None:
            return self._begin(table, added, carried)
        removed = [file.remove() for file in replaced or ()]
        is_put = self._head.commit([*added, *removed], table.stored, carried, anew=replaced is None)
        self.shown = shown if is_put else self.shown
        return is_put

    def _begin(self, table: Table, added: list[AddAction], carried: CommitProperties) -> bool:
        """Make the table; False if another writer was faster."""
        is_made = delta_log.create(self._location, table, added, carried)
        # Of writers that died: who was erased since may be in them.  One that lives finds the table made.
        for path in self._orphans if is_made else ():
            self._location.delete(f"{self._folder}/{path}")
        return is_made

    def _carried(self, shown: Shown) -> CommitProperties:
        """What a commit carries, so that the table tells what it shows."""
        mark = dict(zip(_mark_names(self._source), (shown.made, shown.state), strict=True))
        return delta_log.commit_properties(shown.commit, (self._source, shown.form), more=mark)

    def put_all(self, rows: DataFrame, size: int, shown: Shown) -> bool:
        """Write the whole table, of about *size* bytes; False as `put`."""
        return self.put(_split_files(rows, size), None, shown)

    def put_changes(self, rows: DataFrame, touched: DataFrame, shown: Shown) -> bool:
        """Write rows in the place of those of all touched entities, by their guids; False as `put`."""
        replaced = {file.path: file for file in files_about(touched, self.files())}
        small = [file for file in self.files() if file.size < _FILE // 4]
        if len(small) >= _SMALL_FILES:
            replaced |= {file.path: file for file in small}
        if replaced and self._head is not None:
            before = read_spark(self._spark, self._location, self._head.state, list(replaced.values()))
            kept = before.join(touched, GUID, "left_anti")
            rows = kept.select(*map(quoted, rows.columns)).union(rows)
        size = sum(file.size for file in replaced.values())
        return self.put(_split_files(rows, size), replaced.values(), shown)

    def forget_before(self, erased: int) -> bool:
        """
        Delete what is needed only by versions that show a commit from before *erased*.

        That is an instant, in microseconds since 1970: a store that was restored from a copy has two commits
        of one number.  Of Parquet files all that the newest version does not need go, as by `VACUUM`;
        any others stay.

        False if another writer was faster: then look at it again.
        """
        if self._head is None or not erased:
            return True
        names = self._location.listed(f"{self._folder}/_delta_log")
        entries = [entry for name in names if (entry := delta_log.log_entry(name)) is not None]
        oldest = min((version for version, kind in entries if kind == "json"), default=0)
        first = delta_log.commit_mark(
            delta_log.read_actions(self._location, self._folder, oldest), _mark_names(self._source)[0]
        )
        if first is not None and first >= erased:
            return True
        paths = self._location.listed(self._folder, recursive=True)
        # Who has written some of these files, and not committed them, is overtaken by this.
        assert self.shown is not None
        if not self._head.commit([], self._head.state.stored, self._carried(self.shown)):
            return False
        newest = DeltaLog(self._location, self._folder, self._folder).version
        behind = delta_log.entries_until(self._location, self._folder, newest)
        version = next(
            (entry for entry, actions in behind if delta_log.commit_mark(actions) is not None), oldest
        )
        # Of this table, and of those that lie in folders of their own below it.
        tables = tuple(path[: path.index("_delta_log/")] for path in paths if "_delta_log/" in path)
        others = tuple(table for table in set(tables) if table)
        # The log last: by its oldest entry a call that follows one that was stopped knows of the files.
        data = [
            path
            for path in paths
            if path.endswith(".parquet")
            and (path.startswith("_change_data/") or not path.startswith((*_HIDDEN, *others)))
        ]
        for path in sorted(unneeded_files(self._location, self._folder, version, data)):
            self._location.delete(f"{self._folder}/{path}")
        forget_versions(self._location, self._folder, version)
        return True


def stored_columns(columns: T.StructType, table: str, before: T.StructType | None) -> T.StructType:
    """The columns as a table has them, with what stands for an open end, which readers must know."""
    stored = stored_names(storable_columns(columns, table), before)
    for column, field in zip(columns, stored, strict=True):
        metadata = {key: value for key, value in field.metadata.items() if key != OPEN_END}
        ends = {OPEN_END: column.metadata[OPEN_END]} if OPEN_END in column.metadata else {}
        field.metadata = {**metadata, **ends}
    return stored


def _mark_names(source: str) -> tuple[str, str]:
    """Under which names a commit carries when the commit that it shows was made, and the history's state."""
    name = delta_log.batch_names(source).digest
    return f"{name}:made", f"{name}:state"


def _split_files(rows: DataFrame, size: int) -> DataFrame:
    """The rows in files by ranges of guids, so that a batch about few entities touches few of them."""
    parts = max(1, math.ceil(size / _FILE))
    return rows.repartitionByRange(parts, GUID).sortWithinPartitions(GUID)


def files_about(guids: DataFrame, files: list[File]) -> list[File]:
    """The files that can hold rows of these entities; a job."""
    if len(files) < 2:
        return files
    bounds = [((file.low.get(GUID) or "").encode(), file.high.get(GUID)) for file in files]
    ends = [(low, None if high is None else high.encode()) for low, high in bounds]
    reports = worker_reports(guids, partial(_find_files, bounds=ends), large=True)
    return [files[number] for number in sorted({number for report in reports for number in report["files"]})]


def _find_files(
    batches: Iterable[pa.RecordBatch], bounds: list[tuple[bytes, bytes | None]]
) -> Iterator[dict[str, list[int]]]:
    for batch in batches:
        sought = sorted(batch.column(0).cast(pa.large_binary()).to_pylist())
        numbers = []
        for number, (low, high) in enumerate(bounds):
            first = bisect_left(sought, low)
            if first < len(sought) and (high is None or sought[first] <= high):
                numbers.append(number)
        yield {"files": numbers}
