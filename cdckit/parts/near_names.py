"""Near names: what was probably meant by a name that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest_name(name: object, candidates: Iterable[str]) -> str | None:
    """
    Find the candidate that is most like *name*, upper and lower case being alike; None where none is.

    >>> nearest_name("Nmae", ["number", "name"]), nearest_name("colour", ["number", "name"])
    ('name', None)
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def suggest_name(name: object, candidates: Iterable[str]) -> str:
    """The question that follows a name that is unknown; nothing where no name is like it."""
    close = nearest_name(name, candidates)
    return "" if close is None else f" (is it {close}?)"


def suggest_names(names: Iterable[object], candidates: Sequence[str]) -> str | None:
    """The question for all names that are unknown, as a sentence; None where no name is like one of them."""
    near = {str(name): nearest_name(name, candidates) for name in names if name not in candidates}
    suggestions = [f"{close} for {name}" for name, close in near.items() if close is not None]
    return f"Is it {' and '.join(suggestions)}?" if suggestions else None
