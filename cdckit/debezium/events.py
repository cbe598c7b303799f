"""Events: what one record says of a database, in the same columns whoever produced it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import LOG_END
from cdckit.model.records import (
    ERROR_CODE,
    ERROR_DESCRIPTION,
    ERROR_FIELDS,
    RECORD_COLUMNS,
    RECORD_SCHEMA,
    Fault,
)
from cdckit.parts.arguments import require_types


class EventFault(Fault):
    """
    The codes of the rejects among change events, in the order in which an event is looked at.

    >>> EventFault.UNKNOWN_OPERATION.describe("It is x.")
    'The operation of a change event must be one of c, u, d, r, t and m. It is x.'
    """

    NOT_JSON = "NOT_JSON", "The value is not one JSON object, whole and with nothing after it."
    NOT_FRAMED = (
        "NOT_FRAMED",
        "The value does not begin with a zero byte and the id of a schema, so it is no Avro of a registry.",
    )
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA", "The schema of that id is not among the given ones.", True
    SCHEMA_UNUSABLE = "SCHEMA_UNUSABLE", "The schema of that id cannot be used."
    DATUM_UNREADABLE = "DATUM_UNREADABLE", "The datum does not decode with the schema of its id."
    NOT_AN_EVENT = (
        "NOT_AN_EVENT",
        "The value is JSON, but no event of this producer: what says its kind is not there.",
    )
    UNKNOWN_OPERATION = (
        "UNKNOWN_OPERATION",
        "The operation of a change event must be one of c, u, d, r, t and m.",
    )
    NO_TABLE = "NO_TABLE", "The event does not say of which table it is."
    NO_ROW = "NO_ROW", "The event has no row: a delete needs before, or a key; any other change needs after."
    NO_TIME = "NO_TIME", "The event says no time that an instant can hold, and its record has none."
    KEY_MISSING = "KEY_MISSING", "A key column is null or was not sent."
    VALUE_INVALID = "VALUE_INVALID", "A value does not convert to the type of its column."


_DIGITS = 20
"""As many as an unsigned number of 64 bits has."""

SOURCE_FIELDS = (
    "sequence", "lsn", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "commit_scn",
    "scn", "txSeq", "lcr_position", "rs_id", "ssn", "ts_ms", "ord", "txnNumber",
)  # fmt: skip
"""What is read of a source block to place an event."""


def position(connector: Column, source: Callable[[str], Column]) -> Column:
    """
    The position of an event; null for a connector whose order is not known, or that says nothing of it.

    - PostgreSQL: `sequence` holds two LSNs, that of the commit *before* this transaction and that of the
      event.  Transactions come in the order of their commits, so the pair sorts; the LSN alone does not,
      since those of concurrent transactions interleave.  A snapshot and the first transaction after it know
      no commit, also where a stream was there before them: theirs is their own LSN, as without `sequence`.
    - MySQL, MariaDB: the number of the binlog file, the position in it, the row in the event.  They start
      anew on another server.  So where there are GTIDs, the number of the transaction comes first, which
      all servers know it by, and what a GTID names before it is the name of the log: of two such the times
      count (see `cdckit.model.CHANGE_SCHEMA`), as of what has a tag in its GTID and what has another.  A
      group with several primaries counts in blocks, one for each, unless its
      `group_replication_gtid_assignment_block_size` is 1: else its numbers say no order.
    - SQL Server, Db2: commit LSN, change LSN, and the event's number (an update has two).
    - Oracle: the SCN of the commit (of a snapshot, its own), that of the change, its number in there.
      Changes of a transaction often have one SCN: where there is no number, as of XStream and before
      Debezium 3.2, the place of the change in the stream or in the redo log tells them apart.
      Of OpenLogReplicator, which says none of these, the offset of the record does.
    - MongoDB: the second of the operation and its number in it.  A snapshot, which knows no operation, says
      the number -1, or none, and the second of its own clock: so its rows have no position.  All changes of a
      transaction have the same two, so the offset of the record tells them apart.

    Where an offset does, the changes of one row come one after the other in the topic, and a redelivered one
    is told apart from the first, too, since it has another offset.
    """
    postgres = _join_digits(*_lsns(source("sequence"), source("lsn")))
    binlog = _join_digits(F.regexp_extract(source("file"), r"(\d+)$", 1), source("pos"), source("row"))
    # MySQL: the server or group, a colon and a number; MariaDB: the domain, the server and a number.
    server, number = (F.regexp_extract(source("gtid"), r"^([^@]+)[:-](\d+)$", part) for part in (1, 2))
    named = F.concat(server, F.lit(LOG_END), _digits(number), F.lit(LOG_END), binlog)
    binlog = F.when(server != "", named).otherwise(binlog)
    commit_lsn, change_lsn = (
        F.coalesce(_without_null(source(name)), F.lit("")) for name in ("commit_lsn", "change_lsn")
    )
    by_lsn = F.concat_ws("/", commit_lsn, change_lsn, _digits(source("event_serial_no")))
    scns = _join_digits(F.coalesce(source("commit_scn"), source("scn")), source("scn"), source("txSeq"))
    in_redo_log = F.concat_ws("/", source("rs_id"), _digits(source("ssn")))
    is_read = F.coalesce(source("snapshot"), F.lit("false")) != "false"
    unnumbered = F.coalesce(
        source("lcr_position"),
        F.when(source("rs_id").isNotNull(), in_redo_log),
        F.when(~is_read, _digits(F.col("offset"))),
    )
    oracle = F.concat_ws("/", scns, F.when(source("txSeq").isNull(), unnumbered))
    in_transaction = F.when(source("txnNumber").isNotNull(), _digits(F.col("offset")))
    said = [source(name).cast("string") for name in ("sequence", "lsn", "file", "commit_lsn", "scn")]
    there = F.coalesce(*said, F.nullif(source("ord").cast("string"), F.lit("-1")))
    digits = (
        F.when(connector == "postgresql", postgres)
        .when(connector.isin("mysql", "mariadb"), binlog)
        .when(connector.isin("sqlserver", "db2"), by_lsn)
        .when(connector == "oracle", oracle)
        .when(
            connector == "mongodb",
            F.concat_ws("/", _join_digits(source("ts_ms"), source("ord")), in_transaction),
        )
    )
    return F.when(there.isNotNull(), digits)


def lsn_position(lsn: Column) -> Column:
    """An LSN as PostgreSQL writes it (`16/B374D848`), as text that sorts; null for what is none."""
    parts = [F.lpad(F.upper(F.split_part(lsn, F.lit("/"), F.lit(part))), 8, "0") for part in (1, 2)]
    return F.when(lsn.rlike("^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"), F.concat_ws("/", *parts))


def binlog_position(place: Column) -> Column:
    """A place in a binlog as Maxwell writes it (`master.000006:800911`), as text that sorts."""
    parts = [F.regexp_extract(place, r"(\d+):(\d+)$", part) for part in (1, 2)]
    return F.when(place.rlike(r"\d+:\d+$"), _join_digits(*parts))


def _lsns(sequence: Column, lsn: Column) -> tuple[Column, Column]:
    """The two numbers of a PostgreSQL `sequence`, `["24023119","24023128"]`; the first may be null."""
    # Each text is looked for once: a null test beside it would have Spark look twice.
    first, last = F.substr(sequence, F.lit(3)), F.substring_index(sequence, '"', -2)
    before = F.when(F.startswith(sequence, F.lit('["')), F.substring_index(first, '"', 1))
    own = F.when(F.endswith(sequence, F.lit('"]')), F.substring_index(last, '"', 1))
    own = F.coalesce(own, lsn.cast("string"))
    return F.coalesce(before, own), own


def _without_null(lsn: Column) -> Column:
    return F.nullif(lsn, F.lit("NULL"))


def _digits(number: Column) -> Column:
    return F.lpad(F.coalesce(number.cast("string"), F.lit("")), _DIGITS, "0")


def _join_digits(*numbers: Column) -> Column:
    return F.concat_ws("/", *(_digits(number) for number in numbers))


TEXTS = T.MapType(T.StringType(), T.StringType())
"""A row as it was sent: each column that was sent, with the text of its JSON value."""

CREATE, UPDATE, DELETE, READ, TRUNCATE, MESSAGE = "c", "u", "d", "r", "t", "m"
OF_ROWS = (CREATE, UPDATE, DELETE, READ)
"""What can happen, in Debezium's letters: *read* is a row that a snapshot found."""


