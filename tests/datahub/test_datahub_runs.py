"""Runs that follow one another: what turns later, and what another schema makes of the same messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdckit.datahub import Context, Hub, records, schema
from support.hub_programs import receipts_of, rows_of
from support.hub_runs import AT, MINUTE, ORDER, PRODUCT, Row, history, sent, system


def test_the_folder_of_the_tables_may_hold_other_things(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "logs" / "2024").mkdir(parents=True)
    hub = Hub(spark, schema(system(product=PRODUCT)), tmp_path)
    hub.run(now=AT)
    assert (tmp_path / "logs" / "2024").is_dir()


def test_a_record_without_a_time_is_no_message_and_stops_nobody(spark: SparkSession, tmp_path: Path) -> None:
    hub = Hub(spark, schema(system(product=PRODUCT)), tmp_path)
    some = records(spark, [{"entity": "product", "guid": "m1", "data": {"no": "1"}}], received_at=AT)
    timeless = some.withColumn("timestamp", F.lit(None).cast("timestamp")).select(*some.columns)
    assert [row["status"] for row in receipts_of(hub, timeless)] == [22]
    assert [row["status"] for row in receipts_of(hub, some)] == [0]
    hub.run(now=AT)
    assert [row["no"] for row in history(hub, "product")] == ["1"]


def test_a_list_that_is_none_does_not_keep_its_order_from_being_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    line = {
        "reference": "line",
        "fields": [
            {"reference": "order", "type": "link", "linkEntity": "order", "linkKey": "o", "key": True},
            {"reference": "place", "type": "integer", "key": True},
        ],
    }
    lines = {"reference": "lines", "type": "children", "childEntity": "line", "parentIdentifier": "order",
             "childSequence": "place"}  # fmt: skip
    order = {"reference": "order", "fields": [{"reference": "o", "key": True}, lines]}
    hub = Hub(spark, schema(system(order=order, line=line)), tmp_path)
    documents: list[Row] = [
        {"entity": "order", "guid": "m1", "timestamp": "2024-01-01T08:00",
         "data": {"o": "7", "lines": [{}, {}]}},
        {"entity": "order", "guid": "m2", "timestamp": "2024-01-01T08:30",
         "data": {"o": "7", "lines": "none", "deleted_indicator": True}},
    ]  # fmt: skip
    sent(hub, spark, *documents, minute=0)
    assert [row["deleted_indicator"] for row in history(hub, "order")] == [False, True]
    ends = [row["valid_to_timestamp"] for row in history(hub, "line") if not row["deleted_indicator"]]
    assert ends == [datetime(2024, 1, 1, 8, 30, tzinfo=UTC)] * 2


def test_entities_without_links_may_come_before_those_that_have_some(
    spark: SparkSession, tmp_path: Path
) -> None:
    hub = Hub(spark, schema(system(product=PRODUCT, order=ORDER)), tmp_path)
    sent(hub, spark, {"entity": "product", "guid": "p", "data": {"no": "1", "name": "kettle"}}, minute=0)
    assert [row["name"] for row in history(hub, "product")] == ["kettle"]
    sent(hub, spark, {"entity": "order", "guid": "o", "data": {"o": "7", "no": "1"}}, minute=1)
    assert history(hub, "order")[0]["product"] == history(hub, "product")[0]["guid"]


def test_a_rebuild_with_a_mended_filter_sets_the_statuses_too(spark: SparkSession, tmp_path: Path) -> None:
    """One record is no longer in error; another one waits now, and is tried by the next run."""

    def fail_on_eight(record: Row, context: Context) -> Row:
        return record | {"o": {"7": "7"}[record["o"]]}

    def link_seven(record: Row, context: Context) -> Row:
        return record | ({"no": "1"} if record["o"] == "7" else {})

    shop = schema(system(product=PRODUCT, order=ORDER | {"messageFilters": ["mend"]}))
    orders = [{"entity": "order", "guid": f"o{o}", "data": {"o": o}} for o in ("7", "8")]
    sent(Hub(spark, shop, tmp_path, filters={"mend": fail_on_eight}), spark, *orders, minute=0)
    hub = Hub(spark, shop, tmp_path, filters={"mend": link_seven})
    hub.rebuild(now=AT + MINUTE)
    seven, eight = sorted(rows_of(hub.messages()), key=lambda row: row["message_identifier"])
    assert (seven["status"], seven["attempts"], seven["next_attempt_timestamp"]) == (1, 1, AT + MINUTE)
    assert (eight["status"], eight["error_message"]) == (10, None)
