"""
A real database's change stream: PostgreSQL with wal2json, worked on by several sessions at a time.

    python -m tools.samples.debezium --out data/samples/debezium

It starts a server of its own in a temporary folder, reached by a socket in that folder alone, loads flights
of 8 February 2013 (`data/samples/replicate/truth.parquet`), and has four sessions work on them side by side:
they insert, update, delete, change keys, leave large values alone, truncate, roll back, and send messages.
Now and then all of them wait while the tables' own rows are written down, beside the place in the stream.
No two runs are alike: the sessions' order is that of the machine.

It needs PostgreSQL 15 or newer with wal2json (Debian: postgresql, postgresql-15-wal2json), and may run as
root: the server then runs as the user postgres.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.samples.records import SAMPLES

TRUTH = SAMPLES / "replicate" / "truth.parquet"
DAY = date(2013, 2, 8)
FLIGHTS, SESSIONS, ROUNDS, STEPS = 80, 4, 5, 25
TABLES = {"flights": ("flight_date", "carrier", "flight", "origin"), "remarks": ("id",)}

SCHEMA = """
CREATE TABLE flights (
  flight_date date, carrier text, flight integer, origin character varying(3), dest character varying(3),
  scheduled_departure timestamp with time zone, tailnum text, status text, delay_minutes integer,
  fare numeric(8,2), load double precision, cancelled boolean, raw bytea, log text,
  PRIMARY KEY (flight_date, carrier, flight, origin)
);
ALTER TABLE flights ALTER COLUMN log SET STORAGE EXTERNAL;
CREATE TABLE remarks (
  id bigint PRIMARY KEY, flight integer, remark text, written timestamp without time zone
);
SELECT 'made' FROM pg_create_logical_replication_slot('sample', 'wal2json');
"""
OPTIONS = (
    "format-version",
    "2",
    "include-xids",
    "1",
    "include-timestamp",
    "1",
    "include-lsn",
    "1",
    "include-pk",
    "1",
)


class NoServer(Exception):
    """There is no PostgreSQL here, or it has no wal2json."""


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.samples.debezium", description=__doc__.split("\n")[1]
    )
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)


def write(folder: Path) -> None:
    """
    Capture, and write `wal2json.parquet`, `rows_<table>.parquet` and `manifest.json`.

    Raises:
        NoServer: PostgreSQL or wal2json is missing.
    """
    with server(plugin="wal2json") as sql:
        stream, checks = capture(sql)
        version = sql("SHOW server_version")[0].split()[0]
    pq.write_table(as_records(stream), folder / "wal2json.parquet", compression="zstd")
    for table, rows in checks.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"rows_{table}.parquet", compression="zstd")
    actions = [json.loads(data)["action"] for _, data in stream]
    manifest = {
        "server": f"PostgreSQL {version}, wal2json, format 2",
        "records": {action: actions.count(action) for action in sorted(set(actions))},
        "checks": ROUNDS + 1,
        "keys": {table: list(keys) for table, keys in TABLES.items()},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


class Sql:
    """Runs statements in a session of their own; rows come as the lines that psql prints."""

    def __init__(self, socket: Path, port: int | None = None) -> None:
        self.command = [
            "psql",
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(socket),
            "-U",
            "postgres",
            *([] if port is None else ["-p", str(port)]),
        ]

    def __call__(self, statements: str, *, may_fail: bool = False) -> list[str]:
        done = subprocess.run(
            self.command, input=statements, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode and not may_fail:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout.splitlines()


@contextmanager
def server(port: int | None = None, plugin: str = "pgoutput") -> Iterator[Sql]:
    """A server of our own that has *plugin*, gone afterwards; with a *port* it also listens on loopback."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    programs = found[-1].parent if found else None
    if programs is None or not (programs.parent / "lib" / f"{plugin}.so").exists():
        package = "postgresql-15" if plugin == "pgoutput" else f"postgresql-15-{plugin}"
        raise NoServer(f"PostgreSQL with {plugin} is needed: apt-get install {package}")
    folder = Path(tempfile.mkdtemp(prefix="cdckit-pg-"))
    user = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        user = ["runuser", "-u", "postgres", "--"]
    run = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    data = folder / "data"
    listens = "-c listen_addresses=" if port is None else f"-c listen_addresses=127.0.0.1 -c port={port}"
    settings = f"-c wal_level=logical {listens} -c unix_socket_directories={folder} -c timezone=UTC"
    try:
        init = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]
        subprocess.run([*user, programs / "initdb", "-D", data, *init], **run)  # type: ignore[call-overload]
        start = ["-w", "-D", data, "-l", folder / "log", "-o", settings, "start"]
        subprocess.run([*user, programs / "pg_ctl", *start], **run)  # type: ignore[call-overload]
        try:
            yield Sql(folder, port)
        finally:
            stop = [*user, programs / "pg_ctl", "-w", "-D", data, "-m", "fast", "stop"]
            subprocess.run(stop, **run)  # type: ignore[call-overload]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def capture(sql: Sql) -> tuple[list[tuple[str, str]], dict[str, list[dict[str, str | None]]]]:
    """The stream, (LSN, JSON) by record, and each table's rows at several places of it."""
    sql(SCHEMA)
    flights = chosen_flights()
    stream: list[tuple[str, str]] = []
    checks: dict[str, list[dict[str, str | None]]] = {table: [] for table in TABLES}
    sql("".join(["BEGIN;", *(insert_flight(each, number) for number, each in enumerate(flights)), "COMMIT;"]))
    for turn in range(ROUNDS + 1):
        if turn:
            workers = [
                threading.Thread(
                    target=sql, args=(program(turn, session, flights),), kwargs={"may_fail": True}
                )
                for session in range(SESSIONS)
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        stream += changes(sql)
        for table in TABLES:
            rows = sql(f"SELECT row_to_json(t) FROM {table} t")
            checks[table] += [{"records": str(len(stream)), "row": row} for row in rows]
    return stream, checks


def changes(sql: Sql) -> list[tuple[str, str]]:
    """What the slot has since it was last asked."""
    options = ", ".join(f"'{each}'" for each in OPTIONS)
    asked = f"pg_logical_slot_get_changes('sample', NULL, NULL, {options})"
    lines = sql(f"SELECT json_build_array(lsn, data) FROM {asked}")
    return [tuple(json.loads(line)) for line in lines]


def chosen_flights() -> list[dict[str, object]]:
    """The first flights of the day whose planes are known."""
    known = pq.read_table(TRUTH).to_pylist()
    return [each for each in known if each["flight_date"] == DAY and each["tailnum"]][: FLIGHTS + 40]


def insert_flight(flight: dict[str, object], number: int) -> str:
    """A statement; of the first flights only, since the others come later."""
    if number >= FLIGHTS:
        return ""
    text = f"'{key_of(flight)}' || repeat(md5('{number}'), 90)"
    return (
        f"INSERT INTO flights VALUES ({key_of(flight, quote=True)}, '{flight['dest']}',"
        f" '{flight['scheduled_departure']}', '{flight['tailnum']}', 'scheduled', NULL, {number}.50,"
        f" {number} / 7.0, false, decode(md5('{number}'), 'hex'), {text});\n"
    )


def key_of(flight: dict[str, object], *, quote: bool = False) -> str:
    """The key of a flight, for people or for SQL."""
    if not quote:
        return f"{flight['carrier']} {flight['flight']} "
    return f"'{flight['flight_date']}', '{flight['carrier']}', {flight['flight']}, '{flight['origin']}'"


def program(turn: int, session: int, flights: list[dict[str, object]]) -> str:
    """What one session does in one turn: transactions of a few statements, some rolled back."""
    chance = random.Random(f"{turn} {session}")
    lines = ["SET lock_timeout = '10s';"]
    for step in range(STEPS):
        # In the order of the keys, so that no two sessions wait for each other.
        some = sorted(chance.sample(range(len(flights)), chance.randint(1, 3)))
        lines += ["BEGIN;", *(statement(chance, flights[each], each) for each in some)]
        number = ((turn * SESSIONS) + session) * STEPS + step
        remark = f"INSERT INTO remarks VALUES ({number}, {some[0]}, 'turn {turn}', '2013-02-08 12:00:00.5');"
        lines += [remark if chance.random() < 0.6 else f"DELETE FROM remarks WHERE id = {number - STEPS};"]
        if chance.random() < 0.1:
            lines += [f"SELECT pg_logical_emit_message(true, 'tower', 'session {session}, step {step}');"]
        lines += ["ROLLBACK;" if chance.random() < 0.15 else "COMMIT;"]
    if turn == 3 and session == 0:
        lines += ["TRUNCATE remarks;", "INSERT INTO remarks VALUES (1, 1, 'after the truncate', NULL);"]
    return "\n".join(lines)


def statement(chance: random.Random, flight: dict[str, object], number: int) -> str:
    """One statement about one flight, which may or may not be there."""
    is_it = f"(flight_date, carrier, flight, origin) = ({key_of(flight, quote=True)})"
    there = int(str(flight["flight"])) + 10000
    moved = f"carrier = '{flight['carrier']}' AND flight = {there} AND origin = '{flight['origin']}'"
    return chance.choice(
        [
            f"UPDATE flights SET status = 'delayed', delay_minutes = {chance.randint(1, 300)} WHERE {is_it};",
            f"UPDATE flights SET fare = fare + 0.25, load = load * 1.1 WHERE {is_it};",
            f"UPDATE flights SET status = NULL, cancelled = true WHERE {is_it};",
            f"UPDATE flights SET log = log || repeat('{number % 10}', 40) WHERE {is_it};",
            f"DELETE FROM flights WHERE {is_it};",
            f"{insert_flight(flight, number % FLIGHTS).strip()[:-1]} ON CONFLICT DO NOTHING;",
            # A new number: the log comes with it, since a large value that does not change is not sent.
            f"UPDATE flights SET flight = flight + 10000, log = log || '.' WHERE {is_it};",
            f"UPDATE flights SET flight = flight - 10000, log = log || '.' WHERE {moved}"
            f" AND NOT EXISTS (SELECT 1 FROM flights WHERE {is_it});",
        ]
    )


def as_records(stream: list[tuple[str, str]]) -> pa.Table:
    """The stream as records of one topic, a second apart: the stream itself says the true times."""
    at = datetime(2013, 2, 8, tzinfo=UTC)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    count = len(stream)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array([data.encode() for _, data in stream], pa.binary()),
        "topic": pa.array(["wal2json"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([at] * count, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
        "headers": pa.nulls(count, headers),
    }
    return pa.table(columns)


if __name__ == "__main__":
    main()
