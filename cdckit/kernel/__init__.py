"""The rules of the merge on Arrow and NumPy, for Spark's Python workers.

No change is applied one by one: what stands in a field after a change is the *position* of the change
that put it there, and each such position is a running maximum.  Only positions travel, so a field may
have any type.  `arrays` cuts the rows into whole entities, `changes` names the columns and reads what each
change says, `states` finds what stands, `ends` what stands where changes end (without those that `overruled`
finds to be so), and `versions` makes rows of it (the merge); on them stand `beliefs` (the merge at every
moment of knowledge) and `verdicts` (what became of each change).
"""
