"""`as_of_join`, one fact at a time: every version of the key is looked at, and nothing is clever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def searched(
    versions: Sequence[Row],
    at: Any,
    *,
    direction: str = "backward",
    strictly: bool = False,
    tolerance: Any = None,
) -> tuple[Row | None, str | None]:
    """
    The version that a fact finds, and why it finds none.

    Args:
        versions: Those of the fact's key that are believed; times may be of any type that has an order.
        at: When the fact was.
        direction: As for `Lookup`, like *strictly* and *tolerance*.
    """
    alive = [version for version in versions if not version["deleted_indicator"]]
    deleted = [version for version in versions if version["deleted_indicator"]]
    found = []
    if direction in ("backward", "nearest"):
        now = [version for version in alive if is_in_force(version, at, strictly)]
        assert len(now) <= 1
        found += [(at - version["valid_from_timestamp"], 0, "too old", version) for version in now]
    if direction in ("forward", "nearest"):
        later = [version for version in alive if begins_later(version, at, strictly)]
        later.sort(key=lambda version: version["valid_from_timestamp"])
        found += [
            (version["valid_from_timestamp"] - at, 1, "too far ahead", version) for version in later[:1]
        ]
    if found:
        distance, _, too_far, version = min(found, key=lambda each: each[:2])
        return (None, too_far) if tolerance is not None and distance > tolerance else (version, None)
    if direction == "backward":
        gone = any(is_in_force(version, at, strictly) for version in deleted)
    else:
        gone = any(ends_after(version, at) for version in deleted)
        # Just before a fact is before it: nearest looks both ways.
        gone |= direction == "nearest" and any(is_in_force(version, at, strictly) for version in deleted)
    return None, "deleted" if gone else "no version"


def is_in_force(version: Row, at: Any, strictly: bool) -> bool:
    """Whether it is in force at an instant, or just before it."""
    begins, ends = version["valid_from_timestamp"], version["valid_to_timestamp"]
    if strictly:
        return bool(begins < at and (ends is None or at <= ends) and begins != ends)
    return bool(begins <= at and (ends is None or at < ends))


def begins_later(version: Row, at: Any, strictly: bool) -> bool:
    """Whether it begins at an instant or later, and lasts."""
    begins, ends = version["valid_from_timestamp"], version["valid_to_timestamp"]
    return bool((begins > at if strictly else begins >= at) and begins != ends)


def ends_after(version: Row, at: Any) -> bool:
    """Whether it is in force at an instant or later."""
    begins, ends = version["valid_from_timestamp"], version["valid_to_timestamp"]
    return bool((ends is None or ends > at) and begins != ends)
