"""What changed in a history between two commits of its store: versions that appeared, ended or went."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.ledger.columns import visible_history
from cdckit.ledger.kind import Kind
from cdckit.merging.arrow_changes import GUID
from cdckit.model.history import VALID_FROM, VALID_TO
from cdckit.parts.arguments import quoted
from cdckit.parts.values import comparable
from cdckit.store import Snapshot
from cdckit.store.columns import all_columns

CHANGE = "change"


def history_changes(then: Snapshot, now: Snapshot, kind: Kind) -> DataFrame:
    """The versions that are not the same at two commits, as `Ledger.history_changes` returns them."""
    files = {file.path: file for file in then.files(kind.history)} if then.has(kind.history) else {}
    later = {file.path: file for file in now.files(kind.history)}
    come = [file for path, file in later.items() if path not in files]
    removed = [file for path, file in files.items() if path not in later]
    after = visible_history(now.read(kind.history, files=come), now.schema(kind.changes))
    if not removed:
        return after.select(F.lit("appeared").alias(CHANGE), "*")
    rows = then.read(kind.history, files=removed)
    # Since that commit fields may have come, or have become of wider types.
    before = all_columns(visible_history(rows, then.schema(kind.changes)), after.schema)
    return _find_differences(before, after)


def _find_differences(before: DataFrame, after: DataFrame) -> DataFrame:
    was, is_ = (F.struct(*map(quoted, rows.columns)) for rows in (before, after))
    joined = before.select(GUID, VALID_FROM, was.alias("was")).join(
        after.select(GUID, VALID_FROM, is_.alias("is")), [GUID, VALID_FROM], "full_outer"
    )

    def is_same(field: T.StructField) -> Column:
        was, is_ = (comparable(F.col(side).getField(field.name), field.dataType) for side in ("was", "is"))
        return was.eqNullSafe(is_)

    same = {field.name: is_same(field) for field in after.schema}
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
    changed = joined.select(change.alias(CHANGE), version).where(F.col(CHANGE).isNotNull())
    return changed.select(CHANGE, "version.*")
