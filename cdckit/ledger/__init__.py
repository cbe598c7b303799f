"""
The ledger: log and history of one kind of entity, kept up as changes come.

`Ledger` (in `ledger`) takes batches and answers; `View` is what it said at one commit;
`Pending` what it will say when a batch is committed.
"""

from __future__ import annotations

from cdckit.ledger.erasure.erasure_steps import UnfinishedErasure
from cdckit.ledger.erasure.forgotten_entities import MovedEntities, UnknownEntities
from cdckit.ledger.erasure.receipts import ErasedPart, Receipt
from cdckit.ledger.intake import ApplyResult
from cdckit.ledger.ledger import Ledger
from cdckit.ledger.views import Pending, View

__all__ = [
    "ApplyResult",
    "ErasedPart",
    "Ledger",
    "MovedEntities",
    "Pending",
    "Receipt",
    "UnfinishedErasure",
    "UnknownEntities",
    "View",
]
