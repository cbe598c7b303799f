"""Checksums of a file, reckoned while it comes in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cdckit.errors import InvalidArgument
from cdckit.rdss.codes import RdssFault
from cdckit.rdss.gateway.errors import Rejection

KINDS = ("md5", "sha256")
"""The types of checksums that a file of a message may have."""


class WrongChecksum(Rejection):
    """A file is not the one that its message describes; a handler that lets it pass refuses the message."""

    def __init__(self, kind: str, needed: str, found: str) -> None:
        self.kind, self.needed, self.found = kind, needed, found
        super().__init__(RdssFault.INVALID_CHECKSUM, f"The {kind} is {found}; the message says {needed}.")


class Checksums:
    """
    The checksums of what was added so far.

    >>> sums = Checksums()
    >>> sums.add(b"a"), sums.add(b"bc")
    (None, None)
    >>> sums.values()["md5"]
    '900150983cd24fb0d6963f7d28e17f72'
    >>> sums.require({"sha256": "00"})
    Traceback (most recent call last):
    ...
    cdckit.rdss.gateway.checksums.WrongChecksum: APPERRMET004: A checksum is not that of its file, ...
    """

    def __init__(self) -> None:
        # What is found out is whether a file is damaged; nobody is kept from making another of the same md5.
        self._sums = {kind: hashlib.new(kind, usedforsecurity=False) for kind in KINDS}

    def add(self, content: bytes) -> None:
        """Go on with the next bytes."""
        for each in self._sums.values():
            each.update(content)

    def add_file(self, path: Path) -> None:
        """Go on with all of a file."""
        with path.open("rb") as file:
            while content := file.read(1 << 20):
                self.add(content)

    def values(self) -> dict[str, str]:
        """By kind, the hexadecimal digits."""
        return {kind: each.hexdigest() for kind, each in self._sums.items()}

    def require(self, needed: Mapping[str, str]) -> None:
        """Raise `WrongChecksum` unless each is as needed; upper and lower case are the same."""
        found = self.values()
        for kind, value in needed.items():
            if found[kind] != value.lower():
                raise WrongChecksum(kind, value, found[kind])


def needed_checksums(checksums: Mapping[str, str] | Iterable[Mapping[str, str]]) -> dict[str, str]:
    """
    Checksums by kind, given so or as a `fileChecksum` of a message has them.

    >>> needed_checksums([{"checksumUUID": "…", "checksumType": "md5", "checksumValue": "9001"}])
    {'md5': '9001'}
    """
    if isinstance(checksums, Mapping):
        needed = dict(checksums)
    else:
        needed = {each["checksumType"]: each["checksumValue"] for each in checksums}
    if unknown := sorted(set(needed) - set(KINDS)):
        raise InvalidArgument("download", "checksums", f"of {' or '.join(KINDS)}", unknown)
    return needed
