"""
Two more feeds about flights of 8 February 2013, so that each of five doors tells of the same ones.

    python -m tools.feed_samples --out data/samples/five_feeds

The schedule comes by Databus, the operations by Replicate, the airports by a data hub: those samples are
there.  Here the agents at the gates send patches from their tablets, in the form of the Debezium prototype of
2014, and an archive deposits when each flight left, as a dataset of RDSS.  They tell the same lives of the
same flights (`replicate/truth.parquet` is read); what agents count and where the archive errs is drawn.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdckit.parts.arrow_types import arrow_schema
from cdckit.records import RECORD_SCHEMA
from tools.rdss_lives import Exchange, text_of
from tools.stream_samples import add, millis

TRUTH = Path(__file__).parents[1] / "data" / "samples" / "replicate" / "truth.parquet"
DAY = date(2013, 2, 8)
CARRIERS = ("AS", "F9", "FL", "HA", "VX", "WN", "YV")
"""The carriers of which the sample of the data hub tells, but for Delta, which has a part in it only."""

NEW_YORK = timedelta(hours=5)
CORRECTED = datetime(2013, 2, 9, 13, tzinfo=UTC)
TENANT = 11

Flight = dict[str, Any]
Sent = tuple[datetime, dict[str, Any]]


def flights() -> list[Flight]:
    """The flights that the operations knew, with what became of them."""
    rows = pq.read_table(TRUTH).to_pylist()
    chosen = [row for row in rows if row["flight_date"] == DAY and row["carrier"] in CARRIERS]
    return [row for row in chosen if any(each["source"] == "operations" for each in row["updates"])]


def name(flight: Flight) -> str:
    """How both feeds call a flight: `2013-02-08 WN 161`."""
    return f"{flight['flight_date']} {flight['carrier']} {flight['flight']}"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


# Tablets ------------------------------------------------------------------------------------------------


def at_the_gate(flight: Flight, draw: Random) -> Iterator[tuple[datetime, list[dict[str, Any]]]]:
    """What the agents do, and when it reached the service: boarding, heads that are counted, the door."""
    cancelled = next((each["at"] for each in flight["updates"] if each["status"] == "cancelled"), None)
    leaves = flight["actual_departure"] or flight["scheduled_departure"]
    if cancelled is None or cancelled > leaves - minutes(25):
        yield leaves - minutes(30), [add("status", "boarding"), add("boarded", 0)]
    for before in (24, 15, 8):
        at = leaves - minutes(before + draw.random())
        if cancelled is None or at < cancelled:
            yield at, [{"op": "inc", "path": "boarded", "value": draw.randint(15, 45)}]
    if cancelled is None:
        closed = {"op": "replace", "path": "status", "value": "gate closed"}
        yield leaves - minutes(4), [{"op": "test", "path": "status", "value": "boarding"}, closed]
    else:
        # One tablet in three has no network just then.
        late = minutes(draw.uniform(150, 240)) if draw.random() < 1 / 3 else minutes(draw.uniform(5, 15))
        yield cancelled + late, [add("remark", f"rebooking at desk {draw.randint(1, 9)}")]


def tablets(seed: int = 5) -> list[Sent]:
    """The requests of all agents, in the order in which the service took them; one in fifteen comes again."""
    draw, sent = Random(seed), list[Sent]()
    clients = {
        origin: str(uuid.UUID(int=draw.getrandbits(128), version=4)) for origin in ("EWR", "JFK", "LGA")
    }
    asked = [(at, flight, ops) for flight in flights() for at, ops in at_the_gate(flight, draw)]
    for number, (at, flight, ops) in enumerate(sorted(asked, key=lambda each: (each[0], name(each[1]))), 1):
        origin = flight["origin"]
        patch = {"collection": "Flights", "zone": origin, "entity": name(flight), "ops": ops}
        client = {"db": "tablets", "clientid": clients[origin], "request": number, "user": f"gates-{origin}"}
        request = {**client, "begun": millis(at), "learning": False, "patches": [patch]}
        sent.append((at + timedelta(milliseconds=draw.randint(50, 900)), request))
        if draw.random() < 1 / 15:
            sent.append((at + minutes(3), request))
    return sorted(sent, key=lambda each: each[0])


# Archive ------------------------------------------------------------------------------------------------


def archive(seed: int = 6) -> list[Sent]:
    """
    A dataset for each flight that left, an hour or so later; it says when the plane left, as it was measured.

    One in nine takes New York's clock for UTC, which is five hours too early, and is put right next morning.
    """
    exchange, sent = Exchange(seed), list[Sent]()
    for flight in flights():
        left = flight["actual_departure"]
        if left is None:
            continue
        told = left + minutes(exchange.draw.uniform(40, 110))
        mistaken = exchange.draw.random() < 1 / 9
        made = dataset(exchange, flight, left - NEW_YORK if mistaken else left)
        sent.append(deposit(exchange, "MetadataCreate", told, made))
        if mistaken:
            again = CORRECTED + minutes(exchange.draw.uniform(0, 60))
            right = {**made, "objectDate": [{"dateType": "collected", "dateValue": text_of(left)}]}
            sent.append(deposit(exchange, "MetadataUpdate", again, right))
    return sorted(sent, key=lambda each: each[0])


def dataset(exchange: Exchange, flight: Flight, left: datetime) -> dict[str, Any]:
    """The metadata of one flight's dataset: its title is the flight, its date the departure."""
    made = exchange.object(TENANT, left)
    while made["objectResourceType"] != "dataset":
        made = exchange.object(TENANT, left)
    made.pop("objectFile", None)
    title = f"{name(flight)} {flight['origin']}"
    dates = [{"dateType": "collected", "dateValue": text_of(left)}]
    return {**made, "objectTitle": title, "objectDate": dates, "objectKeyword": ["departures"]}


def deposit(exchange: Exchange, kind: str, at: datetime, body: dict[str, Any]) -> Sent:
    """A message of the archive, and when it arrives."""
    message = exchange.message(kind, "Command", TENANT, at, body, generator="archive")
    return exchange.later(at, 2 if exchange.draw.random() < 1 / 12 else 0.05), message


# Files --------------------------------------------------------------------------------------------------


def write(folder: Path) -> None:
    """Write both feeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for topic, sent in (("tablets", tablets()), ("archive", archive())):
        rows = [
            {
                "value": json.dumps(said, ensure_ascii=False).encode(),
                **{"topic": topic, "partition": 0, "offset": offset, "timestamp": at, "timestampType": 1},
            }
            for offset, (at, said) in enumerate(sent)
        ]
        table = pa.Table.from_pylist(rows, arrow_schema(RECORD_SCHEMA))
        pq.write_table(table, folder / f"{topic}.parquet", compression="zstd")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.feed_samples", description=__doc__.split("\n")[1])
    parser.add_argument("--out", type=Path, required=True)
    write(parser.parse_args().out)


if __name__ == "__main__":
    main()
