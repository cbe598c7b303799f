"""
How much there is to read, and that a step which only moves code changes none of it.

    python -m tools.counts                the numbers
    python -m tools.counts COMMIT         which definitions and public signatures differ from that commit's

A definition is compared as a syntax tree: without docstrings, and wherever it stands and imports ours from,
so that it may move.  What functions answer is frozen elsewhere: in the outputs of the notebooks, which
`make test` compares strictly, in the examples in docstrings and in the cases of the tests.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
PACKAGE = "cdckit"
IMPORTED_ANYWAY = "pyspark.sql, pyarrow, pandas"
RUNS = 5

SIGNATURES = """
import inspect, json, re
from tools.site import reference
found = []
for name, what in reference.exported().items():
    own = name.rpartition(".")[2]
    members = [("", what)]
    if inspect.isclass(what):
        members += [(f".{each}", member) for each, member in vars(what).items() if not each.startswith("_")]
    for suffix, member in members:
        if callable(member):
            try:
                signature = re.sub(" at 0x[0-9a-f]+", "", str(inspect.signature(member)))
                found.append(f"{own}{suffix}{signature}")
            except ValueError:
                found.append(f"{own}{suffix}")
print(json.dumps(found))
"""

PROCESSOR_TIME = """
import time
import {}
print(time.process_time())
"""

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
    tokenize.ENCODING,
}  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(text: str) -> int:
    """The lines that are neither empty nor only a comment or a docstring, those below a value included."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def definitions(root: Path) -> Counter[str]:
    """What the modules of the package define: functions, classes and values, as source without comments."""
    found: Counter[str] = Counter()
    for path in (root / PACKAGE).rglob("*.py"):
        tree = _plain(ast.parse(path.read_text(encoding="utf-8")))
        found.update(ast.unparse(statement) for statement in tree.body if _defines(statement))
    return found


def _plain(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE:
            node.module = PACKAGE
    return tree


def _defines(statement: ast.stmt) -> bool:
    """Imports and texts below a value define nothing; what only lists names changes where modules move."""
    if isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr | ast.Pass):
        return False
    return not ast.unparse(statement).startswith(("__all__ =", "if TYPE_CHECKING:"))


def signatures(root: Path) -> Counter[str]:
    """Every name that a package hands on, with what it takes; of a class its public methods too."""
    said = subprocess.run([sys.executable, "-c", SIGNATURES], cwd=root, check=True, stdout=subprocess.PIPE)
    return Counter(json.loads(said.stdout))


def differences(root: Path) -> list[str]:
    """What the package beside another one has and what it lacks, a line for each definition or signature."""
    found = []
    for read in (definitions, signatures):
        before, after = read(root), read(ROOT)
        found += [f"- {_first_line(each)}" for each in sorted((before - after).elements())]
        found += [f"+ {_first_line(each)}" for each in sorted((after - before).elements())]
    return found


def _first_line(text: str) -> str:
    return next(line for line in text.splitlines() if not line.startswith("@"))[:100]


def differences_from(commit: str) -> list[str]:
    """The same from a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return differences(Path(folder))


def import_cost() -> float:
    """The processor time of `import cdckit`, in times that of what its users import anyway."""
    taken: dict[str, list[float]] = {PACKAGE: [], IMPORTED_ANYWAY: []}
    for _ in range(RUNS):
        for modules, times in taken.items():
            program = [sys.executable, "-c", PROCESSOR_TIME.format(modules)]
            said = subprocess.run(program, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
            times.append(float(said))
    return median(taken[PACKAGE]) / median(taken[IMPORTED_ANYWAY])


def counts() -> Iterator[tuple[str, str]]:
    """What is counted, and the numbers."""
    package = ROOT / PACKAGE
    paths = [*package.rglob("*.py"), *package.rglob("*.pyi")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    tools = [path.read_text(encoding="utf-8") for path in (ROOT / "tools").rglob("*.py")]
    names = {path: _handed_on(path) for path in paths if path.stem == "__init__"}
    yield "modules", f"{len(texts):,}"
    yield "lines of code", f"{sum(map(lines_of_code, texts)):,}"
    yield "lines in all", f"{sum(len(text.splitlines()) for text in texts):,}"
    yield f"names in {PACKAGE}", f"{len(names[package / '__init__.pyi']):,}"
    yield "names in all its packages", f"{sum(map(len, names.values())):,}"
    yield f"entries in {PACKAGE}/", f"{sum(path.name != '__pycache__' for path in package.iterdir()):,}"
    yield "lines in tools/", f"{sum(len(text.splitlines()) for text in tools):,}"
    yield f"import {PACKAGE} over import {IMPORTED_ANYWAY}", f"{import_cost():.2f}"


def _handed_on(path: Path) -> list[str]:
    """The names in `__all__`, which stands in a stub where they are loaded late."""
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.List):
            continue
        if ast.unparse(statement.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(statement.value)
            return names
    return []


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code."""
    if arguments:
        found = differences_from(arguments[0])
        print(*found, sep="\n")
        return min(len(found), 1)
    for what, number in counts():
        print(f"{number:>9}  {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
