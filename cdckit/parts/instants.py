"""Instants as Arrow and Spark keep them, and as texts say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from cdckit.parts.running import Bools

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INSTANT = pa.timestamp("us", tz="UTC")
_FIRST = pa.scalar(datetime.min.replace(tzinfo=UTC), INSTANT)


def microseconds(at: datetime) -> int:
    """An instant as Arrow and Spark keep it: microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def parse_instants(texts: pa.Array) -> tuple[pa.Array, Bools]:
    """Instants of ISO 8601 *texts*, UTC where no zone is said; and which texts are none."""
    instants = _instants_of_common_form(texts)
    if instants is None:
        instants = pa.array([_instant(text) for text in texts.to_pylist()], INSTANT)
    return instants, instants.is_null().to_numpy(zero_copy_only=False)


def _instants_of_common_form(texts: pa.Array) -> pa.Array | None:
    """All instants at once, or nothing if one of *texts* has to be looked at by itself."""
    try:
        instants = texts.cast(pa.timestamp("us")).cast(INSTANT)
    except pa.ArrowInvalid:
        return None
    # Arrow reads a year 0, which no datetime can hold.
    return None if pc.any(pc.less(instants, _FIRST)).as_py() else instants


def _instant(text: str | None) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text or "")
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
