"""A history published: a table of its own for others, in a form that they know, which follows the ledger."""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.kernel.changes import GUID
from cdckit.ledger.columns import shown_history
from cdckit.ledger.history_changes import history_changes
from cdckit.ledger.kinds import Kind
from cdckit.parts.arguments import quoted
from cdckit.parts.workers import Made
from cdckit.store import File, Snapshot
from cdckit.store.files import signed
from cdckit.store.published import InCatalogue, Published

Form = Callable[[DataFrame], DataFrame]
"""From a history to the table that is wanted of it, such as `scd_type_2`; each entity by itself."""

_FILE = 64 << 20
"""About how many bytes a file of a published table gets."""

_FEW = 16
"""With how many small files on they are written together with what is new."""


def form_number(form: Form) -> int:
    """64 bits that tell a form from another one: by the function's name, its defaults and what is told it."""
    function, args, told = form, (), {}
    if isinstance(form, partial):
        function, args, told = form.func, form.args, form.keywords
    # Lambdas of one place have one name, as functions have that go by different variables around them.
    if not isinstance(function, FunctionType) or function.__name__ == "<lambda>" or function.__closure__:
        needed = (
            "a function with a name of its own that makes a table of a history, such as scd_type_2; what "
            "else it goes by is told it by functools.partial, not by an object or variables around it"
        )
        raise InvalidArgument("publish", "form", needed, form)
    by_default = function.__defaults__, sorted((function.__kwdefaults__ or {}).items())
    text = f"{function.__module__}.{function.__qualname__}{(by_default, args, sorted(told.items()))}"
    return signed(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()))


def target_of(
    spark: SparkSession, target: str | Path, source: str, options: dict[str, str] | None
) -> Published | InCatalogue:
    """What lies at a location, or the table of a catalogue: a text in which nothing is a path's."""
    if isinstance(target, str) and not re.search(r"[/\\:]", target):
        return InCatalogue(spark, target, source)
    return Published(spark, target, source, options)


def put_all(target: Published | InCatalogue, now: Snapshot, kind: Kind, form: Form) -> bool:
    """Write the whole table; False if another writer was faster."""
    rows = _formed(now.read(kind.history), now, kind, form)
    if isinstance(target, InCatalogue):
        return target.replace(rows, _version(now), form_number(form))
    size = sum(one.size for one in now.files(kind.history))
    return target.put(_in_files(rows, size), None, _version(now), form_number(form))


def put_changes(
    target: Published | InCatalogue, then: Snapshot, now: Snapshot, kind: Kind, form: Form
) -> bool:
    """Write the rows of the entities of which versions have changed; False if another writer was faster."""
    touched = history_changes(then, now, kind).select(GUID).distinct().persist()
    try:
        versions = now.read(kind.history, files=_files_of(touched, now.files(kind.history)))
        rows = _formed(
            versions.join(touched, GUID, "left_semi").select(*map(quoted, versions.columns)), now, kind, form
        )
        if isinstance(target, InCatalogue):
            return target.merge(rows, touched, _version(now), form_number(form))
        small = [one for one in target.files() if one.size < _FILE // 4]
        gone = {one.path: one for one in _files_of(touched, target.files())}
        if len(small) >= _FEW:
            gone |= {one.path: one for one in small}
        if gone:
            rest = target.read(list(gone.values())).join(touched, GUID, "left_anti")
            rows = rest.select(*map(quoted, rows.columns)).union(rows)
        size = sum(one.size for one in gone.values())
        return target.put(_in_files(rows, size), gone.values(), _version(now), form_number(form))
    finally:
        touched.unpersist()


def columns_of(now: Snapshot, kind: Kind, form: Form) -> T.StructType:
    """The columns of the table."""
    return _formed(now.read(kind.history, files=[]), now, kind, form).schema


def _formed(versions: DataFrame, now: Snapshot, kind: Kind, form: Form) -> DataFrame:
    found = form(shown_history(versions, now.schema(kind.changes)))
    if not isinstance(found, DataFrame) or GUID not in found.columns:
        needed = f"a function that makes a table with the column {GUID} of a history"
        raise InvalidArgument("publish", "form", needed, form)
    return found


def _version(now: Snapshot) -> int:
    assert now.version is not None
    return now.version


def _in_files(rows: DataFrame, size: int) -> DataFrame:
    """The rows in files by ranges of guids, so that a batch about few entities touches few of them."""
    parts = max(1, math.ceil(size / _FILE))
    return rows.repartitionByRange(parts, GUID).sortWithinPartitions(GUID)


def _files_of(guids: DataFrame, files: list[File]) -> list[File]:
    """The files that can hold rows of these entities."""
    if len(files) < 2:
        return files
    bounds = [((one.low.get(GUID) or "").encode(), one.high.get(GUID)) for one in files]
    ends = [(low, None if high is None else high.encode()) for low, high in bounds]
    numbers = Made(
        guids, partial(_numbers, bounds=ends), T.StructType().add("number", T.IntegerType()), large=True
    )
    # As many rows as there are files, at most.
    return [files[row["number"]] for row in numbers.rows().distinct().collect()]


def _numbers(
    batches: Iterable[pa.RecordBatch], bounds: list[tuple[bytes, bytes | None]]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sought = sorted(batch.column(0).cast(pa.large_binary()).to_pylist())
        found = []
        for number, (low, high) in enumerate(bounds):
            first = bisect_left(sought, low)
            if first < len(sought) and (high is None or sought[first] <= high):
                found.append(number)
        yield pa.record_batch({"number": pa.array(found, pa.int32())})
