"""Who flies: travellers and bookings, all of them invented."""

from dataclasses import dataclass
from functools import cache

from tools.hub_samples.flights import Flight, draw
from tools.samples.replicate.tables import MINUTE

# Carriers of a few flights each, so that all bookings of one flight can be looked at.
WITH_BOOKINGS = ("AS", "F9", "HA", "VX", "YV")

_FIRST_NAMES = ("Ada", "Bela", "Chidi", "Dana", "Emre", "Fumi", "Gita", "Hugo", "Ines", "Jun", "Kofi", "Lena")
_LAST_NAMES = ("Abara", "Brandt", "Castro", "Dvorak", "Egede", "Fofana", "Greco", "Horvat")
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True)
class Traveller:
    """A person, known by the number of a loyalty card, by that of a passport (`document`), or by both."""

    name: str
    card: str | None
    document: str | None


@dataclass(frozen=True)
class Booking:
    """
    One seat of one flight.

    `kind` says who knows it: "both" (sold by an agency, listed by the airline), "airline" (never sold by an
    agency), "bumped" (sold, and not on the airline's list), "refunded" (sold and given back before that
    list), "late" (sold after it).
    `sold_at` is None where no agency sold it. `bags` are weights in kg.
    """

    flight: Flight
    locator: str
    kind: str
    traveller: Traveller
    seat: str
    fare: str
    bags: tuple[str, ...]
    sold_at: int | None
    refunded_at: int | None

    @property
    def is_listed(self) -> bool:
        """Whether the airline lists it when it announces the flight."""
        return self.kind in ("both", "airline")


@cache
def travellers() -> tuple[Traveller, ...]:
    """Return all travellers; of three one has both numbers, one a passport alone, one a card alone."""
    return tuple(
        Traveller(
            f"{_FIRST_NAMES[i % 12]} {_LAST_NAMES[i * 5 % 8]}",
            None if i % 3 == 1 else f"LC{100 + 7 * i}",
            None if i % 3 == 2 else f"P{4_000_000 + 7919 * i}",
        )
        for i in range(24)
    )


@cache
def bookings_of(flight: Flight) -> tuple[Booking, ...]:
    """Return the bookings of a flight that its airline announces, one to three; none of other flights."""
    if flight.carrier not in WITH_BOOKINGS or flight.announced_at is None:
        return ()
    return tuple(_booking(flight, n) for n in range(1 + int(flight.draw("bookings", 0, 3))))


def _booking(flight: Flight, n: int) -> Booking:
    name = f"{flight.name} booking {n}"
    kind = ("both", "airline", "both", "bumped", "refunded", "late")[int(draw(name + " kind", 0, 6))]
    announced = flight.announced_at or 0
    sold_at = None if kind == "airline" else announced - int(draw(name + " sold", 40, 300)) * MINUTE
    return Booking(
        flight=flight,
        locator="".join(_LETTERS[int(draw(f"{name} letter {i}", 0, 24))] for i in range(6)),
        kind=kind,
        traveller=_traveller(name, kind),
        seat=f"{int(draw(name + ' row', 1, 35))}{'ABCDEF'[int(draw(name + ' seat', 0, 6))]}",
        fare=f"{draw(name + ' fare', 79, 900):.3f}",
        bags=tuple(f"{draw(f'{name} bag {i}', 5, 32):.1f}" for i in range(int(draw(name + " bags", 0, 3)))),
        sold_at=announced + 5 * MINUTE if kind == "late" else sold_at,
        refunded_at=announced - 20 * MINUTE if kind == "refunded" else None,
    )


def _traveller(name: str, kind: str) -> Traveller:
    """Choose somebody whom all who speak of the booking can name: agencies by passport, airlines by card."""
    able = [
        person
        for person in travellers()
        if (person.document is not None or kind == "airline")
        and (person.card is not None or kind not in ("both", "airline"))
    ]
    return able[int(draw(name + " traveller", 0, len(able)))]
