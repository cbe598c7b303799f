"""The audit log: what happened to each message, by day, as Spark reads it back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest
from pyspark.sql import SparkSession

from cdckit.rdss.gateway import AuditEntry, AuditLog, SqliteRepository
from cdckit.rdss.gateway.logs import SCHEMA
from support.rdss_exchange import exchange, gateway, message, put, uuid


def lines(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def test_every_message_that_is_sent_received_or_routed_is_told(tmp_path: Path) -> None:
    channels = exchange()
    with SqliteRepository(":memory:") as repository:
        audited = gateway(repository, channels, audit=AuditLog(tmp_path).write)
        put(channels, b"\xff", message(1), message(1))
        audited.send(message(2))
        audited.receive()
    told = [(each["event"], each["channel"], each["outcome"]) for each in lines(tmp_path)]
    assert told == [
        ("sent", "output", None),
        ("received", "input", "invalid"),
        ("received", "input", "waiting"),
        ("received", "input", "duplicate"),
        ("routed", "invalid", "invalid"),
    ]
    assert uuid(2) in str(lines(tmp_path)[0]["message"])
    assert (lines(tmp_path)[1]["base64"], lines(tmp_path)[1]["bytes"]) == ("/w==", 1)


def test_a_day_is_one_of_utc_and_a_message_that_is_too_long_is_only_told_of(tmp_path: Path) -> None:
    evening = datetime(2024, 2, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    AuditLog(tmp_path).write([AuditEntry(evening, "received", "input", bytes(1_000_001), "error")])
    [line] = lines(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["date=2024-02-02"]
    assert (line["bytes"], "message" in line, "base64" in line) == (1_000_001, False, False)


def test_a_line_that_a_full_disk_has_cut_stays_a_line_of_its_own(tmp_path: Path) -> None:
    log, at, limits = AuditLog(tmp_path), datetime(2024, 2, 1, tzinfo=UTC), getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (50, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.write([AuditEntry(at, "sent", "output", b"cut")])
    finally:
        setrlimit(RLIMIT_FSIZE, limits)
    log.write([AuditEntry(at, "sent", "output", b"whole")])
    [path] = tmp_path.rglob("*.jsonl")
    cut, whole = path.read_text().splitlines()
    assert not cut.endswith("}")
    assert json.loads(whole)["message"] == "whole"


def test_spark_reads_it_back_with_the_day_as_a_column(spark: SparkSession, tmp_path: Path) -> None:
    first = datetime(2024, 2, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    AuditLog(tmp_path).write([AuditEntry(first, "sent", "output", '{"a": "é\n"}'.encode())])
    AuditLog(tmp_path).write([AuditEntry(first + timedelta(days=1), "received", "input", b"\xff", "invalid")])
    rows = spark.read.schema(SCHEMA).json(str(tmp_path)).orderBy("date")
    found = [
        tuple(row) for row in rows.select("date", "at", "event", "outcome", "message", "base64").collect()
    ]
    assert found == [
        (date(2024, 2, 1), first.replace(tzinfo=None), "sent", None, '{"a": "é\n"}', None),
        (date(2024, 2, 2), first.replace(tzinfo=None, day=2), "received", "invalid", None, "/w=="),
    ]
