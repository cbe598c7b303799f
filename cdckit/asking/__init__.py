"""
The questions that a history answers; `cdckit` hands them on.

    as_of       as_of, current                  what was in force
    between     between, timeline, with_operation
    joins       as_of_join                      what was in force when a fact happened, or as it was known
    overlays    overlay                         what several histories say at once
    allen, period_joins  allen_relation, join_periods    how periods lie to each other
    differences changes_between, diff           what changed
    durations   durations, weighted_means           how long
    episodes    episodes, transitions               how long in a row, from what to what
    counts      counts_over_time                    how many
    bitemporal  as_known, bitemporal, known_at  what was believed
    beliefs     beliefs_about, belief_changes, as_shown, error_durations
    provenance  blame, by_message, sources_of, with_messages, revoke
    why         why                             what became of every change of an entity
"""
