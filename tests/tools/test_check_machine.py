"""A machine that lacks something is told so in one sentence, with the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_machine

PROGRAM = Path(check_machine.__file__)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version_is_read_from_what_java_prints(said: str, version: int | None) -> None:
    """Old Java counts 1.8 as 8; macOS has a `java` that is none."""
    assert check_machine.java_version(said) == version


def test_an_old_python_is_told_what_to_do() -> None:
    """The version found, the version needed, and how to call make with another one."""
    said = check_machine.python_problem((3, 9, 1))
    assert "needs Python 3.11 or newer, and this is 3.9" in said
    assert "make PYTHON=" in said


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_java(folder: Path, says: str) -> Path:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_no_java_is_one_sentence(tmp_path: Path) -> None:
    """No stack trace: what is missing, and how to install it."""
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Spark needs Java, and there is no `java` on the PATH: install a JDK")
    assert len(done.stderr.splitlines()) == 1


def test_an_old_java_is_one_sentence(tmp_path: Path) -> None:
    """The version that was found is named."""
    done = run(fake_java(tmp_path, 'openjdk version "11.0.2"'))
    assert done.returncode == 1
    assert "needs Java 17 or newer, and this is 11" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_java_home_counts_before_the_path(tmp_path: Path) -> None:
    """Spark starts the Java of JAVA_HOME, so that is the one to judge."""
    (tmp_path / "old" / "bin").mkdir(parents=True)
    fake_java(tmp_path / "old" / "bin", 'openjdk version "11.0.2"')
    fake_java(tmp_path, 'openjdk version "17.0.15"')
    environment = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "old")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )
    assert "needs Java 17 or newer, and this is 11" in done.stderr


def test_a_good_machine_is_told_nothing(tmp_path: Path) -> None:
    """Silence and exit code 0."""
    done = run(fake_java(tmp_path, 'openjdk version "25"'))
    assert (done.returncode, done.stderr) == (0, "")
