"""
The merge: from a set of changes to a history, on Spark (`merge`), by a kernel on Arrow in its workers.

No change is applied one by one: what stands in a field after a change is the *position* of the change
that put it there, and each such position is a running maximum.  Only positions travel, so a field may
have any type.  `arrow_changes` names the columns and reads what each change says, `log_order` orders the
changes of a source, `precedence` says which change wins, also a tie, `states` where versions begin, `ends`
where they do if changes end, and `versions` makes rows of it; on them stand `beliefs` (the merge at every
moment of knowledge), `verdicts` (what became of each change) and `moves` (what a changed key takes along).
"""
