"""The names that `cdckit` hands on, for type checkers; `__init__.py` reads from here where each one lives."""

from cdckit import databus, datahub, debezium, rdss, replicate, streams
from cdckit.changes import (
    Priority,
    find_unused_priorities,
    union_changes,
    with_priorities,
    with_sequence,
)
from cdckit.errors import CdcError, InvalidArgument, MissingColumns, MissingExtra, WrongColumnType
from cdckit.files import expectations, samples
from cdckit.ledger import Ledger
from cdckit.merging import merge
from cdckit.moves import complete_moves
from cdckit.notebook import show
from cdckit.notebook.options import options
from cdckit.notebook.sessions import session
from cdckit.outputs.faults import TooManyRows, UnfitHistory
from cdckit.outputs.here import to_pandas
from cdckit.outputs.hybrid import scd_type_6
from cdckit.outputs.overwriting import scd_type_1
from cdckit.outputs.previous import scd_type_3
from cdckit.outputs.snapshots import periodic_snapshots
from cdckit.outputs.versions import ScdType4, scd_type_2, scd_type_4
from cdckit.outputs.views import create_view
from cdckit.quality.checked import BrokenPromises
from cdckit.quality.checking import check
from cdckit.quality.conservation import record_fates
from cdckit.quality.contradictions import find_contradictions
from cdckit.quality.data_docs import check_all
from cdckit.quality.gates import gate
from cdckit.quality.periods import (
    coalesce,
    find_empty_periods,
    find_gaps,
    find_overlaps,
    find_several_current,
)
from cdckit.query.allen import ALLEN_RELATIONS, allen_relation
from cdckit.query.as_of import as_of, current
from cdckit.query.beliefs import as_shown, belief_changes, beliefs_about, error_durations
from cdckit.query.between import between, timeline, with_operation
from cdckit.query.bitemporal import as_known, bitemporal, known_at
from cdckit.query.counts import counts_over_time
from cdckit.query.differences import changes_between, diff
from cdckit.query.durations import durations, weighted_means
from cdckit.query.episodes import episodes, transitions
from cdckit.query.joins import Lookup, as_of_join
from cdckit.query.overlays import Side, overlay
from cdckit.query.period_joins import join_periods
from cdckit.query.provenance import blame, by_message, revoke, sources_of, with_messages
from cdckit.query.why import why
from cdckit.rejected import drop_rejects, rejects
from cdckit.sources import UnknownSource, require_sources
from cdckit.tables import UnfitTable, changes_from, changes_from_snapshots
from cdckit.wording import with_fields

__version__: str

def load_ipython_extension(shell: object) -> None: ...

__all__ = [
    "ALLEN_RELATIONS",
    "BrokenPromises",
    "CdcError",
    "InvalidArgument",
    "Ledger",
    "Lookup",
    "MissingColumns",
    "MissingExtra",
    "Priority",
    "ScdType4",
    "Side",
    "TooManyRows",
    "UnfitHistory",
    "UnfitTable",
    "UnknownSource",
    "WrongColumnType",
    "allen_relation",
    "as_known",
    "as_of",
    "as_of_join",
    "as_shown",
    "belief_changes",
    "beliefs_about",
    "between",
    "bitemporal",
    "blame",
    "by_message",
    "changes_between",
    "changes_from",
    "changes_from_snapshots",
    "check",
    "check_all",
    "coalesce",
    "complete_moves",
    "counts_over_time",
    "create_view",
    "current",
    "databus",
    "datahub",
    "debezium",
    "diff",
    "drop_rejects",
    "durations",
    "episodes",
    "error_durations",
    "expectations",
    "find_contradictions",
    "find_empty_periods",
    "find_gaps",
    "find_overlaps",
    "find_several_current",
    "find_unused_priorities",
    "gate",
    "join_periods",
    "known_at",
    "merge",
    "options",
    "overlay",
    "periodic_snapshots",
    "rdss",
    "record_fates",
    "rejects",
    "replicate",
    "require_sources",
    "revoke",
    "samples",
    "scd_type_1",
    "scd_type_2",
    "scd_type_3",
    "scd_type_4",
    "scd_type_6",
    "session",
    "show",
    "sources_of",
    "streams",
    "timeline",
    "to_pandas",
    "transitions",
    "union_changes",
    "weighted_means",
    "why",
    "with_fields",
    "with_messages",
    "with_operation",
    "with_priorities",
    "with_sequence",
]
