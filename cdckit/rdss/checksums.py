"""The forms of checksums."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from cdckit.rdss.codes import RdssFault
from cdckit.rdss.findings import BODY, Finding, found, shown

_CHECKSUMS = {"md5": re.compile("[0-9A-Fa-f]{32}"), "sha256": re.compile("[0-9A-Fa-f]{64}")}


def odd_checksums(body: Any) -> Iterator[Finding]:
    """Checksums of a valid object that no file can have."""
    for place, file in enumerate(body.get("objectFile", ())):
        for which, checksum in enumerate(file["fileChecksum"]):
            kind, text = checksum["checksumType"], checksum["checksumValue"]
            if not _CHECKSUMS[kind].fullmatch(text):
                path = (*BODY, "objectFile", place, "fileChecksum", which, "checksumValue")
                sentence = f"{shown(text)} is no {kind} checksum, which has hexadecimal digits alone."
                yield found(RdssFault.INVALID_CHECKSUM, path, sentence)


def are_forms(files: Iterable[Any]) -> bool:
    """Whether the checksums of files, in types of `schema_types`, can be those of a file."""
    return all(
        _CHECKSUMS[each.checksumType].fullmatch(each.checksumValue)
        for file in files
        for each in file.fileChecksum
    )
