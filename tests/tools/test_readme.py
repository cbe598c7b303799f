"""The README's example does what the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_prints_what_stands_below_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten lines, run as they stand, from any folder."""
    code, shown = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", README, flags=re.DOTALL).groups()
    assert len([line for line in code.splitlines() if line]) <= 11
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_every_command_of_the_readme_is_one_of_the_makefile() -> None:
    """`make something` in the README is a target that `make help` lists."""
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", README, flags=re.MULTILINE)) <= targets
