"""Records, truth, schema documents and the manifest as files."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tools.hub_samples.airline import airline_messages
from tools.hub_samples.airport import airport_messages
from tools.hub_samples.bookings import travellers
from tools.hub_samples.damage import Damage, damaged_messages
from tools.hub_samples.flights import FIRST, LAST, REGISTERED, Flight, chosen_flights
from tools.hub_samples.reference import (
    FLEET_FILE,
    first_linked,
    fleet,
    late_planes,
    reference_messages,
    registry_messages,
)
from tools.hub_samples.sales import member_messages, sales_messages
from tools.hub_samples.schedule import schedule_messages
from tools.hub_samples.schemas import DOCUMENTS
from tools.hub_samples.sending import Sent, on_its_way, utc
from tools.hub_samples.truth import true_flight
from tools.hub_samples.weather import weather_messages
from tools.samples.replicate.disorder import LATE, Arrival, arrival, deliver
from tools.samples.replicate.store import INSTANT, LOG_APPEND_TIME, RECORDS

MESSAGES, TRUTH_FILE, MANIFEST = "messages.parquet", "truth.parquet", "manifest.json"

TRUTH = pa.schema(
    [
        ("flight_date", pa.date32()),
        ("carrier", pa.string()),
        ("flight_number", pa.int32()),
        ("origin", pa.string()),
        ("fate", pa.string()),
        ("deleted_by", pa.string()),
        ("deleted_at", INSTANT),
        ("destination", pa.string()),
        ("distance", pa.int32()),
        ("status", pa.string()),
        ("tail_number", pa.string()),
        ("gate", pa.string()),
        ("estimated_departure", INSTANT),
        ("actual_departure", INSTANT),
        ("actual_arrival", INSTANT),
        ("bookings", pa.list_(pa.string())),
        ("bags", pa.int32()),
    ]
)


class Placed(NamedTuple):
    """One record where the broker put it."""

    arrival: Arrival
    partition: int
    offset: int

    @property
    def place(self) -> dict[str, Any]:
        """Return where it stands."""
        topic = self.arrival.message.topic
        return {"topic": topic, "partition": self.partition, "offset": self.offset}


def write_sample(out: Path) -> dict[str, Any]:
    """Write all files to the directory *out* and return the manifest, which is written too."""
    flights = chosen_flights()
    sent = [*_senders(flights)]
    damages = [*damaged_messages()]
    placed = [*_placed(sent, damages)]
    manifest = _manifest(flights, sent, damages, placed)
    for folder in ("schema", "files"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, document in DOCUMENTS.items():
        _write_json(out / "schema" / f"{name}.json", document)
    (out / "files" / FLEET_FILE).write_text(fleet(flights), encoding="utf-8")
    _write_json(out / MANIFEST, manifest)
    _write_table(out / MESSAGES, _records(placed))
    _write_table(out / TRUTH_FILE, pa.Table.from_pylist([true_flight(f) for f in flights], schema=TRUTH))
    return manifest


def _senders(flights: Sequence[Flight]) -> Iterator[Sent]:
    yield from reference_messages(flights)
    yield from registry_messages(flights)
    yield from member_messages()
    yield from schedule_messages(flights)
    yield from airline_messages(flights)
    yield from airport_messages(flights)
    yield from sales_messages(flights)
    yield from weather_messages()


def _placed(sent: Iterable[Sent], damages: Iterable[Damage]) -> Iterator[Placed]:
    """Give the records in the order of the broker; bad ones are neither late nor sent twice."""
    arrivals = deliver(on_its_way(each) for each in sent)
    arrivals += [arrival(on_its_way(damage.sent), damage.sent.at) for damage in damages]
    offsets: Counter[tuple[str, int]] = Counter()
    for each in sorted(arrivals, key=lambda a: (a.at, a.message.topic, a.seed, a.copy)):
        place = each.message.topic, each.message.partition
        yield Placed(each, each.message.partition, offsets[place])
        offsets[place] += 1


def _records(placed: Iterable[Placed]) -> pa.Table:
    ordered = sorted(placed, key=lambda p: (p.arrival.message.topic, p.partition, p.offset))
    rows = [
        (
            p.arrival.message.key,
            p.arrival.message.value,
            p.arrival.message.topic,
            p.partition,
            p.offset,
            p.arrival.at,
            LOG_APPEND_TIME,
            None,
        )
        for p in ordered
    ]
    columns = zip(*rows, strict=True)
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS, strict=True)], schema=RECORDS
    )


def _write_table(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd", compression_level=9)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _manifest(
    flights: Sequence[Flight], sent: Sequence[Sent], damages: Sequence[Damage], placed: Sequence[Placed]
) -> dict[str, Any]:
    copies = [p for p in placed if p.arrival.copy]
    late = [p for p in placed if not p.arrival.copy and p.arrival.at - p.arrival.message.at >= LATE]
    topics = Counter(p.arrival.message.topic for p in placed)
    return {
        "from": FIRST.isoformat(),
        "to": LAST.isoformat(),
        "records": dict(sorted(topics.items())),
        "receipts": _receipts(placed, damages),
        "messages": _messages(sent, damages, copies),
        "copies": [_named(p) for p in copies],
        "late": [_named(p) | {"sent": utc(p.arrival.message.at)} for p in late],
        "bad": list(_bad(damages, placed)),
        "planes_registered_late": _late_planes(flights),
        "planes_never_registered": _never(sent),
        "flights": dict(sorted(Counter(flight.fate for flight in flights).items())),
        "travellers": len(travellers()),
    }


def _has_guid(name: str) -> bool:
    """Whether a message has an id of its own: all but those of the airports."""
    return not name.startswith("airport/")


def _receipts(placed: Sequence[Placed], damages: Sequence[Damage]) -> dict[str, int]:
    """Count what is said of each record when it is received."""
    known = sum(p.arrival.copy and _has_guid(p.arrival.message.label) for p in placed)
    refused = Counter(damage.status for damage in damages if damage.status in (5, 22))
    before = known + refused[5]
    return {"0": len(placed) - before - refused[22], "5": before, "22": refused[22]}


def _messages(sent: Sequence[Sent], damages: Sequence[Damage], copies: Sequence[Placed]) -> dict[str, int]:
    """Count the messages that are stored by what becomes of them when nothing waits any more."""
    bad = Counter(damage.status for damage in damages if damage.status not in (5, 22))
    lost = sum(bool(each.lost) for each in sent)
    again = sum(not _has_guid(p.arrival.message.label) for p in copies)
    counts = bad + Counter({26: lost, 10: len(sent) - lost + again})
    return {str(status): count for status, count in sorted(counts.items())}


def _named(placed: Placed) -> dict[str, Any]:
    return {"name": placed.arrival.message.label, **placed.place, "arrived": utc(placed.arrival.at)}


def _bad(damages: Sequence[Damage], placed: Sequence[Placed]) -> Iterator[dict[str, Any]]:
    places = {p.arrival.message.label: p for p in placed}
    for damage in damages:
        yield {
            "kind": damage.kind,
            **places[damage.sent.name].place,
            "status": damage.status,
            "message_identifier": damage.guid,
            "record": damage.record,
            "error_code": damage.code,
        }


def _late_planes(flights: Sequence[Flight]) -> dict[str, dict[str, str]]:
    named = first_linked(flights)
    return {
        tail: {"first_named": utc(named[tail]), "registered": utc(at)}
        for tail, at in late_planes(flights).items()
    }


def _never(sent: Sequence[Sent]) -> dict[str, list[str]]:
    """Return the messages that name each plane that no register has."""
    never: dict[str, list[str]] = {}
    for each in sent:
        if each.lost:
            never.setdefault(each.lost, []).append(each.name)
    assert not never.keys() & REGISTERED
    return never
