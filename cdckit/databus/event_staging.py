"""Events put down in files while they are read on the driver, where driver and workers both reach them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from pyspark.sql import SparkSession

from cdckit.databus.window_columns import STREAM
from cdckit.errors import InvalidArgument
from cdckit.store import DamagedTable, Snapshot, Store
from cdckit.store.locations import locate
from cdckit.store.writing import Rows

EVENTS = "events"


@dataclass(frozen=True)
class Place:
    """
    Where events are put down.

    Args:
        folder: A folder or a URI, as for `cdckit.store.Store`; without it the folder for temporary files of
            this machine, which is enough where the workers are on it too.
        storage_options: What deltalake calls so, for a URI.
    """

    folder: str | Path | None = None
    storage_options: Mapping[str, str] | None = None

    @contextmanager
    def with_events(self, spark: SparkSession | None, rows: Rows, *, function: str) -> Iterator[Snapshot]:
        """
        A store of its own that holds the rows in its table of events, deleted at the end.

        Raises:
            InvalidArgument: What the workers wrote cannot be reached from here.
            NoFileSystem: As for `cdckit.store.Store`.
        """
        options = dict(self.storage_options or {}) or None
        if self.folder is None:
            folder = tempfile.mkdtemp(prefix="databus-")  # which nobody else can read
        else:
            folder = f"{str(self.folder).rstrip('/')}/databus-{uuid4().hex}"
        store, location = Store(spark, folder, options), locate(folder, options, spark)
        try:
            with store.begin() as transaction:
                transaction.append(EVENTS, rows, partition_by=STREAM)
                transaction.commit()
            yield store.snapshot()
        except DamagedTable as error:
            needed = "a folder or a URI that this program and Spark's workers both reach"
            raise InvalidArgument(function, "folder", needed, self.folder or tempfile.gettempdir()) from error
        finally:
            location.delete_all()
