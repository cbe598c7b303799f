"""What a ledger is about, as its store notes it; and the refusal of one that is about something else."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument
from cdckit.kernel.changes import GUID
from cdckit.store import OtherKind, Snapshot, Transaction

FORMAT = 1
BUCKETS = 64
_NOTE = "cdckit.ledger"


@dataclass(frozen=True)
class Kind:
    """
    What a ledger is about.

    Args:
        entity: The name of the kind of entity.
        keys: Its key fields, in their order.
        buckets: Into how many parts its tables are cut, by a hash of the guid.
        by_guid: Whether the changes bring their guids; None as long as none have come.
        name: Its name in a store that holds several; its tables' names begin with it.
    """

    entity: str
    keys: tuple[str, ...]
    buckets: int
    by_guid: bool | None = None
    name: str = ""

    @property
    def changes(self) -> str:
        """The name of the table of its changes."""
        return self._table("changes")

    @property
    def history(self) -> str:
        """The name of the table of its versions."""
        return self._table("history")

    @property
    def unborn(self) -> str:
        """The name of the table of the entities that have changes and no version."""
        return self._table("unborn")

    @property
    def words(self) -> str:
        """The name of the table of the words that rows took along when their keys changed."""
        return self._table("words")

    @property
    def lists(self) -> str:
        """The name of the table of the full lists that it was given."""
        return self._table("lists")

    def _table(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name

    @property
    def _key(self) -> str:
        return f"{_NOTE}:{self.name}" if self.name else _NOTE

    def note(self, transaction: Transaction) -> None:
        """Let the store say what the ledger is."""
        told = {"format": FORMAT, "entity": self.entity, "keys": self.keys, "buckets": self.buckets}
        text = json.dumps({**told, "by_guid": self.by_guid})
        if transaction.note_of(self._key) != text:
            transaction.note(self._key, text)

    def forget(self, transaction: Transaction) -> None:
        """Let the store know nothing of the ledger: it is begun anew."""
        transaction.note(self._key, None)

    def within(self, transaction: Transaction) -> Kind:
        """The same in the number of buckets that a transaction knows, if it knows one."""
        text = transaction.note_of(self._key)
        return self if text is None else replace(self, buckets=json.loads(text)["buckets"])

    def noted(self, snapshot: Snapshot, location: str, buckets: int | None) -> Kind:
        """
        The same as the store knows it; raises `OtherKind` if that is about something else.

        Args:
            snapshot: The store.
            location: Where it is, for the error.
            buckets: How many were asked for; None takes those that it has.
        """
        text = snapshot.notes.get(self._key)
        if text is None:
            own = {self.changes, self.history, self.unborn, self.lists, self.words} & set(snapshot.names())
            strange = sorted(own if self.name else snapshot.names())
            if strange:
                raise OtherKind(location, str(self), f"the tables {', '.join(strange)}, no ledger's")
            return self
        told = json.loads(text)
        if told["format"] != FORMAT:
            found = f"a ledger of format {told['format']}, which this version of cdckit does not know"
            raise OtherKind(location, f"one of format {FORMAT}", found)
        found_kind = Kind(told["entity"], tuple(told["keys"]), told["buckets"], told["by_guid"], self.name)
        if (found_kind.entity, found_kind.keys) != (self.entity, self.keys):
            raise OtherKind(location, str(self), str(found_kind))
        if buckets is not None and buckets != found_kind.buckets:
            raise OtherKind(location, f"{self} in {buckets} buckets", f"one in {found_kind.buckets}")
        return found_kind

    def of_changes(self, by_guid: bool) -> Kind:
        """The same, for changes that bring their guids or not; raises if those before were not so."""
        if self.by_guid is not None and self.by_guid != by_guid:
            needed = f"{'with' if self.by_guid else 'without'} the column {GUID}, as those before"
            raise InvalidArgument("apply", "changes", needed, "with it" if by_guid else "without it")
        return replace(self, by_guid=by_guid)

    def bucket_column(self, guid: Column) -> Column:
        """The bucket of each guid; 0 for a null, which the workers refuse."""
        number = F.pmod(F.crc32(F.encode(guid, "utf-8")), F.lit(self.buckets)).cast("int")
        return F.coalesce(number, F.lit(0))

    def bucket(self, guid: str) -> int:
        """The bucket of one guid."""
        return zlib.crc32(guid.encode()) % self.buckets

    def __str__(self) -> str:
        return f"the ledger of {self.entity!r} by {', '.join(self.keys)}"
