"""
What every door that remembers is: a `Shell`, which keeps records, states and several ledgers in one store.
"""

from __future__ import annotations

from cdckit.shell.shell import ReceiveResult, Shell

__all__ = ["ReceiveResult", "Shell"]
