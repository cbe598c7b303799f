"""
Where an event stands in the log of its source, as text that sorts: a small function for each connector.

A place that says nothing is no place: rows of a snapshot, and all events of some producers, have the lowest
that their connector knows (a file without a name, an LSN that is not above 0, an SCN of 0).  They have no
position, and count by their times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from cdckit.model.places import CLOCK, LOG_END

_DIGITS = 20
"""As many as an unsigned number of 64 bits has."""

Source = Any
"""The source block of an event: its fields as attributes, null where it does not say one."""


def position(connector: str | None, source: Source, offset: int | None) -> str | None:
    """
    The position of an event; None for a connector whose order is not known, or that says nothing of it.

    Args:
        connector: The kind of database, in Debezium's words.
        source: The event's source block.
        offset: That of its record.  Where a connector does not number the changes of a transaction, it tells
            them apart: those of one row come one after the other in the topic, and one that is redelivered
            has another offset.
    """
    by = _BY_CONNECTOR.get(connector or "")
    return None if by is None else by(source, offset)


def _postgresql(source: Source, offset: int | None) -> str | None:
    """
    The LSN of the commit before the event's transaction, and its own.

    Transactions come in the order of their commits, so the pair sorts; the LSN alone does not, since those of
    concurrent transactions interleave.  `sequence` has both, but in Debezium 1.5 and 1.6 twice the commit's:
    the event's own is `lsn` wherever it is there.  A snapshot and the first transaction after it know no
    commit, also where a stream was there before them: theirs is their own LSN.
    """
    commit, last = _lsns(source.sequence)
    position = _positive(source.lsn) or last
    return None if position is None else _join_digits(commit or position, position)


def _lsns(sequence: Any) -> tuple[int | None, int | None]:
    """The two numbers of a `sequence`, `["24023119","24023128"]`; either may be null."""
    try:
        commit, position = _read_sequence(sequence)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None, None
    return _positive(commit), _positive(position)


def _positive(number: Any) -> int | None:
    """An LSN, also one that is written as a text; one that is not above 0 is none."""
    if isinstance(number, str):
        is_whole = number.isascii() and number.isdecimal() and len(number) <= _DIGITS
        number = int(number) if is_whole else None
    return number if number.__class__ is int and number > 0 else None


_read_sequence = msgspec.json.Decoder().decode


def _binlog(source: Source, log: str, number: str) -> str | None:
    """
    The number of the binlog file, the position in it, and the row in the event, behind a log and a number.

    Files and positions start anew on another server.  So where there are GTIDs, the number of the transaction
    comes first, which all servers know it by, and before it the name of the log.
    """
    match = _FILE_NUMBER.search(source.file) if isinstance(source.file, str) else None
    at = _whole(source.pos) or 0
    if not number and (match is None or at <= 0):
        return None
    place = _join_digits(match[0] if match else "", max(at, 0), _whole(source.row))
    return f"{log}{LOG_END}{_digits(number)}{LOG_END}{place}" if number else place


_FILE_NUMBER = re.compile(r"\d+$", re.ASCII)


def _by_gtid(gtid: re.Pattern[str], source: Source, offset: int | None) -> str | None:
    """
    Place by the log that a GTID names, and the number of the transaction in it.

    Of MySQL the server, or group, and tag name the log.  A group with several primaries counts in blocks, one
    for each, unless its `group_replication_gtid_assignment_block_size` is 1: else its numbers say no order.
    Of MariaDB the domain is the log, whose number counts on across the domain's servers.
    """
    match = gtid.fullmatch(source.gtid) if isinstance(source.gtid, str) else None
    return _binlog(source, match[1], match[2]) if match else _binlog(source, "", "")


_MYSQL_GTID = re.compile(r"([^@]+):(\d+)", re.ASCII)
_MARIADB_GTID = re.compile(r"(\d+)-\d+-(\d+)", re.ASCII)


def _by_lsn(source: Source, offset: int | None) -> str | None:
    """Db2: the LSN of the commit, that of the change, and its number (an update has two)."""
    commit, change = _lsn(source.commit_lsn), _lsn(source.change_lsn)
    place = f"{commit}/{change}/{_digits(source.event_serial_no)}"
    return place if re.search("[1-9a-fA-F]", commit) else None


def _sqlserver(source: Source, offset: int | None) -> str | None:
    """
    As `_by_lsn`, but within a commit in the order in which the record was delivered.

    The LSN of a change is no order there: the delete of a deferred update may have a higher one than its
    insert.  Debezium reads by the number of the command, which it does not say
    (its issue DBZ-8858); before, it read by these LSNs, so that records of then
    stand in their order too.  Rows of a snapshot share one place.
    """
    place = _by_lsn(source, offset)
    is_listed = is_read(source) and source.snapshot != "incremental"
    if place is None or is_listed:
        return place
    commit, slash, change = place.partition("/")
    return f"{commit}{_offset(offset)}{slash}{change}"


def _lsn(lsn: Any) -> str:
    return "" if lsn in (None, "NULL") else str(lsn)


def _oracle(source: Source, offset: int | None) -> str | None:
    """
    The SCN of the commit (of a snapshot, its own), that of the change, and its number in there.

    Changes of a transaction often have one SCN: where there is no number, as of XStream and before Debezium
    3.2, the place of the change in the stream or in the redo log tells them apart.  Of OpenLogReplicator,
    which says none of these, the offset of the record does.

    A commit before the change is not its own: Debezium 1.9 to 2.3 say the one before on its redo thread.
    As a row is locked until the commit, the number of the change then does.
    """
    position = _text(source.scn)
    commit = max(_text(source.commit_scn) or position, position, key=lambda scn: _whole(scn) or 0)
    if not re.search("[1-9]", f"{commit}{position}"):
        return None
    scns = _join_digits(commit, position, _text(source.tx_seq))
    if source.tx_seq is not None:
        return scns
    if source.lcr_position is not None:
        return f"{scns}/{_text(source.lcr_position)}"
    if source.rs_id is not None:
        return f"{scns}/{_text(source.rs_id)}/{_digits(source.ssn)}"
    return scns if is_read(source) else f"{scns}{_offset(offset)}"


def _mongodb(source: Source, offset: int | None) -> str | None:
    """
    The second of the operation and its number in it.

    A snapshot, which knows no operation, says the number -1, or none, and the second of its own clock.  All
    changes of a transaction have the same two, so the offset of the record tells them apart.

    Since 3.4 the time is that of a primary's clock, not of the cluster's, where the database says it (since
    MongoDB 6): after an election it may go back, so there the order of delivery counts more.
    """
    number = _whole(source.ord)
    if number is None or number < 1:
        return None
    place = _join_digits(_whole(source.ts_ms), number)
    if source.wall_time is not None and source.wall_time == source.ts_ms and _is_since_3_4(source.version):
        place = f"{CLOCK}{place}"
    return place if source.txn_number is None else f"{place}{_offset(offset)}"


def _is_since_3_4(version: Any) -> bool:
    match = _VERSION.match(version) if isinstance(version, str) else None
    return match is not None and (int(match[1]), int(match[2])) >= (3, 4)


_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)

_BY_CONNECTOR: Mapping[str, Callable[[Source, int | None], str | None]] = {
    "postgresql": _postgresql,
    "mysql": partial(_by_gtid, _MYSQL_GTID),
    "mariadb": partial(_by_gtid, _MARIADB_GTID),
    "sqlserver": _sqlserver,
    "db2": _by_lsn,
    "oracle": _oracle,
    "mongodb": _mongodb,
}


def _offset(offset: int | None) -> str:
    return f"/o{_digits(offset)}"


def without_offset(place: str) -> str:
    """
    A position without the offset of its record, which another delivery of the same event has not.

    >>> without_offset("0:2:5/o00000000000000000007/0:2:3/1"), without_offset("40/50/3")
    ('0:2:5/0:2:3/1', '40/50/3')
    """
    return _OFFSET.sub("", place)


_OFFSET = re.compile(r"/o\d+", re.ASCII)


def is_read(source: Source) -> bool:
    """Tell whether a snapshot read the row: it says `true`, `first`, `last`, `incremental`, …"""
    return source.snapshot not in (None, False, "false")


def lsn_position(lsn: Any) -> str | None:
    """
    An LSN as PostgreSQL writes it, as text that sorts; None for what is none, or lies before all.

    >>> lsn_position("16/B374D848"), lsn_position("0/0")
    ('00000016/B374D848', None)
    """
    match = _LSN.fullmatch(lsn) if isinstance(lsn, str) else None
    if match is None or not lsn.strip("0/"):
        return None
    return f"{match[1].upper():0>8}/{match[2].upper():0>8}"


_LSN = re.compile("([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def maxwell_position(place: Any, row: str) -> str | None:
    """
    A place in a binlog as Maxwell writes it, with the row in its transaction, as text that sorts.

    >>> maxwell_position("master.000006:800911", "2")
    '00000000000000000006/00000000000000800911/00000000000000000002'
    """
    match = _MAXWELL.search(place) if isinstance(place, str) else None
    return None if match is None or not int(match[2]) else _join_digits(match[1], match[2], row)


_MAXWELL = re.compile(r"(\d+):(\d+)$", re.ASCII)


def _whole(number: Any) -> int | None:
    """A whole number, also one that is written as a text."""
    if number.__class__ is int:
        return number
    return int(number) if isinstance(number, str) and _WHOLE.fullmatch(number) else None


_WHOLE = re.compile(r"-?\d{1,20}", re.ASCII)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _digits(number: Any) -> str:
    return _text(number).rjust(_DIGITS, "0")


def _join_digits(*numbers: Any) -> str:
    return "/".join(map(_digits, numbers))
