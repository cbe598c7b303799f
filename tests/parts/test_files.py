"""The files that come with cdckit, in a checkout and in a wheel."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from cdckit import expectations, samples
from cdckit.errors import InvalidArgument
from cdckit.parts import files

ROOT = Path(__file__).parents[2]


def test_in_a_checkout_they_are_those_of_the_top_level_folders() -> None:
    assert Path(samples()) == ROOT / "data" / "samples"
    assert Path(samples("datahub/manifest.json")).is_file()
    assert json.loads(Path(expectations("history.json")).read_text())["expectations"]


def test_in_a_wheel_they_are_within_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within = tmp_path / "cdckit" / "data" / "samples"
    (within / "a").mkdir(parents=True)
    (within / "a" / "b.parquet").touch()
    monkeypatch.setattr(files, "_SAMPLES", (within, tmp_path / "data" / "samples"))
    assert samples("a/{b,c}.parquet") == f"{within.as_posix()}/a/{{b,c}}.parquet"
    assert samples() == within.as_posix()


def test_a_file_that_does_not_exist_is_refused_with_the_one_that_is_meant() -> None:
    """Spark would say that a path of the machine does not exist, and not which there are."""
    with pytest.raises(InvalidArgument, match=r"name to be a file below samples; .* There are .*debezium"):
        samples("no such")
    with pytest.raises(InvalidArgument, match=r"Is it 'debezium/wal2json\.parquet'\?"):
        samples("debezium/wal2jsn.parquet")
    with pytest.raises(InvalidArgument, match=r"Is it 'history\.json'"):
        expectations("histroy.json")
    for name in ("replicate/nothing*.parquet", "nothing/{a,b}.parquet"):
        with pytest.raises(InvalidArgument):
            samples(name)
    assert samples("replicate/*.parquet").endswith("/replicate/*.parquet")


def test_a_wheel_has_every_package_and_both_folders() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "cdckit").rglob("__init__.py")}
    assert set(stated["packages"]) == found | {"cdckit.data.samples", "cdckit.data.expectations"}
    assert {ROOT / folder for folder in stated["package-dir"].values()} == {
        Path(samples()),
        Path(expectations()),
    }


@pytest.mark.parametrize("name", ["../../pyproject.toml", "replicate/../../..", "/etc/hosts"])
def test_a_path_that_leads_out_of_the_samples_is_none_of_them(name: str) -> None:
    with pytest.raises(InvalidArgument, match="a file below samples"):
        samples(name)
