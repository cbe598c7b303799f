"""
The life of one hub: an order waits for its product, which comes; the schema grows; all is made anew.

Each test asks what was seen at one of its moments.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from cdckit.datahub import Hub, SchemaMismatch, schema
from support.hub_programs import rows_of
from support.hub_runs import AT, MINUTE, ORDER, PRODUCT, Row, history, sent, system

NAMELESS = {**PRODUCT, "fields": PRODUCT["fields"][:1]}


class Moment(NamedTuple):
    """What a hub says: its messages and what waits by the message's identifier, its histories by target."""

    messages: dict[str, Row]
    waiting: dict[str, Row]
    histories: dict[str, list[Row]]


def seen(hub: Hub) -> Moment:
    messages, waiting = (
        {row["message_identifier"]: row for row in rows_of(rows.drop("value"))}
        for rows in (hub.messages(), hub.waiting())
    )
    return Moment(messages, waiting, {name: history(hub, name) for name in ("order", "product")})


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Moment]:
    """A shop whose first schema knows no names of products."""
    place: Path = tmp_path_factory.mktemp("story")
    hub = Hub(spark, schema(system(order=ORDER, product=NAMELESS)), place)
    moments = {}
    sent(hub, spark, {"entity": "order", "guid": "o", "data": {"o": "7", "no": "1"}}, minute=0)
    moments["the order waits"] = seen(hub)
    hub.receive([{"entity": "product", "guid": "p", "data": {"no": "1", "name": "kettle"}}], received_at=AT)
    hub.run(now=AT + timedelta(seconds=10))
    moments["its product came"] = seen(hub)
    hub.rebuild(now=AT + MINUTE)
    moments["made anew"] = seen(hub)
    hub.run(now=AT + MINUTE)
    moments["the order is due"] = seen(hub)
    grown = Hub(spark, schema(system(order=ORDER, product=PRODUCT)), place)
    with pytest.raises(SchemaMismatch, match=r"`run\(\)` reads them anew"):
        grown.log()
    grown.run(now=AT + 2 * MINUTE)
    moments["by the grown schema"] = seen(grown)
    return moments


def statuses(moment: Moment) -> dict[str, int]:
    return {name: row["status"] for name, row in moment.messages.items()}


def test_what_waits_is_named_with_its_next_attempt(story: dict[str, Moment]) -> None:
    moment = story["the order waits"]
    assert statuses(moment) == {"o": 1}
    waits = moment.waiting["o"]
    assert (waits["waiting_for"], waits["waiting_since"]) == ("product no = 1", AT)
    assert (waits["attempts"], waits["next_attempt_timestamp"]) == (1, AT + MINUTE)
    assert moment.histories == {"order": [], "product": []}


def test_what_is_not_due_waits_on_though_it_could_be_applied(story: dict[str, Moment]) -> None:
    moment = story["its product came"]
    assert statuses(moment) == {"o": 1, "p": 10}
    assert [row["no"] for row in moment.histories["product"]] == ["1"]
    assert moment.histories["order"] == []


def test_a_rebuild_leaves_waiting_what_waits(story: dict[str, Moment]) -> None:
    assert story["made anew"] == story["its product came"]


def test_what_is_due_is_applied_to_what_came_meanwhile(story: dict[str, Moment]) -> None:
    moment = story["the order is due"]
    assert statuses(moment) == {"o": 10, "p": 10}
    assert moment.waiting == {}
    [order], [product] = moment.histories["order"], moment.histories["product"]
    assert (order["o"], order["product"]) == ("7", product["guid"])


def test_another_schema_reads_all_messages_anew(story: dict[str, Moment]) -> None:
    moment = story["by the grown schema"]
    assert statuses(moment) == {"o": 10, "p": 10}
    assert [(row["no"], row["name"]) for row in moment.histories["product"]] == [("1", "kettle")]
    assert [row["o"] for row in moment.histories["order"]] == ["7"]
