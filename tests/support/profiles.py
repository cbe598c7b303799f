"""How many changes a call of `changes_from` makes."""

from __future__ import annotations

from typing import Any

from cdckit import changes_from
from cdckit.model import drop_rejects
from cdckit.tables import Profile


def count_changes(found: Profile, frame: Any) -> list[int]:
    """How many changes each of the calls makes: they are pasted, and run."""
    names = {"changes_from": changes_from, "frame": frame}
    return [drop_rejects(eval(call, names)).count() for call in found.calls]
