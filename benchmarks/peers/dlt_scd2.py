"""dlt looks at the whole table each day; a version begins where the day ends."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dlt
import duckdb
import pyarrow.parquet as pq
from dlt.sources.helpers.transform import add_row_hash_to_table
from taken import each_day

START = datetime(2024, 3, 1, tzinfo=UTC)


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    database = str(work / "dlt.duckdb")
    pipeline = dlt.pipeline(
        "flights",
        pipelines_dir=str(work / "pipelines"),
        destination=dlt.destinations.duckdb(database),
        dataset_name="flights",
    )

    def take(day: int) -> None:
        at = START + timedelta(days=day + 1, seconds=-1)
        table = pq.read_table(days / f"table_{day}.parquet", columns=["number", "gate", "status"])
        disposition = {
            "disposition": "merge",
            "strategy": "scd2",
            "boundary_timestamp": at.isoformat(),
            "row_version_column_name": "row_hash",
        }
        rows = dlt.resource([table], name="versions", write_disposition=disposition)
        pipeline.run(rows.add_map(add_row_hash_to_table("row_hash")))

    each_day(take, work, many)
    with duckdb.connect(database) as connection:
        found = connection.sql(
            "SELECT number, gate, status, _dlt_valid_from AS valid_from, _dlt_valid_to AS valid_to "
            "FROM flights.versions"
        ).to_arrow_table()
    pq.write_table(found, work / "answer.parquet")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
