"""A table of a catalogue that shows a history, written by Spark's Delta connector."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.ledger.publication.delta_table import ANEW, ELSEWHERE, NEEDED, Shown, stored_columns
from cdckit.parts.arguments import quoted
from cdckit.store import foreign_changes
from cdckit.store.errors import ForeignChange

_UPKEEP = {
    *("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "COMPUTE STATS", "CLUSTER BY"),
    *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD CONSTRAINT", "DROP CONSTRAINT"),
    *("CHANGE COLUMN", "CHANGE COLUMNS", "UPGRADE PROTOCOL", "DROP FEATURE", "Deletion Vector Tombstones"),
    *("ROW TRACKING BACKFILL", "ROW TRACKING UNBACKFILL", "DOMAIN METADATA CLEANUP", "Empty Commit"),
    *("OPTIMIZE CHECKPOINT", "REMOVE COLUMN MAPPING", "REORG TABLE UPGRADE UNIFORM"),
}
"""What Delta calls commits that change no rows; what becomes of columns, `has_columns` sees."""

_SOURCE = "cdckit.source"
"""The property of a table of a catalogue that tells whose it is when the history of its commits does not."""

_GONE = "cdckit_gone"
_MOST = 1000
"""So many commits of others are looked at, back to the last one of ours."""


class CatalogueTable:
    """
    The table as it stands when this is made; see `PublishedTable`.

    What our commits carry is their `userMetadata`, which `DESCRIBE HISTORY` shows for 30 days, unless a
    property says otherwise.  Raises `InvalidArgument` for a session without Delta connector, or of Spark
    Connect, and for something else of that name.
    """

    def __init__(self, spark: SparkSession, name: str, source: str) -> None:
        self._spark, self._name, self._source = spark, name, source
        self.shown: Shown | None = None
        self._foreign: ForeignChange | None = None
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            # What a MERGE carries is told to a session of its own, and such clients cannot begin one.
            needed = "a location: through Spark Connect no table of a catalogue is kept up"
            raise InvalidArgument("publish", "target", needed, name)
        _require_connector(spark, name)
        self._exists, self._has_source = bool(spark.catalog.tableExists(name)), False
        if self._exists:
            self._look()

    def require_untouched(self) -> None:
        """Raise `ForeignChange` if others have changed rows since our last commit."""
        if self._foreign is not None:
            raise self._foreign

    def require_writable(self) -> None:
        """Raise `ForeignChange` for what the table would lose when it is written whole, or refuses."""
        if not self._exists:
            return
        properties = self._properties()
        self._has_source = properties.get(_SOURCE) == quote(self._source)
        if demands := list(foreign_changes.property_demands(properties)):
            remedy = foreign_changes.describe_demands(demands, ELSEWHERE)
            raise ForeignChange(self._name, self._version, "a property", "somebody", remedy)

    def stored(self, columns: T.StructType) -> T.StructType:
        """The columns as the table has them, under their names there."""
        table_columns = self._spark.table(self._name).schema if self._exists else None
        return stored_columns(columns, self._name, table_columns)

    def has_columns(self, columns: T.StructType) -> bool:
        """Tell whether the table has just such columns."""
        # What must not be null there is Delta's to see to.
        return self._exists and (
            self.stored(columns).simpleString() == self._spark.table(self._name).schema.simpleString()
        )

    def put_all(self, rows: DataFrame, size: int, shown: Shown) -> bool:
        """Write the whole table, whatever its *size*; False if another writer was faster: then look again."""
        writer = self._rename_columns(rows).write.format("delta").mode("overwrite")
        options = {"overwriteSchema": "true", "userMetadata": self._mark_text(shown)}
        if not self._exists or (self.shown is not None and self.shown.made < shown.made):
            # What is written anew, or by a store restored from a copy, shows no later commit than before, and
            # Delta would pass over it.
            options |= self._order(shown)
        return self._try_write(lambda: writer.options(**options).saveAsTable(self._name))

    def put_changes(self, rows: DataFrame, touched: DataFrame, shown: Shown) -> bool:
        """Write rows in the place of those of all touched entities, by their guids; False as `put_all`."""
        named = self._rename_columns(rows)
        news = named.withColumn(_GONE, F.lit(None).cast("string"))
        removed = touched.select(F.col("guid").alias(_GONE))
        view = f"cdckit_{uuid.uuid4().hex}"
        news.unionByName(removed, allowMissingColumns=True).createOrReplaceGlobalTempView(view)
        columns = [quoted(column) for column in named.columns]
        statement = (
            f"MERGE INTO {self._name} AS t USING global_temp.{view} AS s ON t.guid = s.{_GONE} "
            "WHEN MATCHED THEN DELETE "
            f"WHEN NOT MATCHED AND s.{_GONE} IS NULL THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(f's.{column}' for column in columns)})"
        )
        # In a session of its own: what it is told must not be carried by what other threads write meanwhile.
        other = self._spark.newSession()
        other.catalog.setCurrentCatalog(self._spark.catalog.currentCatalog())
        other.catalog.setCurrentDatabase(self._spark.catalog.currentDatabase())
        delta = "spark.databricks.delta"
        other.conf.set(f"{delta}.commitInfo.userMetadata", self._mark_text(shown))
        for name, value in self._order(shown).items():
            other.conf.set(f"{delta}.write.{name}", value)
        try:
            return self._try_write(lambda: other.sql(statement).collect())
        finally:
            self._spark.catalog.dropGlobalTempView(view)

    def forget_before(self, erased: int) -> bool:
        """Its files and older versions are the catalogue's: `REORG` with PURGE and `VACUUM` delete them."""
        return True

    def _try_write(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except Exception:
            if CatalogueTable(self._spark, self._name, self._source).shown == self.shown:
                raise
            return False  # Another writer was faster.
        if not self._has_source:
            source = f"'{_SOURCE}' = '{quote(self._source)}'"
            # What is written has landed; the next one who writes tries again.
            with suppress(PySparkException):
                self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({source})")
        return True

    def _properties(self) -> dict[str, str]:
        [detail] = self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()
        return dict(detail["properties"])

    def _look(self) -> None:
        try:
            commits = self._spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {_MOST}").collect()
        except PySparkException as error:
            # Spark's own error is a hundred lines of Java.
            what = (str(error).splitlines() or [""])[0]
            raise InvalidArgument("publish", "target", NEEDED, self._name, remedy=what) from None
        self._version = max(row["version"] for row in commits)
        for row in sorted(commits, key=lambda row: -row["version"]):
            ours = _read_mark(row["userMetadata"]).get(self._source)
            if ours is not None:
                self.shown = Shown(**ours)
                return
            if row["operation"] not in _UPKEEP:
                commit_info = [{"commitInfo": row.asDict()}]
                self._foreign = foreign_changes.describe_change(self._name, row["version"], commit_info, ANEW)
        if self._properties().get(_SOURCE) != quote(self._source):
            raise InvalidArgument("publish", "target", NEEDED, self._name)
        # Our commit is older than what the log keeps: nothing tells what came after it.
        self._foreign = self._foreign or ForeignChange(
            self._name, self._version, "a commit", "somebody", ANEW
        )

    def _mark_text(self, shown: Shown) -> str:
        return json.dumps({"cdckit": {self._source: shown._asdict()}})

    def _order(self, shown: Shown) -> dict[str, str]:
        """By which Delta lets one of two writers pass, and none that shows no later commit than is there."""
        return {"txnAppId": f"cdckit:{self._source}", "txnVersion": str(shown.made)}

    def _rename_columns(self, rows: DataFrame) -> DataFrame:
        """The rows under names that Delta takes."""
        pairs = zip(rows.columns, self.stored(rows.schema), strict=True)
        columns = (
            F.col(quoted(true)).cast(field.dataType).alias(field.name, metadata=field.metadata)
            for true, field in pairs
        )
        return rows.select(*columns)


def _read_mark(text: str | None) -> dict[str, Any]:
    try:
        mark = json.loads(text or "{}")["cdckit"]
    except (ValueError, KeyError, TypeError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _require_connector(spark: SparkSession, name: str) -> None:
    try:
        spark.read.format("delta").load("/cdckit/is/there/a/connector")
    except Exception as error:
        # With a connector, it is the path that is not there.  PySpark has no class for this error.
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            remedy = (
                "Start the session with delta-spark's jars and its catalogue "
                "(spark.sql.extensions, spark.sql.catalog.spark_catalog), or publish to a "
                f"location, such as the folder './{name}'."
            )
            needed = "a location, since this session has no Delta connector, which tables of a catalogue need"
            raise InvalidArgument("publish", "target", needed, name, remedy=remedy) from None
