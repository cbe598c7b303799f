"""A real PostgreSQL with a real Debezium: what its engine sends, and what the table held at some instants."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import free_port

from tests.proofs.jars import jars
from tools.samples.debezium import NoServer, Sql, server

VERSION = "2.7.4.Final"
RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
KEYS, WRITERS, ROWS = ["id"], 3, 40
SCHEMA = """
CREATE TABLE items (id integer PRIMARY KEY, n integer, big text);
ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL;
CREATE TABLE signals (id text PRIMARY KEY, type text, data text);
"""
SIGNAL = """INSERT INTO signals VALUES (gen_random_uuid()::text, 'execute-snapshot',
 '{"data-collections": ["public.items"], "type": "incremental"}');"""
LOOK = """BEGIN; LOCK TABLE items IN SHARE MODE;
SELECT json_build_object('at', clock_timestamp(), 'rows',
 (SELECT coalesce(json_agg(json_build_array(id, n, md5(big)) ORDER BY id), '[]') FROM items)); COMMIT;"""
"""What the table holds while nobody can write to it."""

UNHEARD = """ALTER PUBLICATION dbz_publication DROP TABLE items;
%s; ALTER PUBLICATION dbz_publication ADD TABLE items;"""
"""Nobody hears of what happens to a table that is not published."""


def capture(folder: Path, *, seconds: int, pause: int, seed: int, last: str = "", by_hand: str = "") -> None:
    """
    Write `engine.parquet`, records, and `engine_instants.json`, what the table held then, to *folder*.

    Three sessions write for so many *seconds*, while the engine takes *pause* milliseconds for each record
    and so lags; incremental snapshots are asked for all the while, and the engine is killed on its way.
    After the sessions and snapshots come the statements *last*, and then, while the table is not published,
    those *by_hand*, of which no event tells; the last instant is behind them.
    The test that asks is skipped where there is no PostgreSQL, no Java compiler, or no jars.
    """
    needed = jars(*(f"io.debezium:debezium-{each}:{VERSION}" for each in ("embedded", "connector-postgres")))
    if shutil.which("javac") is None:
        pytest.skip("a JDK is needed: java alone does not run a source file")
    try:
        port = free_port()
        with server(port) as sql:
            _capture(sql, port, folder, needed, seconds, pause, random.Random(seed), last, by_hand)
    except NoServer as missing:
        pytest.skip(str(missing))


def _capture(
    sql: Sql,
    port: int,
    folder: Path,
    needed: Sequence[Path],
    seconds: int,
    pause: int,
    chance: random.Random,
    last: str,
    by_hand: str,
) -> None:
    sql(SCHEMA)
    sql(f"INSERT INTO items SELECT i, 0, repeat(md5(i::text), 200) FROM generate_series(1, {ROWS}) i")
    with tempfile.TemporaryDirectory() as made:
        settings = _settings(Path(made), port)
        lines = Path(made, "lines")
        engine = _start(needed, settings, lines, pause)
        try:
            _wait(lambda: _count(lines) >= ROWS, 90)
            end = time.monotonic() + seconds
            writers = [
                threading.Thread(target=_write, args=(sql, end, random.Random(chance.random()), each))
                for each in range(WRITERS)
            ]
            for each in writers:
                each.start()
            instants, killed = [], False
            while time.monotonic() < end:
                sql(SIGNAL)
                time.sleep(chance.uniform(0.5, 1.5))
                instants += [json.loads(line) for line in sql(LOOK) if line.startswith("{")]
                if not killed and time.monotonic() > end - seconds / 2:
                    _kill(engine)
                    engine, killed = _start(needed, settings, lines, pause), True
            for each in writers:
                each.join()
            if last:
                # What a snapshot still reads would tell of what no event tells.
                sql("INSERT INTO signals VALUES ('the sessions are over', 'log', '{}')")
                _wait(lambda: "the sessions are over" in _read(lines, "signals"), 240)
                _wait(lambda: _is_quiet(lines), 240)
                sql(last)
            instants += [json.loads(line) for line in sql(LOOK) if line.startswith("{")]
            if by_hand:
                sql(UNHEARD % by_hand)
                instants += [json.loads(line) for line in sql(LOOK) if line.startswith("{")]
            sql("INSERT INTO signals VALUES ('the last one', 'log', '{}')")
            _wait(lambda: "the last one" in _read(lines, "signals"), 240)
        finally:
            _kill(engine)
        records = [_record(line, offset) for offset, line in enumerate(_whole_lines(lines))]
    pq.write_table(pa.Table.from_pylist(records, RECORDS), folder / "engine.parquet", compression="zstd")
    lines_of = ",\n".join(json.dumps(each, separators=(",", ":")) for each in instants)
    Path(folder, "engine_instants.json").write_text(f"[\n{lines_of}\n]\n")


def _settings(folder: Path, port: int) -> Path:
    said = {
        "name": "engine",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": folder / "offsets",
        "offset.flush.interval.ms": 500,
        "database.hostname": "127.0.0.1",
        "database.port": port,
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.items,public.signals",
        "signal.data.collection": "public.signals",
        "provide.transaction.metadata": "true",
        "snapshot.mode": "initial",
        "skipped.operations": "none",
        "incremental.snapshot.chunk.size": 7,
        "max.batch.size": 8,
        "max.queue.size": 16,
        "poll.interval.ms": 20,
    }
    path = folder / "engine.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in said.items()))
    return path


def _start(needed: Sequence[Path], settings: Path, lines: Path, pause: int) -> subprocess.Popen[bytes]:
    source = Path(__file__).with_name("Capture.java")
    command = ["java", "-Xmx300m", "-cp", ":".join(map(str, needed)), source, settings, lines, str(pause)]
    with settings.with_name("log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _kill(engine: subprocess.Popen[bytes]) -> None:
    engine.kill()
    engine.communicate()


def _write(sql: Sql, end: float, chance: random.Random, writer: int) -> None:
    """What one session does: transactions of a few statements, some of them slow, some rolled back."""
    while time.monotonic() < end:
        lines = []
        for _ in range(6):
            lines += ["BEGIN;", *(_statement(chance) for _ in range(chance.randint(1, 3)))]
            lines += [f"SELECT pg_sleep({chance.uniform(0, 0.1)});"]
            lines += ["ROLLBACK;" if chance.random() < 0.1 else "COMMIT;"]
        if writer == 0 and chance.random() < 0.1:
            lines += ["TRUNCATE items;"]
        # Two sessions may wait for each other; then one is ended.
        sql("".join(lines), may_fail=True)


def _statement(chance: random.Random) -> str:
    key, other, number = chance.randint(1, ROWS), chance.randint(1, ROWS), chance.randint(1, 10**6)
    return chance.choice(
        [
            f"UPDATE items SET n = {number} WHERE id = {key};",
            f"UPDATE items SET big = repeat(md5('{number}'), 200) WHERE id = {key};",
            f"DELETE FROM items WHERE id = {key};",
            f"INSERT INTO items VALUES ({key}, {number}, repeat(md5('{number}'), 200))"
            " ON CONFLICT DO NOTHING;",
            f"UPDATE items SET id = {other}, n = {number} WHERE id = {key}"
            f" AND NOT EXISTS (SELECT FROM items WHERE id = {other});",
        ]
    )


def _wait(until: Any, seconds: int) -> None:
    end = time.monotonic() + seconds
    while not until():
        if time.monotonic() > end:
            raise TimeoutError("the engine did not come so far")
        time.sleep(0.2)


def _is_quiet(lines: Path) -> bool:
    before = _count(lines)
    time.sleep(8)
    return _count(lines) == before


def _whole_lines(lines: Path) -> list[str]:
    return lines.read_text().split("\n")[:-1] if lines.exists() else []


def _count(lines: Path) -> int:
    return len(_whole_lines(lines))


def _read(lines: Path, table: str) -> str:
    found = [each.split(" ") for each in _whole_lines(lines)]
    return "".join(str(_bytes(each[2])) for each in found if each[0].endswith(table) and len(each) > 2)


def _bytes(said: str) -> bytes | None:
    return None if said == "-" else base64.b64decode(said[1:])


def _record(line: str, offset: int) -> dict[str, Any]:
    topic, key, value, *headers = line.split(" ")
    named = [each.split("=", 1) for each in headers]
    return {
        "key": _bytes(key),
        "value": _bytes(value),
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": datetime(2024, 1, 1, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": name, "value": _bytes(said)} for name, said in named] or None,
    }
