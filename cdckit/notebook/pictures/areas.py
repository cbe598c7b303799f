"""Rectangles in valid time and system time: what was believed from when to when of which time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cdckit.history import DELETED, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.notebook.pictures.look import SECOND
from cdckit.notebook.pictures.words import days

NO_END = float("inf")


class Area(NamedTuple):
    """A rectangle of the plane: what was believed from y0 to y1 of the time from x0 to x1."""

    x0: float
    x1: float
    y0: float
    y1: float
    value: str | None
    deleted: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Area:
        ends = [NO_END if row[name] is None else days(row[name]) for name in (VALID_TO, SYSTEM_TO)]
        starts = [days(row[name]) for name in (VALID_FROM, SYSTEM_FROM)]
        return cls(starts[0], ends[0], starts[1], ends[1], row["value"], row[DELETED])

    def says_as(self, other: Area) -> bool:
        return (self.value, self.deleted) == (other.value, other.deleted)

    def touches(self, other: Area) -> bool:
        """Whether the two share more than a corner."""
        across = min(self.x1, other.x1) - max(self.x0, other.x0)
        upwards = min(self.y1, other.y1) - max(self.y0, other.y0)
        return min(across, upwards) >= 0 and max(across, upwards) > 0

    def was_believed(self, areas: Iterable[Area]) -> bool:
        """Whether the same was believed of its beginning before: then a cut made it, and no news."""
        return any(a.says_as(self) and a.x0 <= self.x0 < a.x1 and a.y0 < self.y0 for a in areas)


def folded(areas: list[Area]) -> list[Area]:
    """The same plane without the borders that other fields of the entity made."""
    across: list[Area] = []
    for area in sorted(areas, key=lambda area: (area.y0, area.y1, area.x0)):
        last = across[-1] if across else None
        if last and last.says_as(area) and (last.y0, last.y1, last.x1) == (area.y0, area.y1, area.x0):
            across[-1] = last._replace(x1=area.x1)
        else:
            across.append(area)
    upwards: list[Area] = []
    for area in sorted(across, key=lambda area: (area.x0, area.x1, area.y0)):
        last = upwards[-1] if upwards else None
        if last and last.says_as(area) and (last.x0, last.x1, last.y1) == (area.x0, area.x1, area.y0):
            upwards[-1] = last._replace(y1=area.y1)
        else:
            upwards.append(area)
    return upwards


def pieces_of(areas: Sequence[Area]) -> dict[Area, int]:
    """Which rectangles look like one area, since they say the same and touch: by rectangle, its number."""
    piece = {area: number for number, area in enumerate(areas)}
    for area in areas:
        for other in areas:
            if piece[area] != piece[other] and area.says_as(other) and area.touches(other):
                joined, left = piece[area], piece[other]
                piece = {each: joined if number == left else number for each, number in piece.items()}
    return piece


def latest_known(areas: list[Area]) -> Area | None:
    """What became known longest after it began; None where nothing became known a second later, or more."""
    news = [area for area in areas if not area.was_believed(areas)]
    latest = max(news, key=lambda area: area.y0 - area.x0, default=None)
    return latest if latest is not None and latest.y0 - latest.x0 >= SECOND else None
