"""
A day of New York flights as a Databus relay would have sent it: three sources in one commit order.

The changes are those of 8 February 2013 in the schedule of `replicate`, so each flight has the same life.
Commits are numbered by SCN; what was committed within half a minute is one window. Some windows are rolled
back at any place and come again, from the same SCN or an earlier one; some come twice without a rollback; and
one event is of a source that nobody knows, until its window is sent again.
"""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from hashlib import md5
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

from fastavro import parse_schema

from tools.samples.records import as_records, write_json, write_table
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
UNKNOWN, END, ROLLBACK = 99, -2, -51

Event = dict[str, Any]


class Source:
    """A table, its number among the sources, and the schema of its values, with the table's columns."""

    def __init__(self, number: int, table: Table) -> None:
        self.number, self.name = number, table.name.lower()
        fields = [{name: column.avro_field[name] for name in ("name", "type")} for column in table.columns]
        record = {"type": "record", "name": table.name.capitalize(), "fields": fields}
        self.schema = json.dumps(record, separators=(",", ":"))
        self.parsed = parse_schema(json.loads(self.schema))
        self.schema_id = _text(md5(self.schema.encode(), usedforsecurity=False).digest())

    def event(self, scn: int, change: Change) -> Event:
        """Return a change as the relay sends it."""
        return {
            "opcode": "DELETE" if change.operation == "DELETE" else "UPSERT",
            "keyBytes": _text(key_text(change).encode()),
            **_place(scn, change.at, self.number),
            "schemaId": self.schema_id,
            "valueEnc": "JSON",
            "isReplicated": False,
            "value": _text(avro_bytes(self.parsed, change.row)),
        }


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _place(scn: int, at: int, number: int) -> Event:
    return {
        "sequence": scn,
        "logicalPartitionId": 0,
        "physicalPartitionId": PHYSICAL_PARTITION,
        "timestampInNanos": at * 1000,
        "srcId": number,
    }


TABLES = {SCHEDULE_FLIGHTS: 11, PLANES: 12, AIRLINES: 13}
"""What the relay follows, in the order in which a window has it."""


@dataclass(frozen=True)
class Window:
    """What was committed between two polls of the relay: SCN and change, source by source."""

    changes: list[tuple[int, Change]]
    end_scn: int
    at: int

    @property
    def start_scn(self) -> int:
        return min(scn for scn, _ in self.changes)


def windows() -> list[Window]:
    """Return the windows of the day, in their order, each once."""
    (flights,) = real_flights(DAY, DAY).values()
    wanted = [each for each in changes_of_day(DAY, flights, first=True) if each.table in TABLES]
    numbered: list[tuple[int, Change]] = []
    for committed in Journal().commit(wanted):
        # Loads are commits of their own; a transaction is one commit.
        goes_on = committed.event is not None and committed.event > 1
        numbered.append((numbered[-1][0] if goes_on else len(numbered) + 1000, committed.change))
    found = []
    for poll, group in groupby(numbered, key=lambda each: each[1].at // POLL):
        listed = list(group)
        in_order = sorted(listed, key=lambda each: (TABLES[each[1].table], each[0]))
        found.append(Window(in_order, listed[-1][0], (poll + 1) * POLL))
    return found


def events(once: list[Window], sources: dict[Table, Source]) -> Iterator[tuple[int, Event]]:
    """Give the stream: when each event came, and what it says."""
    draw = Random(8)
    place, spoilt = 0, len(once) // 2
    while place < len(once):
        window = once[place]
        told = [(window.at, sources[change.table].event(scn, change)) for scn, change in window.changes]
        end = window.at, _place(window.end_scn, window.at, END) | {"endOfPeriod": True}
        what = draw.random()
        back = place - min(place, draw.randint(0, 2))
        if what < 0.06:
            yield from told[: draw.randint(1, len(told))]
            yield window.at, _place(window.start_scn, window.at, ROLLBACK)
            place = back
        elif place == spoilt:
            spoilt = -1
            yield from (*told[:-1], (window.at, told[-1][1] | {"srcId": UNKNOWN}), end)
        else:
            yield from (*told, end)
            place = back if what > 0.96 else place + 1


def write(folder: Path) -> None:
    """Write the stream, the schemas of its sources, and what is in it."""
    once = windows()
    sources = {table: Source(number, table) for table, number in TABLES.items()}
    sent = list(events(once, sources))
    rows = [
        {"value": json.dumps(event).encode(), "topic": TOPIC, "partition": 0, "offset": i, "timestamp": at}
        for i, (at, event) in enumerate(sent)
    ]
    write_table(folder / "events.parquet", as_records(rows))
    listed = [{"id": each.number, "name": each.name, "schema": each.schema} for each in sources.values()]
    write_json(folder / "sources.json", listed)
    kinds = Counter(event["srcId"] for _, event in sent)
    manifest = {
        "records": len(sent),
        "windows": len(once),
        "changes": sum(len(window.changes) for window in once),
        "ends": kinds[END],
        "rollbacks": kinds[ROLLBACK],
        "of_an_unknown_source": kinds[UNKNOWN],
        "first_scn": once[0].start_scn,
        "last_scn": once[-1].end_scn,
    }
    write_json(folder / "manifest.json", manifest)
