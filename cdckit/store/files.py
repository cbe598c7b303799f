"""The files of a table, as its log describes them: what is in each is known without opening it."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store.digests import signed

Where = Mapping[str, Collection[Any] | tuple[Any, Any]]
"""Per column the values sought, or a tuple (lowest, highest), both included, None where it is open."""


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
    import pyarrow.parquet as pq
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
        return AddAction(
            path=self.path,
            size=self.size,
            partition_values=self.partition_texts(),
            modification_time=_now(),
            data_change=data_change,
            # As they are: letters beyond the first 65,536 in JSON's own spelling come back as others.
            stats=json.dumps(self._stats(), ensure_ascii=False),
        )

    def remove(self, *, data_change: bool = True) -> RemoveAction:
        """The action with which a commit removes the file."""
        values: Any = self.partition_texts()
        return RemoveAction(self.path, data_change, _now(), self.size, values)

    def to_json(self) -> dict[str, Any]:
        """What a log says of the file, as JSON; see `of_json`."""
        return {
            "path": self.path,
            "size": self.size,
            "partition": {name: _jsonable(value) for name, value in self.partition.items()},
            **self._stats(),
        }

    @staticmethod
    def of_json(found: Mapping[str, Any], stored: T.StructType) -> File:
        """The file of which `to_json` says this, of a table with the columns *stored*."""
        kinds = {one.name: one.dataType for one in stored}

        def values(named: Mapping[str, Any]) -> dict[str, Any]:
            return {name: typed(value, kinds[name]) for name, value in named.items()}

        return File(
            path=found["path"],
            size=found["size"],
            rows=found["numRecords"],
            partition=values(found["partition"]),
            low=values(found["minValues"]),
            high=values(found["maxValues"]),
            nulls=found["nullCount"],
        )

    def digest(self) -> int:
        """64 bits of all that a log says of the file: another path, size or bound has other ones."""
        text = json.dumps(self.to_json(), sort_keys=True)
        return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())

    def _stats(self) -> dict[str, Any]:
        # Of columns that tell partitions apart, a log has no bounds.
        low, high, nulls = (
            {name: value for name, value in bounds.items() if name not in self.partition}
            for bounds in (self.low, self.high, self.nulls)
        )
        return {
            "numRecords": self.rows,
            "minValues": {name: _jsonable(value) for name, value in low.items()},
            "maxValues": {name: _jsonable(value) for name, value in high.items()},
            "nullCount": nulls,
        }

    def partition_texts(self) -> dict[str, str | None]:
        """The partition's values as a log has them."""
        return {name: partition_text(value) for name, value in self.partition.items()}

    def can_hold(self, where: Where) -> bool:
        """Whether a row for which *where* is true can be in the file."""
        return all(self._can_hold(name, sought) for name, sought in where.items())

    def _can_hold(self, name: str, sought: Collection[Any] | tuple[Any, Any]) -> bool:
        if name in self.partition:
            return _is_sought(self.partition[name], sought)
        if self.rows and self.nulls.get(name) == self.rows:
            return not isinstance(sought, tuple) and None in sought
        low, high = self.low.get(name), self.high.get(name)
        if isinstance(sought, tuple):
            lowest, highest = sought
            below = highest is not None and low is not None and low > highest
            above = lowest is not None and high is not None and high < lowest
            return not below and not above
        some_null = self.nulls.get(name, 1) > 0
        return any(
            some_null if one is None else (low is None or low <= one) and (high is None or one <= high)
            for one in sought
        )


def _is_sought(value: Any, sought: Collection[Any] | tuple[Any, Any]) -> bool:
    if not isinstance(sought, tuple):
        return value in sought
    lowest, highest = sought
    if value is None:
        return False
    return (lowest is None or value >= lowest) and (highest is None or value <= highest)


def require_where(where: Where | None, columns: Iterable[str], function: str) -> Where:
    """The same, checked: every column is there, and what is sought of it is a collection or a range."""
    for name, sought in (where or {}).items():
        if name not in columns:
            raise InvalidArgument(
                function, "where", f"about columns of the table, {', '.join(columns)}", name
            )
        if isinstance(sought, str) or not isinstance(sought, Collection):
            raise InvalidArgument(function, f"where[{name!r}]", "a collection of values or a range", sought)
        if isinstance(sought, tuple) and len(sought) != 2:
            raise InvalidArgument(function, f"where[{name!r}]", "a tuple (lowest, highest)", sought)
    return where or {}


OUR_FILES = re.compile(r"cdc-[0-9a-f]{32}\.parquet")
"""The names of files that this package writes."""


_NAME = b"cdckit.file"


def named_metadata(path: str) -> dict[bytes, bytes]:
    """What a Parquet file of ours says of itself: its name, so that two that were swapped are told."""
    return {_NAME: path.encode()}


def require_name(file: pq.ParquetFile, path: str) -> None:
    """Raise `ArrowInvalid` for a file that says another name."""
    said = (file.metadata.metadata or {}).get(_NAME, path.encode())
    if said != path.encode():
        raise pa.ArrowInvalid(f"it is the file {said.decode(errors='replace')}")


def files_of(actions: pa.Table) -> dict[str, File]:
    """The files that a Delta table has, by path, of what deltalake calls its add actions."""
    found = {}
    for row in actions.to_pylist():
        known = {key: _known(row.get(key)) for key in ("min", "max", "null_count")}
        found[row["path"]] = File(
            path=row["path"],
            size=row["size_bytes"],
            rows=row["num_records"] or 0,
            partition=row.get("partition") or {},
            low=known["min"],
            high=known["max"],
            nulls=known["null_count"],
        )
    return found


def digest_of(files: Iterable[File]) -> int:
    """Of files in whatever order: the sum of their digests, in 64 bits with a sign."""
    return signed(sum(one.digest() for one in files))


def _known(values: dict[str, Any] | None) -> dict[str, Any]:
    # Other programs tell bounds within structs too.
    return {
        name: each for name, each in (values or {}).items() if not (each is None or isinstance(each, dict))
    }


def partition_text(value: Any) -> str | None:
    """A partition's value as a log has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _now() -> int:
    return int(time.time() * 1000)


def _jsonable(value: Any) -> Any:
    """A bound as Delta's statistics have it: instants with milliseconds, rounded already."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def typed(value: Any, kind: T.DataType) -> Any:
    """A value of JSON, of a file's statistics or its partition, as Python has that type."""
    if value is None:
        return None
    if isinstance(kind, T.TimestampType):
        return datetime.fromisoformat(value).astimezone(UTC)
    if isinstance(kind, T.TimestampNTZType):
        return datetime.fromisoformat(value)
    if isinstance(kind, T.DateType):
        return date.fromisoformat(value)
    return value
