"""
The types of messages: the body that each has, and what it does to its object.

Source: RDSS, "Message Body", "Metadata Error Codes", "Digital Object Versioning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdckit.rdss.findings import RdssFault

CREATE, UPDATE, REMOVE = "MetadataCreate", "MetadataUpdate", "MetadataDelete"
READ, PRESERVATION = "MetadataRead", "PreservationEvent"

BODIES: Mapping[tuple[str, str], str] = {
    (CREATE, "Command"): "object",
    (UPDATE, "Command"): "object",
    (REMOVE, "Command"): "reference",
    (READ, "Command"): "reference",
    (READ, "Document"): "object",
    (PRESERVATION, "Event"): "package",
}
"""What the body is of a message of that type and class: the pairs that there are."""

FAULTS = {
    UPDATE: RdssFault.UPDATE_OF_UNKNOWN,
    REMOVE: RdssFault.DELETE_OF_UNKNOWN,
    READ: RdssFault.READ_OF_UNKNOWN,
}
"""By the type of a message what is said of it, where its object is unknown."""

UNKNOWN_CODES = tuple(fault.value for fault in FAULTS.values())
"""The codes of what is about an unknown object."""


def is_accepted(kind: str, existed: Iterable[bool]) -> bool:
    """
    Tell whether a message is accepted: its object existed, or one of which it is a version.

    A create always is: an object that is known to some already, and becomes public, comes as one.
    """
    return kind == CREATE or any(existed)


def exists_after(kind: str, existed: bool, *, keeps_deleted: bool) -> bool:
    """Tell whether an object exists after a message that is accepted: a read says nothing of it."""
    if kind == REMOVE:
        return keeps_deleted and existed
    return kind in (CREATE, UPDATE) or existed
