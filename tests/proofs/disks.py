"""A small disk of its own, which can be filled up to any byte."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Disk:
    """A file system in memory, mounted on a folder while the `with` lasts."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self._size = folder, size
        self._ballast = folder / "ballast"

    def leave(self, free: int) -> None:
        """Fill it up, but for so many bytes."""
        self.clear()
        left = shutil.disk_usage(self.folder).free - free
        assert left >= 0, f"only {left + free} bytes are free"
        with self._ballast.open("wb") as file:
            while left > 0:
                left -= file.write(b"\x01" * min(left, 2**20))

    def clear(self) -> None:
        """Let there be room again."""
        self._ballast.unlink(missing_ok=True)

    def used(self) -> int:
        """How many bytes are taken."""
        return shutil.disk_usage(self.folder).used

    def __enter__(self) -> Disk:
        self.folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.folder)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            pytest.skip(f"a small disk cannot be mounted here: {error}")
        if ran.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {ran.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", str(self.folder)], check=True)
