"""
What is small enough to be done at home, in the memory of this program: each bound, and what it saves.

To plan a job and start its tasks takes Spark longer than the work itself.  All are read where they are asked,
so that tests can set them.
"""

from __future__ import annotations

READ_ROWS, READ_FILE_BYTES, READ_BYTES = 1_000, 1 << 20, 1 << 23
"""Files of a store are read by this program, and small ones written together: so many rows in so many bytes
of files, which are compressed, and which may be so many bytes in memory."""

WORK_ROWS, WORK_BYTES = 20_000, 4 << 20
"""The rows of a plan are worked on by this program: so many, of a plan that reads so many bytes as Spark
estimates."""

HELD_ROWS = 1_000
"""Rows that are looked at again are held by this program, of plans that read more than `WORK_BYTES`; more
rows stay with the executors."""

BUCKETS, BUCKET_BYTES = 4, 64 << 20
"""The buckets of a ledger are kept up by this program: so many, with so many bytes of files, since late
changes have a whole log read."""
