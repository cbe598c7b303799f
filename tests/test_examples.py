"""Everything that cdckit hands on to its users has an example in its docstring, which `make test` runs."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

MODULES = (
    "cdckit",
    "cdckit.tables",
    "cdckit.databus",
    "cdckit.datahub",
    "cdckit.debezium",
    "cdckit.streams",
    "cdckit.ledger",
    "cdckit.notebook.pictures",
    "cdckit.rdss",
    "cdckit.rdss.gateway",
    "cdckit.replicate",
    "cdckit.model",
    "cdckit.store",
    "cdckit.notebook.widgets",
)
"""Those of which users import names."""


def exported() -> dict[str, str]:
    """By name, the docstring of every function and class that is handed on; errors are raised, not called."""
    found = {}
    for module in MODULES:
        names = importlib.import_module(module)
        for name in names.__all__:
            what = getattr(names, name)
            is_error = inspect.isclass(what) and issubclass(what, BaseException)
            is_ours = (getattr(what, "__module__", None) or "").startswith("cdckit")
            if is_ours and (inspect.isclass(what) or inspect.isfunction(what)) and not is_error:
                found[f"{module}.{name}"] = what.__doc__ or ""
    return found


def has_example(docstring: str) -> bool:
    return bool(doctest.DocTestParser().get_examples(docstring))


def test_every_exported_function_and_class_has_an_example() -> None:
    assert [name for name, docstring in exported().items() if not has_example(docstring)] == []


@pytest.mark.parametrize("name", ["cdckit.merge", "cdckit.replicate.decode", "cdckit.store.Store"])
def test_what_is_known_to_be_handed_on_is_looked_at(name: str) -> None:
    assert has_example(exported()[name])
