"""
What is decided about a flight before anybody tells.

Times, planes, cancellations and detours are real. Who is told when, the first tail numbers, gates and
mistakes are drawn; `README.md` beside the samples lists them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from tools.samples.replicate.changes import NEVER, load_instant
from tools.samples.replicate.flights import CARIBBEAN, Flights, planes, real_flights
from tools.samples.replicate.plans import Plans, plan
from tools.samples.replicate.seeds import between, text_seed, uniform
from tools.samples.replicate.tables import HOUR, MINUTE, SECOND

FIRST, LAST, TOMORROW = date(2013, 2, 7), date(2013, 2, 9), date(2013, 2, 10)
DAY = timedelta(days=1)
# Small carriers, and Delta to places that `airports` does not know.
CARRIERS = ("AS", "F9", "FL", "HA", "VX", "WN", "YV")
ISLAND_CARRIER = "DL"
REGISTERED = frozenset(planes["tailnum"])


@dataclass(frozen=True)
class Flight:
    """
    One flight and what becomes of it; instants are microseconds since 1970.

    `fate` is "flies", "planned" (of the day after the last), or how it is cancelled: "struck" from the
    schedule, "forgotten" by all who speak of it, "early" (the evening before) or "late".
    `announced_at` is when the airline first speaks of it, `announced_tail` what it then says about the plane,
    `tail_changed_at` when it says the real tail number instead. `bank` names the flights that are cancelled
    together. `mistaken_at` and `reinstated_at` are when a flight that does fly is cancelled and called back.
    `gates` are the gates and the instants at which the airport gives them, none where it keeps silent;
    `withdrawn_at` is when it takes a cancelled flight from its board.
    """

    day: date
    carrier: str
    number: int
    origin: str
    destination: str
    distance: int
    scheduled_departure: int
    scheduled_arrival: int
    fate: str
    tail: str | None = None
    actual_departure: int | None = None
    actual_arrival: int | None = None
    landed_elsewhere: bool = False
    announced_at: int | None = None
    announced_tail: str | None = None
    tail_changed_at: int | None = None
    cancelled_at: int | None = None
    bank: str = ""
    mistaken_at: int | None = None
    reinstated_at: int | None = None
    gates: tuple[tuple[int, str], ...] = ()
    withdrawn_at: int | None = None

    @property
    def name(self) -> str:
        """Return the key of the flight as one text, the same as in the samples of Replicate."""
        return f"{self.day}|{self.carrier}|{self.number}|{self.origin}"

    @property
    def designator(self) -> str:
        """Return the code of the carrier and the number, the way airports write it."""
        return f"{self.carrier} {self.number}"

    def draw(self, what: str, low: float = 0, high: float = 1) -> float:
        """Return a number in [low, high) that hangs on the flight and on *what* is drawn."""
        return draw(f"{self.name} {what}", low, high)


def draw(name: str, low: float = 0, high: float = 1) -> float:
    """Return a number in [low, high) that hangs on *name* alone."""
    return float(between(np.array([text_seed(name)], dtype=np.uint64), "hub", low, high)[0])


def chosen_flights() -> list[Flight]:
    """Return the flights of the sample in the order of day, carrier, number and origin."""
    found: list[Flight] = []
    for day, flights in real_flights(FIRST, TOMORROW).items():
        plans = plan(day, flights)
        codes = zip(flights.column("carrier"), flights.column("dest"), strict=True)
        found += [
            _flight(day, flights, plans, i)
            for i, (carrier, destination) in enumerate(codes)
            if carrier in CARRIERS or (carrier == ISLAND_CARRIER and destination in CARIBBEAN)
        ]
    return found


def _flight(day: date, flights: Flights, plans: Plans, i: int) -> Flight:
    planned = Flight(
        day=day,
        carrier=flights.column("carrier")[i],
        number=flights.column("flight")[i],
        origin=flights.column("origin")[i],
        destination=flights.column("dest")[i],
        distance=flights.column("distance")[i],
        scheduled_departure=int(flights.scheduled_departure[i]),
        scheduled_arrival=int(flights.scheduled_arrival[i]),
        fate="planned",
    )
    return planned if day == TOMORROW else _Life(planned, flights, plans, i).told()


class _Life:
    """The decisions about one flight, one after the other."""

    def __init__(self, planned: Flight, flights: Flights, plans: Plans, i: int) -> None:
        self.planned = planned
        self.departed = bool(flights.departed[i])
        self.fate = "flies" if self.departed else _fate(planned)
        self.departure = int(flights.actual_departure[i]) if self.departed else None
        self.arrival = int(flights.actual_arrival[i]) if flights.landed[i] else None
        self.diverted = self.departed and not flights.arrival_known[i]
        self.tail: str | None = flights.column("tailnum")[i]
        self.first_tail = plans.planned_tail[i]
        self.tail_changed_at = _or_none(plans.tail_changed_at[i])
        self.cancelled_at, self.bank = self._cancelled(_or_none(plans.cancelled_at[i]), plans.bank[i])
        self.announced_at = self._announced(float(uniform(flights.seeds[i : i + 1], "ahead")[0]))
        self.gates = self._gates()

    def told(self) -> Flight:
        """Return the flight with all that was decided."""
        changed = self.tail_changed_at
        already = changed is not None and self.announced_at is not None and changed <= self.announced_at
        return Flight(
            **{name: getattr(self.planned, name) for name in _PLANNED},
            fate=self.fate,
            tail=self.tail,
            actual_departure=self.departure,
            actual_arrival=self.arrival,
            landed_elsewhere=self.diverted,
            announced_at=self.announced_at,
            announced_tail=self.tail if already else self.first_tail,
            tail_changed_at=None if already or self.announced_at is None else changed,
            cancelled_at=self.cancelled_at,
            bank=self.bank,
            mistaken_at=self.planned.scheduled_departure - 110 * MINUTE if self._mistaken() else None,
            reinstated_at=self.planned.scheduled_departure - 85 * MINUTE if self._mistaken() else None,
            gates=self.gates,
            withdrawn_at=self._withdrawn(),
        )

    def _mistaken(self) -> bool:
        """Whether the flight is so late, two hours and more, that its airline gives it up for a while."""
        late = 0 if self.departure is None else self.departure - self.planned.scheduled_departure
        return late >= 120 * MINUTE

    def _cancelled(self, at: int | None, bank: str) -> tuple[int | None, str]:
        planned = self.planned
        if self.fate == "late":
            return at, bank or f"alone {planned.name}"
        if self.fate != "early":
            return None, ""
        evening = f"early {planned.day} {planned.carrier} {planned.origin}"
        return load_instant(planned.day) - int(draw(evening, 2 * HOUR, 9 * HOUR)), evening

    def _announced(self, share: float) -> int | None:
        """Return when the airline announces the flight: about three hours before, as operations do."""
        if self.fate not in ("flies", "late"):
            return None
        ahead = 150 * MINUTE + int(share * 60 * MINUTE)
        at = max(self.planned.scheduled_departure - ahead, load_instant(self.planned.day) + 5 * MINUTE)
        return None if self.cancelled_at is not None and self.cancelled_at <= at + 10 * MINUTE else at

    def _gates(self) -> tuple[tuple[int, str], ...]:
        planned = self.planned
        if self.fate not in ("flies", "late") or planned.draw("airport silent") < 0.05:
            return ()
        before = 45 * MINUTE if self._mistaken() else int(planned.draw("gate", 80 * MINUTE, 120 * MINUTE))
        given = [(planned.scheduled_departure - before, gate_of(planned, "first gate"))]
        if planned.draw("gate changes") < 0.12:
            again = int(planned.draw("gate again", 25 * MINUTE, 40 * MINUTE))
            given.append((planned.scheduled_departure - again, gate_of(planned, "second gate")))
        return tuple((at, gate) for at, gate in given if self.cancelled_at is None or at < self.cancelled_at)

    def _withdrawn(self) -> int | None:
        if not self.gates or self.cancelled_at is None:
            return None
        last = max(self.cancelled_at, self.planned.scheduled_departure)
        return last + int(self.planned.draw("withdrawn", 90 * MINUTE, 150 * MINUTE))


_PLANNED = (
    "day",
    "carrier",
    "number",
    "origin",
    "destination",
    "distance",
    "scheduled_departure",
    "scheduled_arrival",
)


def _fate(planned: Flight) -> str:
    """Draw how a cancelled flight is cancelled; of the first day nobody can speak the day before."""
    fate = planned.draw("fate")
    if fate < 0.12:
        return "late" if planned.day == FIRST else "struck"
    if fate < 0.22:
        return "forgotten"
    return "early" if fate < 0.40 and planned.day != FIRST else "late"


def _or_none(at: "np.int64 | int") -> int | None:
    return None if at == NEVER else int(at)


def gate_of(flight: Flight, which: str) -> str:
    """Return a gate, invented: a letter for the hall and a number."""
    return f"{'ABCD'[int(flight.draw(which, 0, 4))]}{int(flight.draw(which + ' number', 1, 31))}"


def estimates(flight: Flight) -> Iterator[tuple[int, int]]:
    """Give the estimates of the airline: 40 per cent of the delay, then 90, in whole five minutes."""
    if flight.actual_departure is None or flight.announced_at is None:
        return
    delay = (flight.actual_departure - flight.scheduled_departure) // MINUTE
    for after, share, least in ((-60, 40, 15), (15, 90, 45)):
        if delay >= least and delay * share // 100 >= 5:
            yield flight.scheduled_departure + after * MINUTE, delay * share // 100 // 5 * 5


def told_after(flight: Flight, at: int, what: str) -> int:
    """Return when *what* happened at *at* is told: 5 to 95 seconds later, in whole seconds."""
    return at + int(flight.draw(f"{what} told", 5, 95)) * SECOND
