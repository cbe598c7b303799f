"""
A day of New York flights as a Databus relay would have sent it: three sources in one commit order.

The changes are those of 8 February 2013 in the schedule of `tools.samples`, so each flight has the same life.
Commits are numbered by SCN; what was committed within half a minute is one window.  Some windows are rolled
back at any place and come again, from the same SCN or an earlier one; some come twice without a rollback; and
one event is of a source that nobody knows, until its window is sent again.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from hashlib import md5
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tools.samples.records import LOG_APPEND_TIME, RECORDS
from tools.samples.replicate.changes import Change
from tools.samples.replicate.feed import key_text
from tools.samples.replicate.flights import real_flights
from tools.samples.replicate.lives import changes_of_day
from tools.samples.replicate.messages import Journal, avro_bytes
from tools.samples.replicate.tables import AIRLINES, PLANES, SCHEDULE_FLIGHTS, SECOND, Table

DAY = date(2013, 2, 8)
TOPIC = "databus.schedule"
PHYSICAL_PARTITION = 7
POLL = 30 * SECOND
SOURCES = {11: SCHEDULE_FLIGHTS, 12: PLANES, 13: AIRLINES}
UNKNOWN = 99
END, ROLLBACK = -2, -51


@dataclass(frozen=True)
class Window:
    """What was committed between two polls of the relay: SCN and change, source by source."""

    changes: list[tuple[int, Change]]
    end_scn: int
    at: int

    @property
    def start_scn(self) -> int:
        return min(scn for scn, _ in self.changes)


def schemas() -> dict[int, str]:
    """By source the schema of its values, with the tables' columns."""
    found = {}
    for number, table in SOURCES.items():
        fields = [{name: column.avro_field[name] for name in ("name", "type")} for column in table.columns]
        record = {"type": "record", "name": table.name.capitalize(), "fields": fields}
        found[number] = json.dumps(record, separators=(",", ":"))
    return found


def windows() -> list[Window]:
    """The windows of the day, in their order, each once."""
    (flights,) = real_flights(DAY, DAY).values()
    wanted = [each for each in changes_of_day(DAY, flights, first=True) if each.table in SOURCES.values()]
    numbered: list[tuple[int, Change]] = []
    last: Any = None
    for committed in Journal().commit(wanted):
        # Loads are commits of their own; a transaction is one commit.
        if committed.transaction != last or not committed.transaction:
            last = committed.transaction
            numbered.append((len(numbered) + 1000, committed.change))
        else:
            numbered.append((numbered[-1][0], committed.change))
    order = list(SOURCES.values())
    found = []
    for poll, group in groupby(numbered, key=lambda each: each[1].at // POLL):
        listed = list(group)
        in_order = sorted(listed, key=lambda each: (order.index(each[1].table), each[0]))
        found.append(Window(in_order, listed[-1][0], (poll + 1) * POLL))
    return found


def events(once: list[Window], seed: int = 8) -> Iterator[tuple[int, dict[str, Any]]]:
    """The stream: when each event came, and what it says."""
    draw = Random(seed)
    texts = schemas()
    parsed = {number: fastavro.parse_schema(json.loads(text)) for number, text in texts.items()}
    numbers = {id(table): number for number, table in SOURCES.items()}
    place, spoilt = 0, len(once) // 2
    while place < len(once):
        window = once[place]
        told = [
            (window.at, _data(scn, change, numbers[id(change.table)], texts, parsed))
            for scn, change in window.changes
        ]
        what = draw.random()
        back = place - min(place, draw.randint(0, 2))
        if what < 0.06:
            yield from told[: draw.randint(1, len(told))]
            yield window.at, _system(window.start_scn, window.at, ROLLBACK)
            place = back
            continue
        if place == spoilt:
            spoilt = -1
            yield from [*told[:-1], (window.at, told[-1][1] | {"srcId": UNKNOWN})]
            yield window.at, _system(window.end_scn, window.at, END)
            continue
        yield from told
        yield window.at, _system(window.end_scn, window.at, END)
        place = back if what > 0.96 else place + 1


def _data(
    scn: int, change: Change, number: int, texts: dict[int, str], parsed: dict[int, Any]
) -> dict[str, Any]:
    schema_id = base64.b64encode(md5(texts[number].encode(), usedforsecurity=False).digest())
    return {
        "opcode": "DELETE" if change.operation == "DELETE" else "UPSERT",
        "keyBytes": base64.b64encode(key_text(change).encode()).decode(),
        "sequence": scn,
        "logicalPartitionId": 0,
        "physicalPartitionId": PHYSICAL_PARTITION,
        "timestampInNanos": change.at * 1000,
        "srcId": number,
        "schemaId": schema_id.decode(),
        "valueEnc": "JSON",
        "isReplicated": False,
        "value": base64.b64encode(avro_bytes(parsed[number], change.row)).decode(),
    }


def _system(scn: int, at: int, number: int) -> dict[str, Any]:
    said: dict[str, Any] = {
        "sequence": scn,
        "logicalPartitionId": 0,
        "physicalPartitionId": PHYSICAL_PARTITION,
        "timestampInNanos": at * 1000,
        "srcId": number,
    }
    return said | ({"endOfPeriod": True} if number == END else {})


def write(out: Path) -> None:
    """Write the stream, the schemas of its sources, and what is in it."""
    once = windows()
    rows = [
        (None, json.dumps(event).encode(), TOPIC, 0, offset, datetime.fromtimestamp(at / 1e6, UTC))
        for offset, (at, event) in enumerate(events(once))
    ]
    columns = list(zip(*rows, strict=True))
    names = RECORDS.names[:6]
    arrays = [pa.array(each, RECORDS.field(name).type) for name, each in zip(names, columns, strict=True)]
    arrays += [
        pa.array([LOG_APPEND_TIME] * len(rows), pa.int32()),
        pa.nulls(len(rows), RECORDS.field(7).type),
    ]
    out.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_arrays(arrays, schema=RECORDS)
    pq.write_table(table, out / "events.parquet", compression="zstd", compression_level=12)
    told: dict[int, Table] = SOURCES
    sources = [
        {"id": number, "name": told[number].name.lower(), "schema": text}
        for number, text in schemas().items()
    ]
    (out / "sources.json").write_text(json.dumps(sources, indent=1) + "\n")
    kinds = Counter(json.loads(row[1])["srcId"] for row in rows)
    manifest = {
        "records": len(rows),
        "windows": len(once),
        "changes": sum(len(window.changes) for window in once),
        "ends": kinds[END],
        "rollbacks": kinds[ROLLBACK],
        "of_an_unknown_source": kinds[UNKNOWN],
        "first_scn": once[0].start_scn,
        "last_scn": once[-1].end_scn,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
