"""
A correction that is shown, applied and taken back.

In `make test`:
tests/notebook/widgets/test_widgets.py::test_what_is_no_correction_is_told_and_cannot_be_applied.
"""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdckit.ledger import Ledger
from cdckit.notebook import widgets
from support.panels import KEYS, all_of, shown


def test_a_correction_is_shown_before_it_is_applied(ledger: Ledger) -> None:
    panel = widgets.correction_form(ledger)
    entity, field = all_of(panel.widget, "Dropdown")
    assert [label for label, _ in entity.options] == ["1 x", "2 x"]
    assert list(field.options) == ["a", "b"]
    assert "1 x: its versions" in shown(panel.widget)
    show, apply = all_of(panel.widget, "Button")
    value, start, end, by, reason = all_of(panel.widget, "Text")[1:]
    written = ((value, "15"), (start, "2024-03-10 09:30"), (end, "2024-03-10T10:30Z"), (by, "ann"))
    for text, words in (*written, (reason, "misread")):
        text.value = words
    assert apply.disabled
    show.click()
    told = shown(panel.widget).split("What it would change")[1]
    assert [line.split("|")[:5] for line in told.splitlines() if "|a|" in line] == [
        ["09:30", "10:00", "a", "10", "15"],
        ["10:00", "10:30", "a", "11", "15"],
    ]
    assert ledger.history({"h": 1, "k": "x"}).count() == 2
    assert not apply.disabled

    value.value = "16"
    assert apply.disabled
    assert "What it would change" not in shown(panel.widget)
    show.click()
    apply.click()
    versions = ledger.history({"h": 1, "k": "x"}).orderBy("valid_from_timestamp").collect()
    assert [row["a"] for row in versions] == [10, 16, 11]
    assert apply.disabled
    told = shown(panel.widget)
    assert "|16|" in told
    (message,) = re.findall(r"Applied as “(ann, .*: misread)”", told)
    ledger.revoke(message)
    assert ledger.history({"h": 1, "k": "x"}).count() == 2


def test_entities_that_are_named_by_their_guid_are_corrected(
    spark: SparkSession, changes: DataFrame, tmp_path: Path
) -> None:
    ledger = Ledger(spark, tmp_path / "ledger", entity="thing", keys=KEYS, buckets=1)
    ledger.apply(changes.withColumn("guid", F.concat(F.lit("g"), F.col("data.h").cast("string"))))
    panel = widgets.correction_form(ledger)
    written = ("15", "2024-03-10 10:30", "2024-03-10 10:40", "ann", "misread")
    for text, words in zip(all_of(panel.widget, "Text")[1:], written, strict=True):
        text.value = words
    show, apply = all_of(panel.widget, "Button")
    show.click()
    apply.click()
    versions = ledger.history("g1").orderBy("valid_from_timestamp").collect()
    assert [row["a"] for row in versions] == [10, 11, 15, 11]
