"""
An object that a refused update does not make.

In `make test`:
tests/rdss/test_rdss_existence.py::test_an_update_may_be_a_new_object_that_is_a_version_of_one_that_exists,
tests/rdss/test_exchange_cases.py::test_what_becomes_of_messages_about_objects.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit import rdss
from support.existence import codes, decoded, uuid, versions


def test_an_update_that_is_refused_makes_no_object_exist(spark: SparkSession) -> None:
    """A chain of versions that leads to no create, one that does, and one that begins anew after a delete."""
    said = versions(
        *(("10:00", 2, 1), ("10:10", 2, None), ("10:20", 3, 2), ("10:30", 4, 3)),
        *(("10:40", 6, 5), ("10:50", 7, 6), ("10:51", 7, None), ("10:55", 8, 7), ("10:58", 8, 3)),
        *(("11:30", 6, 5), ("11:40", 9, 6)),
    )
    texts = F.create_map(*(F.lit(each) for pair in said for each in pair))
    lines = [f"C {uuid(5)} 09:00", f"D {uuid(5)} 11:00", f"D {uuid(6)} 11:10", *(line for line, _ in said)]
    frame = decoded(spark, *lines, f"R {uuid(2)} 12:00", f"R {uuid(8)} 12:00", f"D {uuid(3)} 12:00")
    frame = frame.withColumn("body", texts[F.col("message_id")])
    expected = {
        **{f"U {uuid(number)} {at}": "001" for at, number, _ in (("10:00", 2, 1), ("10:10", 2, None))},
        **{f"U {uuid(number)} {at}": "001" for at, number in (("10:20", 3), ("10:30", 4))},
        **{f"U {uuid(6)} 11:30": "001", f"U {uuid(9)} 11:40": "001"},
        **{f"R {uuid(2)} 12:00": "003", f"D {uuid(3)} 12:00": "002"},
    }
    assert codes(rdss.with_unknown(frame)) == expected
    # Twice, and in another order, they have the same verdicts.
    assert codes(rdss.with_unknown(frame.union(frame).repartition(3))) == expected
    # The create that was lacking makes the whole chain right.
    late = frame.unionByName(decoded(spark, f"C {uuid(1)} 09:59").withColumn("topic", F.lit("late")))
    healed = codes(rdss.with_unknown(late))
    assert healed == {f"U {uuid(6)} 11:30": "001", f"U {uuid(9)} 11:40": "001"}
