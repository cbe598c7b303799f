"""What an installation says of itself: its number, and with which extra a missing package comes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import cdckit
import cdckit.errors
from cdckit.errors import CdcError, MissingExtra
from cdckit.parts.installation import own_version, require_package

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def test_the_version_is_that_of_pyproject() -> None:
    """If it fails in a checkout whose number was just raised: `pip install -e .` again."""
    assert cdckit.__version__ == PROJECT["version"]


def test_without_an_installation_the_version_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_found)
    assert own_version() == "0+not.installed"


def test_pictures_without_matplotlib_say_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an ImportError, so that who wants to do without can catch it as usual, and one of ours."""
    for name in [each for each in sys.modules if each.startswith("cdckit.notebook.pictures")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(cdckit.notebook, "pictures", raising=False)
    # An entry of None is how Python itself notes that a module cannot be imported.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra) as raised:
        from cdckit.notebook import pictures  # noqa: F401
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, CdcError)
    assert str(raised.value) == (
        "cdckit.notebook.pictures needs matplotlib, which the extra `notebooks` brings: "
        "pip install 'cdckit[notebooks]', then restart the kernel."
    )


def test_a_package_that_is_there_and_broken_says_itself_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_broken_package.py").write_text("import what_it_needs_and_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_it_needs_and_nobody_has"):
        require_package("a_broken_package", extra="notebooks", part="a part")


def test_the_extra_for_notebooks_has_what_a_notebook_of_ones_own_needs() -> None:
    """The place to work in, and what pictures and widgets import."""
    extra = " ".join(PROJECT["optional-dependencies"]["notebooks"])
    assert all(package in extra for package in ("jupyterlab", "matplotlib", "ipywidgets"))


def test_only_what_is_named_is_loaded() -> None:
    program = (
        "import sys, cdckit; assert 'pyspark' not in sys.modules;"
        "cdckit.replicate; assert 'pyspark' in sys.modules;"
        "print(*sorted(each for each in sys.modules if each.startswith(('cdckit.rdss', 'cdckit.databus'))))"
    )
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


def test_every_name_is_where_the_stub_says() -> None:
    assert all(getattr(cdckit, name) is not None for name in cdckit.__all__)
    assert set(cdckit.__all__) <= set(dir(cdckit))
    program = "import cdckit; print(cdckit.query.diff.__module__, hasattr(cdckit, '__wrapped__'))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout == "cdckit.query.differences False\n"
    with pytest.raises(AttributeError, match="no attribute 'as_off'"):
        getattr(cdckit, "as_off")  # noqa: B009


DOORS = {
    "datafusion": ("cdckit.replicate", "avro"),
    "fastavro": ("cdckit.databus", "avro"),
    "jsonschema_rs": ("cdckit.rdss.validate(b'{\"messageHeader\": {}}', now=datetime.now(UTC))", "rdss"),
}
"""By package a call that needs it, and the extra that brings it."""


def test_a_door_whose_extra_is_not_installed_names_it() -> None:
    program = (
        "import sys\n"
        "from datetime import UTC, datetime\n"
        "import cdckit; cdckit.merge, cdckit.datahub\n"
        f"for package, call in { ({package: call for package, (call, _) in DOORS.items()})!r}.items():\n"
        "    sys.modules[package] = None\n"
        "    try:\n        eval(call)\n"
        "    except cdckit.errors.MissingExtra as error:\n        print(error)\n"
        "    del sys.modules[package]"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    for (package, (_, extra)), line in zip(DOORS.items(), done.stdout.splitlines(), strict=True):
        assert f"needs {package}, which the extra `{extra}` brings" in line


EXTRAS = [
    "fastavro",
    "datafusion",
    "jsonschema_rs",
    "great_expectations",
    "matplotlib",
    "ipywidgets",
    "httpx",
]


def test_workers_start_where_no_extra_is_installed() -> None:
    """And the doors that need none are open there."""
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))\n"
        "import cdckit.parts.worker_daemon, cdckit\n"
        "from cdckit import *\n"
        "print(merge.__name__, cdckit.debezium.decode.__name__, cdckit.Ledger is Ledger)\n"
        "try:\n    cdckit.debezium.decode_avro\nexcept cdckit.errors.MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "merge decode True"
    assert second.startswith("Avro needs datafusion, which the extra `avro` brings")


WITHOUT_JVM = """
import sys
from importlib import import_module
from pkgutil import walk_packages

# What `pyspark-client` lacks of PySpark; an entry of None cannot be imported.
sys.modules.update({"py4j": None, "pyspark.core": None})
import cdckit

for module in walk_packages(cdckit.__path__, "cdckit."):
    import_module(module.name)
for name in cdckit.__all__:
    getattr(cdckit, name)
try:
    from pyspark import SparkContext
except ImportError:
    print("all is imported")
"""


def test_a_client_of_spark_connect_without_a_jvm_imports_everything() -> None:
    imported = subprocess.run(
        [sys.executable, "-c", WITHOUT_JVM], capture_output=True, text=True, check=False
    )
    assert (imported.stdout, imported.stderr) == ("all is imported\n", "")
