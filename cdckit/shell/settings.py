"""Settings of a door, which its store notes: by others its tables would be others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from cdckit.errors import InvalidArgument
from cdckit.store import Transaction
from cdckit.store.store import read_note, write_note


@dataclass(frozen=True, kw_only=True)
class Settings(ABC):
    """What a door goes by, which its store notes: its tables are made by these."""

    note_key: ClassVar[str]

    @property
    @abstractmethod
    def noted(self) -> dict[str, Any]:
        """What makes another door of it, if it is another, in values of JSON."""

    def note(self, tables: Transaction) -> None:
        """Let the store know it."""
        write_note(tables, self.note_key, self.noted)

    def require_same(self, tables: Transaction) -> None:
        """Raise where the tables were made by others."""
        note = read_note(tables, self.note_key, self.noted)
        if note != self.noted:
            needed = f"those by which the tables were made, {note}; `rebuild` goes by new ones"
            raise InvalidArgument(None, "settings", needed, self.noted)
