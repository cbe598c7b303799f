"""The cases of the suites under expectations/, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.quality.checks import VIEW
from cdckit.quality.suites import SqlSentence, Suite, compare_with_log, to_sql

CASES = Path(__file__).parents[1] / "cases" / "expectations"

KNOWN_BY_NUMBER = ("history", "ledger")
"""Here a column `case` would be a field without provenance: the field `number` is that of the case."""
KNOWN_BY_GUID = "coalesce(try_cast(right(guid, 12) AS int), 0)"
"""So is the end of each sound guid, where what is asked are not the rows of the table."""

LEDGER_KEYS = ["number"]

Cases = list[list[dict[str, Any]]]


def told(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return found


def views(spark: SparkSession, name: str, cases: Cases) -> dict[str, DataFrame]:
    """The rows of all cases as the table of a suite and the tables beside it, each with its case's number."""
    stated = told(name)
    beside = stated.get("tables", {})
    found: dict[str, list[str]] = {"batch": [], **{each: [] for each in beside}}
    for number, rows in enumerate(cases):
        for row in rows:
            table = next((each for each in beside if each in row), "batch")
            given, default = (row, stated["row"]) if table == "batch" else (row[table], beside[table]["row"])
            whole = json.dumps({**default, **given, "case": number})
            found[table].append(whole.replace("{case}", f"{number:012d}"))
    schemas = {"batch": stated["schema"], **{each: beside[each]["schema"] for each in beside}}
    tables = {
        table if table == "batch" else VIEW + table: spark.createDataFrame(
            [(row,) for row in rows], "row string"
        )
        .select(F.from_json("row", f"{schemas[table]}, case int").alias("row"))
        .select("row.*")
        .drop(*(["case"] if name in KNOWN_BY_NUMBER else []))
        for table, rows in found.items()
    }
    if name == "ledger":
        tables["batch"], tables[VIEW + "merged"] = compare_with_log(
            tables["batch"], tables[VIEW + "changes"], LEDGER_KEYS
        )
    return tables


def sentences(suite: Suite, frame: DataFrame) -> list[SqlSentence]:
    found = [to_sql(each, frame.schema) for each in suite.sentences]
    assert None not in found  # or `check` needs Great Expectations
    return [each for each in found if each is not None]
