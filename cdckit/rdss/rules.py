"""The limits of RDSS as a value: what a caller may set otherwise than the specification does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """
    The limits that messages are validated against.

    Args:
        max_bytes: The most bytes of a serialised message; 1000KB, as the text counts them.
        major: The major version of the specification: messages of others are refused.
        checksum_form: Whether a checksum must have the form of its type: 32 hexadecimal digits for md5, 64
            for sha256.  The published schemas take any text, and their examples hold one that is none.

    Source:
        RDSS, "Message Structure", "Versioning", "Metadata Error Codes".

    >>> Rules(), Rules(checksum_form=False).checksum_form
    (Rules(max_bytes=1000000, major=4, checksum_form=True), False)
    """

    max_bytes: int = 1_000_000
    major: int = 4
    checksum_form: bool = True


RULES = Rules()
"""The limits as the specification has them."""
