"""
Does a plain install work?  A wheel, two virtual environments, and the README's promises in both.

    python -m tools.compat            the oldest and the newest versions that pyproject.toml allows
    python -m tools.compat oldest     one of the two

The wheel is installed with the extra `avro`: once with everything that it needs in the lowest version that
`pyproject.toml` allows, once as pip chooses.  There, in a folder outside the checkout, the README's ten
lines must print what stands below them, and `tools/plain_install.py` must run through.  Needs the
package index.
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

ROOT = Path(__file__).parents[1]
PARTS = ("cdckit", "data", "expectations", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PROGRAM = Path(__file__).with_name("plain_install.py")


def lowest() -> list[str]:
    """Each dependency in the lowest version that is allowed: `pandas>=2.2,<3` gives `pandas==2.2`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stated = project["dependencies"] + project["optional-dependencies"]["avro"]
    return [re.sub(r">=([\d.]+).*", r"==\1", requirement) for requirement in stated]


def ten_lines() -> tuple[str, str]:
    """The README's example, and what it shows below it."""
    readme = (ROOT / "README.md").read_text()
    found = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", readme, flags=re.DOTALL)
    assert found is not None
    return found[1], found[2]


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


def try_out(name: str, wheel: Path, requirements: list[str], folder: Path) -> None:
    """Install into a new environment, and use it from a folder where there is nothing else."""
    place, elsewhere = folder / name, folder / f"{name} elsewhere"
    elsewhere.mkdir()
    venv.create(place, with_pip=True)
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    _run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"{wheel}[avro]",
        *requirements,
    )
    code, shown = ten_lines()
    printed = _run(python, "-c", code, cwd=elsewhere)
    if printed.strip() != shown.strip():
        raise SystemExit(f"{name}: the README's example prints\n{printed}")
    print(f"{name}: the README's ten lines; {_run(python, PROGRAM, cwd=elsewhere).strip()}", flush=True)


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
        for name, requirements in {"oldest": lowest(), "newest": []}.items():
            if not wanted or name in wanted:
                try_out(name, wheel, requirements, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
