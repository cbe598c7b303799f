"""The receipt of an erasure: what went, what stayed as it was, and what is not ours to erase."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import msgspec

from cdckit.parts.arguments import flat_columns

RECEIPT_SCHEMA = flat_columns("receipt string, erased_at timestamp, text string")
"""One row per erasure: its receipt as JSON."""

NOT_ERASED = (
    "Backups and copies of this location, and snapshots that its storage keeps by itself.",
    "Messages in brokers and files from which the changes came: who sends them again is refused.",
    "What others have read: published tables that are not named here, views and caches of sessions, exports, "
    "checkpoints of streams.",
    "Published tables of a catalogue: deletion vectors only mark the rows there, which `REORG TABLE … APPLY "
    "(PURGE)` takes out; then `VACUUM` deletes older versions.",
    "What changes of other entities say, also where a value, or the name of a message that spoke of several, "
    "holds a key of an erased one.",
    "Ids of batches, names of streams and tables, and texts of reasons: these are yours.",
    "Digests of whole batches, 64 bits each, by which a batch that comes twice is known.",
    "Files that a writer was writing meanwhile: it begins again, and `vacuum` deletes what it left.",
)
"""What no erasure takes away."""


@dataclass(frozen=True)
class ErasedPart:
    """
    What was rewritten of one table in one bucket.

    Args:
        table: The table's name.
        bucket: The part of it; None for a published table.
        removed: The files that went, below the table's folder.
        added: Those that came in their place.
        rows: How many rows the files had that went.
        erased: How many of them were of the entities.
        rest_before: A hash of the values of all their other rows, as they were read before.
        rest_after: The same of the files that came, as they were read again.

    >>> part = ErasedPart("changes", 7, ("a.parquet",), ("b.parquet",), 1000, 3, "6e1f", "6e1f")
    >>> part.rest_before == part.rest_after
    True
    """

    table: str
    bucket: int | None
    removed: tuple[str, ...]
    added: tuple[str, ...]
    rows: int
    erased: int
    rest_before: str
    rest_after: str


@dataclass(frozen=True)
class Receipt:
    """
    What an erasure did.  No value of the erased is in it.

    Args:
        receipt: Its id, which the tombstones name.
        entity: Of which kind the entities are.
        erased_at: When.
        erased_by: Who asked for it.
        reason: Why.
        fields: Which fields went; None where all that was known of the entities went.
        later: What becomes of later changes: "refuse" or "erase".
        entities: How many entities.
        parts: What was rewritten.
        untouched: By table, how many of its files stayed as they were, and a digest of what its log says of
            them: their names, sizes and bounds.
        commit: The first commit that can be read; all earlier ones are erased.  None until that is done.
        files: How many files were deleted, those of older commits among them.
        log_entries: How many entries and checkpoints of logs.
        published: The published tables from which they went too.
        not_erased: What is left, and by whose doing.

    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     _ = ledger.apply(changes)
    ...     receipt = ledger.erase(keys=[{"number": 2}], by="dana", reason="asked for by letter")
    >>> receipt.entities, [(part.table, part.rows, part.erased) for part in receipt.parts]
    (1, [('changes', 4, 2), ('history', 4, 2)])
    """

    receipt: str
    entity: str
    erased_at: datetime
    erased_by: str
    reason: str
    fields: tuple[str, ...] | None
    later: str
    entities: int
    parts: tuple[ErasedPart, ...] = ()
    untouched: Mapping[str, tuple[int, str]] | None = None
    commit: int | None = None
    files: int = 0
    log_entries: int = 0
    published: tuple[str, ...] = ()
    not_erased: tuple[str, ...] = NOT_ERASED

    @property
    def rows(self) -> int:
        """How many rows went, or lost fields."""
        return sum(part.erased for part in self.parts)

    @property
    def is_proven(self) -> bool:
        """Whether the hashes of everything else are the same before and after."""
        return all(part.rest_before == part.rest_after for part in self.parts)

    def to_json(self) -> str:
        """The receipt as JSON, to be kept elsewhere."""
        return json.dumps({**asdict(self), "erased_at": self.erased_at.isoformat()}, indent=1)

    @staticmethod
    def from_json(text: str) -> Receipt:
        """The receipt of which `to_json` says this."""
        receipt = msgspec.json.decode(text, type=Receipt)
        return replace(receipt, untouched=receipt.untouched or {})

    def __str__(self) -> str:
        what = "all" if self.fields is None else ", ".join(self.fields)
        return (
            f"Erased {what} of {self.entities} {self.entity}: {self.rows} rows in {len(self.parts)} parts of "
            f"tables, {self.files} files and {self.log_entries} entries of logs; by {self.erased_by}, "
            f"{self.reason}."
        )
