"""The tiers: every test is in one, doors have smoke tests, and heavy files name who stands for them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.doors import DOORS
from tools import tiers

ROOT = Path(__file__).parents[2]


def test_every_test_is_in_a_tier(request: pytest.FixtureRequest) -> None:
    """All that were collected with this one, in any tier: none is left out of all."""
    found = request.config.stash[tiers.COLLECTED]
    assert found
    assert {name for name, its in found.items() if not its or not its <= set(tiers.TIERS)} == set()


def test_notebooks_come_first_by_their_cells_and_hubs_before_them() -> None:
    """Where nothing says how long a file takes, the order stays."""
    names = ["test_b.py", "1.ipynb", "12_bitemporal.ipynb", "test_a.py", "2.ipynb", "2.ipynb", "test_hub.py"]
    items: list[Any] = [SimpleNamespace(path=Path(name)) for name in names]
    ordered = [item.path.name for item in tiers.longest_first(items)]
    longest = ["test_hub.py", "12_bitemporal.ipynb", "2.ipynb", "2.ipynb", "1.ipynb"]
    assert ordered == [*longest, "test_b.py", "test_a.py"]


def test_what_is_said_of_notebooks_is_of_some_that_are_there() -> None:
    named = {*tiers.AS_MANY_CELLS, *tiers.LONG_NOTEBOOKS}
    assert named <= {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}


HEAVY = sorted(path for path in (ROOT / "tests").glob("**/heavy/test_*.py"))


@pytest.mark.parametrize("file", HEAVY, ids=lambda path: path.name)
def test_a_heavy_file_names_the_tests_that_stand_for_it_on_every_change(file: Path) -> None:
    """Its docstring ends with them: so no rule is tried in `make full` alone."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    names = re.findall(r"(tests/[\w/]+\.py)::(\w+)", docstring.partition("In `make test`")[2])
    assert names, f"{file.name} does not say `In `make test`: tests/….py::test_…`"
    for place, test in names:
        assert "heavy" not in place
        functions = {
            node.name for node in ast.walk(ast.parse((ROOT / place).read_text())) if hasattr(node, "name")
        }
        assert test in functions, f"{place} has no {test}"


def test_each_door_has_a_smoke_test() -> None:
    """A door is a package that others may not import (see test_house.py)."""
    marked = {
        mark.args[0].value
        for mark in ast.walk(ast.parse((ROOT / "tests" / "test_smoke.py").read_text()))
        if isinstance(mark, ast.Call)
        and ast.unparse(mark.func) == "pytest.mark.smoke"
        and isinstance(mark.args[0], ast.Constant)
    }
    assert marked == DOORS | {"merge", "as_of"}
