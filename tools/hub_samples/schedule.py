"""What the schedule sends: today and tomorrow as a whole, and the routes of today."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from tools.hub_samples.flights import DAY, FIRST, TOMORROW, Flight
from tools.hub_samples.sending import Record, Sent, message, utc
from tools.samples.replicate.changes import load_instant
from tools.samples.replicate.tables import SECOND

TOPIC = "hub.schedule"
DAYS = tuple(FIRST + timedelta(days=i) for i in range((TOMORROW - FIRST).days + 1))


def schedule_messages(flights: Sequence[Flight]) -> Iterator[Sent]:
    """Give two refreshes per day: the flights at 05:00:00 UTC, the routes a second later."""
    for day in DAYS:
        at = load_instant(day)
        planned = [_planned(flight) for flight in flights if is_published(flight, day)]
        yield _refresh(f"schedule/{day}/flights", at, "planned_flight", planned)
        today = [flight for flight in flights if flight.day == day]
        yield _refresh(f"schedule/{day}/routes", at + SECOND, "service", list(_routes(today)))


def is_published(flight: Flight, day: date) -> bool:
    """Whether the schedule of *day* holds the flight: of that day, if it was not struck, or of the next."""
    return flight.day == day + DAY or (flight.day == day and flight.fate != "struck")


def _refresh(name: str, at: int, entity: str, data: list[Record]) -> Sent:
    document = {
        "system": "schedule",
        "entity": entity,
        "timestamp": utc(at),
        "user": "timetable office",
        "refresh": True,
        "guid": name,
        "data": data,
    }
    return message(name, at, TOPIC, document)


def _planned(flight: Flight) -> Record:
    return {
        "carrier_code": flight.carrier,
        "flight_no": str(flight.number),
        "from": flight.origin,
        "day": flight.day.isoformat(),
        "to": flight.destination,
        "std": utc(flight.scheduled_departure),
        "sta": utc(flight.scheduled_arrival),
        "miles": f"{flight.distance}.0",
        "status": "scheduled",
    }


def _routes(flights: Iterable[Flight]) -> Iterator[Record]:
    departures: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for flight in flights:
        departures[flight.carrier, flight.origin, flight.destination].append(flight.scheduled_departure)
    for (carrier, origin, destination), times in sorted(departures.items()):
        yield {
            "carrier_code": carrier,
            "from": origin,
            "to": destination,
            "daily_flights": len(times),
            "first": utc(min(times)),
        }
