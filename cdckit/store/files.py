"""The files of a table: what is known of each without opening it, and what a log says of them."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store.columns import Shape, to_true, true_name
from cdckit.store.locations import Location

Where = Mapping[str, Collection[Any] | tuple[Any, Any]]
"""Per column the values sought, or a tuple (lowest, highest), both included, None where it is open."""

OUR_FILES = re.compile(r"cdc-[0-9a-f]{32}\.parquet")
"""The names of files that this package writes."""

NAME_KEY = b"cdckit.file"
"""Under what a Parquet file of ours has its own name within itself."""


@dataclass(frozen=True)
class File:
    """
    One Parquet file.

    Args:
        path: Below the table's folder.
        size: In bytes.
        rows: How many.
        partition: The value of each column by which the table is partitioned.
        low: Of columns whose type has an order: a value that none in the file is below; for texts a
            prefix.  A column whose values are all null, or whose least one is not known, is not there.
        high: The same, above.
        nulls: How many values are null, of columns for which this is known.

    All by the columns' stored names.

    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from cdckit.store import Store
    >>> with TemporaryDirectory() as folder:
    ...     with Store(None, folder).begin() as transaction:
    ...         _ = transaction.append("products", pa.table({"number": [1, 7], "name": ["kettle", None]}))
    ...         [file] = transaction.files("products")
    >>> file.rows, file.low["number"], file.high["number"], file.nulls["name"]
    (2, 1, 7, 1)
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, Any] = field(default_factory=dict)
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)

    def add(self, *, data_change: bool = True) -> AddAction:
        """The action with which a commit adds the file; without *data_change* its rows are no news."""
        # Letters as they are: those beyond the first 65,536 in JSON's own spelling come back as others.
        stats, texts = to_json(self._stats(), ensure_ascii=False), self.partition_texts()
        return AddAction(self.path, self.size, texts, _now(), data_change, stats)

    def remove(self, *, data_change: bool = True, at: int | None = None) -> RemoveAction:
        """The action with which a commit removes the file, at that millisecond since 1970; now without it."""
        values: Any = self.partition_texts()
        return RemoveAction(self.path, data_change, _now() if at is None else at, self.size, values)

    def to_dict(self) -> dict[str, Any]:
        """Write what a log says of the file: as `to_json` writes it, `from_json` reads it."""
        return {"path": self.path, "size": self.size, "partition": self.partition, **self._stats()}

    @staticmethod
    def from_json(values: Mapping[str, Any], stored: T.StructType) -> File:
        """The file of which `to_dict` says this, of a table with the columns *stored*."""
        kinds = {column.name: column.dataType for column in stored}
        partition, low, high = (
            {name: _parse_value(value, kinds[name]) for name, value in values[key].items()}
            for key in ("partition", "minValues", "maxValues")
        )
        size, rows, nulls = values["size"], values["numRecords"], values["nullCount"]
        return File(values["path"], size, rows, partition, low, high, nulls)

    @cached_property
    def digest(self) -> int:
        """64 bits of all that a log says of the file: another path, size or bound has other ones."""
        text = to_json(self.to_dict(), sort_keys=True)
        return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())

    def _stats(self) -> dict[str, Any]:
        # Of columns that tell partitions apart, a log has no bounds.
        low, high, nulls = (
            {name: value for name, value in bounds.items() if name not in self.partition}
            for bounds in (self.low, self.high, self.nulls)
        )
        return {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls}

    def partition_texts(self) -> dict[str, str | None]:
        """The partition's values as a log has them."""
        return {name: _partition_text(value) for name, value in self.partition.items()}

    def can_hold(self, where: Where) -> bool:
        """Tell whether a row for which *where* is true can be in the file."""
        return all(self._can_hold(name, sought) for name, sought in where.items())

    def _can_hold(self, name: str, sought: Collection[Any] | tuple[Any, Any]) -> bool:
        if name in self.partition:
            low = high = self.partition[name]
            all_null = some_null = low is None
        else:
            low, high, nulls = self.low.get(name), self.high.get(name), self.nulls.get(name)
            if isinstance(high, datetime):
                # A log has milliseconds, and other writers cut off what is below them.
                high = high.replace(microsecond=high.microsecond // 1000 * 1000 + 999)
            all_null, some_null = bool(self.rows) and nulls == self.rows, nulls != 0
        if isinstance(sought, tuple):
            lowest, highest = sought
            below = highest is not None and low is not None and low > highest
            above = lowest is not None and high is not None and high < lowest
            return not (all_null or below or above)
        return any(
            some_null
            if value is None
            else not all_null and (low is None or low <= value) and (high is None or value <= high)
            for value in sought
        )


@dataclass(frozen=True)
class Table:
    """
    The state of a named table.

    Args:
        name: The name that users know.
        folder: Where it lies, below the location.
        stored: Its columns under their stored names.
        partition_by: The stored names of the columns that tell files apart.
        files: By path.
        version: Of the Delta table; None where no version of it is in this state, not yet.
    """

    name: str
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    files: Mapping[str, File] = field(default_factory=dict)
    version: int | None = None

    def with_files(self, files: Iterable[File]) -> Table:
        """Give it other files."""
        return replace(self, files={file.path: file for file in files})

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(file.rows for file in self.files.values())

    @property
    def digest(self) -> int:
        """Of its files, in whatever order: the sum of their digests, in 64 bits with a sign."""
        return to_signed(sum(file.digest for file in self.files.values()))

    def is_like(self, other: Table) -> bool:
        """Tell whether the other one is the same table with the same columns and files."""
        mine = self.folder, self.stored, self.files.keys()
        return mine == (other.folder, other.stored, other.files.keys())

    def select(self, where: Where | None, function: str, files: Iterable[File] | None = None) -> list[File]:
        """The files, perhaps of some alone, that can hold rows for which *where*, by true names, is true."""
        names = {true_name(column): column.name for column in self.stored}
        for name, sought in (where or {}).items():
            if name not in names:
                needed = f"about columns of the table, {', '.join(names)}"
                raise InvalidArgument(function, "where", needed, name)
            if isinstance(sought, str) or not isinstance(sought, Collection):
                needed = "a collection of values or a range"
                raise InvalidArgument(function, f"where[{name!r}]", needed, sought)
            if isinstance(sought, tuple) and len(sought) != 2:
                raise InvalidArgument(function, f"where[{name!r}]", "a tuple (lowest, highest)", sought)
        stored = {names[name]: sought for name, sought in (where or {}).items()}
        return [file for file in (self.files.values() if files is None else files) if file.can_hold(stored)]


@dataclass(frozen=True)
class Target:
    """
    A table for workers: its folder of a location, its columns as stored, and those of its partitions.

    *partitions* are those of files that other programs have written, by path: these do not say it themselves.
    A file of a partition has at most *file_rows* rows, then another one is begun.
    """

    location: Location
    folder: str
    stored: T.StructType
    partition_by: tuple[str, ...] = ()
    partitions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    file_rows: int | None = None

    @staticmethod
    def from_table(location: Location, table: Table, file_rows: int | None = None) -> Target:
        """The table for workers."""
        files = table.files.values() if table.partition_by else ()
        others = {file.path: file.partition for file in files if not OUR_FILES.fullmatch(file.path)}
        return Target(location, table.folder, table.stored, table.partition_by, others, file_rows)

    @cached_property
    def shape(self) -> Shape:
        """From rows as they are stored to those under their true names; made once for many files."""
        return to_true(self.stored)


def parse_files(actions: pa.Table, read_before: Mapping[str, File]) -> dict[str, File]:
    """The files of a Delta table by path, of its "add actions"; those *read_before* as they are."""
    paths = actions.column("path").to_pylist()
    files = {path: read_before[path] for path in paths if path in read_before}
    news = pa.array([path not in read_before for path in paths], pa.bool_())
    for row in (actions.filter(news) if files else actions).to_pylist():
        low, high, nulls = (_flat_bounds(row.get(key)) for key in ("min", "max", "null_count"))
        rows, partition = row["num_records"] or 0, row.get("partition") or {}
        files[row["path"]] = File(row["path"], row["size_bytes"], rows, partition, low, high, nulls)
    return files


def to_signed(number: int) -> int:
    """Wrap a number of 64 bits as Delta and Spark have it, with a sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def sum_digests(rows: DataFrame, digest: Column) -> int:
    """
    The sum of a digest of each row, in 64 bits with a sign; one job.

    It tells a repeated batch from another one, and does not depend on the order of its rows; it is no proof
    against somebody who looks for two batches with one digest.
    """
    sums = rows.agg(F.sum(digest.cast("decimal(38,0)"))).first()
    return to_signed(int(sums[0] or 0) if sums else 0)


def _flat_bounds(values: dict[str, Any] | None) -> dict[str, Any]:
    """Bounds without those within structs, which other programs tell too."""
    some = (values or {}).items()
    return {name: bound for name, bound in some if not (bound is None or isinstance(bound, dict))}


def _partition_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _now() -> int:
    return int(time.time() * 1000)


def _jsonable(value: object) -> str | float:
    """A bound that JSON does not know, as Delta's statistics have it: instants with milliseconds, cut off."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{value!r} is no bound of a column")


to_json = partial(json.dumps, default=_jsonable)
"""A value as JSON, with what a log says of files in it."""


def _parse_value(value: Any, kind: T.DataType) -> Any:
    """A value of JSON, of a file's statistics or its partition, as Python has that type."""
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return datetime.fromisoformat(value).astimezone(UTC)
    if isinstance(kind, T.TimestampNTZType):
        return datetime.fromisoformat(value)
    if isinstance(kind, T.DateType):
        return date.fromisoformat(value)
    if isinstance(kind, T.DecimalType):
        # As a float, 0.1 is above the decimal 0.1.
        return Decimal(str(value))
    return value


def name_metadata(path: str) -> dict[bytes, bytes]:
    """Name a Parquet file of ours within itself, so that two that were swapped are told."""
    return {NAME_KEY: path.encode()}
