"""
What a change touches, tried whole: what one runs before a stop.

    python -m tools.touched             what differs from origin/main, or main, and is not committed
    python -m tools.touched COMMIT      what differs from that commit
    python -m tools.touched --list      say what would run

A changed module touches its package and each that imports it, at any remove: their tests of the tier `full`,
the examples in their docstrings, the tests of all doors, and the notebooks that name them.  A change of what
all tests share touches everything.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "cdckit"
EVERYTHING = (
    *("conftest.py", "tests/conftest.py", "tests/support/", "tools/jvm_", "tools/tiers.py"),
    *("pyproject.toml", "requirements.txt", "cdckit/errors.py", "cdckit/__init__.py", "data/samples/"),
)
"""What all tests and notebooks share."""


class Touched(NamedTuple):
    """What is to be run: arguments of pytest, and notebooks."""

    tests: list[str]
    notebooks: list[str]


def package_imports() -> dict[str, set[str]]:
    """By package of the library, those of the others that its modules import, or name in a string alone."""
    imports: dict[str, set[str]] = {}
    for path in (ROOT / PACKAGE).rglob("*.py"):
        parts = path.relative_to(ROOT / PACKAGE).parts
        names = imports.setdefault(parts[0] if len(parts) > 1 else "", set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
                names.add((node.module or "").split(".")[1])
            elif isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
                names.update(alias.name for alias in node.names)
    return {package: names & imports.keys() for package, names in imports.items() if package}


def dependents(packages: Iterable[str], imports: Mapping[str, set[str]]) -> set[str]:
    """The packages and all that import one of them, at any remove."""
    reached = set(packages)
    while more := {package for package, names in imports.items() if names & reached} - reached:
        reached |= more
    return reached


def touched(files: Iterable[str], imports: Mapping[str, set[str]]) -> Touched:
    """What changed files make necessary to run; files are named from the root of the project."""
    files = sorted(files)
    if any(file.startswith(EVERYTHING) for file in files):
        return Touched(["tests", PACKAGE], ["notebooks"])
    changed = {file.split("/")[1] for file in files if re.match(rf"{PACKAGE}/\w+/", file)}
    changed |= {"quality"} if any(file.startswith("expectations/") for file in files) else set()
    packages = dependents(changed, imports)
    tests = [f"{folder}/{name}" for name in sorted(packages) for folder in ("tests", PACKAGE)]
    tests += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py")) * bool(
        packages
    )
    tests += [file for file in files if re.match(r"tests/.*test_\w+\.py$", file)]
    # The house, the examples of pages, the tools themselves.
    tests += ["tests/tools"]
    notebooks = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        if path.relative_to(ROOT).as_posix() in files or names_of(path) & packages
    ]
    return Touched([name for name in dict.fromkeys(tests) if (ROOT / name).exists()], notebooks)


def names_of(notebook: Path) -> set[str]:
    """The packages of the library that a notebook uses, by the modules that its names come from."""
    homes = _homes()
    cells = json.loads(notebook.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    words = set(re.findall(r"\w+", code))
    return {package for name, package in homes.items() if name in words}


def _homes() -> dict[str, str]:
    """By each name that `cdckit` hands on, its package; and each package by its own name."""
    homes = {path.parent.name: path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py")}
    for node in ast.parse((ROOT / PACKAGE / "__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            homes |= {alias.name: (node.module or "").split(".")[1] for alias in node.names}
    return homes


def changed_files(since: str | None) -> list[str]:
    """The files that differ from a commit, those that git does not track among them."""
    if since is None:
        since = "origin/main" if _git("branch", "--remotes", "--list", "origin/main") else "main"
    return [*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def main(arguments: list[str]) -> int:
    """Run what is touched, and say how long it took; how pytest ended is how this ends."""
    only_list = "--list" in arguments
    since = next((word for word in arguments if word != "--list"), None)
    chosen = touched(changed_files(since), package_imports())
    print("tests:", *chosen.tests or ["none"])
    print("notebooks:", *chosen.notebooks or ["none"], flush=True)
    if only_list:
        return 0
    begun = time.monotonic()
    pytest = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    pytest += ["--tier", "full"]
    runs = [chosen.tests] if chosen.tests else []
    runs += [["--nbval", "-o", "testpaths=notebooks", *chosen.notebooks]] if chosen.notebooks else []
    ends = [subprocess.run([*pytest, *run], cwd=ROOT, check=False).returncode for run in runs]
    print(f"touched: {time.monotonic() - begun:.0f} s")
    return max(ends, default=0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
