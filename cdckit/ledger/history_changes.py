"""What became of the versions of a ledger between two commits: read from the files that came and went."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.history import VALID_FROM, VALID_TO
from cdckit.kernel.changes import GUID
from cdckit.ledger.columns import shown_history
from cdckit.ledger.kinds import Kind
from cdckit.parts.arguments import quoted
from cdckit.parts.values import comparable
from cdckit.store import Snapshot
from cdckit.store.columns import as_columns

CHANGE = "change"


def history_changes(then: Snapshot, now: Snapshot, kind: Kind) -> DataFrame:
    """The versions that are not the same at two commits, as `Ledger.history_changes` returns them."""
    files = {one.path: one for one in then.files(kind.history)} if then.has(kind.history) else {}
    later = {one.path: one for one in now.files(kind.history)}
    come = [one for path, one in later.items() if path not in files]
    gone = [one for path, one in files.items() if path not in later]
    after = shown_history(now.read(kind.history, files=come), now.schema(kind.changes))
    if not gone:
        return after.select(F.lit("appeared").alias(CHANGE), "*")
    rows = then.read(kind.history, files=gone)
    before = _in_columns(shown_history(rows, then.schema(kind.changes)), after.schema)
    return _differing(before, after)


def _in_columns(rows: DataFrame, columns: T.StructType) -> DataFrame:
    """Rows of an earlier commit in the columns of a later one: fields may have come, or be of wider types."""
    lacking = {one.name: F.lit(None).cast(one.dataType) for one in columns if one.name not in rows.columns}
    found = as_columns(rows, columns).withColumns(lacking)
    return found.select(*map(quoted, columns.fieldNames()))


def _differing(before: DataFrame, after: DataFrame) -> DataFrame:
    was, is_ = (F.struct(*map(quoted, rows.columns)) for rows in (before, after))
    joined = before.select(GUID, VALID_FROM, was.alias("was")).join(
        after.select(GUID, VALID_FROM, is_.alias("is")), [GUID, VALID_FROM], "full_outer"
    )
    same = {
        field.name: comparable(F.col("was").getField(field.name), field.dataType).eqNullSafe(
            comparable(F.col("is").getField(field.name), field.dataType)
        )
        for field in after.schema
    }
    same_end = same.pop(VALID_TO)
    same_rest = reduce(and_, same.values())
    was_open = F.col("was").getField(VALID_TO).isNull()
    change = (
        F.when(F.col("was").isNull(), "appeared")
        .when(F.col("is").isNull(), "went")
        .when(same_rest & same_end, None)
        .when(same_rest & was_open, "ended")
        .otherwise("changed")
    )
    version = F.coalesce("is", "was").alias("version")
    return (
        joined.select(change.alias(CHANGE), version)
        .where(F.col(CHANGE).isNotNull())
        .select(CHANGE, "version.*")
    )
