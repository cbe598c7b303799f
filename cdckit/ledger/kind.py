"""What a ledger is about, as its store notes it: its entity, its keys, its fields, its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.columns import log_fields
from cdckit.merging.arrow_changes import GUID
from cdckit.parts.guids import guid
from cdckit.parts.kept_folds import bucket_of
from cdckit.store import OtherKind, Snapshot, Transaction
from cdckit.store.store import Tables, read_note, write_note

FORMAT = 5
_NOTE = "cdckit.ledger"
_NO_FIELDS = T.StructType([])


class _TableName:
    """The name of a table of a ledger in its store; what is said below each is what its rows are."""

    def __set_name__(self, owner: type[Kind], name: str) -> None:
        self._name = name

    def __get__(self, kind: Kind, owner: type[Kind]) -> str:
        return f"{kind.name}.{self._name}" if kind.name else self._name


@dataclass(frozen=True)
class Kind:
    """
    What a ledger is about.

    Args:
        entity: The name of the kind of entity.
        keys: Its key fields, in their order.
        buckets: Into how many parts its tables are cut, by a hash of the guid.
        grows: Whether they are cut into more when these have become large.
        by_guid: Whether the changes bring their guids; None as long as none have come.
        name: Its name in a store that holds several; its tables' names begin with it.
        untyped: Its fields that are texts as they were sent (`cdckit.model.changes.UNTYPED`).
        empty: Its fields in which, or in parts of which, nothing stands so far: the first value says of what
            type these are, which are void here.
        texts: Its fields that are known to have texts, since values of another type came.
    """

    entity: str
    keys: tuple[str, ...]
    buckets: int = 1
    grows: bool = True
    by_guid: bool | None = None
    name: str = ""
    untyped: tuple[str, ...] = ()
    empty: T.StructType = _NO_FIELDS
    texts: tuple[str, ...] = ()

    changes = _TableName()
    """Its log: the changes that were news."""

    history = _TableName()
    """Its versions."""

    unborn = _TableName()
    """The entities that have changes and no current version."""

    words = _TableName()
    """What rows took along when their keys changed."""

    lists = _TableName()
    """The full lists that it was given."""

    erased = _TableName()
    """Its tombstones."""

    receipts = _TableName()
    """The receipts of erasures."""

    refused = _TableName()
    """The changes that were refused, since they speak of what was erased."""

    rejects = _TableName()
    """The rejects that stood among its changes."""

    @property
    def tables(self) -> dict[str, str]:
        """The names of the tables that derive from changes, their log first, as `tasks` calls them."""
        return {"log": self.changes, "history": self.history, "unborn": self.unborn, "words": self.words}

    @property
    def _key(self) -> str:
        return f"{_NOTE}:{self.name}" if self.name else _NOTE

    def note(self, transaction: Transaction) -> None:
        """
        Let the store say what the ledger is.

        Also where it says so already: who has cut it into other buckets meanwhile is in conflict.
        """
        about = {"format": FORMAT, "entity": self.entity, "keys": self.keys, "buckets": self.buckets}
        fields = {"untyped": self.untyped, "empty": self.empty.jsonValue(), "texts": self.texts}
        properties = {**about, "grows": self.grows, "by_guid": self.by_guid, **fields}
        write_note(transaction, self._key, properties)

    def forget(self, transaction: Transaction) -> None:
        """Let the store know nothing of the ledger, whose tables are dropped: it is begun anew."""
        for name in (*self.tables.values(), self.lists, self.rejects):
            transaction.drop(name)
        transaction.note(self._key, None)

    def with_buckets_of(self, transaction: Transaction) -> Kind:
        """The same, with what a transaction knows of its buckets and fields, if it knows it."""
        note = self._read_note(transaction, transaction.base.location.root)
        return self if note is None else replace(self, **_noted_properties(note))

    def _read_note(self, tables: Tables, location: str) -> Any:
        """What the store has noted of the ledger, None if nothing; raises `OtherKind` for another format."""
        note = read_note(tables, self._key, None)
        if note is not None and note["format"] != FORMAT:
            problem = f"a ledger of format {note['format']}, which this version of cdckit does not know"
            raise OtherKind(location, f"one of format {FORMAT}", problem)
        return note

    def stored_kind(self, snapshot: Snapshot, buckets: int | None = None) -> Kind:
        """
        Describe the ledger as the store knows it; raises `OtherKind` if that is about something else.

        *buckets* is how many were asked for; None takes those that it has.
        """
        location = snapshot.location.root
        note = self._read_note(snapshot, location)
        if note is None:
            tables_there = {*self.tables.values(), self.lists} & set(snapshot.names())
            strange = sorted(tables_there if self.name else snapshot.names())
            if strange:
                raise OtherKind(location, str(self), f"the tables {', '.join(strange)}, no ledger's")
            return self
        about = {"by_guid": note["by_guid"], "name": self.name, **_noted_properties(note)}
        stored = Kind(note["entity"], tuple(note["keys"]), **about)
        if (stored.entity, stored.keys) != (self.entity, self.keys):
            raise OtherKind(location, str(self), str(stored))
        if buckets is not None and (stored.grows or buckets != stored.buckets):
            stored_buckets = (
                "one that decides itself in how many" if stored.grows else f"one in {stored.buckets}"
            )
            raise OtherKind(location, f"{self} in {buckets} buckets", stored_buckets)
        return stored

    def for_changes(self, by_guid: bool) -> Kind:
        """The same, for changes that bring their guids or not; raises if those before were not so."""
        if self.by_guid is not None and self.by_guid != by_guid:
            needed = f"{'with' if self.by_guid else 'without'} the column {GUID}, as those before"
            raise InvalidArgument(None, "changes", needed, "with it" if by_guid else "without it")
        return replace(self, by_guid=by_guid)

    def fields(self, transaction: Transaction) -> T.StructType:
        """The fields that the ledger knows, none before the first changes."""
        is_there = transaction.has(self.changes)
        return log_fields(transaction.schema(self.changes)) if is_there else T.StructType()

    def filled_fields(self, transaction: Transaction) -> T.StructType:
        """Keep its fields in which something stands, in all of their parts."""
        return T.StructType(
            [field for field in self.fields(transaction) if field.name not in self.empty.names]
        )

    def guid(self, key: Mapping[str, Column]) -> Column:
        """The guid of an entity, whose key fields these columns have."""
        return guid(self.entity, {name: key[name] for name in self.keys})

    def guid_of(self, data: str) -> Column:
        """The guid of the entity that a struct of fields, such as `data`, is about."""
        return self.guid({name: F.col(data).getField(name) for name in self.keys})

    def bucket_column(self, guid: Column) -> Column:
        """The bucket of each guid; 0 for a null, which the workers refuse."""
        number = F.pmod(F.crc32(guid.cast("binary")), F.lit(self.buckets)).cast("int")
        return F.coalesce(number, F.lit(0))

    def bucket(self, guid: str) -> int:
        """The bucket of one guid."""
        return bucket_of(guid, self.buckets)

    def __str__(self) -> str:
        return f"the ledger of {self.entity!r} by {', '.join(self.keys)}"


def _noted_properties(note: Mapping[str, Any]) -> dict[str, Any]:
    """What a note says of buckets and fields, as arguments of a `Kind`."""
    fields = {"untyped": tuple(note["untyped"]), "texts": tuple(note["texts"])}
    empty = T.StructType.fromJson(note["empty"])
    return {"buckets": note["buckets"], "grows": note["grows"], "empty": empty, **fields}