class Kind(StrEnum):
    """
    What a record is about.

    >>> Kind.ROW == "row"
    True
    """

    ROW = "row"
    TRUNCATE = "truncate"
    MESSAGE = "message"
    TRANSACTION = "transaction"
    SCHEMA_CHANGE = "schema_change"
    TOMBSTONE = "tombstone"
    HEARTBEAT = "heartbeat"


EVENT_FIELDS = [
    T.StructField("form", T.StringType()),
    T.StructField("kind", T.StringType()),
    T.StructField("connector", T.StringType()),
    T.StructField("source", T.StringType()),
    T.StructField("db", T.StringType()),
    T.StructField("schema", T.StringType()),
    T.StructField("table", T.StringType()),
    T.StructField("operation", T.StringType()),
    T.StructField("snapshot", T.StringType()),
    T.StructField("event_timestamp", T.TimestampType()),
    T.StructField("time_taken_from", T.StringType()),
    T.StructField("position", T.StringType()),
    T.StructField("transaction_id", T.StringType()),
    T.StructField("row_key", TEXTS),
    T.StructField("before", TEXTS),
    T.StructField("after", TEXTS),
    T.StructField("types", TEXTS),
    T.StructField("new_key", T.StringType()),
    T.StructField("old_key", T.StringType()),
    T.StructField("said", T.StringType()),
]

