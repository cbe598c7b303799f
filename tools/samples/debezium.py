"""
A real database's change stream: PostgreSQL with wal2json, worked on by several sessions at a time.

    python -m tools.samples.debezium data/samples/debezium

It starts a server of its own in a temporary folder, reached by a socket in that folder alone, loads flights
of 8 February 2013 (`data/samples/replicate/truth.parquet`), and has four sessions work on them side by side:
they insert, update, delete, change keys, leave large values alone, truncate, roll back, and send messages.
Now and then all of them wait while the tables' own rows are written down, beside the place in the stream.
No two runs are alike: the sessions' order is that of the machine.

It needs PostgreSQL 15 or newer with wal2json (Debian: postgresql, postgresql-15-wal2json), and may run as
root: the server then runs as the user postgres.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tools.samples.records import SAMPLES, as_records, write_json, write_table

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
OPTIONS = ("format-version", 2), *((f"include-{each}", 1) for each in ("xids", "timestamp", "lsn", "pk"))


class NoServer(Exception):
    """There is no PostgreSQL here, or it has no wal2json."""


def write(folder: Path) -> None:
    """
    Capture, and write `wal2json.parquet`, `rows_<table>.parquet` and `manifest.json`.

    Raises:
        NoServer: PostgreSQL or wal2json is missing.
    """
    with server(plugin="wal2json") as sql:
        stream, checks = capture(sql)
        version = sql("SHOW server_version")[0].split()[0]
    # At one time: the stream itself says the true ones.
    at = {"timestamp": datetime(2013, 2, 8, tzinfo=UTC), "timestampType": 0}
    place = {"topic": "wal2json", "partition": 0}
    records = [{"value": data.encode(), "offset": i, **place, **at} for i, (_, data) in enumerate(stream)]
    write_table(folder / "wal2json.parquet", as_records(records))
    for table, rows in checks.items():
        write_table(folder / f"rows_{table}.parquet", pa.Table.from_pylist(rows))
    actions = [json.loads(data)["action"] for _, data in stream]
    manifest = {
        "server": f"PostgreSQL {version}, wal2json, format 2",
        "records": {action: actions.count(action) for action in sorted(set(actions))},
        "checks": ROUNDS + 1,
        "keys": {table: list(keys) for table, keys in TABLES.items()},
    }
    write_json(folder / "manifest.json", manifest)


class Sql:
    """Runs statements in a session of their own; rows come as the lines that psql prints."""

    def __init__(self, socket: Path, port: int | None = None) -> None:
        quiet = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        where = ("-h", str(socket), "-U", "postgres", *(() if port is None else ("-p", str(port))))
        self.command = ("psql", *quiet, *where)

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
    with tempfile.TemporaryDirectory(prefix="cdckit-pg-", ignore_cleanup_errors=True) as name:
        folder, data = Path(name), Path(name) / "data"
        as_user = []
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
            as_user = ["runuser", "-u", "postgres", "--"]

        def run(program: str, *options: str) -> None:
            command = [*as_user, str(programs / program), "-D", str(data), *options]
            # Its output to no pipe: the server, which goes on, would hold that open.
            nowhere = subprocess.DEVNULL
            subprocess.run(command, check=True, cwd=folder, stdout=nowhere, stderr=nowhere)

        run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C")
        listens = "-c listen_addresses=" + ("" if port is None else f"127.0.0.1 -c port={port}")
        settings = f"-c wal_level=logical {listens} -c unix_socket_directories={folder} -c timezone=UTC"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", settings, "start")
        try:
            yield Sql(folder, port)
        finally:
            run("pg_ctl", "-w", "-m", "fast", "stop")


def capture(sql: Sql) -> tuple[list[tuple[str, str]], dict[str, list[dict[str, str | None]]]]:
    """The stream, (LSN, JSON) by record, and each table's rows at several places of it."""
    sql(SCHEMA)
    flights = chosen_flights()
    stream: list[tuple[str, str]] = []
    checks: dict[str, list[dict[str, str | None]]] = {table: [] for table in TABLES}
    sql("".join(["BEGIN;", *(insert_flight(each, number) for number, each in enumerate(flights)), "COMMIT;"]))
    for turn in range(ROUNDS + 1):
        if turn:
            programs = [program(turn, session, flights) for session in range(SESSIONS)]
            with ThreadPoolExecutor(SESSIONS) as pool:
                list(pool.map(partial(sql, may_fail=True), programs))
        stream += changes(sql)
        for table in TABLES:
            rows = sql(f"SELECT row_to_json(t) FROM {table} t")
            checks[table] += [{"records": str(len(stream)), "row": row} for row in rows]
    return stream, checks


def changes(sql: Sql) -> list[tuple[str, str]]:
    """What the slot has since it was last asked."""
    options = ", ".join(f"'{name}', '{value}'" for name, value in OPTIONS)
    asked = f"pg_logical_slot_get_changes('sample', NULL, NULL, {options})"
    lines = sql(f"SELECT json_build_array(lsn, data) FROM {asked}")
    return [tuple(json.loads(line)) for line in lines]


def chosen_flights() -> list[dict[str, object]]:
    """The first flights of the day whose planes are known."""
    known = pq.read_table(SAMPLES / "replicate" / "truth.parquet").to_pylist()
    return [each for each in known if each["flight_date"] == DAY and each["tailnum"]][: FLIGHTS + 40]


def insert_flight(flight: dict[str, object], number: int) -> str:
    """A statement; of the first flights only, since the others come later."""
    if number >= FLIGHTS:
        return ""
    text = f"'{flight['carrier']} {flight['flight']} ' || repeat(md5('{number}'), 90)"
    return (
        f"INSERT INTO flights VALUES ({key_of(flight)}, '{flight['dest']}',"
        f" '{flight['scheduled_departure']}', '{flight['tailnum']}', 'scheduled', NULL, {number}.50,"
        f" {number} / 7.0, false, decode(md5('{number}'), 'hex'), {text});\n"
    )


def key_of(flight: dict[str, object]) -> str:
    """The key of a flight, as SQL has it."""
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
    is_it = f"(flight_date, carrier, flight, origin) = ({key_of(flight)})"
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


if __name__ == "__main__":
    write(Path(sys.argv[1]))
