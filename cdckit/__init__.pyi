"""The names that `cdckit` hands on, for type checkers; `__init__.py` reads from here where each one lives."""

from cdckit import databus, datahub, debezium, rdss, replicate, streams
from cdckit.errors import CdcError
from cdckit.ledger import Ledger
from cdckit.merging.merge import merge
from cdckit.merging.moves import complete_moves
from cdckit.model import Priority, rejects, union_changes, with_fields, with_priorities
from cdckit.notebook import show
from cdckit.notebook.options import options
from cdckit.notebook.sessions import session
from cdckit.parts.files import expectations, samples
from cdckit.quality.checks import check
from cdckit.query.as_of import as_of, between, current
from cdckit.query.as_of_joins import Lookup, as_of_join
from cdckit.query.bitemporal import as_known, bitemporal, keep_known
from cdckit.query.differences import changes_between
from cdckit.query.provenance import blame
from cdckit.query.why import why
from cdckit.tables import changes_from, changes_from_snapshots

__version__: str

def load_ipython_extension(shell: object) -> None: ...

__all__ = [
    "CdcError",
    "Ledger",
    "Lookup",
    "Priority",
    "as_known",
    "as_of",
    "as_of_join",
    "between",
    "bitemporal",
    "blame",
    "changes_between",
    "changes_from",
    "changes_from_snapshots",
    "check",
    "complete_moves",
    "current",
    "databus",
    "datahub",
    "debezium",
    "expectations",
    "keep_known",
    "merge",
    "options",
    "rdss",
    "rejects",
    "replicate",
    "samples",
    "session",
    "show",
    "streams",
    "union_changes",
    "why",
    "with_fields",
    "with_priorities",
]
