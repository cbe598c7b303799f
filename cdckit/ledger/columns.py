"""What a ledger is about, as its store notes it; and the columns of its tables, kept and shown."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.merging.arrow_changes import GUID, KEYS, SNAPSHOT
from cdckit.merging.merge import check_fields, fields_with_priority, history_schema
from cdckit.merging.moves import find_inherited_words
from cdckit.model.changes import (
    AS_SENT,
    CHANGE_SCHEMA,
    EMPTY,
    MADE_OF,
    MOVED,
    TABLES,
    UNTIL,
    UNTYPED,
    empty_fields,
    note_empty,
    require_moves,
    typed_fields,
    untyped_fields,
    with_empty_as,
)
from cdckit.model.history import STANDARD_COLUMNS, with_ends
from cdckit.model.lists import is_list_change, is_table_row
from cdckit.model.records import REJECT, REJECT_SCHEMA, with_reject
from cdckit.parts.arguments import quoted
from cdckit.parts.columns import built_once, with_guid
from cdckit.parts.values import key_digest
from cdckit.parts.widening import (
    TIMES_IN_LISTS,
    WHOLE_KEYS,
    common_spark_type,
    fill_void,
    has_void,
    is_number_beside_time,
    is_other_beside_time,
    void_as_text,
)
from cdckit.store import OtherKind, Snapshot, Transaction
from cdckit.store.columns import as_columns

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


# Columns --------------------------------------------------------------------------------------------------


BUCKET = "ledger_bucket"
"""Which part of the tables a row is in."""

OPEN = "ledger_open"
"""Whether a version has no end yet: such ones lie apart."""

LATEST = "ledger_latest"
"""The latest effective time of all changes of the entity, with or without effect; null in closed versions.
`ALWAYS_LATE` of one that has a change with an end."""

ALWAYS_LATE = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
"""Later than any effective time: what an entity will be, its current version does not tell."""

PLACE = "ledger_place"
"""Beside `LATEST`: the last place of those changes that say one in the log of their source, whichever."""

IDENTITY = "ledger_identity"
"""A hash of what makes a change of an entity the same change again: source, message and record number."""

CONTENT = "ledger_content"
"""A hash of a change as it was given, 0 where the batch has no id; its sum tells the batch.  Not stored."""

LISTED = "ledger_listed"
"""When the list was taken that a change is of, in microseconds; null in all others.  Not stored."""

HIDDEN = (BUCKET, OPEN, LATEST, PLACE, IDENTITY)

EVERY = ""
"""In place of a guid: of truncates, which are about every entity.  Each bucket has them."""

UNBORN_SCHEMA = T.StructType(
    [
        T.StructField(GUID, T.StringType()),
        T.StructField(LATEST, T.TimestampType()),
        T.StructField(PLACE, T.StringType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
)
"""One row per entity that has changes but no current version: deletes of what never was, what has ended; and
one of the truncates."""


LEDGER_REJECT_SCHEMA = T.StructType([*REJECT_SCHEMA, T.StructField("source", T.StringType())])
"""One row per record that came among changes and was none, why, and of which source; null where none says."""

LISTS_SCHEMA = T.StructType(
    [
        T.StructField("source", T.StringType()),
        T.StructField("taken", T.TimestampType()),
        T.StructField("rows", T.LongType()),
    ]
)
"""One row per list: who gave it, when it was taken, and how many entities it named."""


def to_log_rows(changes: DataFrame, kind: Kind, *, digest: bool = False) -> DataFrame:
    """
    The changes as rows of the log, and beside them the instant `LISTED` and, with *digest*, `CONTENT`.

    Rejects among them are rows, too, which `REJECT` tells.

    Raises:
        MissingColumns, WrongColumnType, InvalidArgument: They are no changes that `merge` would take, or
            are a stream.
    """
    data = check_fields(changes, kind.keys, [*STANDARD_COLUMNS, *HIDDEN], "apply")
    fields_with_priority(changes, data.fieldNames(), "apply")
    if changes.isStreaming:
        needed = "a batch: of a stream, let writeStream.foreachBatch(ledger.sink('a name')) hand them over"
        raise InvalidArgument("apply", "changes", needed, "a stream")
    if MOVED in changes.columns:
        if kind.by_guid:
            needed = "without the column `moved` where their guids say which entity they are about: drop it"
            raise InvalidArgument("apply", "changes", needed, changes.columns)
        require_moves(changes, kind.keys, function="apply")
    changes = with_reject(changes)
    optional = [
        name for name in ("field_priorities", UNTIL, SNAPSHOT, MOVED, REJECT) if name in changes.columns
    ]
    bucket = kind.bucket_column(F.col(GUID))
    if REJECT in changes.columns:
        # They have no entity, or one that only some of them say: one bucket would have them all.
        anywhere = F.pmod(F.xxhash64(REJECT), F.lit(kind.buckets)).cast("int")
        bucket = F.when(F.col(REJECT).isNull(), bucket).otherwise(anywhere)
    rows = changes if kind.by_guid else with_guid(changes, _key_digest(kind.entity, kind.keys))
    digested = [name for name in (GUID, *CHANGE_SCHEMA.fieldNames(), *optional) if name in changes.columns]
    content = _content_digest(tuple(digested), data) if digest else F.lit(0).cast("long")
    return rows.select(
        GUID,
        bucket.alias(BUCKET),
        _identity_digest().alias(IDENTITY),
        *CHANGE_SCHEMA.fieldNames(),
        "data",
        "carried",
        *optional,
        content.alias(CONTENT),
        F.when(is_list_change(), F.unix_micros("effective_timestamp")).alias(LISTED),
    ).withMetadata("data", {**note_empty({}), **changes.schema["data"].metadata})


_ROWS_OF_A_TABLE = 2**40
"""More than one has."""


def with_call_numbers(rows: DataFrame, number: int) -> DataFrame:
    """
    The rows of `to_log_rows`, of which those of a table have the number of the call as their partition.

    Row numbers say an order within one table.  Of two tables that speak of one instant, the one that was
    applied later counts, as the later row of one table does; of those of one call, the one that
    `union_changes` was given later.
    """
    numbered = F.col("arrival").withField("partition", F.lit(number))
    if rows.schema["arrival"].metadata.get(TABLES, 1) > 1:
        counted_on = F.col("arrival.offset") + F.col("arrival.partition") * F.lit(_ROWS_OF_A_TABLE)
        numbered = numbered.withField("offset", counted_on)
    arrival = F.when(is_table_row(), numbered).otherwise(F.col("arrival"))
    return rows.withColumn("arrival", arrival).withMetadata("arrival", rows.schema["arrival"].metadata)


@built_once
def _key_digest(entity: str, keys: tuple[str, ...]) -> Column:
    return key_digest(entity, {name: F.col("data").getField(name) for name in keys})


def log_columns(rows: T.StructType) -> T.StructType:
    """The columns of the log, of those of `to_log_rows`."""
    return T.StructType([column for column in rows if column.name not in (CONTENT, LISTED, REJECT)])


def words_columns(log: T.StructType) -> T.StructType:
    """The columns of the table of words that rows took along: those of the log."""
    return T.StructType([column for column in log if column.name != MOVED])


def with_all_priorities(log: T.StructType) -> T.StructType:
    """The columns of a log in which every field has a priority of its own: words have one for each."""
    names = log_fields(log).fieldNames()
    priorities = T.StructType([T.StructField(name, T.IntegerType()) for name in names])
    some = [column for column in log if column.name != "field_priorities"]
    return T.StructType([*some, T.StructField("field_priorities", priorities)])


def inherited_words(log: DataFrame, kind: Kind) -> DataFrame:
    """The words that rows took along, in the columns of their table."""
    words = find_inherited_words(visible_changes(log, kind), kind.keys, function="apply")
    hidden = {BUCKET: kind.bucket_column(F.col(GUID)), IDENTITY: _identity_digest()}
    return as_columns(words.withColumns(hidden), words_columns(log.schema))


def _identity_digest() -> Column:
    return F.xxhash64("message_id", "arrival.record_number", "source")


@built_once
def _content_digest(names: tuple[str, ...], data: T.StructType) -> Column:
    """Digest all that a change says; a null beside a value is not the value beside a null."""
    columns = [F.col(name) for name in names]
    for field in data:
        value = F.col("data").getField(field.name)
        # Spark hashes no maps.
        plain = F.to_json(F.struct(value.alias("value"))) if _holds_map(field.dataType) else value
        columns += [F.lit(field.name), F.col("carried").getField(field.name), plain, value.isNull()]
    return F.xxhash64(*columns)


def _holds_map(kind: T.DataType) -> bool:
    if isinstance(kind, T.StructType):
        return any(_holds_map(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return _holds_map(kind.elementType)
    return isinstance(kind, T.MapType)


def log_fields(log: T.StructType) -> T.StructType:
    """The business fields of a log."""
    data_type = log["data"].dataType
    assert isinstance(data_type, T.StructType)
    return data_type


def stored_history_columns(data: T.StructType) -> T.StructType:
    """The columns of the table of versions."""
    hidden = [
        T.StructField(LATEST, T.TimestampType()),
        T.StructField(PLACE, T.StringType()),
        T.StructField(OPEN, T.BooleanType()),
        T.StructField(BUCKET, T.IntegerType()),
    ]
    return T.StructType([*history_schema(data).fields, *hidden])


def require_keys_keep_their_texts(
    before: T.StructType, after: T.StructType, kind: Kind, *, function: str = "apply"
) -> None:
    """Raise `WrongColumnType` if a key is to have another text: 1 and "1" are two keys, with two guids."""
    for name in () if kind.by_guid else [key for key in kind.keys if key in before.names]:
        type_before, other = before[name].dataType, after[name].dataType
        common = common_spark_type(type_before, other)
        # A number has one text whatever its type, a day has not that of its midnight.
        has_other_text = type_before != other and isinstance(
            common, T.StringType | T.TimestampType | T.TimestampNTZType
        )
        if has_other_text and not isinstance(type_before, T.StringType):
            kind_before = type_before.simpleString()
            is_number = isinstance(type_before, T.NumericType)
            needed = f"a number as before ({kind_before})" if is_number else f"{kind_before}, as before"
            is_float = isinstance(other, T.FloatType | T.DoubleType)
            remedy = WHOLE_KEYS if is_number and is_float else _SAY_TYPES
            raise WrongColumnType(function, f"data.{name}", needed, other.simpleString(), remedy)
        if isinstance(type_before, T.StringType) and not isinstance(other, T.StringType):
            type_name = other.simpleString()
            raise WrongColumnType(function, f"data.{name}", "string, as before", type_name, _SAY_TYPES)


_SAY_TYPES = "Make the changes with the type that it had: by `columns=` of the door, or by a cast."


def require_times_stay(
    before: T.StructType, after: T.StructType, *, function: str = "apply", of_lists: bool = False
) -> None:
    """
    Raise `WrongColumnType` for numbers where dates or instants were, or the other way round.

    *of_lists*, whose values are compared with those of the list before, for whatever is no time.
    """
    is_beside = is_other_beside_time if of_lists else is_number_beside_time
    for field in after:
        was = before[field.name].dataType if field.name in before.names else field.dataType
        if is_beside(was, field.dataType):
            needed, type_name = f"{was.simpleString()}, as before", field.dataType.simpleString()
            remedy = TIMES_IN_LISTS if of_lists else _SAY_TYPES
            raise WrongColumnType(function, f"data.{field.name}", needed, type_name, remedy)


def visible_changes(log: DataFrame, kind: Kind, copy: int = 0) -> DataFrame:
    """The changes as they were given, and the guid of each; of the truncates those of bucket *copy*."""
    names = [name for name in log.columns if name not in HIDDEN]
    keys = {KEYS if kind.by_guid else MADE_OF: list(kind.keys)}
    filled = {
        "carried": _carried_flags(log).alias("carried"),
        GUID: F.col(GUID).alias(GUID, metadata=keys),
    }
    if kind.untyped or kind.empty.names:
        some: dict[str, Any] = {UNTYPED: list(kind.untyped)} if kind.untyped else {}
        some |= note_empty({field.name: field.dataType for field in kind.empty}) if kind.empty.names else {}
        filled["data"] = F.col("data").alias("data", metadata=some)
    # Of a truncate every bucket has one.
    entity_rows = log.where((F.col(GUID) != EVERY) | (F.col(BUCKET) == copy))
    # Not by `withColumns`: an alias's metadata would be lost through Spark Connect.
    return entity_rows.select(*(filled.get(name, F.col(name)) for name in names))


def _carried_flags(log: DataFrame) -> Column:
    """Tell whether each field was carried: not, by changes from before the field was known."""
    flags = [
        F.coalesce(F.col("carried").getField(name), F.lit(False)).alias(name)
        for name in log_fields(log.schema).fieldNames()
    ]
    return F.struct(*flags)


def visible_history(history: DataFrame, log: T.StructType) -> DataFrame:
    """The versions in the columns that `merge` gives those of such a log."""
    shown = history.select(*(quoted(name) for name in history_schema(log_fields(log)).fieldNames()))
    return with_ends(shown) if UNTIL in log.fieldNames() else shown
