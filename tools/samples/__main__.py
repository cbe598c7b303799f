"""Write the stream of some days, or of the whole year 2013, as Parquet."""

import argparse
import sys
from datetime import date
from pathlib import Path

from tools.samples.feed import Feed
from tools.samples.store import write_feed

YEAR = date(2013, 1, 1), date(2013, 12, 31)


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    first, last, out = _parse(arguments)
    manifest = write_feed(Feed(first, last), out)
    for topic, count in manifest["records"].items():
        print(f"{topic:24}{count:>10,} records")
    print(f"{'all':24}{sum(manifest['records'].values()):>10,} records in {out}")
    return 0


def _parse(arguments: list[str]) -> tuple[date, date, Path]:
    parser = argparse.ArgumentParser(prog="python -m tools.samples", description=__doc__)
    parser.add_argument(
        "--from", dest="first", type=date.fromisoformat, help="first day of flights, YYYY-MM-DD"
    )
    parser.add_argument("--to", dest="last", type=date.fromisoformat, help="last day of flights, included")
    parser.add_argument("--year", action="store_true", help="all days of 2013 instead of --from and --to")
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    given = parser.parse_args(arguments)
    if given.year == (given.first is not None or given.last is not None):
        parser.error("give either --year or both --from and --to")
    first, last = YEAR if given.year else (given.first, given.last)
    if first is None or last is None or not YEAR[0] <= first <= last <= YEAR[1]:
        parser.error("--from and --to must be days of 2013, in this order")
    return first, last, given.out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
