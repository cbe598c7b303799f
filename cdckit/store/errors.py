"""What can go wrong with tables that are kept, as exceptions that carry the facts."""

from __future__ import annotations

from collections.abc import Iterable

from cdckit.errors import CdcError

KEEP_OR_REBUILD = (
    "Nothing was written. To keep a change of a log, call `adopt()`. A table that is made of a log, as a "
    "history, cannot keep it: call `rebuild()`, which makes the table anew."
)


class DamagedTable(CdcError, RuntimeError):
    """A table that a commit names, or the table of commits, cannot be read as it was written."""

    def __init__(self, table: str, file: str, found: str, remedy: str) -> None:
        self.table, self.file, self.found, self.remedy = table, file, found, remedy
        super().__init__(table, file, found, remedy)

    def __str__(self) -> str:
        return f"The table {self.table!r} is damaged at {self.file}: {self.found}. {self.remedy}"


class ConflictingCommit(CdcError, RuntimeError):
    """Another commit has changed what this transaction read, replaced or removed."""

    def __init__(self, tables: Iterable[str], base: int, found: int, because: str) -> None:
        self.tables, self.base, self.found, self.because = tuple(tables), base, found, because
        super().__init__(self.tables, base, found, because)

    def __str__(self) -> str:
        return (
            f"The transaction began from commit {self.base}, and commit {self.found} has come between: "
            f"{self.because} ({', '.join(self.tables)}). Nothing was committed: begin again and do the "
            "work on the new state."
        )


class ForeignChange(CdcError, RuntimeError):
    """Another program has changed rows or columns of a Delta table; *remedy* says what to do."""

    def __init__(
        self, table: str, version: int, operation: str, author: str, remedy: str = KEEP_OR_REBUILD
    ) -> None:
        self.table, self.version, self.operation, self.author = table, version, operation, author
        self.remedy = remedy
        super().__init__(table, version, operation, author, remedy)

    def __str__(self) -> str:
        return (
            f"Another program has changed the Delta table {self.table!r}: {self.operation} by {self.author} "
            f"is its version {self.version}. {self.remedy}"
        )


class StoreIsBusy(CdcError, TimeoutError):
    """Other writers were faster, again and again."""

    def __init__(self, location: str, tries: int) -> None:
        self.location, self.tries = location, tries
        super().__init__(location, tries)

    def __str__(self) -> str:
        return (
            f"{self.location} was tried {self.tries} times, and each time another writer was faster. "
            "Nothing was committed: try again later, or let fewer writers commit at once."
        )


class BatchIdReused(CdcError, ValueError):
    """A batch id that was committed with other content, or is that of an older batch of a stream."""

    def __init__(self, batch: str, committed: int, found: int, last: int | None = None) -> None:
        self.batch, self.committed, self.found, self.last = batch, committed, found, last
        super().__init__(batch, committed, found, last)

    def __str__(self) -> str:
        if self.last is not None:
            return (
                f"The batch {self.batch!r} is older than {self.last}, the last one of its stream. Nothing "
                f"was committed: a stream that begins anew, with another checkpoint, needs another name."
            )
        return (
            f"The batch {self.batch!r} was committed with content of digest {self.committed}; now its digest "
            f"is {self.found}. Nothing was committed: other content needs another id."
        )


class NoFileSystem(CdcError, ValueError):
    """A location of a scheme for which not everybody who must read and write has a file system."""

    def __init__(self, location: str, scheme: str, lacking: str, reason: str) -> None:
        self.location, self.scheme, self.lacking, self.reason = location, scheme, lacking, reason
        super().__init__(location, scheme, lacking, reason)

    def __str__(self) -> str:
        return (
            f"A store needs a location that Spark, its Python workers and deltalake can all reach; for "
            f"{self.scheme}:// ({self.location}) {self.lacking} has no file system: {self.reason}"
        )


class NoCredentials(CdcError, PermissionError):
    """An object store asks who one is, and nobody has told deltalake."""

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(location)

    def __str__(self) -> str:
        return (
            f"A store at {self.location} needs credentials, and deltalake has found none: give them as "
            "*storage_options*, such as access_key_id and secret_access_key for s3://, or in the environment "
            "of the driver and of every worker. Those of the Spark session are for Spark alone."
        )


class NotWritable(CdcError, PermissionError):
    """A folder in which this program, or its user, may not write."""

    def __init__(self, folder: str, reason: str) -> None:
        self.folder, self.reason = folder, reason
        super().__init__(folder, reason)

    def __str__(self) -> str:
        return (
            f"Nothing can be written in {self.folder}: {self.reason}. Nothing was committed, and all is "
            "read as before: let this program and Spark's workers write there, or choose another location."
        )


class NoSuchTable(CdcError, LookupError):
    """A name that no table of the snapshot has."""

    def __init__(self, table: str, version: int | None, found: Iterable[str]) -> None:
        self.table, self.version, self.found = table, version, tuple(found)
        super().__init__(table, version, self.found)

    def __str__(self) -> str:
        of = "The empty store" if self.version is None else f"Commit {self.version}"
        return f"{of} has no table {self.table!r}; it has {', '.join(self.found) or 'none'}."


class OtherKind(CdcError, ValueError):
    """A location holds something else than what was asked for: a hub, a feed, the ledger of an entity."""

    def __init__(self, location: str, needed: str, found: str) -> None:
        self.location, self.needed, self.found = location, needed, found
        super().__init__(location, needed, found)

    def __str__(self) -> str:
        return (
            f"{self.location} should be empty or hold {self.needed}; it holds {self.found}. "
            "Nothing was changed there: open it as what it is, or choose another location."
        )


class NotStorable(CdcError, TypeError):
    """A column of a type that no Delta table has, or of one that cannot become that of its table."""

    def __init__(self, table: str, column: str, found: str, needed: str) -> None:
        self.table, self.column, self.found, self.needed = table, column, found, needed
        super().__init__(table, column, found, needed)

    def __str__(self) -> str:
        return (
            f"The table {self.table!r} needs its column {self.column} as {self.needed}; it is {self.found}. "
            "Cast it before it is written, to text for example."
        )
