"""dbt looks at the whole table each day, and goes by the column that says when a row was changed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from dbt.cli.main import dbtRunner
from taken import each_day

START = datetime(2024, 3, 1, tzinfo=UTC)
FILES = {
    "dbt_project.yml": "name: flights\nversion: '1.0'\nprofile: flights\n",
    "profiles.yml": "flights:\n  target: local\n  outputs:\n    local: {{type: duckdb, path: {database}}}\n",
    # The end of the day, and not the clock: these days are long over.
    "macros/now.sql": (
        "{{% macro duckdb__snapshot_get_time() -%}} '{{{{ var(\"now\") }}}}'::timestamp {{%- endmacro %}}\n"
    ),
    "models/source.yml": ("sources:\n  - name: feed\n    schema: main\n    tables:\n      - name: flights\n"),
    "snapshots/versions.yml": (
        "snapshots:\n  - name: versions\n    relation: source('feed', 'flights')\n    config:\n"
        "      unique_key: number\n      strategy: timestamp\n      updated_at: changed_at\n"
        "      hard_deletes: invalidate\n"
    ),
}


def main(days: Path, work: Path, many: int) -> None:
    """Take the days."""
    database = work / "flights.duckdb"
    for name, text in FILES.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text.format(database=database))
    runner = dbtRunner()

    def take(day: int) -> None:
        with duckdb.connect(str(database)) as connection:
            connection.sql(
                f"CREATE OR REPLACE TABLE flights AS SELECT number, gate, status, changed_at::TIMESTAMP AS "
                f"changed_at FROM '{days / f'table_{day}.parquet'}'"
            )
        at = (START + timedelta(days=day + 1, seconds=-1)).strftime("%Y-%m-%d %H:%M:%S")
        place = ["--project-dir", str(work), "--profiles-dir", str(work), "--quiet"]
        done = runner.invoke(["snapshot", *place, "--vars", f"now: '{at}'"])
        if not done.success:
            raise SystemExit(str(done.exception or done.result))

    each_day(take, work, many)
    with duckdb.connect(str(database)) as connection:
        connection.sql("SET TimeZone = 'UTC'")
        found = connection.sql(
            "SELECT number, gate, status, dbt_valid_from::TIMESTAMPTZ AS valid_from, "
            "dbt_valid_to::TIMESTAMPTZ AS valid_to FROM versions"
        ).to_arrow_table()
    pq.write_table(found, work / "answer.parquet")


main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
