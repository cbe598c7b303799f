"""Keys, numbers and durations in words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

from matplotlib.dates import date2num

from cdckit.notebook.clock import Clock, timespec
from cdckit.parts.instants import microseconds
from cdckit.query.provenance import MESSAGE_SOURCE


def source_name(row: Mapping[str, Any], column: str = MESSAGE_SOURCE) -> str:
    return "unknown source" if row[column] is None else row[column]


def days(instant: datetime) -> float:
    """An instant as matplotlib counts it."""
    return float(date2num(instant))  # type: ignore[no-untyped-call]


def days_or_none(instant: datetime | None) -> float | None:
    return None if instant is None else days(instant)


def entity_text(key: Mapping[str, Any], zone: tzinfo) -> str:
    """A key in words; the instants in it in full."""
    shown = [
        Clock.of([micros := microseconds(value)], zone)._replace(day=None).text(micros, timespec([micros]))
        if isinstance(value, datetime)
        else str(value)
        for value in key.values()
    ]
    return one_line(" ".join(shown), 60)


def one_line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def with_number(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units."""
    left, parts = round(abs(seconds)), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {unit}")
        left %= size
    return ("-" if seconds < 0 else "") + (" ".join(parts[:2]) or "0 s")
