"""The house: no module is hidden by a function of its name, and imports run downwards only."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import cdckit
from support.doors import DOORS

ROOT = Path(cdckit.__file__).parent
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
BELOW = {
    "parts": {"parts", "errors"},
    "model": {"model", "parts", "errors"},
    "store": {"store", "parts", "errors"},
    "merging": {"merging", "model", "parts", "errors"},
    "query": {"query", "merging", "model", "parts", "errors"},
    "outputs": {"outputs", "query", "merging", "model", "parts", "errors"},
    "ledger": {"ledger", "store", "outputs", "query", "merging", "model", "parts", "errors"},
    "shell": {"shell", "ledger", "store", "outputs", "query", "merging", "model", "parts", "errors"},
    "quality": {"quality", "notebook", "query", "merging", "model", "parts", "errors"},
    "tables": {"tables", "notebook", "model", "parts", "errors"},
}
"""By package, what its modules may import of the others."""

KERNELS = (
    "databus/events",
    "databus/plain_values",
    "databus/record_places",
    "databus/sources",
    "databus/window_batches",
    "databus/window_machine",
    "datahub/json_values",
    "debezium/column_types",
    "debezium/connect_values",
    "debezium/envelopes",
    "debezium/event_tables",
    "debezium/events",
    "debezium/other_producers",
    "debezium/positions",
    "debezium/row_changes",
    "debezium/rows",
    "debezium/unsent_values",
    "model/faults",
    "model/places",
    "parts/fold",
    "parts/json_objects",
    "parts/json_text",
    "parts/kept_folds",
    "parts/text_values",
    "rdss/exchange_rows",
    "rdss/exchange_rules",
    "rdss/findings",
    "rdss/header_rules",
    "rdss/message_rows",
    "rdss/message_splitting",
    "rdss/message_types",
    "rdss/object_bodies",
    "rdss/outcomes",
    "rdss/reading",
    "rdss/sequence_rules",
    "rdss/validation",
    "rdss/validators",
    "replicate/data_messages",
    "replicate/envelopes",
    "replicate/json_messages",
    "replicate/message_rules",
    "replicate/metadata_messages",
    "replicate/schema_ids",
    "replicate/table_versions",
    "streams/catalogue",
    "streams/collection_types",
    "streams/documents",
    "streams/json_values",
    "streams/messages",
    "streams/patches",
    "streams/request_parts",
    "streams/update_fields",
)
"""The modules of rules: plain Python over Arrow, which Spark carries and nobody else."""

PACKAGES = [
    "cdckit",
    *(each.name for each in pkgutil.walk_packages(cdckit.__path__, "cdckit.") if each.ispkg),
]


@cache
def imports() -> list[tuple[Path, str]]:
    """Every module of the package, with each of our modules that it imports: what stands behind `cdckit.`."""
    found = []
    for path in [*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cdckit"):
                inside = (node.module or "").removeprefix("cdckit").removeprefix(".")
                for name in [inside] if inside else [each.name for each in node.names]:
                    found.append((path.relative_to(ROOT), name))
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_hidden_by_a_name_that_its_package_hands_on(package: str) -> None:
    found = importlib.import_module(package)
    modules = {each.name for each in pkgutil.iter_modules(found.__path__)}
    handed_on = {name for name in getattr(found, "__all__", ()) if callable(getattr(found, name))}
    assert not modules & handed_on


def test_tests_mirror_the_tree_and_what_they_share_is_in_support() -> None:
    tests = Path(__file__).parents[1]
    folders = {each.name for each in tests.iterdir() if each.is_dir()} - {"__pycache__"}
    packages = {each.parent.name for each in ROOT.glob("*/__init__.py")}
    assert folders - packages == {"cases", "heavy", "proofs", "support", "tools"}
    assert [each.name for each in tests.glob("*.py") if not each.name.startswith(("test_", "conftest"))] == []


def test_nobody_imports_a_door_but_itself_and_the_face_of_the_package() -> None:
    found = {(str(path), name) for path, name in imports() if name.split(".")[0] in DOORS}
    doors = {(path, name) for path, name in found if path.split("/")[0] == name.split(".")[0]}
    assert found - doors == {("__init__.pyi", each) for each in DOORS}


@cache
def loaded_modules(module: str) -> frozenset[str]:
    """What is loaded with a module of ours, by the imports at its top and at those of what it imports."""
    path = ROOT.parent.joinpath(*module.split(".")).with_suffix(".py")
    if not path.exists():
        return frozenset([module])
    nodes = ast.parse(path.read_text()).body
    named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named += [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    return frozenset([module]).union(*map(loaded_modules, named))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_loads_no_pyspark(kernel: str) -> None:
    """Nor does what it imports; but for the faces of packages, which hand on what is made of kernels."""
    loaded = loaded_modules(f"cdckit.{kernel.replace('/', '.')}")
    assert [name for name in sorted(loaded) if name.partition(".")[0] == "pyspark"] == []


def test_no_cast_goes_by_what_the_session_calls_a_timestamp() -> None:
    """Where TIMESTAMP says no zone (`spark.sql.timestampType`), so would what is cast to it."""
    lines = ((path, line) for path in ROOT.rglob("*.py") for line in path.read_text().splitlines())
    examples = (">>>", "...")
    casts = [(path, line) for path, line in lines if 'cast("timestamp")' in line]
    assert [line for path, line in casts if not line.strip().startswith(examples)] == []


@pytest.mark.parametrize("package", BELOW)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    own = [(path, name) for path, name in imports() if path.parts[0] == package]
    assert own or package == "store"
    assert [(str(path), name) for path, name in own if name.split(".")[0] not in BELOW[package]] == []


def test_the_map_of_packages_names_modules_that_are_there() -> None:
    rows = re.findall(r"^\| (`.*?) \| .*? \| (.*) \|$", CONTRIBUTING.read_text(), flags=re.MULTILINE)
    mapped = [
        (re.findall(r"`(\w+)`", packages), re.findall(r"`([\w/]+)`", names)) for packages, names in rows
    ]
    places = {
        (package, name): ROOT / package / name
        for packages, names in mapped
        for package in packages
        for name in names
    }
    there = {name for (_, name), path in places.items() if path.with_suffix(".py").exists() or path.is_dir()}
    assert {name for _, name in places} == there
    assert {package for packages, _ in mapped for package in packages} == {
        path.parent.name for path in ROOT.glob("*/__init__.py")
    }
