"""
The questions that a history answers.

`cdckit` itself hands on those of every day: `as_of`, `current`, `between`, `changes_between`, `as_of_join`
with `Lookup`, `as_known`, `bitemporal`, `keep_known`, `blame` and `why`.

    as_of           as_of, current, between, timeline,       what was in force, then or for a while
                    with_operation
    as_of_joins     as_of_join, Lookup                       what was in force, or known, as a fact happened
    overlays        overlay, Layer, join_periods             what several histories say at once
    intervals       allen_relation, ALLEN_RELATIONS          how two periods lie to each other
    differences     changes_between, diff                    what changed
    measures        durations, weighted_means,               how long, how many
                    counts_over_time
    state_episodes  episodes, transitions                    how long in a row, from what to what
    bitemporal      as_known, bitemporal, keep_known         what was believed
    beliefs         beliefs_about, diff_beliefs, as_shown,   what was believed when, and how long it was wrong
                    error_durations
    provenance      blame, values_by_message, revoke,        which message said it, and what if it had not
                    count_sources, with_messages
    corrections     correct                                  what is right instead, for a period
    reconciliation  reconcile, count_findings, repair        where the source differs, and how to mend it
    explanation     explain, Belief                          which messages made a number another one
    why             why                                      what became of every change of an entity
"""

from cdckit.query.as_of import timeline, with_operation
from cdckit.query.beliefs import as_shown, beliefs_about, diff_beliefs, error_durations
from cdckit.query.checksums import checksum_expression, find_differing_ranges, range_checksums
from cdckit.query.corrections import correct
from cdckit.query.differences import diff
from cdckit.query.explanation import Belief, explain
from cdckit.query.intervals import ALLEN_RELATIONS, allen_relation
from cdckit.query.measures import counts_over_time, durations, weighted_means
from cdckit.query.overlays import Layer, join_periods, overlay
from cdckit.query.provenance import count_sources, revoke, values_by_message, with_messages
from cdckit.query.reconciliation import count_findings, reconcile, repair
from cdckit.query.state_episodes import episodes, transitions

__all__ = [
    "ALLEN_RELATIONS",
    "Belief",
    "Layer",
    "allen_relation",
    "as_shown",
    "beliefs_about",
    "checksum_expression",
    "correct",
    "count_findings",
    "count_sources",
    "counts_over_time",
    "diff",
    "diff_beliefs",
    "durations",
    "episodes",
    "error_durations",
    "explain",
    "find_differing_ranges",
    "join_periods",
    "overlay",
    "range_checksums",
    "reconcile",
    "repair",
    "revoke",
    "timeline",
    "transitions",
    "values_by_message",
    "weighted_means",
    "with_messages",
    "with_operation",
]
