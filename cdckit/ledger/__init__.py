"""
The ledger: log and history of one kind of entity, kept up as changes come.

`Ledger` (in `keeping`) takes batches and answers; `View` is what it said at one commit.
"""

from __future__ import annotations

from cdckit.ledger.keeping import Applied, Ledger
from cdckit.ledger.views import View

__all__ = ["Applied", "Ledger", "View"]
