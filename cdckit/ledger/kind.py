"""What a ledger is about, as its store notes it: its entity, its keys, its fields, its tables."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.ledger.columns import log_fields
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import AS_SENT, EMPTY, empty_fields, typed_fields, untyped_fields, with_empty_as
from cdckit.parts.widening import fill_void, has_void, void_as_text
from cdckit.store import OtherKind, Snapshot, Transaction

FORMAT = 3
BUCKETS = 64
_NOTE = "cdckit.ledger"
_NO_FIELDS = T.StructType([])


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
        untyped: Its fields that are texts as they were sent (`cdckit.model.changes.UNTYPED`).
        empty: Its fields in which, or in parts of which, nothing stands so far: the first value says of what
            type these are, which are void here.
        texts: Its fields that are known to have texts, since values of another type came.
    """

    entity: str
    keys: tuple[str, ...]
    buckets: int
    by_guid: bool | None = None
    name: str = ""
    untyped: tuple[str, ...] = ()
    empty: T.StructType = _NO_FIELDS
    texts: tuple[str, ...] = ()

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
        """The name of the table of the entities that have changes and no current version."""
        return self._table("unborn")

    @property
    def words(self) -> str:
        """The name of the table of the words that rows took along when their keys changed."""
        return self._table("words")

    @property
    def lists(self) -> str:
        """The name of the table of the full lists that it was given."""
        return self._table("lists")

    @property
    def erased(self) -> str:
        """The name of the table of tombstones."""
        return self._table("erased")

    @property
    def receipts(self) -> str:
        """The name of the table of the receipts of erasures."""
        return self._table("receipts")

    @property
    def refused(self) -> str:
        """The name of the table of changes that were refused, since they speak of what was erased."""
        return self._table("refused")

    @property
    def rejects(self) -> str:
        """The name of the table of the rejects that stood among its changes."""
        return self._table("rejects")

    def _table(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name

    @property
    def _key(self) -> str:
        return f"{_NOTE}:{self.name}" if self.name else _NOTE

    def note(self, transaction: Transaction) -> None:
        """Let the store say what the ledger is."""
        properties = {"format": FORMAT, "entity": self.entity, "keys": self.keys, "buckets": self.buckets}
        fields = {"untyped": self.untyped, "empty": self.empty.jsonValue(), "texts": self.texts}
        text = json.dumps({**properties, "by_guid": self.by_guid, **fields})
        if transaction.note_of(self._key) != text:
            transaction.note(self._key, text)

    def forget(self, transaction: Transaction) -> None:
        """Let the store know nothing of the ledger, whose tables are dropped: it is begun anew."""
        for name in (self.changes, self.history, self.unborn, self.words, self.lists, self.rejects):
            transaction.drop(name)
        transaction.note(self._key, None)

    def with_buckets_of(self, transaction: Transaction) -> Kind:
        """The same, with what a transaction knows of its buckets and fields, if it knows it."""
        text = transaction.note_of(self._key)
        if text is None:
            return self
        properties = json.loads(text)
        return _with_noted_fields(replace(self, buckets=properties["buckets"]), properties)

    def stored_kind(self, snapshot: Snapshot, buckets: int | None = None) -> Kind:
        """
        Describe the ledger as the store knows it; raises `OtherKind` if that is about something else.

        *buckets* is how many were asked for; None takes those that it has.
        """
        location = snapshot.location.root
        text = snapshot.notes.get(self._key)
        if text is None:
            tables_there = {self.changes, self.history, self.unborn, self.lists, self.words} & set(
                snapshot.names()
            )
            strange = sorted(tables_there if self.name else snapshot.names())
            if strange:
                raise OtherKind(location, str(self), f"the tables {', '.join(strange)}, no ledger's")
            return self
        properties = json.loads(text)
        if properties["format"] != FORMAT:
            problem = f"a ledger of format {properties['format']}, which this version of cdckit does not know"
            raise OtherKind(location, f"one of format {FORMAT}", problem)
        found_kind = Kind(
            properties["entity"],
            tuple(properties["keys"]),
            properties["buckets"],
            properties["by_guid"],
            self.name,
        )
        found_kind = _with_noted_fields(found_kind, properties)
        if (found_kind.entity, found_kind.keys) != (self.entity, self.keys):
            raise OtherKind(location, str(self), str(found_kind))
        if buckets is not None and buckets != found_kind.buckets:
            raise OtherKind(location, f"{self} in {buckets} buckets", f"one in {found_kind.buckets}")
        return found_kind

    def for_changes(self, by_guid: bool) -> Kind:
        """The same, for changes that bring their guids or not; raises if those before were not so."""
        if self.by_guid is not None and self.by_guid != by_guid:
            needed = f"{'with' if self.by_guid else 'without'} the column {GUID}, as those before"
            raise InvalidArgument("apply", "changes", needed, "with it" if by_guid else "without it")
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

    def fit(self, transaction: Transaction, rows: DataFrame) -> tuple[Kind, DataFrame]:
        """
        The rows of `to_log_rows`, of which fields in which nothing stands have the types that the log knows.

        And the same kind, which knows of which fields of the log nothing is known yet.

        Cost: none; where texts come to a field of another type, a job over the rows, and where another type
        comes to texts for the first time, one over the log: these may be empty.
        """
        before = self.fields(transaction)
        others = {
            field.name: (before[field.name].dataType, field.dataType)
            for field in log_fields(rows.schema)
            if field.name in before.names and before[field.name].dataType != field.dataType
        }
        fitting = self.fitting_types(transaction, rows.schema)
        as_texts = [name for name, (_, now) in others.items() if isinstance(now, T.StringType)]
        empty = _find_empty(rows, [name for name in as_texts if name not in fitting])
        rows = with_empty_as(rows, fitting | {name: others[name][0] for name in empty})
        of_texts = [name for name, (was, _) in others.items() if isinstance(was, T.StringType)]
        unknown = [
            name for name in of_texts if name not in {*fitting, *empty, *self.empty.names, *self.texts}
        ]
        empty_fields = _find_empty(transaction.read(self.changes), unknown) if unknown else []
        texts = (*self.texts, *(name for name in unknown if name not in empty_fields))
        more = [T.StructField(name, T.NullType()) for name in empty_fields]
        return replace(self, empty=T.StructType([*self.empty, *more]), texts=texts), rows

    def fitting_types(self, transaction: Transaction, rows: T.StructType) -> dict[str, T.DataType]:
        """
        Find by name the types that the log has, or can have, of fields of changes in which nothing stands.

        So has each field that leaves open what its values, or parts of them, are, here or in the log: what
        either of the two leaves open the other one says, and if neither does it is text.
        """
        before, empty = self.fields(transaction), empty_fields(rows)
        types: dict[str, T.DataType] = {}
        for field in log_fields(rows):
            now = empty.get(field.name, field.dataType)
            was = self._known_type(before, field.name)
            filled = fill_void(was, now)
            if filled is None or not (has_void(now) or has_void(was)):
                continue
            stays = field.name in before.names and filled == was
            type_ = before[field.name].dataType if stays else void_as_text(filled)
            # A type that says nothing is good enough where nothing better is known.
            if field.dataType != type_ and (
                stays or has_void(field.dataType) or not isinstance(filled, T.NullType)
            ):
                types[field.name] = type_
        return types

    def _known_type(self, fields: T.StructType, name: str) -> T.DataType:
        """The type of one of the *fields* of the log, void where it, or a part of it, is not known yet."""
        if name in self.empty.names:
            return self.empty[name].dataType
        return fields[name].dataType if name in fields.names else T.NullType()

    def settled(self, log: T.StructType) -> dict[str, T.DataType]:
        """The types of the empty fields of which changes in these columns say more."""
        # What was read of the log itself says nothing new.
        fields = log_fields(log) if EMPTY in log["data"].metadata else _NO_FIELDS
        types = {field.name: field.dataType for field in fields}
        now = types | empty_fields(log)
        filled = {
            field.name: fill_void(field.dataType, now[field.name])
            for field in self.empty
            if field.name in types
        }
        return {name: kind for name, kind in filled.items() if kind not in (None, self.empty[name].dataType)}

    def with_empty_of(self, transaction: Transaction, log: T.StructType) -> Kind:
        """The same, after changes in these columns."""
        names = self.fields(transaction).names
        new = {name: kind for name, kind in empty_fields(log).items() if name not in names}
        types = {field.name: field.dataType for field in self.empty} | self.settled(log) | new
        fields = [T.StructField(name, kind) for name, kind in types.items() if has_void(kind)]
        return replace(self, empty=T.StructType(fields))

    def for_fields(self, transaction: Transaction, rows: T.StructType, *, function: str = "apply") -> Kind:
        """
        The same, for changes in these columns.

        Raises:
            WrongColumnType: They do not say how a field is written of which the ledger has the values, or
                the other way round: the two would not be the same.
        """
        fields = self.fields(transaction)
        untyped = untyped_fields(rows)
        for name in untyped:
            if name in fields.names and name not in self.untyped:
                needed = f"{fields[name].dataType.simpleString()}, as before"
                raise WrongColumnType(function, f"data.{name}", needed, AS_SENT, _ask_for_types(fields))
        for name in typed_fields(rows):
            if name in self.untyped:
                type_name = log_fields(rows)[name].dataType.simpleString()
                remedy = _offer_texts(self.untyped)
                raise WrongColumnType(function, f"data.{name}", f"{AS_SENT}, as before", type_name, remedy)
        return replace(self, untyped=tuple(dict.fromkeys([*self.untyped, *untyped])))

    def bucket_column(self, guid: Column) -> Column:
        """The bucket of each guid; 0 for a null, which the workers refuse."""
        number = F.pmod(F.crc32(guid.cast("binary")), F.lit(self.buckets)).cast("int")
        return F.coalesce(number, F.lit(0))

    def bucket(self, guid: str) -> int:
        """The bucket of one guid."""
        return zlib.crc32(guid.encode()) % self.buckets

    def __str__(self) -> str:
        return f"the ledger of {self.entity!r} by {', '.join(self.keys)}"


def _with_noted_fields(kind: Kind, note: Mapping[str, Any]) -> Kind:
    untyped, texts = (tuple(note[name]) for name in ("untyped", "texts"))
    return replace(kind, untyped=untyped, empty=T.StructType.fromJson(note["empty"]), texts=texts)


def _find_empty(rows: DataFrame, names: Sequence[str]) -> list[str]:
    """Find the fields in which nothing stands."""
    if not names:
        return []
    filled = rows.agg(*(F.count(F.col("data").getField(name)).alias(name) for name in names)).first()
    assert filled is not None
    return [name for name in names if not filled[name]]


def _ask_for_types(fields: T.StructType) -> str:
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
    return (
        "Give `columns=` where these changes are made: for each column how the source writes it, such as "
        f"days or microseconds. Known are {types}."
    )


def _offer_texts(names: Iterable[str]) -> str:
    columns = ", ".join(f'"{name}": "untyped"' for name in names)
    return (
        "What is there is not the values but how they were written, such as 19800 for a day: make the ledger "
        f"anew from all that was sent, with `columns=`; or go on in texts, with columns={{{columns}}}."
    )