EVENT_SCHEMA = T.StructType([*RECORD_SCHEMA.fields, *EVENT_FIELDS, *ERROR_FIELDS])
"""One row is one record, and what it says of the database; or why it says nothing.

- `form`: `json`; `kind`: see `Kind`; `connector`: the kind of database, in Debezium's words;
- `source`: the name of the source; `db`, `schema`, `table`: whose row it is;
- `operation`: c, u, d, r, t or m, of any producer; `snapshot`: whether a snapshot read it, as the producer
  says (`true`, `first`, `last`, `incremental`, …; `false` or null in the stream);
- `event_timestamp`: when it was so at the source, and `time_taken_from`: `source`; `event`, when the
  producer handled it; or `record`;
- `position`: the place in the source's own order, text that sorts; null where the source has none;
- `transaction_id`: which transaction; of PostgreSQL its number, without the LSN that Debezium puts behind it;
- `row_key`, `before`, `after`: column by column the text of the JSON value, null for null.  What is not
  in a map was not sent;
- `types`: by column what the record says of its type, of an array, a map or a struct its schema as JSON;
  empty or null if it says nothing;
- `new_key`, `old_key`: where the row went to, or came from, when its key changed (JSON);
- `said`: the value as text, where it is not about a row."""


def require_events(decoded: DataFrame, *, function: str) -> None:
    """
    Raise unless *decoded* has the columns of `EVENT_SCHEMA` in their types.

    Raises:
        MissingColumns, WrongColumnType: It has not.
    """
    require_types(decoded, EVENT_SCHEMA, function=function)


def time_columns(candidates: list[tuple[str, Column]]) -> dict[str, Column]:
    """
    `event_timestamp` and `time_taken_from`: the first of the instants that is there.

    An instant outside the years 1 to 9999 is none: Python could not show it.
    """
    # Not `between`: Spark makes a projection of its own for what stands between.
    first, last = (F.lit(each).cast("timestamp") for each in (_FIRST, _LAST))
    # An earlier one that is not shown is not equal to it.
    found = F.col("event_timestamp")
    return {
        "event_timestamp": F.coalesce(*(F.when((at >= first) & (at <= last), at) for _, at in candidates)),
        "time_taken_from": F.coalesce(*(F.when(at == found, F.lit(name)) for name, at in candidates)),
    }


