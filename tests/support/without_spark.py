"""Lets a program import the gateway alone: it needs no Spark, whose import takes seconds for each process."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[2]


def install() -> None:
    """Have `cdckit` and `cdckit.rdss` be packages whose `__init__`, which hands names on, never runs."""
    for name in ("cdckit", "cdckit.rdss"):
        folder = ROOT / name.replace(".", "/")
        found = spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert found is not None
        sys.modules[name] = module_from_spec(found)
    sys.path.insert(0, str(ROOT))
