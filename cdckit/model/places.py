"""Places: of changes in logs (`sequence` in `cdckit.model.CHANGE_SCHEMA`), and of records in topics."""

LOG_END = "@"
"""Ends the name of a log in `sequence`, if a source has several (see `CHANGE_SCHEMA`)."""

CLOCK = f"clock{LOG_END}"
"""Begins places that are times of clocks: what a partition delivered behind such a one counts behind it."""

RECORD_PLACE = ("topic", "partition", "offset", "timestamp")
"""One place is one record.  The time belongs to it: a topic that was made anew counts its offsets from 0."""
