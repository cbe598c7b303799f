"""The examples of the pages of the site, run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.site import examples

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))


def run_page(page: Path, folder: Path) -> list[examples.Example]:
    """Run the examples of a page, all in one set of names, with *folder* for what they write."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(folder))
        return list(examples.run(page.read_text(), page.name))


def require_printed(ran: Sequence[examples.Example]) -> None:
    """Require that examples print what stands below them."""
    assert [(example.line, example.printed) for example in ran] == [
        (example.line, example.shown) for example in ran
    ]
    assert any(example.printed for example in ran)
