"""The sample of RDSS: records, what each of them is and which code it deserves, and how many of each."""

from collections import Counter
from pathlib import Path

import pyarrow as pa

from tools.samples.records import SAMPLES, as_records, read_lines, write_json, write_table

TRUTH = pa.schema(
    {
        "partition": pa.int32(),
        "offset": pa.int64(),
        **dict.fromkeys(("message_type", "object_uuid", "what", "error_code"), pa.string()),
    }
)


def write(folder: Path) -> None:
    """Write the three files; a line says what its record is, and the key of a record is its object's id."""
    rows = [
        {**row, "topic": "rdss", "timestampType": 0, "object_uuid": row["key"] and row["key"].decode()}
        for row in read_lines(SAMPLES / "rdss" / "records.jsonl")
    ]
    write_table(folder / "records.parquet", as_records(rows))
    write_table(folder / "truth.parquet", pa.Table.from_pylist(rows, TRUTH))
    codes, whats = (Counter(row.get(name, "valid") for row in rows) for name in ("error_code", "what"))
    told = {"codes": dict(sorted(codes.items())), "what": dict(sorted(whats.items()))}
    write_json(folder / "manifest.json", {"records": len(rows), **told})
