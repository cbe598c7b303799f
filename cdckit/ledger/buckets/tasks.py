"""What a worker is told to keep up: a bucket with its files, and where the tables are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from cdckit.ledger.columns import BUCKET, LATEST, OPEN, PLACE
from cdckit.merging.arrow_changes import Layout
from cdckit.parts.arrow_types import arrow_schema
from cdckit.store.columns import true_names
from cdckit.store.files import Target


class FileRange(NamedTuple):
    """
    A file of a table, as a task is told of it.

    Args:
        path: Below the table's folder.
        size: In bytes.
        rows: How many.
        low: Below the guids of all rows, or one of them; no bytes if that is not known.
        high: The same, above; None if it is not known.
        messages: Between which texts the ids of its messages are, of a file of the log; None if that is not
            known.
    """

    path: str
    size: int
    rows: int = 0
    low: bytes = b""
    high: bytes | None = None
    messages: tuple[str, str] | None = None

    def may_name(self, messages: Sequence[str]) -> bool:
        """Tell whether one of these ids, which are in their order, can be in the file."""
        if self.messages is None:
            return True
        first = bisect_left(messages, self.messages[0])
        return first < len(messages) and messages[first] <= self.messages[1]


Paths = list[FileRange]


UPKEPT = ("log", "history", "unborn")
"""The tables that the upkeep of a bucket writes."""

FOLD = 16
"""From how many small files of one kind on those of a bucket are written as one."""


@dataclass(frozen=True)
class Targets:
    """What all tasks of one upkeep have in common: where the tables are, and how the kernel reads changes."""

    tables: Mapping[str, Target]
    """By the names of `Kind.tables`; `words` only where somebody says that keys have changed."""
    layout: Layout
    periods: bool = False
    """Whether the new changes are of a table of periods, which may end what was open."""

    @property
    def log(self) -> Target:
        """The table of changes."""
        return self.tables["log"]

    @property
    def history(self) -> Target:
        """The table of versions."""
        return self.tables["history"]

    @property
    def words(self) -> Target | None:
        """The table of what rows took along when their keys changed; None where nobody says that they did."""
        return self.tables.get("words")

    @property
    def resume_layout(self) -> Layout:
        """For changes made of open versions: there every field has a priority of its own."""
        return replace(self.layout, field_priorities=frozenset(range(len(self.layout.fields))))

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """The columns of the table of versions."""
        return arrow_schema(true_names(self.history.stored), large=True)

    @cached_property
    def merged_schema(self) -> pa.Schema:
        """Those of them that the kernel makes."""
        return pa.schema(
            [field for field in self.stored_schema if field.name not in (BUCKET, OPEN, LATEST, PLACE)]
        )


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
        unborn: Of the entities that have changes and no current version.
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

    @property
    def files(self) -> dict[str, Paths]:
        """The files that are there, by the names of `Kind.tables`."""
        versions = [*self.open, *self.closed]
        return {"log": self.log, "history": versions, "unborn": self.unborn, "words": self.words}
