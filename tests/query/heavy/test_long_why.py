"""
Why, of every value that a history shows.

In `make test`:
tests/query/test_why.py::test_every_message_that_spoke_has_one_verdict.
"""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from cdckit import why
from support.fold import fold
from support.histories import random_changes, to_dataframe

FIELDS = {"h": "int", "k": "string", "a": "int", "b": "string"}
KEYS = ["h", "k"]


# The law -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guids", [False, True])
def test_the_winner_is_what_the_history_shows(spark: SparkSession, guids: bool) -> None:
    """For random histories, fields, the row and random times: value, message and priority are the fold's."""
    rng = random.Random(31)
    for number in range(30):
        told = random_changes(100 + number, 1, FIELDS, longest=20, guids=guids)
        guid, k = f"h0-{rng.choice(('one', 'two'))}", rng.choice("xy")
        key = {"guid": guid} if guids else {"h": 0, "k": k}
        mine = [each for each in told if (each["guid"] == guid if guids else each["data"]["k"] == k)]
        instants = sorted({each["effective_timestamp"] for each in told})
        at, field = rng.choice(instants), rng.choice(["deleted_indicator", "k", "a", "b"])
        history = fold(mine, entity="thing", keys=KEYS, fields=list(FIELDS))
        in_force = [
            row
            for row in history
            if row["valid_from_timestamp"] <= at
            and (row["valid_to_timestamp"] is None or row["valid_to_timestamp"] > at)
        ]
        entry = "guid" if field == "deleted_indicator" else field
        stated = in_force[0]["field_provenance"][entry] if in_force else None
        expected = [(in_force[0][field], stated["m"], stated["p"])] if stated else []
        table = why(to_dataframe(spark, told, FIELDS), key, field, keys=KEYS, valid_at=at).collect()
        # A key has the priority of whoever confirmed it last.
        standing = [row["priority"] for row in table if row["verdict"] in ("WON", "CONFIRMED")]
        won = [(row["value"], row["message_id"], standing[-1]) for row in table if row["verdict"] == "WON"]
        assert won == expected, (number, field, at)
