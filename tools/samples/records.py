"""Records as lines of text and as Parquet: the columns of Spark's Kafka source."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SAMPLES = Path(__file__).parents[2] / "data" / "samples"

INSTANT = pa.timestamp("us", tz="UTC")

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

# The broker stamps the records (log append time), so a later offset never has an earlier timestamp.
LOG_APPEND_TIME = 1
BY_PLACE = itemgetter("topic", "partition", "offset")


def as_records(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return rows as records; a column that a row does not name is null."""
    return pa.Table.from_pylist([{"timestampType": LOG_APPEND_TIME} | row for row in rows], RECORDS)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """
    Return the records that stand in a file of JSON lines, in the order in which the broker took them.

    A line has a `timestamp`; a `topic`, if it is not the name of the file; a `partition`, if it is not 0; a
    `key`, if there is one; and last its `value`, whose bytes are those of the line, and so many
    `blanks`. What is not JSON stands in `text`, or as `hex`. What else a line says of its record is kept.
    """
    offsets: Counter[tuple[str, int]] = Counter()
    rows = []
    for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n"):
        head, has_value, value = line.partition(', "value": ')
        row: dict[str, Any] = {"topic": path.stem, "partition": 0, "key": None}
        row |= json.loads(head + "}" if has_value else line)
        text = value[:-1] + " " * row.pop("blanks", 0) if has_value else row.get("text")
        row["value"] = bytes.fromhex(row["hex"]) if "hex" in row else text and text.encode()
        row["key"] = row["key"] and row["key"].encode()
        row["timestamp"] = datetime.fromisoformat(row["timestamp"])
        place = row["topic"], row["partition"]
        rows.append({**row, "offset": offsets[place]})
        offsets[place] += 1
    return rows


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as Parquet; one program gives the same bytes each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd", compression_level=9)


def write_json(path: Path, value: Any) -> None:
    """Write what people read as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_lines(source: Path, folder: Path) -> None:
    """Write a Parquet file of each file of lines in the folder *source*."""
    for path in sorted(source.glob("*.jsonl")):
        write_table(folder / f"{path.stem}.parquet", as_records(sorted(read_lines(path), key=BY_PLACE)))
