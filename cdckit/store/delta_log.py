"""Delta's log of one table: read, and written."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, TableFeatures
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions
from pyspark.sql import types as T

from cdckit.parts.arguments import StreamBatch
from cdckit.store.errors import DamagedTable, StoreIsBusy
from cdckit.store.files import File, Table, parse_files, to_signed
from cdckit.store.locations import Location

APPLICATION = "cdckit"
"""
Every commit to a Delta table carries it as an application's transaction, whose version is the number of the
store's commit that it belongs to, its *mark*: who has it is ours.  It also makes deltalake refuse the second
of two commits that begin from one version, where it would otherwise put two appends one after the other.
"""

COLUMNS = f"{APPLICATION}.columns"
"""What a commit carries instead that changes no rows: new columns, a feature, nothing (`overtake_others`)."""

NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A checkpoint is written after a commit, which does not fail for its sake."""

_TRIES, _CHECKPOINT = 30, 20
"""How often a writer tries, and after how many versions of a Delta table it writes a checkpoint."""

BOUNDS = {"delta.dataSkippingNumIndexedCols": "-1", "delta.dataSkippingStatsColumns": ""}
"""With these all that a log says of files is read; by default nothing beyond 32 columns and their parts."""

_LOG = {
    # Old versions can be read for as long as their files are there; `Store.vacuum` says how long.
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(_CHECKPOINT),
    "delta.dataSkippingNumIndexedCols": BOUNDS["delta.dataSkippingNumIndexedCols"],
}

_ENTRY = re.compile(r"([0-9]{20})\.(json|crc|checkpoint\.(?:.*\.)?parquet)")

Actions: TypeAlias = list[dict[str, Any]]
"""What one commit to a Delta table did, each action by its kind: an entry of its log."""


class DeltaLog:
    """
    A Delta table that was loaded, and can be brought to its newest version for less than loading it again.

    Raises:
        DamagedTable: The log cannot be read.
    """

    def __init__(self, location: Location, name: str, folder: str, version: int | None = None) -> None:
        self.location, self.name, self.folder = location, name, folder
        with report_damage(name, folder, version):
            self.delta = self._load(version)
            self.state = self._state()

    def _load(self, version: int | None = None) -> DeltaTable:
        options = self.location.options or None
        table = DeltaTable(self.location.delta(self.folder), version=version, storage_options=options)
        self._loaded_at = int(table.version())
        return table

    @property
    def version(self) -> int:
        """The version of the Delta table."""
        return int(self.delta.version())

    @property
    def mark(self) -> int:
        """The number of the store's last commit that is in it; -1 if none is."""
        with report_damage(self.name, self.folder, None):
            mark: int | None = self.delta.transaction_version(APPLICATION)
        return -1 if mark is None else mark

    def newest(self) -> Table:
        """The state at the newest version."""
        with report_damage(self.name, self.folder, None):
            # A table that was loaded once reads every entry of the log since then for each commit.
            if self.version - self._loaded_at < _CHECKPOINT:
                self.delta.update_incremental()
            else:
                self.delta = self._load()
            if self.version != self.state.version:
                self.state = self._state(self.state.files)
        return self.state

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        stored: T.StructType,
        carried: CommitProperties,
        *,
        anew: bool = False,
    ) -> bool:
        """
        Let these actions be the next version, of a table with these columns; False if somebody was faster.

        Where the answer was lost they may be that version all the same: whoever looks again sees the mark.
        With *anew* all files that are there go.
        """
        before = self.version
        try:
            self.delta.create_write_transaction(
                list(actions),
                "overwrite" if anew else "append",
                delta_schema(stored),
                partition_by=list(self.state.partition_by),
                commit_properties=carried,
                post_commithook_properties=NO_HOOK,
            )
        except DeltaError:
            # Where the entries are deleted that it knows, deltalake cannot tell what came behind them.
            self.delta = self._load()
            if self.newest().version == before:
                raise
            return False
        self.newest()
        keep_short(self.delta)
        return True

    def _state(self, read_before: Mapping[str, File] = MappingProxyType({})) -> Table:
        stored = T.StructType.fromJson(json.loads(self.delta.schema().to_json()))
        by = tuple(self.delta.metadata().partition_columns)
        files = parse_files(pa.table(self.delta.get_add_actions(flatten=False)), read_before)
        return Table(self.name, self.folder, stored, by, files, self.version)


