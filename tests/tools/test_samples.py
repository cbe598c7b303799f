"""The program that makes the samples: the committed files are what it makes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.samples import __main__ as program
from tools.samples.records import BY_PLACE, as_records, read_lines

NOON = datetime(2013, 2, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", program.MAKERS)
def test_the_files_are_what_the_program_makes(name: str) -> None:
    assert program.main([name, "--check"]) == 0


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sample of one file, of which something else would be made."""

    def make(folder: Path) -> None:
        pq.write_table(pa.table({"number": [1]}), folder / "one.parquet")
        (folder / "two.json").write_text("{}")

    folder = tmp_path / "small"
    folder.mkdir()
    monkeypatch.setattr(program, "SAMPLES", tmp_path)
    monkeypatch.setitem(program.MAKERS, "small", make)
    program.main(["small"])
    return folder


def test_a_check_names_what_would_be_made_otherwise(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"number": [2]}), sample / "one.parquet")
    (sample / "two.json").write_text("{ }")
    pq.write_table(pa.table({"number": [2]}), sample / "three.parquet")
    assert program.main(["small", "--check"]) == 1
    assert capsys.readouterr().out.split() == ["small/one.parquet", "small/three.parquet", "small/two.json"]


def test_files_that_say_the_same_are_the_same(sample: Path) -> None:
    """Another version of pyarrow writes other bytes, and what stands beside is made by nobody."""
    pq.write_table(pa.table({"number": [1]}), sample / "one.parquet", compression="none")
    (sample / "lines.jsonl").write_text("")
    assert program.main(["small", "--check"]) == 0


def test_a_sample_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(["replicate", "railway"])
    assert "there is no railway: there are replicate, databus" in capsys.readouterr().err


def test_a_line_is_a_record_and_its_value_the_bytes_that_stand_there(tmp_path: Path) -> None:
    lines = [
        '{"timestamp": "2013-02-08T12:00:00Z", "value": {"a" :  "é, \\"value\\": "}}',
        '{"timestamp": "2013-02-08T12:00:00Z", "topic": "a", "partition": 1, "key": "k", "value": [1]}',
        '{"timestamp": "2013-02-08T12:00:00Z", "text": "{\\"value"}',
        '{"timestamp": "2013-02-08T12:00:00Z", "hex": "22ff"}',
        '{"timestamp": "2013-02-08T12:00:00Z"}',
        '{"timestamp": "2013-02-08T12:00:00Z", "what": "padded", "blanks": 3, "value": 1}',
    ]
    (tmp_path / "b.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = as_records(sorted(read_lines(tmp_path / "b.jsonl"), key=BY_PLACE)).to_pylist()
    shown = [(row["topic"], row["partition"], row["offset"], row["key"], row["value"]) for row in rows]
    assert shown == [
        ("a", 1, 0, b"k", b"[1]"),
        ("b", 0, 0, None, '{"a" :  "é, \\"value\\": "}'.encode()),
        ("b", 0, 1, None, b'{"value'),
        ("b", 0, 2, None, b'"\xff'),
        ("b", 0, 3, None, None),
        ("b", 0, 4, None, b"1   "),
    ]
    assert json.loads(shown[1][4]) == {"a": 'é, "value": '}
    assert {(row["timestamp"], row["timestampType"]) for row in rows} == {(NOON, 1)}


def test_the_manifest_of_the_streams_counts_their_records() -> None:
    folder = program.SAMPLES / "debezium_streams"
    told = json.loads((folder / "manifest.json").read_text())["records"]
    assert told == {path.stem: pq.read_metadata(path).num_rows for path in folder.glob("*.parquet")}
