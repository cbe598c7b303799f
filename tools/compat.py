"""
Does a plain install work?  A wheel, two virtual environments, and the README's promises in both.

    python -m tools.compat            the oldest and the newest versions that pyproject.toml allows
    python -m tools.compat oldest     one of the two

The wheel is installed once with everything in the lowest version that `pyproject.toml` allows, once as pip
chooses.  There, in a folder outside the checkout, the README's example must print what stands below it
without any extra, and with those that doors need the smoke tests of all doors must pass.  Needs the package
index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from tools.site.examples import EXAMPLE

ROOT = Path(__file__).parents[1]
PARTS = ("cdckit", "data", "expectations", "pyproject.toml", "setup.py", "README.md", "LICENSE")
EXTRAS = ("avro", "rdss")
TESTING = ("pytest", "hypothesis")


def lowest(*extras: str) -> list[str]:
    """Each dependency in the lowest version that is allowed: `pandas>=2.2,<3` gives `pandas==2.2`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [each for extra in extras for each in project["optional-dependencies"][extra]]
    return [re.sub(r">=([\d.]+).*", r"==\1", each) for each in project["dependencies"] + optional]


def build(folder: Path) -> Path:
    """The wheel, built from a copy: what earlier builds left behind in the checkout is not in it."""
    copy = folder / "source"
    copy.mkdir()
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, copy)
    return next(folder.glob("*.whl"))


def try_out(name: str, wheel: Path, folder: Path) -> None:
    """Install into a new environment, and use it from a folder where there is nothing else but tests."""
    place, elsewhere = folder / name, folder / f"{name} elsewhere"
    shutil.copytree(ROOT / "tests", elsewhere / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(place, with_pip=True)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    is_oldest = name == "oldest"
    _run(*install, wheel, *(lowest() if is_oldest else []))
    example = EXAMPLE.search((ROOT / "README.md").read_text())
    assert example is not None
    printed = _run(python, "-c", example[1], cwd=elsewhere)
    if printed.strip() != example[2].strip():
        raise SystemExit(f"{name}: the README's example prints\n{printed}")
    _run(*install, f"{wheel}[{','.join(EXTRAS)}]", *(lowest(*EXTRAS) if is_oldest else []), *TESTING)
    tested = _run(python, "-m", "pytest", "-q", "tests/test_smoke.py", cwd=elsewhere).splitlines()[-1]
    frozen = _run(python, "-m", "pip", "freeze", "--disable-pip-version-check")
    versions = re.findall(r"^(?:pyspark|pyarrow|pandas|numpy|datafusion)==\S+$", frozen, flags=re.MULTILINE)
    print(f"{name}: the README's example; smoke tests: {tested}; {', '.join(versions)}", flush=True)


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(wanted: list[str]) -> None:
    """Both, or those of the two that are named."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for name in wanted or ("oldest", "newest"):
            try_out(name, wheel, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
