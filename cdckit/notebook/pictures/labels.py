"""Texts in cells and beside points: the one that the story is about stands, others make room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import tzinfo
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from pyspark.sql import types as T

from cdckit.notebook import NULL
from cdckit.notebook.pictures.look import INK, families, one_line
from cdckit.notebook.table_layout import Clock

_UNITS = ((60_000_000, "minutes"), (1_000_000, "seconds"), (1_000, "milliseconds"), (1, "microseconds"))


class Said(NamedTuple):
    """A value as text, of an instant its microseconds since 1970, and the type that it has."""

    value: str | None
    kind: T.DataType

    @property
    def micros(self) -> int | None:
        is_instant = isinstance(self.kind, T.TimestampType) and self.value is not None
        return int(self.value or 0) if is_instant else None


class Writing(NamedTuple):
    """How the instants among the values of one picture are written: no finer than tells them apart."""

    clock: Clock
    spec: str
    cut: bool

    @classmethod
    def of(cls, columns: Iterable[Iterable[Said]], zone: tzinfo) -> Writing:
        """The writing of a picture of these columns of values."""
        found = [{each.micros for each in column} - {None} for column in columns]
        instants = [{each for each in column if each is not None} for column in found]
        unit, spec = next(
            (unit, spec)
            for unit, spec in _UNITS
            if all(len({each // unit for each in column}) == len(column) for column in instants)
        )
        every = [each for column in instants for each in column]
        return cls(Clock.of(every, zone), spec, any(each % unit for each in every))

    @property
    def note(self) -> str:
        """What the cells do not say of their instants."""
        day = [f"of {self.clock.day}"] if self.clock.day else []
        cut = [f"cut to {self.spec}"] if self.cut else []
        return f"times in cells are {', '.join([*day, *cut])}" if day or cut else ""

    def day(self, said: Said) -> str:
        """The day of an instant, where the picture has several; empty for all else."""
        if said.micros is None or self.clock.day:
            return ""
        day = self.clock.text(said.micros, self.spec).split(" ")[0]
        return day if day[0].isdigit() else ""

    def forms(self, said: Said, day: str = "") -> Sequence[str]:
        """A value in words, from the longest form to the shortest; of an instant of *day* the time alone."""
        if said.value is None:
            return [NULL]
        if said.micros is None:
            return list(dict.fromkeys(one_line(said.value, longest) for longest in (60, 24, 12)))
        text = self.clock.text(said.micros, self.spec)
        return [text.split(" ")[1]] if day and self.day(said) == day else [text]


_MARKER, _EDGE = 7.0, 1.0  # pixels: half a marker at the beginning of a box, and what stays free of its end


class Labels:
    """
    The texts of one picture.

    Each stands clear of those that were written before it: so write the indispensable first.
    """

    def __init__(self, axes: Axes) -> None:
        self._axes, self._taken = axes, list[Bbox]()

    def keep_clear(self, at: tuple[float, float]) -> None:
        """Let no text stand upon the marker at this point."""
        x, y = self._axes.transData.transform(at)
        self._taken.append(Bbox([[x - 6, y - 6], [x + 6, y + 6]]))

    def write_in(
        self, forms: Sequence[str], box: Bbox, *, left: bool = False, colour: str = INK,
        behind: str = "white", must: bool = False,
    ) -> bool:  # fmt: skip
        """
        Write the longest form that has room in a box of the axes, if need be upwards; whether one had.

        One that *must* stand runs over the edge of its box where it has no room, on the colour *behind*.
        """
        room = box.transformed(self._axes.transData)
        inner = Bbox([[room.x0 + (_MARKER if left else _EDGE), room.y0], [room.x1 - _EDGE, room.y1]])
        size = min(8.5, max(6.0, 0.62 * abs(room.height) * 72 / 100 + 1.5))
        text = self._axes.text(
            0, 0, "", transform=None, va="center_baseline", family=families(), fontsize=size, color=colour,
            parse_math=False,
        )  # fmt: skip
        written = self._fits(text, forms, inner, left=left)
        if must and not written:
            written = self._runs_over(text, forms[-1], inner)
            text.set_bbox({"facecolor": behind, "edgecolor": "none", "pad": 1.0})
        if written:
            self._taken.append(text.get_window_extent())
            # At its instant, not at its pixel: a picture may be saved larger.
            x, y = self._axes.transData.inverted().transform(text.get_position())
            text.set_position((float(x), float(y)))
            text.set_transform(self._axes.transData)
            return True
        text.remove()
        return False

    def _fits(self, text: Text, forms: Sequence[str], inner: Bbox, *, left: bool) -> bool:
        middle = ((inner.x0 + inner.x1) / 2, (inner.y0 + inner.y1) / 2)
        for turned in (0, 90):
            text.set(
                rotation=turned,
                x=inner.x0 if left and not turned else middle[0],
                y=middle[1],
                va="center" if turned else "center_baseline",
                ha="left" if left and not turned else "center",
            )
            for form in forms:
                text.set_text(form)
                wide = text.get_window_extent()
                has_room = wide.width <= inner.width and wide.height <= abs(inner.height) + 2
                if has_room and not wide.count_overlaps(self._taken):
                    return True
        return False

    def _runs_over(self, text: Text, form: str, inner: Bbox) -> bool:
        """Written all the same, from the beginning of its box on, or to its end at the picture's edge."""
        frame = self._axes.get_window_extent()
        text.set(rotation=0, text=form, ha="left", va="center_baseline", x=inner.x0, zorder=4)
        text.set_x(max(frame.x0, min(inner.x0, frame.x1 - text.get_window_extent().width)))
        return not text.get_window_extent().count_overlaps(self._taken)

    def write_beside(self, words: str, at: tuple[float, float], *, must: bool = False) -> bool:
        """
        Write beside a point; whether there was a place where no other text and no marker stands.

        What *must* stand is written below the point where there is none.
        """
        frame = self._axes.get_window_extent()
        places = [
            (10, 0, "left"), (-10, 0, "right"), (10, 10, "left"), (10, -10, "left"), (-10, 10, "right"),
            (-10, -10, "right"), (0, 13, "center"), (0, -13, "center"),
        ]  # fmt: skip
        for dx, dy, ha in places:
            note = self._axes.annotate(
                words, at, xytext=(dx, dy), textcoords="offset points", ha=ha, va="center",
                family=families(), fontsize=8.5, color=INK, parse_math=False, zorder=4,
            )  # fmt: skip
            place = note.get_window_extent()
            inside = frame.x0 <= place.x0 and place.x1 <= frame.x1
            if (inside and not place.count_overlaps(self._taken)) or (must and (dx, dy, ha) == places[-1]):
                self._taken.append(place)
                return True
            note.remove()
        return False
