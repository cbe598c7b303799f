"""The names of logs in the places of changes (`sequence` in `cdckit.model.CHANGE_SCHEMA`)."""

LOG_END = "@"
"""Ends the name of a log in `sequence`, if a source has several (see `CHANGE_SCHEMA`)."""
