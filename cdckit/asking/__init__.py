"""
The questions that a history answers; `cdckit` hands them on.

    as_of       as_of, current                  what was in force
    between     between, timeline, with_operation
    joins       as_of_join                      what was in force when a fact happened
    differences changes_between, diff           what changed
    durations   durations, weighted_means           how long
    episodes    episodes, transitions               how long in a row, from what to what
    counts      counts_over_time                    how many
    bitemporal  as_known, bitemporal, known_at  what was believed
    provenance  blame, by_message, sources_of, with_messages, revoke
    why         why                             what became of every change of an entity
"""
