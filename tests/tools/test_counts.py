"""What is counted, and what of a move is told."""

from __future__ import annotations

from pathlib import Path

from tools.counts import definitions, lines_of_code

MODULE = '''
"""A module."""

from cdckit.here import one

# A comment.
LIMIT = 7
"""As many as there may be."""


def first(frame):
    """Keep the first."""
    from cdckit.here import two

    return two(frame, """a text
    of two lines""")
'''


def test_empty_lines_comments_and_docstrings_are_no_code() -> None:
    """The import, the value, and the function's four lines: a text that is used is code."""
    assert lines_of_code(MODULE) == 6


def test_code_that_only_moves_is_the_same(tmp_path: Path) -> None:
    before, after = tmp_path / "before/cdckit", tmp_path / "after/cdckit/inside"
    before.mkdir(parents=True)
    after.mkdir(parents=True)
    (before / "one.py").write_text(MODULE)
    (after / "other.py").write_text(MODULE.replace("cdckit.here", "cdckit.there").replace("the first", "one"))
    assert definitions(before.parent) == definitions(after.parents[1]) != {}
    (after / "other.py").write_text(MODULE.replace("LIMIT = 7", "LIMIT = 8"))
    assert list(definitions(before.parent) - definitions(after.parents[1])) == ["LIMIT = 7"]
