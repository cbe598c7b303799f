"""`databus.find_frontiers`: until where whole windows have passed, with nothing missing before them."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from cdckit import databus
from support.databus_streams import record_of
from support.relays import SOURCES, frame


def test_a_window_that_was_rolled_back_and_not_sent_again_holds_the_frontier(spark: SparkSession) -> None:
    """
    The second stream has its window again, and one that is open; the third passes nothing.

    In the fourth the damaged window and the one that waited were sent again.  In the fifth two wait.
    """
    streams = {
        1: "a5:1=1 .5 a6:1=1 <6 a9:1=1 .9",
        2: "a6:1=1 <6 a6:1=1 .6 a8:1=1",
        3: "a4:1=1",
        4: "!5:1=1 .5 a6:1=1 .6 a5:1=1 .5 a6:1=1 .6",
        5: "!5:1=1 .5 a6:1=1 .6 a6:1=1 .6 a7:1=1 .7",
    }
    words = [(word, physical) for physical, text in streams.items() for word in text.split()]
    sent = [(record_of(word, at, SOURCES, physical), 0, at) for at, (word, physical) in enumerate(words)]
    events = databus.decode(frame(spark, sent), SOURCES.values())
    frontiers = {
        row["physical_partition"]: tuple(row)[3:] for row in databus.find_frontiers(events).collect()
    }
    assert frontiers == {
        1: (5, datetime(2024, 1, 1, 9, 0, 50), 1),
        2: (6, datetime(2024, 1, 1, 9, 1), 0),
        3: (None, None, 0),
        4: (6, datetime(2024, 1, 1, 9, 1), 0),
        5: (None, None, 2),
    }
