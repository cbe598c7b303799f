"""A file that comes in pieces: what is there, of which version, and that it never outgrows its bound."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from cdckit.rdss.gateway.checksums import Checksums


class NoRoom(Exception):
    """The file is larger than it may be, or than the disk has room for."""


class PartialFile:
    """
    The part of a file that came so far, `<target>.part`, and beside it the version that it is of.

    It is there after the process has ended, and is gone on with by the next one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     part = PartialFile(Path(folder, "file"), max_bytes=10)
    ...     part.begin('"v1"'), part.add(b"half")
    ...     again = PartialFile(Path(folder, "file"), max_bytes=10)
    ...     again.size, again.version
    (None, None)
    (4, '"v1"')
    """

    def __init__(self, target: Path, max_bytes: int) -> None:
        self.target, self.max_bytes = target, max_bytes
        self._part, self._note = (target.with_name(target.name + end) for end in (".part", ".part.json"))
        self.sums, self.size = Checksums(), 0
        self.version: str | None = None
        with suppress(OSError, ValueError, KeyError, TypeError):
            self.version = json.loads(self._note.read_text())["version"]
        if self._part.exists():
            self.size = self._part.stat().st_size
            self.sums.add_file(self._part)

    def begin(self, version: str | None) -> None:
        """Begin anew, with the version that now comes: its ETag or the time of its last change."""
        self.discard()
        self.version = version
        self._note.write_text(json.dumps({"version": version}))
        self._part.touch()

    def expect(self, more: int) -> None:
        """Raise `NoRoom` unless so many bytes more are allowed, and there is room on the disk."""
        if self.size + more > self.max_bytes:
            raise NoRoom(f"it has {self.size + more} bytes or more, and {self.max_bytes} are allowed")
        free = shutil.disk_usage(self._part.parent).free
        if more > free:
            raise NoRoom(f"it needs {more} bytes more, and the disk has {free}")

    def add(self, content: bytes) -> None:
        """Add bytes at the end; `NoRoom` if it grows too large by them."""
        if self.size + len(content) > self.max_bytes:
            raise NoRoom(f"it has more than the {self.max_bytes} bytes that are allowed")
        with self._part.open("ab") as file:
            file.write(content)
        self.size += len(content)
        self.sums.add(content)

    def finish(self) -> None:
        """Put it in its place, on the disk, at once."""
        with self._part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(self._part, self.target)
        self._note.unlink(missing_ok=True)

    def discard(self) -> None:
        """Forget what came so far."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.sums, self.version, self.size = Checksums(), None, 0
