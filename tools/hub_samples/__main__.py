"""Write messages for a data hub about three days of flights, and what must come of them."""

import argparse
import sys
from pathlib import Path

from tools.hub_samples.store import write_sample


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.hub_samples", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    out: Path = parser.parse_args(arguments).out
    manifest = write_sample(out)
    for topic, count in manifest["records"].items():
        print(f"{topic:24}{count:>10,} records")
    print(f"{'all':24}{sum(manifest['records'].values()):>10,} records in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
