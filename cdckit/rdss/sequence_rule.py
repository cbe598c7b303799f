"""
What a part of a longer message is to its sequence: one rule, in SQL that Spark and SQLite read alike.

An exchange reads it over a batch, a gateway over the parts that it has and the one that comes.  Both need the
columns `sequence_id`, `sequence_position`, `terms` (`terms_of`), `content` (`content_of`) and `came`, which
sorts the parts as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

AGREES = "terms = first_value(terms) OVER (PARTITION BY sequence_id ORDER BY came)"
"""Whether a part says the same of its sequence as the first that came."""

_PLACE = "(PARTITION BY sequence_id, sequence_position, agrees ORDER BY came)"

PART = f"""CASE
    WHEN NOT agrees THEN 'contradicting'
    WHEN row_number() OVER {_PLACE} = 1 THEN 'new'
    WHEN content = first_value(content) OVER {_PLACE} THEN 'duplicate'
    ELSE 'contradicting'
END"""
"""What a part is, beside `agrees` (`AGREES`).  What came first stands: the same content in its place is a
duplicate, whatever its messageId; another content, or other terms, contradict it and are refused."""

CONTRADICTION = "At $.messageHeader.messageSequence: the part contradicts what came before it of the sequence"
"""What is said of a part that is refused, before the name of the sequence."""


def terms_of(header: Mapping[str, Any]) -> str:
    """
    What all parts of one sequence must say alike: its total, and the type, class, tenant and generator.

    >>> terms_of({"messageSequence": {"total": 2}, "messageType": "MetadataRead", "messageClass": "Command",
    ...     "tenantJiscID": 7, "generator": "g"})
    '2\\nMetadataRead\\nCommand\\n7\\ng'
    """
    total, tenant = int(header["messageSequence"]["total"]), int(header["tenantJiscID"])
    return "\n".join(
        map(str, (total, header["messageType"], header["messageClass"], tenant, header["generator"]))
    )


def content_of(body: str) -> str:
    """
    The digest of a piece of a body: of the text itself, however JSON has escaped it.

    >>> import json
    >>> content_of(json.loads('"\\\\u00e9"')) == content_of("é")
    True
    """
    return sha256(body.encode()).hexdigest()
