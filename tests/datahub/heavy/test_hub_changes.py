"""
Changes of messages: those of random programs, and those of a hub after one run.

In `make test`: tests/datahub/test_datahub_changes.py::test_messages_give_the_changes_of_a_target.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdckit import datahub, merge
from support.hub_interpreter import InterpretedHub
from support.hub_programs import BEGIN, FILTERS, READERS, draw_program, records_of, rows_of, versions_by_guid
from tools.tiers import seeds

Row = dict[str, Any]


# These two need most of the others: what holds a serial number holds it within an order's line.
@pytest.mark.parametrize("targets", [("serial", "desk"), pytest.param(None, marks=pytest.mark.soak)])
@seeds(101, soak=6)
def test_changes_of_random_programs_make_the_histories_of_the_interpreter(
    spark: SparkSession, seed: int, targets: tuple[str, ...] | None
) -> None:
    """Links by guid and by part of a key, weak keys, refreshes, lists of children, deletes that cascade."""
    program = draw_program(seed)
    world = InterpretedHub(program.schema, readers=READERS, filters=FILTERS)
    world.receive(program.messages)
    world.process(BEGIN)
    messages = datahub.decode(records_of(spark, program.messages)).localCheckpoint()
    schema = datahub.schema(*program.schema)
    for target in targets or program.targets:
        found = datahub.changes(
            messages,
            schema,
            target,
            readers=READERS,
            filters=FILTERS,
            cached=lambda rows: rows.localCheckpoint(),
        )
        merged = merge(found, entity=target, keys=schema.targets[target].keys)
        actual = Merged(rows_of(merged))
        assert versions_by_guid(actual, target) == versions_by_guid(world, target), target


class Merged:
    """The history of one target, as the comparison of worlds wants it."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def history(self, target: str) -> list[Row]:
        return self._rows
