"""
Publish a ledger as a table of the catalogue, in a session with Spark's own Delta connector.

    python publish_with_delta.py folder jars
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
from delta_session import delta_session
from pyspark.sql import DataFrame, SparkSession

from cdckit import Ledger
from cdckit.errors import InvalidArgument
from cdckit.ledger.publication import catalogue_table
from cdckit.outputs import scd_type_1, scd_type_2
from cdckit.store import ForeignChange
from support.histories import plain, random_changes, to_dataframe
from support.ledger_programs import FIELDS, KEYS

NAME = "spark_catalog.others.dim"


def main(folder: Path, jars: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = delta_session(jars, str(folder / "warehouse"))
    spark.sql("CREATE SCHEMA others")
    ledger = Ledger(spark, folder / "ledger", entity="e", keys=KEYS, buckets=2)
    changes = random_changes(4, 20, FIELDS)

    def rows(frame: DataFrame) -> list[str]:
        return sorted(str(plain(row)) for row in frame.toArrow().to_pylist())

    def is_right(form: object = scd_type_2) -> bool:
        return rows(spark.table(NAME)) == rows(form(ledger.history()))  # type: ignore[operator]

    def operations() -> list[str]:
        told = spark.sql(f"DESCRIBE HISTORY {NAME}").orderBy("version").collect()
        return [row["operation"].split()[0] for row in told]

    for number in range(4):
        ledger.apply(to_dataframe(spark, changes[number::5], FIELDS))
        for _ in range(2):
            assert ledger.publish(NAME) == ledger.at_commit().version
        assert is_right()
        if number == 1:
            spark.sql(f"VACUUM {NAME} RETAIN 0 HOURS").collect()
    assert operations() == ["CREATE", "SET", "MERGE", "VACUUM", "VACUUM", "MERGE", "MERGE"], operations()
    spark.sql(f"DELETE FROM {NAME} WHERE is_current").collect()
    ledger.apply(to_dataframe(spark, changes[4::5], FIELDS))
    left = rows(spark.table(NAME))
    try:
        ledger.publish(NAME)
    except ForeignChange as error:
        print(error, flush=True)
    assert rows(spark.table(NAME)) == left
    ledger.publish(NAME, anew=True)
    assert is_right()
    ledger.publish(NAME, scd_type_1)
    assert is_right(scd_type_1)
    forget_with_deletion_vectors(spark, ledger, folder / "warehouse" / "others.db" / "dim")
    # Of the history only the last commit is looked at, which is none of ours.
    spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('theirs' = '1')")
    catalogue_table._MOST, most = 1, catalogue_table._MOST
    try:
        ledger.publish(NAME, scd_type_1)
    except ForeignChange as error:
        print("shortened", error, flush=True)
    ledger.publish(NAME, scd_type_1, anew=True)
    catalogue_table._MOST = most
    assert is_right(scd_type_1)
    ledger.rebuild()
    assert ledger.publish(NAME, scd_type_1) == ledger.at_commit().version
    spark.range(3).write.format("delta").saveAsTable("others.theirs")
    for theirs in ("others.theirs", "others.plain"):
        if theirs.endswith("plain"):
            spark.range(3).write.format("parquet").saveAsTable(theirs)
        try:
            ledger.publish(theirs)
        except InvalidArgument as error:
            print("refused", error, flush=True)
        assert spark.table(theirs).count() == 3
    print("right", flush=True)
    spark.stop()


def forget_with_deletion_vectors(spark: SparkSession, ledger: Ledger, place: Path) -> None:
    """As a receipt says: MERGE only marks rows, REORG takes them out, VACUUM deletes the files with them."""
    spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    row = spark.table(NAME).select(*KEYS).first()
    assert row is not None
    key = row.asDict()

    def is_in_a_file() -> bool:
        return any(key in pq.read_table(path, columns=[*key]).to_pylist() for path in place.glob("*.parquet"))

    ledger.erase(keys=[key], by="dana", reason="letter", published={NAME: scd_type_1})
    assert is_in_a_file()
    spark.sql(f"REORG TABLE {NAME} APPLY (PURGE)").collect()
    spark.sql(f"VACUUM {NAME} RETAIN 0 HOURS").collect()
    assert not is_in_a_file()
    assert ledger.publish(NAME, scd_type_1) == ledger.at_commit().version


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
