"""Histories that are wrong in one place, of every kind that `mutants` knows: the suites see them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from cdckit.quality.checks import VIEW, sql
from cdckit.quality.suites import compare_with_log, group_by_rows, read_suite
from support.histories import change_schema, history_schema, rows_to_dataframe
from support.ledger_programs import FIELDS, KEYS
from support.mutants import KINDS_OF_MUTANTS, mutants
from support.suites import sentences
from tools.tiers import seeds


@seeds(6, soak=4)
def test_every_mutant_is_seen_and_nothing_sound_is_called_wrong(spark: SparkSession, seed: int) -> None:
    """Each entity by itself: a mutant breaks some sentence, and no sound entity beside it breaks one."""
    log, history, kinds, sound = mutants(seed, 2 * len(KINDS_OF_MUTANTS), FIELDS, KEYS, entity="e")
    changes = rows_to_dataframe(spark, log, change_schema(FIELDS, guid=True))
    found = broken(rows_to_dataframe(spark, history, history_schema(FIELDS)), changes)
    assert {guid: found[guid] for guid in sound & found.keys()} == {}
    assert {kind for guid, kind in kinds.items() if guid not in found} == set()
    assert (len(kinds), len(sound) > 200) == (130, True)


def broken(history: DataFrame, log: DataFrame) -> dict[str, list[str]]:
    """By guid, the suites that it breaks."""
    alike, merged = compare_with_log(history, log, KEYS)
    asked = []
    for name in ("history", "ledger"):
        made = sentences(read_suite(name), alike)
        for rows, places in group_by_rows(made):
            some = " OR ".join(f"count_if({made[place].breaks}) > 0" for place in places)
            asked.append(f"SELECT guid, '{name}' AS suite FROM {rows} GROUP BY guid HAVING {some}")
    found: dict[str, list[str]] = {}
    for row in sql(" UNION ALL ".join(asked), {"batch": alike, f"{VIEW}merged": merged}).collect():
        found.setdefault(row["guid"], []).append(row["suite"])
    return found