@contextmanager
def report_damage(name: str, folder: str, version: int | None) -> Iterator[None]:
    """Within it, what is wrong with a log is a `DamagedTable`; what its storage says stays an OSError."""
    try:
        yield
    except (DeltaError, FileNotFoundError, ValueError) as error:
        raise damaged_log(name, folder, version, error) from error


def damaged_log(name: str, folder: str, version: int | None, error: Exception) -> DamagedTable:
    """Make what is raised where the log of a table cannot be read."""
    what = "" if version is None else f" at version {version}"
    why = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return DamagedTable(
        name,
        f"{folder}/_delta_log",
        f"its log cannot be read{what} ({why})",
        "Bring back the files of the log from a copy of the store, or read an older commit. A table that is "
        "made of a log, as a history, `rebuild()` makes anew.",
    )


# Entries --------------------------------------------------------------------------------------------------


def is_ours(actions: Actions) -> bool:
    """Tell whether a commit to a Delta table was made by this package, for a commit of a store or without."""
    return any(action["txn"]["appId"] in (APPLICATION, COLUMNS) for action in actions if "txn" in action)


def commit_mark(actions: Actions, name: str = APPLICATION) -> int | None:
    """The mark of a commit, or what it carries under another name; None if it is not ours."""
    transactions = (action["txn"] for action in actions if "txn" in action)
    marks = (transaction["version"] for transaction in transactions if transaction["appId"] == name)
    return next(marks, None)


def entries_after(location: Location, folder: str, version: int) -> Iterator[tuple[int, Actions]]:
    """The versions behind one, and what each did."""
    while actions := read_actions(location, folder, version + 1):
        version += 1
        yield version, actions


def entries_until(location: Location, folder: str, version: int) -> Iterator[tuple[int, Actions]]:
    """The versions up to one, the last first, and what each did; as far back as the log goes."""
    while actions := read_actions(location, folder, version):
        yield version, actions
        version -= 1


def live_files(location: Location, folder: str, version: int) -> set[str]:
    """The files that a Delta table has at one of its versions, or had at a later one, below its folder."""
    paths = set(DeltaLog(location, folder, folder, version).state.files)
    for _, actions in entries_after(location, folder, version):
        paths.update(action["add"]["path"] for action in actions if "add" in action)
    return {unquote(path) for path in paths}


def read_actions(location: Location, folder: str, version: int) -> Actions:
    """
    Read what one commit to a Delta table did; nothing if there is none of that number.

    Raises:
        DamagedTable: It cannot be read, or says nothing: each commit says something.
    """
    path = location.path(f"{folder}/_delta_log/{version:020}.json")
    try:
        with location.file_system().open_input_file(path) as file:
            actions = [json.loads(line) for line in file.read().splitlines()]
        if not actions:
            raise ValueError(f"the entry {version:020}.json is empty")
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise damaged_log(folder, folder, version, error) from error
    return actions


def log_entry(name: str) -> tuple[int, str] | None:
    """The version and the kind, such as `json`, of a file of a log by its name; None for any other file."""
    match = _ENTRY.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


# Writing --------------------------------------------------------------------------------------------------


def create(location: Location, table: Table, adds: Sequence[AddAction], carried: CommitProperties) -> bool:
    """Make a Delta table; False if another writer was faster."""
    location.make_folder(table.folder)
    try:
        create_table_with_add_actions(
            location.delta(table.folder),
            delta_schema(table.stored),
            list(adds),
            mode="error",
            partition_by=list(table.partition_by),
            name=table.name,
            configuration=_LOG,
            storage_options=location.options or None,
            commit_properties=carried,
            post_commithook_properties=NO_HOOK,
        )
    except DeltaError:
        if not location.has_log(table.folder):
            raise
        return False
    return True


