"""What a worker is told to keep up: one bucket with its files, and what all buckets have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from cdckit.kernel.changes import Layout
from cdckit.ledger.columns import BUCKET, LATEST, OPEN, PLACE
from cdckit.parts.arrow_types import arrow_schema
from cdckit.store.columns import true_names
from cdckit.store.files import Target


class Held(NamedTuple):
    """
    A file of a table, as a task is told of it.

    Args:
        path: Below the table's folder.
        size: In bytes.
        rows: How many.
        low: Below the guids of all rows, or one of them; no bytes if that is not known.
        high: The same, above; None if it is not known.
    """

    path: str
    size: int
    rows: int = 0
    low: bytes = b""
    high: bytes | None = None


Paths = list[Held]


FOLD = 16
"""From how many small files of one kind on those of a bucket are written as one."""


@dataclass(frozen=True)
class Book:
    """What all tasks of one upkeep have in common: where the tables are, and how the kernel reads changes."""

    log: Target
    history: Target
    unborn: Target
    layout: Layout
    words: Target | None = None
    """Of what rows took along when their keys changed; None where nobody says that they did."""

    @property
    def resuming(self) -> Layout:
        """For changes made of open versions: there every field has a priority of its own."""
        return replace(self.layout, field_priorities=frozenset(range(len(self.layout.fields))))

    @cached_property
    def kept(self) -> pa.Schema:
        """The columns of the table of versions."""
        return arrow_schema(true_names(self.history.stored), large=True)

    @cached_property
    def merged(self) -> pa.Schema:
        """Those of them that the kernel makes."""
        return pa.schema([each for each in self.kept if each.name not in (BUCKET, OPEN, LATEST, PLACE)])


@dataclass(frozen=True)
class Task:
    """
    One bucket and its files.

    Args:
        bucket: Its number.
        fresh: Files of the log that no commit names yet: what is new, and perhaps is not.
        log: Those that are there.
        open: Of versions without an end.
        closed: Of the other versions.
        unborn: Of the entities that have changes and no version.
        words: Of what rows took along to their new keys.
        words_before: The same, before it was found anew; None if it was not.
        anew: Whether all entities are merged again, whatever is new.
        fold: From how many small files of closed versions on those are written together.
    """

    bucket: int
    fresh: Paths = field(default_factory=list)
    log: Paths = field(default_factory=list)
    open: Paths = field(default_factory=list)
    closed: Paths = field(default_factory=list)
    unborn: Paths = field(default_factory=list)
    words: Paths = field(default_factory=list)
    words_before: Paths | None = None
    anew: bool = False
    fold: int = FOLD