_FIRST, _LAST = "0001-01-02 00:00:00Z", "9999-12-30 00:00:00Z"


def error_columns(found: list[tuple[EventFault, Column, Column | None]]) -> dict[str, Column]:
    """The error columns: the first fault whose condition holds, and what is shown of it."""
    codes, descriptions = [], []
    for fault, condition, shown in found:
        says = F.lit(fault.sentence)
        if shown is not None:
            finding = F.concat(F.lit(" It says: "), F.substring(shown.cast("string"), 1, 200))
            says = F.concat(says, F.coalesce(finding, F.lit("")))
        codes.append(F.when(condition, F.lit(fault.value)))
        descriptions.append(F.when(condition, says))
    return {ERROR_CODE: F.coalesce(*codes), ERROR_DESCRIPTION: F.coalesce(*descriptions)}


def event_columns(columns: dict[str, Column], faults: dict[str, Column]) -> list[Column]:
    """
    The columns of `EVENT_SCHEMA`, over records with what was read of them; missing ones are null.

    A column may name one of those before it, so that each is in the plan once; hence what was read of the
    records has other names than these.
    """
    events = [
        columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in EVENT_FIELDS
    ]
    errors = [faults[field.name].cast("string").alias(field.name) for field in ERROR_FIELDS]
    return [*map(F.col, RECORD_COLUMNS), *events, *errors]


def explode_made(made: DataFrame, names: Sequence[str]) -> DataFrame:
    """
    The same rows, of which Spark works out these columns once, whatever a filter asks of them.

    Spark puts what a column is made of wherever a filter reads it, and what that is made of, and so on: of a
    row of three columns a filter of 83,000 expressions.  It does not for what is exploded; and filters that
    do not read it go on to the records, and to their files.
    """
    once = made.withColumn("made", F.explode_outer(F.array(F.struct(*names))))
    return once.select(*(F.col("made")[name].alias(name) if name in names else name for name in made.columns))


def without_schema(text: Column) -> Column:
    """The payload of a JSON text that has a schema beside it; any other text as it is."""
    # Beside a schema alone: a column may have the name of the payload.
    payload = F.when(F.contains(text, F.lit('"schema"')), F.get_json_object(text, "$.payload"))
    return F.coalesce(payload, text)


def header(name: str) -> Column:
    """The text of the last header of this name; null without one."""
    named = F.filter("headers", lambda each: each["key"] == F.lit(name))
    return F.when(F.size(named) > 0, F.try_validate_utf8(F.element_at(named, -1)["value"].cast("string")))


def messages(decoded: DataFrame) -> DataFrame:
    """
    The messages of logical decoding: what programs wrote with `pg_logical_emit_message`.

    Args:
        decoded: What `decode` or `decode_wal2json` returned.

    Returns:
        One row per message: `topic`, `partition`, `offset`, `source`, `event_timestamp`, `position`,
        `transaction_id`, `prefix` and `content` (binary; wal2json ends it at a zero byte).

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: a projection, no shuffle.

    >>> value = b'{"action": "M", "prefix": "tower", "content": "closed", "transactional": false}'
    >>> from cdckit import debezium
    >>> found = debezium.messages(debezium.decode_wal2json(records_of(value)))
    >>> [(row.prefix, bytes(row.content)) for row in found.collect()]
    [('tower', b'closed')]
    """
    require_events(decoded, function="messages")
    good = decoded.where((F.col("kind") == Kind.MESSAGE) & F.col(ERROR_CODE).isNull())
    # Debezium has bytes, in Base64; wal2json text.
    coded = _json_value("$.payload.message.content", "$.message.content")
    return good.select(
        *("topic", "partition", "offset", "source", "event_timestamp", "position", "transaction_id"),
        _json_value("$.payload.message.prefix", "$.message.prefix", "$.prefix").alias("prefix"),
        F.coalesce(
            F.try_to_binary(coded, F.lit("base64")), F.encode(_json_value("$.content"), "UTF-8")
        ).alias("content"),
    )


def _json_value(*paths: str) -> Column:
    return F.coalesce(*(F.get_json_object("said", path) for path in paths))
