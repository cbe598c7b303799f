"""A Delta table of its own, outside of any store, that shows a store's tables as of one of its commits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store.columns import storable
from cdckit.store.commits import FOLDER
from cdckit.store.errors import ForeignChange
from cdckit.store.file_reader import read_spark
from cdckit.store.file_writer import target_of, write
from cdckit.store.files import File
from cdckit.store.locations import Location, locate
from cdckit.store.log import (
    APPLICATION,
    NO_HOOK,
    Followed,
    Table,
    change_since_ours,
    keep_short,
    log_options,
    properties,
    schema_of,
)
from cdckit.store.names import stored_names

NEEDED = "an empty place, or a table that this ledger has published"
ANEW = "Nothing was written. Publish with `anew=True` to replace what is there, or publish to another place."


class Published:
    """
    The table as it stands when this is made.

    Each of our commits to it carries the number of the commit that it shows, which store that is of, and
    which form it has: so nothing is written twice, and nothing over what others have changed.

    Args:
        spark: The session that reads, and whose workers write.
        target: A local folder or a URI.
        source: What tells the store from all others.
        options: What deltalake calls storage options.

    Raises:
        InvalidArgument: There is something else, or it is a place within a store, whose `vacuum` would take
            the files for its own.

    Attributes:
        commit: The number of the commit that it shows; None if there is no table yet.
        form: A number for the form that it has.
    """

    def __init__(
        self, spark: SparkSession, target: str | Path, source: str, options: dict[str, str] | None
    ) -> None:
        whole = locate(target, options, spark)
        root, _, self._folder = whole.root.rpartition("/")
        self._spark, self._source = spark, source
        self._location = Location(root, whole.local, whole.options)
        self._head: Followed | None = None
        self.commit: int | None = None
        self.form: int | None = None
        if self._location.has_log(FOLDER) or whole.has_log(FOLDER):
            raise InvalidArgument("publish", "target", "a place outside of every store", str(target))
        if self._location.has_log(self._folder):
            self._head = Followed(self._location, self._folder, self._folder)
            self.commit = self._head.mark
            self.form = self._head.delta.transaction_version(f"{APPLICATION}:{source}")
            if self.form is None:
                raise InvalidArgument("publish", "target", NEEDED, str(target))

    def require_untouched(self) -> None:
        """Raise `ForeignChange` if others have changed rows since our last commit."""
        if self._head is not None:
            assert self._head.state.version is not None
            found = change_since_ours(self._location, self._folder, self._head.state.version)
            if found is not None:
                where = self._location.delta(self._folder)
                raise ForeignChange(where, found.version, found.operation, found.author, ANEW)

    def has_columns(self, columns: T.StructType) -> bool:
        """Whether the table has just such columns."""
        return self._head is not None and self._head.state.stored == _stored(columns, self._folder)

    def files(self) -> list[File]:
        """Its files."""
        return [] if self._head is None else list(self._head.state.files.values())

    def read(self, files: list[File]) -> DataFrame:
        """The rows of some of its files."""
        assert self._head is not None
        return read_spark(self._spark, self._location, self._head.state, files, None)

    def put(self, rows: DataFrame, gone: Iterable[File] | None, commit: int, form: int) -> bool:
        """
        Write rows in the place of some of its files, or of all and in columns of their own for None.

        False if another writer was faster: then look at the table again.
        """
        table = Table(self._folder, self._folder, _stored(rows.schema, self._folder))
        added = [one.add() for one in write(rows, target_of(self._location, table)).files]
        carried = properties(commit, (self._source, form))
        told: dict[str, Any] = {"commit_properties": carried, "post_commithook_properties": NO_HOOK}
        if self._head is None:
            return self._made(table, added, told)
        actions: list[AddAction | RemoveAction] = [*added, *(one.remove() for one in gone or ())]
        mode = "overwrite" if gone is None else "append"
        try:
            self._head.delta.create_write_transaction(actions, mode, schema_of(table), **told)
        except CommitFailedError:
            return False
        self._head.newest()
        keep_short(self._head.delta)
        return True

    def _made(self, table: Table, added: list[AddAction], told: dict[str, Any]) -> bool:
        try:
            create_table_with_add_actions(
                self._location.delta(self._folder),
                schema_of(table),
                added,
                mode="error",
                name=self._folder,
                configuration=log_options(),
                storage_options=self._location.options or None,
                **told,
            )
        except DeltaError:
            if not self._location.has_log(self._folder):
                raise
            return False  # Another writer was faster.
        return True


def _stored(columns: T.StructType, table: str) -> T.StructType:
    return stored_names(storable(columns, table))
