"""Python environments of their own, made once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from jars import CACHE

_LONGEST = 400


def python_with(*requirements: str) -> Path:
    """
    The interpreter of a virtual environment with these packages, and nothing of ours.

    The test that asks for it is skipped where pip cannot install them, with the reason.
    """
    told = " ".join([sys.version, *requirements])
    folder = CACHE / "pythons" / hashlib.sha256(told.encode()).hexdigest()[:16]
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    done = folder / "done"
    if not done.exists():
        # An environment cannot be moved, so it is made in place; of two tests that do so, both do the same.
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            ran = subprocess.run(
                [*install, *requirements], capture_output=True, text=True, timeout=_LONGEST, check=False
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"{' '.join(requirements)} could not be installed within {_LONGEST} s")
        if ran.returncode != 0:
            reason = (ran.stderr.strip().splitlines() or ["no reason told"])[-1]
            pytest.skip(f"{' '.join(requirements)} could not be installed: {reason}")
        done.touch()
    return python
