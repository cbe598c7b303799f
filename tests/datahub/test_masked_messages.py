"""Records are cut out of a message where it is known where they stand, and all others keep their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from cdckit.datahub import schema
from cdckit.datahub.hub_erasure import mask_data
from cdckit.datahub.mappings import Place
from cdckit.datahub.readers import READERS, Message, Nodes, ReaderSettings, RecordWalk

Row = dict[str, Any]
NUMBER: Row = {"reference": "n", "type": "integer", "key": True}
ORDER_LINK: Row = {"reference": "order", "type": "link", "linkEntity": "order", "linkKey": "n", "key": True}
LINE: Row = {"reference": "line", "fields": [ORDER_LINK, {**NUMBER, "reference": "k"}]}
LINES: Row = {"reference": "lines", "type": "children", "childEntity": "line", "parentIdentifier": "order"}
ORDER: Row = {"reference": "order", "fields": [NUMBER, LINES]}
COPY: Row = {"reference": "copy", "export": True, "fields": [{"reference": "n"}]}
REPORT: Row = {**LINE, "reference": "line report"}


def rows(data: str | None, context: object) -> Iterable[Row]:
    records: list[Row] = json.loads(data or "")["rows"]
    return records


def sort_lines(record: Row, context: object) -> Row:
    return record | {"lines": sorted(record["lines"], key=lambda line: line["k"])}


def settings(*orders: Row, lines: tuple[Row, ...] = (LINE,)) -> ReaderSettings:
    mappings = {"order": list(orders), "line": list(lines)}
    shop = schema({"reference": "*", "mappings": mappings})
    return ReaderSettings(shop, {**READERS, "rows": rows}, {"sort_lines": sort_lines}, None)


def sent(data: str) -> Message:
    return Message(0, "m1", "*", "order", None, data)


FILTERED: Row = {**ORDER, "messageFilters": ["sort_lines"]}


@pytest.mark.parametrize(
    ("mappings", "data", "path"),
    [
        # What begins like one object is no record to this reader; nor is the first element a record here.
        ([{**ORDER, "messageReader": "rows"}], '{"rows": [{"n": 1}, {"n": 2}]}', "1"),
        ([ORDER, {**COPY, "messageReader": "rows"}], '[{"n": 1}, {"n": 2}]', "1"),
        # The filter's first line is the second of the text.
        ([FILTERED], '[{"n": 1, "lines": [{"k": 9}, {"k": 3}]}]', "1/lines/1"),
        ([ORDER], '[{"n": 1}, {"n": 2}]', "3"),
    ],
)
def test_a_message_of_which_nobody_knows_where_its_records_stand_is_left_alone(
    mappings: list[Row], data: str, path: str
) -> None:
    assert mask_data(settings(*mappings), sent(data), [path]) is None


def test_a_record_that_goes_through_a_filter_is_cut_out_whole() -> None:
    data = '[{"n": 1, "lines": [{"k": 9}, {"k": 3}]}, {"n": 2, "lines": []}]'
    expected = '[{"cdckit.erased": 2}, {"n": 2, "lines": []}]'
    assert mask_data(settings(FILTERED), sent(data), ["1"]) == expected


def numbers(work: ReaderSettings, data: str) -> dict[str, list[int]]:
    """The numbers of the records at each path, for all mappings."""
    found: dict[str, list[int]] = {}

    def add(nodes: Nodes) -> None:
        for path, number in zip(nodes.path, nodes.number, strict=True):
            found.setdefault(path, []).append(number)
        for below in nodes.below.values():
            add(below)

    for index, _ in enumerate(work.schema.systems["*"].mappings["order"]):
        walk = RecordWalk(work, Place("*", "order", index))
        walk.read(sent(data))
        add(walk.nodes)
    return found


@pytest.mark.parametrize(
    ("orders", "lines", "first", "mark"),
    [
        ([ORDER], [LINE], '{"n": 1, "lines": [{"k": 1}, {"k": 2}]}', 2),
        # A line has two mappings, each of which numbers it.
        ([ORDER], [LINE, REPORT], '{"n": 1, "lines": [{"k": 1}, {"k": 2}]}', 4),
        # An export of the order has no lines.
        ([ORDER, COPY], [LINE], '{"n": 1, "lines": [{"k": 1}]}', {"order[0]": 1, "order[1]": 0}),
        # Lines of what deletes, or is in error, say nothing, but are counted.
        ([ORDER], [LINE], '{"n": 1, "deleted_indicator": true, "lines": [{"k": 1}]}', 1),
        ([ORDER], [LINE], '{"n": "one", "lines": [{"k": 1}, 7]}', 2),
        # So is what was cut out before.
        ([ORDER], [LINE], '{"n": 1, "lines": [{"cdckit.erased": 5}, {"k": 2}]}', 7),
    ],
)
def test_what_is_left_keeps_its_numbers(
    orders: list[Row], lines: list[Row], first: str, mark: int | dict[str, int]
) -> None:
    work = settings(*orders, lines=tuple(lines))
    data = f'[{first}, {{"n": 2, "lines": [{{"k": 5}}]}}]'
    masked = mask_data(work, sent(data), ["1"])
    assert masked is not None
    assert json.loads(masked)[0] == {"cdckit.erased": mark}
    before = numbers(work, data)
    assert numbers(work, masked) == {path: before[path] for path in before if path[0] == "2"}


def test_a_mapping_that_came_later_is_given_no_number_twice() -> None:
    masked = '[{"cdckit.erased": {"order[0]": 3, "order[1]": 0}}, {"n": 2}]'
    assert numbers(settings(ORDER, COPY, {**COPY, "reference": "more"}), masked) == {"2": [15, 7, 17]}
