"""
An archive of the classes that Spark loads: with it a JVM starts in half the processor time.

    python -m tools.classes             make the archive
    python -m tools.classes options     say what a JVM that shall use it is told, if there is one

Each JVM reads, checks and lays out the same twenty thousand classes.  Java can keep what comes of that in a
file.  One that another Java made, or that other jars went into, it ignores without a word.  Making it takes
as long as twenty starts save: it is for who works in notebooks, and not for a test run, which has eight.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ARCHIVE = Path(sys.prefix) / "classes.jsa"
"""Beside the jars that it was made of; empty where Java could make none."""

WANTED = "tests/test_smoke.py"
"""What loads the classes that are archived: something of each door."""

ARCHIVING = "-XX:ArchiveClassesAtExit"
"""The option by which Java writes one; it takes none that reads another."""

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


def options(archive: Path = ARCHIVE) -> tuple[str, ...]:
    """What a JVM is told that shall use the archive; nothing where there is none."""
    if not archive.is_file() or not archive.stat().st_size:
        return ()
    return (f'"-XX:SharedArchiveFile={archive}"', *_SILENT)


def make(archive: Path = ARCHIVE, *, wanted: str = WANTED) -> bool:
    """Write the archive, whole or not at all; whether Java could."""
    made = archive.with_suffix(f".{os.getpid()}")
    settings = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f'"{ARCHIVING}={made}"', *_SILENT)
    # The JVM writes it while it ends, which is after Python has: with -s it holds the pipe until then.
    subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", wanted],
        cwd=ROOT,
        env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(settings)},
        capture_output=True,
        check=False,
    )
    found = made.is_file()
    if found:
        made.replace(archive)
    else:
        archive.touch()
    return found


def main(arguments: list[str]) -> None:
    """Run the program."""
    if arguments == ["options"]:
        print(*options())
        return
    print(
        "Archiving Spark's classes, so that Spark starts faster from now on (a minute, once) ...", flush=True
    )
    if not make():
        print("Java made no archive of them: each start of Spark takes some seconds more.")


if __name__ == "__main__":
    main(sys.argv[1:])
