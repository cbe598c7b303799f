"""From rows to changes, which the door hands over to the spine: of one table, or of all tables of a feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.changes import DELETE, MOVED, UPSERT
from cdckit.model.faults import ERROR_CODE
from cdckit.model.forms import RECORDS
from cdckit.model.places import LOG_END
from cdckit.model.rejected_records import ChangeFault, door_reject
from cdckit.parts.argument_forms import NAMES, takes
from cdckit.parts.arguments import (
    microseconds,
    require_columns,
    require_instant,
    require_keys,
    require_names,
    require_struct,
)
from cdckit.parts.public_calls import called
from cdckit.replicate.decoding import BATCH, decode, metadata, schema_zone
from cdckit.replicate.envelopes import ReplicateFault
from cdckit.replicate.message_rules import CHANGE, LOAD, UPDATE, KeyPart, lacks_key, lacks_old_key
from cdckit.replicate.metadata_messages import LINEAGE
from cdckit.replicate.schema_ids import Statement
from cdckit.replicate.table_rows import LOAD_TIME, collect_zone, rows_of_table
from cdckit.replicate.table_versions import make_table, near_names

_READ = (
    "topic", "partition", "offset", "timestamp", "server", "task", "absent_columns", "operation",
    "change_sequence", "change_timestamp", "time_taken_from", "data", "before", "sent", "changed",
)  # fmt: skip


@takes()
def changes(rows: DataFrame, *, keys: Sequence[str], source: str | None = None) -> DataFrame:
    """
    Make changes of what each data message says about its entity.

    INSERT, UPDATE and REFRESH are upserts, DELETE is a delete.  An update that gives a row another
    key, as its `before` shows, is two changes: a delete of the old one (record number 1) and an
    upsert of the new one (record number 2) with what the message sent, and for the rest with what its
    `before` says: those values did not change, and under the new key nobody else has said them.  What
    neither says, such as a large value that did not change, the row takes along from its old key: a `Ledger`
    and a `Feed` see to it, and `merge` after `complete_moves`.

    Args:
        rows: What `data` returned.
        keys: The key columns: `keys(zone)`, or your own choice, such as for a table without a key.  They
            hold for all rows: a key column that a row's version of the table does not have is null.
        source: The name of the source; without it, the server and the task (`ny1/orders`).  Of several tasks
            that are one source each has a log of its own: of two of them the times count.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`), and as rejects (`reject`) the rows in error, those
        without their key (KEY_MISSING), and updates that mark a key column as changed and do not say what it
        was (OLD_KEY_MISSING: the old row would stay for ever); with their bytes where it is the table's key,
        or that of their version.  `moved` says how a row came to another key.
        `message_id` is the server, the task and the change sequence, so that a redelivered message is the
        same message; topic, partition, timestamp in microseconds and offset where there is none of 35
        digits.  `effective_timestamp` is the time of the change at the source, `carried` are the columns that
        were sent or taken from `before`, `priority` is 0 (see `cdckit.with_priorities`).  `sequence` is the
        change sequence, with *source* behind the task that counts it; in its order the changes of a row
        count, and their times follow: a clock may be set back, and a long transaction say when it began.  The
        row of a full load that says no time has none, so it comes before every change of the same instant;
        and `snapshot` is true of it, so that it comes before what changed while it was loaded, which
        Replicate sends when the load is over.
        `explain` takes changes that may say so of one table alone.

    Raises:
        MissingColumns: *rows* are not what `data` returns.
        InvalidArgument: *keys* is empty or names no column of `data`.

    Cost: a projection, no shuffle.

    >>> from cdckit import replicate
    >>> changed = replicate.changes(replicate.data(records, zone), keys=["carrier"]).orderBy("arrival.offset")
    >>> changed.select("operation", "effective_timestamp", "data.*").show(truncate=False)
    +---------+-----------------------+-------+----------------------------+
    |operation|effective_timestamp    |carrier|name                        |
    +---------+-----------------------+-------+----------------------------+
    |upsert   |2013-02-07 05:00:00.413|MQ     |American Eagle Airlines Inc.|
    |upsert   |2013-02-07 05:00:00.459|AA     |American Airlines Inc.      |
    |upsert   |2013-02-08 12:00:00    |MQ     |Envoy Air                   |
    +---------+-----------------------+-------+----------------------------+
    <BLANKLINE>
    """
    names = _require_rows(rows, keys)
    parts = _key_parts(keys)
    is_update, has_before = F.col("operation") == UPDATE, F.col("before").isNotNull()
    unsaid = is_update & lacks_old_key(parts, has_before)
    faults = {ChangeFault.KEY_MISSING: lacks_key(parts), ReplicateFault.OLD_KEY_MISSING: unsaid}
    is_reject, reject = door_reject(rows.columns, faults)
    moved = F.coalesce(~is_reject & is_update & has_before & _key_differs(keys), F.lit(False))
    numbers = F.when(moved, F.array(F.lit(1), F.lit(2))).otherwise(F.array(F.lit(1)))
    spread = rows.withColumn("moved", moved).withColumn("record_number", F.explode(numbers))
    is_leaving = F.col("moved") & (F.col("record_number") == 1)
    is_arriving = F.col("moved") & (F.col("record_number") == 2)
    return spread.select(
        F.when(is_reject, None)
        .when(is_leaving | (F.col("operation") == "DELETE"), DELETE)
        .otherwise(UPSERT)
        .alias("operation"),
        F.col("change_timestamp").alias("effective_timestamp"),
        _log_sequence(source).alias("sequence"),
        F.struct("timestamp", "topic", "partition", "offset", "record_number").alias("arrival"),
        _message_id().alias("message_id"),
        (F.lit(source) if source is not None else _source()).alias("source"),
        F.lit(0).alias("priority"),
        _is_snapshot().alias("snapshot"),
        F.when(F.col("moved"), _move(rows, keys)).alias(MOVED),
        F.when(is_leaving, F.col("before"))
        .when(is_arriving, _fill_unsent(names, "data", F.col("before").getField))
        .otherwise(F.col("data"))
        .alias("data"),
        F.when(
            is_arriving, _fill_unsent(names, "sent", lambda name: F.col("before").getField(name).isNotNull())
        )
        .otherwise(F.col("sent"))
        .alias("carried"),
        reject,
    )


def _move(rows: DataFrame, keys: Sequence[str]) -> Column:
    """Say from which key to which other one an update moved its row."""
    old_key, new_key = (
        F.struct(*(F.col(row).getField(key).alias(key) for key in keys)) for row in ("before", "data")
    )
    data = require_struct(rows, "data")
    key = T.StructType([T.StructField(name, data[name].dataType) for name in keys])
    kind = T.StructType().add("id", "string").add("old_key", key).add("new_key", key)
    # A part that were never null would be null in Arrow all the same, where the whole is.
    return F.struct(_message_id().alias("id"), old_key.alias("old_key"), new_key.alias("new_key")).cast(kind)


def _fill_unsent(names: Sequence[str], struct: str, instead: Callable[[str], Column]) -> Column:
    """The fields of a struct, of those that were not sent *instead*."""
    sent, value = F.col("sent"), F.col(struct)
    return F.struct(
        *(
            F.when(sent.getField(name), value.getField(name)).otherwise(instead(name)).alias(name)
            for name in names
        )
    )


@takes()
def find_without_key(rows: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """
    The rows that do not say which entity they are about, so that `changes` has them as rejects.

    They are sound, and can become changes under other *keys*, or once you know what
    their key is.

    Args:
        rows: What `data` returned.
        keys: As for `changes`.

    Returns:
        The same columns: the good rows of a message that left out a key column which its version of
        the table has; or of a version that has none of the key columns.

    Raises:
        MissingColumns: *rows* are not what `data` returns.
        InvalidArgument: *keys* is empty or names no column of `data`.

    Cost: one filter, no shuffle.

    Where the message with offset 17 had left out the carrier:

    >>> from cdckit.replicate import data
    >>> sent = F.col("sent").withField("carrier", F.col("offset") != 17)
    >>> rows = data(records, zone).withColumn("sent", sent)
    >>> find_without_key(rows, keys=["carrier"]).select("offset", "operation", "error_code").show()
    +------+---------+----------+
    |offset|operation|error_code|
    +------+---------+----------+
    |    17|   UPDATE|      NULL|
    +------+---------+----------+
    <BLANKLINE>
    """
    _require_rows(rows, keys)
    return rows.where(F.col(ERROR_CODE).isNull() & lacks_key(_key_parts(keys)))


def _require_rows(rows: DataFrame, keys: Sequence[str]) -> list[str]:
    """The fields of the rows; raises unless *rows* are what `data` returns, and *keys* among these."""
    require_columns(rows, [*_READ, ERROR_CODE])
    names = require_struct(rows, "data").fieldNames()
    require_keys(keys, names)
    return names


def _key_parts(keys: Sequence[str]) -> list[KeyPart]:
    sent, changed, before, data = (F.col(name).getField for name in ("sent", "changed", "before", "data"))
    parts = []
    for key in keys:
        is_absent, is_marked = F.array_contains("absent_columns", key), F.coalesce(changed(key), F.lit(False))
        parts.append(KeyPart(is_absent, sent(key), is_marked, before(key).isNull(), data(key).isNull()))
    return parts


@takes(records=[RECORDS, BATCH], topics=NAMES, loaded_at=LOAD_TIME)
def table_changes(
    records: DataFrame,
    *,
    task: str,
    table: str,
    server: str | None = None,
    schema: str | None = None,
    topics: Collection[str] | None = None,
    loaded_at: datetime | Column | None = None,
    source: str | None = None,
) -> DataFrame:
    """
    The changes of one table, straight from the records: the door in one step.

    What it passes over, metadata that cannot be used and messages that wait for theirs, is found with the
    steps themselves: `decode`, `metadata`, `schema_zone`, `waiting`.

    Args:
        records: The metadata topic and the data topics, together; other tables' messages may be
            among them.
        task: The Replicate task.
        table: The name of the table, as its metadata says it.
        server: The Replicate server, where tasks of that name run on several.
        schema: The schema of the source, where the task has tables of that name in several.
        topics: As for `data`.
        loaded_at: As for `data`.
        source: As for `changes`.

    Returns:
        What `changes` returns, under the keys of the metadata; and as rejects the records that hold no
        envelope, since nobody knows whose they are: with *topics*, those of these topics.

    Raises:
        InvalidArgument: The metadata knows no such table, or several, or it has no key; or one of its
            schema ids is that of another table too and no *topics* are given.

    Cost: one look at every envelope of *records* when it is called, to collect the schema zone of the
    table; then, lazily, what `data` costs.  Give it the topics that matter; many tables of one feed
    come cheaper with `Feed`.

    Source:
        Replicate, message envelope; metadata messages and data messages.

    >>> changed = table_changes(records, task="schedule", table="AIRLINES").orderBy("arrival.offset")
    >>> changed.select("source", "operation", "data.carrier").show(truncate=False)
    +----------------------+---------+-------+
    |source                |operation|carrier|
    +----------------------+---------+-------+
    |replicate-ny1/schedule|upsert   |MQ     |
    |replicate-ny1/schedule|upsert   |AA     |
    |replicate-ny1/schedule|upsert   |MQ     |
    +----------------------+---------+-------+
    <BLANKLINE>
    """
    zone = schema_zone(metadata(decode(records)))
    wanted = {"server": server, "task": task, "schema": schema, "table": table}
    conditions = [F.col(name) == value for name, value in wanted.items() if value is not None]
    statements = collect_zone(zone.where(reduce(and_, conditions)))
    _require_one(statements, zone, wanted)
    # The statements themselves are kept: the zone took a look at every record.
    source_table = make_table(statements)
    if not source_table.keys:
        raise InvalidArgument(None, "table", "a table with a key (or use the single steps)", table)
    typed_rows = rows_of_table(records, source_table, topics=topics, loaded_at=loaded_at, unreadable=True)
    return changes(typed_rows, keys=source_table.keys, source=source)


def _require_one(statements: Sequence[Statement], zone: DataFrame, wanted: Mapping[str, str | None]) -> None:
    """Raise unless all *statements* are of one table; where there are none, name those that are near."""
    if not statements:
        names = zone.select(*LINEAGE).distinct().limit(_MOST_NAMES).collect()
        near = near_names([row.asDict() for row in names], wanted)
        known_names = f"; near it are {', '.join(near)}" if near else "; the metadata knows no table at all"
        needed = f"a table that the metadata of {wanted['task']} knows{known_names}"
        raise InvalidArgument(None, "table", needed, wanted["table"])
    for name in ("server", "schema"):
        several = sorted({statement[name] for statement in statements})
        if len(several) > 1:
            needed = f"given, since task {wanted['task']} has {wanted['table']} in several: one of "
            raise InvalidArgument(None, name, needed + ", ".join(several[:20]), wanted[name])


_MOST_NAMES = 10_000


def _key_differs(keys: Sequence[str]) -> Column:
    """Tell of a row and the one before whether their keys differ."""
    now, before = F.col("data").getField, F.col("before").getField
    return reduce(or_, (~now(key).eqNullSafe(before(key)) for key in keys))


def _source() -> Column:
    return F.concat_ws("/", "server", "task")


def _sequence() -> Column:
    """The change sequence; null where there is none of 35 digits, or one of a load that has no time."""
    is_one = F.col("change_sequence").rlike(r"^\d{35}$")
    return F.when(is_one & ~_is_load_without_time(), F.col("change_sequence"))


def _is_load_without_time() -> Column:
    """Tell whether a row is of a full load and says no time: its change sequence means nothing then."""
    return (F.col("operation") == LOAD) & (F.col("time_taken_from") != CHANGE)


def _log_sequence(source: str | None) -> Column:
    """The sequence, behind the task that counts it where several tasks may be one source: a log for each."""
    task = F.lit("") if source is None else F.concat(F.translate(_source(), LOG_END, "_"), F.lit(LOG_END))
    return F.coalesce(F.concat(task, _sequence()), F.lit(""))


def _is_snapshot() -> Column:
    """Tell whether a load read a change's row, which has no place; null where nothing says a place either."""
    is_of_log = (F.col("operation") != LOAD) & _sequence().isNotNull()
    return F.when(_is_load_without_time(), True).when(is_of_log, False)


def _message_id() -> Column:
    # A topic that was made anew counts its offsets from 0 again: then times tell its records apart.
    micros = F.unix_micros("timestamp").cast("string")
    place = F.concat_ws("/", "topic", "partition", micros, "offset")
    return F.concat(_source(), F.lit(":"), F.coalesce(_sequence(), place))


class TableName(NamedTuple):
    """
    What names one table among all that are replicated.

    >>> TableName("ny1", "orders", "SHOP", "ITEMS").table
    'ITEMS'
    """

    server: str
    task: str
    schema: str
    table: str


def by_table(statements: Iterable[Statement]) -> dict[TableName, list[Statement]]:
    """The statements of each table, in the order of the tables' names."""
    tables: dict[TableName, list[Statement]] = {}
    for statement in statements:
        tables.setdefault(TableName(*(statement[name] for name in LINEAGE)), []).append(statement)
    return dict(sorted(tables.items()))


@dataclass(frozen=True)
class TableSettings:
    """
    How a feed reads one table.

    Args:
        entity: The name of the kind of entity, as for `merge`; the name of the table without it.
        keys: The key columns, as for `changes`; those of the metadata without them.
        topics: As for `data`: where a schema id of the table is that of another table too, its data wait
            until they are named.
        json_topics: As for `data`: the topics whose messages in JSON form are of this table.
        loaded_at: As for `data`, if the table was loaded once.  If it was loaded again, the instants of all
            loads, in a list: a row is of the last one until its record's `timestamp`.

    Raises:
        InvalidArgument: A list is given as one text, or an instant of *loaded_at* is naive.

    >>> TableSettings(entity="item", keys=["number"], topics=["shop.items"]).keys
    ('number',)
    """

    entity: str | None = None
    keys: Sequence[str] | None = None
    topics: Sequence[str] | None = None
    json_topics: Sequence[str] = ()
    loaded_at: datetime | list[datetime] | tuple[datetime, ...] | None = None

    @called("TableSettings")
    def __post_init__(self) -> None:
        for name in ("keys", "topics", "json_topics"):
            names = getattr(self, name)
            require_names(names, name)
            object.__setattr__(self, name, None if names is None else tuple(names))
        if isinstance(self.loaded_at, list | tuple):
            object.__setattr__(self, "loaded_at", tuple(self.loaded_at))
            for at in self.loaded_at:
                microseconds(at, "loaded_at")
        elif self.loaded_at is not None:
            microseconds(self.loaded_at, "loaded_at")

    def load_time(self) -> datetime | Column | None:
        """*loaded_at* as `data` takes it: of several loads, a column of records."""
        if self.loaded_at is None or isinstance(self.loaded_at, datetime):
            return self.loaded_at
        instants = F.array(*(require_instant(at, "loaded_at") for at in self.loaded_at))
        return F.array_max(F.filter(instants, lambda at: at <= F.col("timestamp")))

    def text(self) -> str:
        """The settings as a text that is the same for the same settings."""
        return json.dumps(asdict(self), sort_keys=True, default=datetime.timestamp)