def add_features(head: DeltaLog, stored: T.StructType) -> bool:
    """Let a table have what such columns need, in a commit of its own; whether that was to be done."""
    # The one type that not every reader of Delta knows.
    feature, features = TableFeatures.TimestampWithoutTimezone, head.delta.protocol().reader_features or []
    if "timestamp_ntz" not in stored.json() or "timestampNtz" in features:
        return False
    alter(
        head, lambda how: head.delta.alter.add_feature(feature, allow_protocol_versions_increase=True, **how)
    )
    return True


def overtake_others(location: Location, folder: str) -> None:
    """
    Let nobody commit to a Delta table what was begun before this.

    Of two transactions that run at once Delta fails the one that has not seen a change of the table's
    properties.  This changes none.
    """

    def attempt() -> bool | None:
        head = DeltaLog(location, folder, folder)
        return alter(head, lambda how: head.delta.alter.set_table_properties({}, **how)) or None

    first_answer(location.delta(folder), attempt)


def alter(head: DeltaLog, change: Callable[[dict[str, Any]], None]) -> bool:
    """Make a change that makes a table ready; False if another writer was faster."""
    before, carried = head.version, commit_properties(0, application=COLUMNS)
    try:
        change({"commit_properties": carried, "post_commithook_properties": NO_HOOK})
    except DeltaError:
        if head.newest().version == before:
            raise
        return False
    return True


def keep_short(table: DeltaTable) -> None:
    """Write a checkpoint from time to time, so that whoever opens the table reads few files of its log."""
    if table.version() % _CHECKPOINT == 0:
        with suppress(Exception):  # Without it the table is opened more slowly, and is as right.
            table.create_checkpoint()


def commit_properties(
    mark: int,
    batch: tuple[str, int] | None = None,
    *,
    application: str = APPLICATION,
    more: Mapping[str, int] | None = None,
) -> CommitProperties:
    """
    Make what a commit to a Delta table carries: its mark, the id and the digest of a batch, and what *more*.

    deltalake is not to try again by itself: of two that make one table at once, the later one would find it
    made, and add its own files and columns to it as version 1.
    """
    versions = {application: mark, **(more or {})}
    if batch is not None:
        id_, digest = batch
        last, names = (id_.number if isinstance(id_, StreamBatch) else id_), batch_names(id_)
        versions |= {names.digest: digest, names.check: batch_check(last, digest)}
        versions |= {names.number: last} if names.number and isinstance(last, int) else {}
    transactions = [Transaction(name, version, int(time.time() * 1000)) for name, version in versions.items()]
    return CommitProperties(max_commit_retries=0, app_transactions=transactions)


class BatchNames(NamedTuple):
    """Under which names a commit carries a batch."""

    digest: str
    check: str
    """The name of the `batch_check`, by which damage is told."""
    number: str | None = None
    """The name of the number of a stream's batch: only its last one is known."""


def batch_names(id_: str) -> BatchNames:
    """Under which names a commit carries a batch of this id."""
    if isinstance(id_, StreamBatch):
        number = f"{APPLICATION}.stream:{id_.stream}"
        return BatchNames(f"{APPLICATION}.digest:{id_.stream}", f"{APPLICATION}.check:{number}", number)
    digest = f"{APPLICATION}:{id_}"
    return BatchNames(digest, f"{APPLICATION}.check:{digest}")


def batch_check(id_: str | int, digest: int) -> int:
    """A digest of the id of a batch, or of its number in a stream, and of that of its content."""
    text = f"{id_} {digest}".encode("utf-8", "surrogatepass")
    return to_signed(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()))


Answer = TypeVar("Answer")


def first_answer(place: str, attempt: Callable[[], Answer | None]) -> Answer:
    """
    Call *attempt* until it answers, with waits that grow as long as its answer is None.

    Raises:
        StoreIsBusy: It was None each time, since other writers at the *place* were faster.
    """
    for number in range(_TRIES):
        if (answer := attempt()) is not None:
            return answer
        # Longer and longer, and of no two writers the same.
        time.sleep(random.uniform(0, min(1.0, 0.01 * 2**number)))
    raise StoreIsBusy(place, _TRIES)


def delta_schema(stored: T.StructType) -> Schema:
    """Columns as deltalake has them."""
    return Schema.from_json(stored.json())
