"""What is chosen once for a whole notebook: how tables, pictures, widgets and texts look."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from cdckit.parts.argument_forms import Form
from cdckit.parts.arguments import require_flag, wrong_argument
from cdckit.parts.near_names import nearest_name
from cdckit.parts.public_calls import called

MOST_ROWS = 1000
"""As many as a table that is looked at may have."""


class Options:
    """
    How tables, pictures, widgets and texts look where a call does not say it.

    Attributes:
        zone: The zone in which instants are shown, a tzinfo or the name of one; UTC at first.  Answers do
            not depend on it: an instant is the same in every zone.
        rows: How many rows a table shows at most, from 1 to 1000; 20 at first.
        eager: Whether a DataFrame that ends a cell of a notebook shows itself, which runs a job; True at
            first.
        progress: Whether a notebook shows what Spark is doing while a cell runs; True at first, unless the
            environment says `CDCKIT_PROGRESS=0`.

    Raises:
        InvalidArgument: What is assigned is none of this.

    >>> from cdckit import options
    >>> options.zone = "America/New_York"
    >>> print(options)
    zone=America/New_York, rows=20, eager=True, progress=True
    >>> options.reset()
    >>> print(options.zone)
    UTC
    """

    zone: tzinfo | str
    rows: int
    eager: bool
    progress: bool

    def __init__(self) -> None:
        self.reset()

    def __setattr__(self, name: str, value: object) -> None:
        with called("options"):
            if name not in _CHECKS:
                close = nearest_name(name, list(_CHECKS))
                remedy = None if close is None else f"Is it options.{close}?"
                raise wrong_argument("its attribute", f"one of {', '.join(_CHECKS)}", name, remedy=remedy)
            super().__setattr__(name, _CHECKS[name](value, name))

    def reset(self) -> None:
        """Choose again what was chosen at first."""
        self.zone, self.rows, self.eager = UTC, 20, True
        # A notebook that is compared with its outputs may not say how far Spark is.
        self.progress = os.environ.get("CDCKIT_PROGRESS") != "0"

    def __repr__(self) -> str:
        return f"zone={self.zone}, rows={self.rows}, eager={self.eager}, progress={self.progress}"


def as_zone(zone: tzinfo | str | None) -> tzinfo:
    """The zone itself or the one of that name, without one that of the options; else `InvalidArgument`."""
    zone = options.zone if zone is None else zone
    if isinstance(zone, tzinfo):
        return zone
    try:
        # Its name for UTC has another text than Python's own UTC, and both stand in one notebook.
        return UTC if zone == "UTC" else ZoneInfo(zone)
    except (TypeError, ValueError, OSError, KeyError):
        needed = "a tzinfo, or the name of a zone as zoneinfo.available_timezones() lists them"
        close = _nearest_zone(str(zone))
        remedy = None if close is None else f"Is it {close!r}?"
        raise wrong_argument("zone", needed, zone, remedy=remedy) from None


def _nearest_zone(name: str) -> str | None:
    """The zone whose name, or whose city, is most like what was said."""
    zones = sorted(available_timezones())
    by_city = {zone.rsplit("/", 1)[-1]: zone for zone in zones}
    city = nearest_name(name, by_city)
    return nearest_name(name, zones) or (None if city is None else by_city[city])


def _check_rows(number: Any, argument: str) -> Any:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_ROWS:
        raise wrong_argument(argument, f"a number from 1 to {MOST_ROWS}", number)
    return number


ROWS = Form(_check_rows, f"InvalidArgument: {{}} is no number from 1 to {MOST_ROWS:,}")
"""So many rows a table can have, and so wide its values can be."""


_CHECKS: Mapping[str, Callable[[Any, str], object]] = {
    "zone": lambda zone, _: as_zone(zone),
    "rows": ROWS.check,
    "eager": require_flag,
    "progress": require_flag,
}
"""By option what is kept of a value that is assigned; each raises `InvalidArgument` for what it is not."""

options = Options()
