"""The first answer of a newcomer: the first cells of a notebook, against a Spark that starts and counts."""

from __future__ import annotations

import ast
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import Result

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
ROUNDS = 3
FIRST = {"01_tour": (4, "replicate/*.parquet"), "00_your_own_data": (4, "tables/*.csv")}
"""By notebook how many cells with code lead to its first answer, and the sample that they read."""

COUNTED = """
from cdckit import samples, session
spark = session(memory="2g", small=True)
path = samples({sample!r})
print(spark.read.format(path.rpartition(".")[2]).load(path).count())
"""


def results() -> list[Result]:
    """Medians of three runs, in turns, each in a process of its own."""
    found = []
    for name, (cells, sample) in FIRST.items():
        programs = {"count": COUNTED.format(sample=sample), "answer": first_cells(name, cells)}
        seconds: dict[str, list[float]] = {each: [] for each in programs}
        for _ in range(ROUNDS):
            for each, program in programs.items():
                seconds[each].append(_took(program))
        answer, count = (statistics.median(seconds[each]) for each in ("answer", "count"))
        print(f"  {name}: {answer:.1f} s, and {count:.1f} s to start and count")
        ratio = round(answer / count, 2)
        found.append(Result(f"first_answer_{name}_over_count", ratio, None, "lower", round(answer, 2), 0, ""))
    return found


def first_cells(name: str, cells: int) -> str:
    """The first cells with code as a program that prints what the last of them shows."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    tree = ast.parse("\n".join(code[:cells]))
    shown = tree.body[-1]
    assert isinstance(shown, ast.Expr), f"cell {cells} of {name} shows nothing"
    tree.body[-1] = ast.parse(f"print({ast.unparse(shown)})").body[0]
    return ast.unparse(tree)


def _took(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], cwd=NOTEBOOKS, check=True, capture_output=True)
    return time.perf_counter() - began
