"""What can go wrong with tables that are kept, as exceptions that carry the facts."""

from __future__ import annotations

from collections.abc import Iterable

from cdckit.errors import CdcError, ErrorWithFacts

KEEP_OR_REBUILD = (
    "Nothing was written. To keep a change of a log, call `adopt()`. A table that is made of a log, as a "
    "history, cannot keep it: call `rebuild()`, which makes the table anew."
)


class DamagedTable(ErrorWithFacts, RuntimeError):
    """A table that a commit names, or the table of commits, cannot be read as it was written."""

    table: str
    file: str
    found: str
    remedy: str
    sentence = "The table {table!r} is damaged at {file}: {found}. {remedy}"


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


class ForeignChange(ErrorWithFacts, RuntimeError):
    """Another program has changed rows or columns of a Delta table; *remedy* says what to do."""

    table: str
    version: int
    operation: str
    author: str
    remedy: str = KEEP_OR_REBUILD
    sentence = (
        "Another program has changed the Delta table {table!r}: {operation} by {author} "
        "is its version {version}. {remedy}"
    )


class StoreIsBusy(ErrorWithFacts, TimeoutError):
    """Other writers were faster, again and again."""

    location: str
    tries: int
    sentence = (
        "{location} was tried {tries} times, and each time another writer was faster. "
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


class NoFileSystem(ErrorWithFacts, ValueError):
    """A location of a scheme for which not everybody who must read and write has a file system."""

    location: str
    scheme: str
    lacking: str
    reason: str
    sentence = (
        "A store needs a location that Spark, its Python workers and deltalake can all reach; for "
        "{scheme}:// ({location}) {lacking} has no file system: {reason}"
    )


class NoCredentials(ErrorWithFacts, PermissionError):
    """An object store asks who one is, and nobody has told deltalake."""

    location: str
    sentence = (
        "A store at {location} needs credentials, and deltalake has found none: give them as "
        "*storage_options*, such as access_key_id and secret_access_key for s3://, or in the environment "
        "of the driver and of every worker. Those of the Spark session are for Spark alone."
    )


class NotWritable(ErrorWithFacts, PermissionError):
    """A folder in which this program, or its user, may not write."""

    folder: str
    reason: str
    sentence = (
        "Nothing can be written in {folder}: {reason}. Nothing was committed, and all is "
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


class OtherKind(ErrorWithFacts, ValueError):
    """A location holds something else than what was asked for: a hub, a feed, the ledger of an entity."""

    location: str
    needed: str
    found: str
    sentence = (
        "{location} should be empty or hold {needed}; it holds {found}. "
        "Nothing was changed there: open it as what it is, or choose another location."
    )


class NotStorable(ErrorWithFacts, TypeError):
    """A column of a type that no Delta table has, or of one that cannot become that of its table."""

    table: str
    column: str
    found: str
    needed: str
    sentence = (
        "The table {table!r} needs its column {column} as {needed}; it is {found}. "
        "Cast it before it is written, to text for example."
    )
