"""What can be wrong with an event of a Databus stream, or with its place in the stream."""

from __future__ import annotations

import pyarrow as pa

from cdckit.parts.faults import Fault


class DatabusFault(Fault):
    """
    The codes of the door's rejects, in the order in which an event is looked at.

    >>> DatabusFault.SCN_FELL.describe("Expected 7 or more, found 6.")
    'Within a window the SCN of a source must not fall. Expected 7 or more, found 6.'
    >>> [str(fault) for fault in DatabusFault if fault.heals]
    ['SOURCE_UNKNOWN', 'SCHEMA_UNKNOWN', 'WINDOW_OPEN']
    """

    NO_VALUE = "NO_VALUE", "The record has no value (a tombstone of the topic, not a Databus event)."
    NOT_AN_EVENT = "NOT_AN_EVENT", "A Databus event is one JSON object."
    FIELD_TYPE = "FIELD_TYPE", "A field of the event is not of its type."
    FIELD_MISSING = "FIELD_MISSING", "The event lacks a field that it needs."
    SCN_NEGATIVE = "SCN_NEGATIVE", "An SCN (the field sequence) is 0 or more."
    OPCODE_UNKNOWN = "OPCODE_UNKNOWN", "The opcode must be UPSERT or DELETE."
    KEY_INVALID = "KEY_INVALID", "A data event has one key: the number key, or keyBytes in base64."
    ENCODING_UNKNOWN = "ENCODING_UNKNOWN", "valueEnc must be JSON (base64) or JSON_PLAIN_VALUE (JSON_PLAIN)."
    SOURCE_UNKNOWN = "SOURCE_UNKNOWN", "No source with this srcId is known.", True
    SCHEMA_UNKNOWN = "SCHEMA_UNKNOWN", "The source has no schema with this id.", True
    VALUE_UNREADABLE = "VALUE_UNREADABLE", "The value does not decode with the schema of its id."
    SCN_FELL = "SCN_FELL", "Within a window the SCN of a source must not fall."
    END_TOO_LOW = "END_TOO_LOW", "The end of a window must not stand below the SCNs of its events."
    ROLLBACK_TOO_LATE = "ROLLBACK_TOO_LATE", "A rollback must go to the start of its window, or before it."
    START_TOO_LATE = (
        "START_TOO_LATE",
        "After a rollback the next events must start where the window did that was rolled back, or before.",
    )
    EVENT_LATE = (
        "EVENT_LATE",
        "The event comes behind windows of greater SCNs, and is no repeat: it can be applied no more.",
    )
    PLACE_TAKEN = (
        "PLACE_TAKEN",
        "The record stands where another one came, or behind the last one that came of its partition: "
        "it cannot be put in order.",
    )
    WINDOW_OPEN = "WINDOW_OPEN", "The window of the event has not ended in time.", True


Findings = dict[int, tuple[DatabusFault, str]]
"""By the place of a row: what is wrong with it, and what was found there."""


def error_columns(findings: Findings, rows: int) -> tuple[pa.Array, pa.Array]:
    """`error_code` and `error_description` of so many rows, null but for the findings."""
    codes: list[str | None] = [None] * rows
    descriptions: list[str | None] = [None] * rows
    for row, (fault, finding) in findings.items():
        codes[row], descriptions[row] = fault.value, fault.describe(finding)
    return pa.array(codes, pa.string()), pa.array(descriptions, pa.string())
