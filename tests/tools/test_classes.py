"""The archive of Spark's classes: it is used where there is one, and nothing is said where there is none."""

from __future__ import annotations

from pathlib import Path

from tools.classes import make, options


def test_an_archive_is_named_to_the_jvm(tmp_path: Path) -> None:
    archive = tmp_path / "some classes.jsa"
    archive.write_bytes(b"classes")
    assert options(archive)[0] == f'"-XX:SharedArchiveFile={archive}"'


def test_without_an_archive_or_with_an_empty_one_a_jvm_is_told_nothing(tmp_path: Path) -> None:
    assert options(tmp_path / "none.jsa") == ()
    (tmp_path / "empty.jsa").touch()
    assert options(tmp_path / "empty.jsa") == ()


def test_where_java_makes_none_an_empty_one_stands_for_it(tmp_path: Path) -> None:
    """So that it is not tried again by each `make test`."""
    archive = tmp_path / "classes.jsa"
    assert not make(archive, wanted="--version")
    assert archive.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [archive]
