"""
The questions that a history answers; `cdckit` hands them on.

    as_of         as_of, current                      what was in force
    between       between, timeline, with_operation   what was in force during a period
    joins         as_of_join, Lookup                  what was in force as a fact happened, or was known then
    overlays      overlay, Side                       what several histories say at once
    allen         allen_relation, ALLEN_RELATIONS     how two periods lie to each other
    period_joins  join_periods                        which periods of two tables lie so
    differences   changes_between, diff               what changed
    durations     durations, weighted_means           how long
    episodes      episodes, transitions               how long in a row, from what to what
    counts        counts_over_time                    how many
    bitemporal    as_known, bitemporal, known_at      what was believed
    beliefs       beliefs_about, belief_changes,      what was believed when, and for how long it was wrong
                  as_shown, error_durations
    provenance    blame, by_message, sources_of,      which message said it
                  with_messages, revoke
    why           why                                 what became of every change of an entity
"""
