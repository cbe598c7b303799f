"""
Build the site into `build/docs/html`: no network, no server.

    python -m tools.site

A warning is an error: a link that leads nowhere, a page in no list, a docstring that cannot be read.
So is a word of `docs/search.toml` that the search does not find.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from tools.site.pages import find_unsearchable, find_wrong
from tools.site.staging import ROOT, SEARCHED, stage

SPHINX = ["-b", "html", "--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]


def main() -> int:
    """Run the program; the exit code is 1 if anything is wrong with a page."""
    out = ROOT / "build/docs/html"
    staged = ROOT / "build/docs/pages"
    for folder in (staged, out):
        shutil.rmtree(folder, ignore_errors=True)
    stage(staged)
    state = ROOT / "build/docs/state"
    built = subprocess.run([sys.executable, "-m", "sphinx", *SPHINX, "-d", state, staged, out], check=False)
    if built.returncode:
        return 1
    wrong = find_wrong(out) + find_unsearchable(out, SEARCHED)
    print("\n".join(wrong) or f"The site is built: open {out / 'index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
