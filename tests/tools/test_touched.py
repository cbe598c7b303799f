"""What a change touches: its package, whoever imports that, and the notebooks that use them."""

from __future__ import annotations

import pytest

from tools import touched

IMPORTS = {
    "parts": set[str](),
    "model": {"parts"},
    "query": {"model", "parts"},
    "ledger": {"model"},
    "rdss": {"ledger"},
    "quality": {"query"},
}


def test_dependents_are_found_at_any_remove() -> None:
    assert touched.dependents(["model"], IMPORTS) == {"model", "query", "ledger", "rdss", "quality"}
    assert touched.dependents(["rdss"], IMPORTS) == {"rdss"}


def test_a_changed_module_runs_its_package_and_all_that_stands_on_it() -> None:
    tests = touched.touched(["cdckit/ledger/applied_lists.py"], IMPORTS).tests
    assert {"tests/ledger", "cdckit/ledger", "tests/rdss", "cdckit/rdss", "tests/test_doors.py"} <= set(tests)
    assert not {"tests/query", "tests/model", "tests"} & set(tests)


def test_a_changed_test_runs_itself_and_a_notebook_itself() -> None:
    files = ["tests/query/test_why.py", "notebooks/50_quality.ipynb", "docs/limits.md"]
    assert touched.touched(files, IMPORTS) == (
        ["tests/query/test_why.py", "tests/tools"],
        ["notebooks/50_quality.ipynb"],
    )


def test_a_file_that_is_gone_is_not_run() -> None:
    assert touched.touched(["tests/query/test_gone.py"], IMPORTS).tests == ["tests/tools"]


@pytest.mark.parametrize(
    "file", ["conftest.py", "tests/support/fold.py", "cdckit/errors.py", "pyproject.toml"]
)
def test_what_all_share_touches_everything(file: str) -> None:
    assert touched.touched([file], IMPORTS) == (["tests", "cdckit"], ["notebooks"])


def test_notebooks_are_found_by_the_names_that_they_use() -> None:
    names = {path.name: touched.names_of(path) for path in (touched.ROOT / "notebooks").glob("*.ipynb")}
    assert "datahub" in names["20_data_hub.ipynb"]
    assert "query" in names["10_as_of.ipynb"]
    assert "datahub" not in names["10_as_of.ipynb"]


def test_the_library_s_own_imports_are_read() -> None:
    imports = touched.package_imports()
    assert "parts" in imports["model"]
    assert "rdss" in touched.dependents(["store"], imports)
    assert "store" not in touched.dependents(["rdss"], imports)
