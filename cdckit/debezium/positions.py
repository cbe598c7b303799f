"""The place of an event in its source's own order, as text that sorts."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.changes import LOG_END

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
      since those of concurrent transactions interleave.  Without `sequence`, the LSN alone.
    - MySQL, MariaDB: the number of the binlog file, the position in it, the row in the event.  They start
      anew on another server.  So where there are GTIDs, the server that a GTID names is the name of the log,
      and of two servers the times count (see `cdckit.changes.CHANGE_SCHEMA`).
    - SQL Server, Db2: commit LSN, change LSN, and the event's number (an update has two).
    - Oracle: the SCN of the commit (of a snapshot, its own), that of the change, its number in there.
      Changes of a transaction often have one SCN: where there is no number, as of XStream and before
      Debezium 3.2, the place of the change in the stream or in the redo log tells them apart.
    - MongoDB: the second of the operation and its number in it.  Snapshots say no number.  All changes of a
      transaction have the same two: those of one document come one after the other in the topic, so the
      record's offset tells them apart; and a redelivered one from the first, since it has another offset.
    """
    postgres = _joined(*_lsns(source("sequence"), source("lsn")))
    binlog = _joined(F.regexp_extract(source("file"), r"(\d+)$", 1), source("pos"), source("row"))
    # MySQL: the server, a colon and a number; MariaDB: the domain, the server and a number.
    server = F.regexp_extract(source("gtid"), r"^([^:@]+):|^(\d+-\d+)-\d+$", 0)
    named = F.concat(F.regexp_replace(server, r":$|-\d+$", LOG_END), binlog)
    binlog = F.when(server != "", named).otherwise(binlog)
    commit_lsn, change_lsn = (
        F.coalesce(_known(source(name)), F.lit("")) for name in ("commit_lsn", "change_lsn")
    )
    by_lsn = F.concat_ws("/", commit_lsn, change_lsn, _digits(source("event_serial_no")))
    scns = _joined(F.coalesce(source("commit_scn"), source("scn")), source("scn"), source("txSeq"))
    in_redo_log = F.concat_ws("/", source("rs_id"), _digits(source("ssn")))
    unnumbered = F.coalesce(source("lcr_position"), F.when(source("rs_id").isNotNull(), in_redo_log))
    oracle = F.concat_ws("/", scns, F.when(source("txSeq").isNull(), unnumbered))
    in_transaction = F.when(source("txnNumber").isNotNull(), _digits(F.col("offset")))
    there = F.coalesce(
        *(source(name).cast("string") for name in ("sequence", "lsn", "file", "commit_lsn", "scn", "ord"))
    )
    made = (
        F.when(connector == "postgresql", postgres)
        .when(connector.isin("mysql", "mariadb"), binlog)
        .when(connector.isin("sqlserver", "db2"), by_lsn)
        .when(connector == "oracle", oracle)
        .when(
            connector == "mongodb", F.concat_ws("/", _joined(source("ts_ms"), source("ord")), in_transaction)
        )
    )
    return F.when(there.isNotNull(), made)


def lsn_position(lsn: Column) -> Column:
    """An LSN as PostgreSQL writes it (`16/B374D848`), as text that sorts; null for what is none."""
    parts = [F.lpad(F.upper(F.split_part(lsn, F.lit("/"), F.lit(part))), 8, "0") for part in (1, 2)]
    return F.when(lsn.rlike("^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$"), F.concat_ws("/", *parts))


def binlog_position(place: Column) -> Column:
    """A place in a binlog as Maxwell writes it (`master.000006:800911`), as text that sorts."""
    parts = [F.regexp_extract(place, r"(\d+):(\d+)$", part) for part in (1, 2)]
    return F.when(place.rlike(r"\d+:\d+$"), _joined(*parts))


def _lsns(sequence: Column, lsn: Column) -> tuple[Column, Column]:
    """The two numbers of a PostgreSQL `sequence`, `["24023119","24023128"]`, each of which can be null."""
    # Each text is looked for once: a null test beside it would have Spark look twice.
    first, last = F.substr(sequence, F.lit(3)), F.substring_index(sequence, '"', -2)
    before = F.when(F.startswith(sequence, F.lit('["')), F.substring_index(first, '"', 1))
    own = F.when(F.endswith(sequence, F.lit('"]')), F.substring_index(last, '"', 1))
    return before, F.coalesce(own, lsn.cast("string"))


def _known(lsn: Column) -> Column:
    return F.nullif(lsn, F.lit("NULL"))


def _digits(number: Column) -> Column:
    return F.lpad(F.coalesce(number.cast("string"), F.lit("")), _DIGITS, "0")


def _joined(*numbers: Column) -> Column:
    return F.concat_ws("/", *(_digits(number) for number in numbers))
