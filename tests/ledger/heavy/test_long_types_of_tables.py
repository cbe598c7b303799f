"""
Tables of every library and type, batch by batch, through a ledger and into a published table.

In `make test`:
tests/tables/test_types_of_tables.py::test_a_history_has_the_values_and_types_that_went_in,
tests/ledger/test_empty_fields.py::test_a_ledger_has_the_type_of_the_values.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from cdckit import Ledger, changes_from
from support.drawn_tables import AT, LIBRARIES, ROWS, Drawn
from tools.tiers import seeds


@seeds(1, soak=3)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_published_table_has_the_values_and_types_that_went_in(
    library: str, seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    """In two batches, in either order, in one of which a third of the columns are empty."""
    table, leaves, maps, refused = LIBRARIES[library]
    chance = random.Random(f"{library} {seed}")
    leaves = [kind for kind in leaves if not pa.types.is_duration(kind.arrow)]  # Delta tables have none
    drawn = Drawn.of(leaves, chance, maps=maps)
    drawn = drawn.without({name for name, kind in drawn.kinds.items() if re.search(refused, str(kind.arrow))})
    halves = [range(ROWS // 2), range(ROWS // 2, ROWS)]
    hollow, hollow_half = chance.sample(list(drawn.kinds), len(drawn.kinds) // 3), chance.choice(halves)
    for name in hollow:
        for row in hollow_half:
            drawn.values[name][row] = None
    ledger = Ledger(spark, tmp_path / "ledger", entity="thing", keys=["id"], buckets=1)
    for half in chance.sample(halves, 2):
        frame = table(drawn.rows(half), spark)
        ledger.apply(changes_from(frame, keys=["id"], effective=AT, ignore_null_updates=False))
        ledger.publish(tmp_path / "published")
    history, published = ledger.history(), DeltaTable(tmp_path / "published")
    names = {(one.metadata or {}).get("comment", one.name): one.name for one in published.schema().fields}
    kept = history.orderBy("id").toArrow()
    others = published.to_pyarrow_table().sort_by("id")
    for name, kind in drawn.kinds.items():
        values = [one if one is None else kind.kept(one) for one in drawn.values[name]]
        expected = (name, kind.spark, values, values)
        type_ = history.schema[name].dataType.simpleString()
        assert (name, type_, kept[name].to_pylist(), others[names[name]].to_pylist()) == expected
