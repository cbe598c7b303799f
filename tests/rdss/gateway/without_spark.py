"""Lets a program import the gateway alone: it needs no Spark, whose import takes seconds for each process."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]


def install() -> None:
    """Have `cdckit` and `cdckit.rdss` be folders without what their `__init__` hands on."""
    for name in ("cdckit", "cdckit.rdss"):
        package = ModuleType(name)
        package.__path__ = [str(ROOT / name.replace(".", "/"))]
        sys.modules[name] = package
    sys.path.insert(0, str(ROOT))
