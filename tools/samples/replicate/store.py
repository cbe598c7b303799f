"""Records and truth as Parquet files, a row group per day, and the manifest beside them."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tools.samples.replicate.feed import Feed, Ledger, Record
from tools.samples.replicate.tables import METADATA_TOPIC, OPERATIONS_FLIGHTS
from tools.samples.replicate.truth import TrueFlight

INSTANT = pa.timestamp("us", tz="UTC")

# The columns of Spark's Kafka source.
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

UPDATE = pa.struct(
    [
        ("at", INSTANT),
        ("source", pa.string()),
        ("operation", pa.string()),
        ("tailnum", pa.string()),
        ("status", pa.string()),
        ("expected_departure", INSTANT),
    ]
)

TRUTH = pa.schema(
    [
        ("flight_date", pa.date32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("scheduled_departure", INSTANT),
        ("cancelled", pa.bool_()),
        ("diverted", pa.bool_()),
        ("tailnum", pa.string()),
        ("actual_departure", INSTANT),
        ("departure_delay", pa.int32()),
        ("actual_arrival", INSTANT),
        ("arrival_delay", pa.int32()),
        ("updates", pa.list_(UPDATE)),
    ]
)

# The broker stamps the records (log append time), so a later offset never has an earlier timestamp.
LOG_APPEND_TIME = 1


def write_feed(feed: Feed, out: Path) -> dict[str, Any]:
    """Write the files of *feed* to the directory *out* and return the manifest, which is written too."""
    out.mkdir(parents=True, exist_ok=True)
    rows: Counter[str] = Counter()
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(_writer(out / name, TRUTH if name == "truth.parquet" else RECORDS))
            for name in ("metadata.parquet", "schedule.parquet", "operations.parquet", "truth.parquet")
        }
        for day in feed.days():
            tables = {name: _records_table(part) for name, part in _by_file(day.records).items()}
            for name, table in (tables | {"truth.parquet": _truth_table(day.truth)}).items():
                writers[name].write_table(table)
                rows[name] += table.num_rows
    manifest = _manifest(feed.first, feed.last, feed.ledger, rows)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    few_values = ["topic"] if schema is RECORDS else ["carrier", "origin", "dest"]
    return pq.ParquetWriter(path, schema, compression="zstd", compression_level=9, use_dictionary=few_values)


def _by_file(records: Iterable[Record]) -> dict[str, list[Record]]:
    files: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.topic, r.partition, r.offset)):
        files.setdefault(_file_of(record.topic), []).append(record)
    return files


def _file_of(topic: str) -> str:
    if topic == METADATA_TOPIC:
        return "metadata.parquet"
    return "operations.parquet" if topic == OPERATIONS_FLIGHTS.topic else "schedule.parquet"


def _records_table(records: Sequence[Record]) -> pa.Table:
    size = len(records)
    columns: list[Sequence[Any]] = [*zip(*records, strict=True), [LOG_APPEND_TIME] * size, [None] * size]
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(columns, RECORDS, strict=True)], schema=RECORDS
    )


def _truth_table(truth: Sequence[TrueFlight]) -> pa.Table:
    return pa.Table.from_pylist(list(truth), schema=TRUTH)


def _manifest(first: date, last: date, ledger: Ledger, rows: Counter[str]) -> dict[str, Any]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), count in sorted(ledger.records.items()):
        topics.setdefault(topic, {})[str(partition)] = count
    changes: dict[str, dict[str, int]] = {}
    for (topic, operation), count in sorted(ledger.changes.items()):
        changes.setdefault(topic, {})[operation] = count
    return {
        "from": first.isoformat(),
        "to": last.isoformat(),
        "files": dict(sorted(rows.items())),
        "records": {topic: sum(partitions.values()) for topic, partitions in topics.items()},
        "records_by_partition": topics,
        "changes": changes,
        "duplicates": _counts(ledger.duplicates),
        "late": _counts(ledger.late),
        "before_metadata": _counts(ledger.before_metadata),
        "schemas": list(_schemas(ledger)),
        "corrupt": dict(sorted(ledger.corrupt.items())),
    }


def _counts(counter: Counter[str]) -> dict[str, int]:
    return {topic: count for topic, count in sorted(counter.items()) if count}


def _schemas(ledger: Ledger) -> Iterator[dict[str, Any]]:
    for schema_id, version in ledger.schemas.items():
        table = version.table
        yield {
            "schema_id": schema_id,
            "task": table.task,
            "schema": table.schema,
            "table": table.name,
            "version": version.number,
            "topic": table.topic,
        }
