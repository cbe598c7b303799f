"""
Make the samples in `data/samples`.

    python -m tools.samples                     all of them
    python -m tools.samples replicate tables    these
    python -m tools.samples --check             make nothing: say which files are not what would be made
    python -m tools.samples --year FOLDER       all of 2013 as Replicate would have sent it
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from tools.samples import brokerage, databus, rdss, records, tables
from tools.samples.records import SAMPLES
from tools.samples.replicate.feed import write_days

Maker = Callable[[Path], object]
"""Writes a sample into a folder, which need not be there."""


MAKERS: dict[str, Maker] = {
    "replicate": partial(write_days, date(2013, 2, 7), date(2013, 2, 9)),
    "databus": databus.write,
    "tables": tables.write,
    "datahub": partial(records.write_lines, SAMPLES / "datahub"),
    "debezium_streams": partial(records.write_lines, SAMPLES / "debezium_streams"),
    "five_feeds": partial(records.write_lines, SAMPLES / "five_feeds"),
    "rdss": rdss.write,
    "brokerage": brokerage.write,
}


def differences(name: str) -> Iterator[str]:
    """Give the files of a sample that are not what would be made, and Parquet that nothing makes."""
    there = SAMPLES / name
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        MAKERS[name](made)
        files = {path.relative_to(made) for path in made.rglob("*") if path.is_file()}
        files |= {path.relative_to(there) for path in there.rglob("*.parquet")}
        yield from (f"{name}/{file}" for file in sorted(files) if not _equal(made / file, there / file))


def _equal(one: Path, other: Path) -> bool:
    """Whether two files say the same; the bytes of Parquet hang on the version of what writes it."""
    if not (one.is_file() and other.is_file()):
        return False
    if one.suffix == ".parquet":
        return bool(pq.read_table(one).equals(pq.read_table(other)))
    return one.read_bytes() == other.read_bytes()


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.samples", description=__doc__.split("\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)}; all without one")
    parser.add_argument("--check", action="store_true", help="say which files are not what would be made")
    parser.add_argument("--year", type=Path, metavar="FOLDER", help="the flights of all of 2013 instead")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - MAKERS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}: there are {', '.join(MAKERS)}")
    if given.year:
        write_days(date(2013, 1, 1), date(2013, 12, 31), given.year)
        return 0
    names = given.names or list(MAKERS)
    if given.check:
        found = [each for name in names for each in differences(name)]
        print(*found, sep="\n", end="\n" if found else "")
        return min(len(found), 1)
    for name in names:
        MAKERS[name](SAMPLES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
