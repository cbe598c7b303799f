"""RDSS, "Message Body": the types of messages, and the body that each has."""

from __future__ import annotations

from collections.abc import Mapping

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
