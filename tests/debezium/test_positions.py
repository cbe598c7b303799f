"""Where events stand in the logs of their sources: by hand, from what each connector's page says."""

from __future__ import annotations

from typing import Any

import pytest

from cdckit.debezium.envelopes import Source
from cdckit.debezium.positions import lsn_position, maxwell_position, position


def digits(*numbers: int) -> str:
    return "/".join(f"{number:020}" for number in numbers)


PLACES: list[tuple[str, dict[str, Any], str]] = [
    ("postgresql", {"sequence": '["100","200"]', "lsn": 200}, digits(100, 200)),
    # Debezium 1.5 and 1.6, and Flink CDC, write twice the last commit.
    ("postgresql", {"sequence": '["120","120"]', "lsn": 210}, digits(120, 210)),
    ("postgresql", {"sequence": '[null,"90"]', "lsn": 100}, digits(100, 100)),
    ("postgresql", {"sequence": '[null,"90"]'}, digits(90, 90)),
    ("postgresql", {"sequence": '["7",null]', "lsn": 9}, digits(7, 9)),
    ("postgresql", {"sequence": '[null,"5"]', "lsn": "16/B3"}, digits(5, 5)),
    ("postgresql", {"lsn": 9}, digits(9, 9)),
    ("mysql", {"file": "bin.000003", "pos": 154, "row": 1}, digits(3, 154, 1)),
    ("mysql", {"file": "bin.000003", "pos": 154, "gtid": "abc:5"}, f"abc@{digits(5)}@{digits(3, 154, 0)}"),
    ("mysql", {"file": "b.3", "pos": 154, "gtid": "abc:t:5"}, f"abc:t@{digits(5)}@{digits(3, 154, 0)}"),
    ("mysql", {"file": "", "pos": 0, "gtid": "abc:5"}, f"abc@{digits(5)}@{digits(0, 0, 0)}"),
    # The domain is the log, and its number decides, whatever the server.
    ("mariadb", {"file": "bin.9", "pos": 500, "gtid": "0-1-100"}, f"0@{digits(100)}@{digits(9, 500, 0)}"),
    ("mariadb", {"file": "bin.1", "pos": 4, "gtid": "0-2-101"}, f"0@{digits(101)}@{digits(1, 4, 0)}"),
    ("db2", {"commit_lsn": "0:2:5", "change_lsn": "0:2:3", "event_serial_no": 2}, f"0:2:5/0:2:3/{2:020}"),
    ("sqlserver", {"commit_lsn": "0:2:5", "change_lsn": "NULL", "snapshot": "true"}, f"0:2:5//{digits(0)}"),
    # Its LSNs of changes are no order; the rows of a snapshot share a place.
    ("sqlserver", {"commit_lsn": "0:2:5", "change_lsn": "0:2:3"}, f"0:2:5/o{7:020}/0:2:3/{digits(0)}"),
    ("oracle", {"scn": "40", "commit_scn": "50", "txSeq": 3}, digits(50, 40, 3)),
    ("oracle", {"scn": "40", "snapshot": "true"}, digits(40, 40, 0)),
    # The commit of a transaction before this one: none has a smaller number than its changes.
    ("oracle", {"scn": "600", "commit_scn": "99", "txSeq": 3}, digits(600, 600, 3)),
    ("oracle", {"scn": "40", "commit_scn": "50"}, f"{digits(50, 40, 0)}/o{7:020}"),
    ("mongodb", {"ts_ms": 1000, "ord": 3}, digits(1000, 3)),
    ("mongodb", {"ts_ms": 15, "ord": 3, "wallTime": 15, "version": "3.10.0.Final"}, f"clock@{digits(15, 3)}"),
    ("mongodb", {"ts_ms": 0, "ord": 3, "wallTime": 15, "version": "3.4.0.Final"}, digits(0, 3)),
    ("mongodb", {"ts_ms": 15, "ord": 3, "wallTime": 15, "version": "3.3.2.Final"}, digits(15, 3)),
    ("mongodb", {"ts_ms": 1000, "ord": 3, "txnNumber": 1}, f"{digits(1000, 3)}/o{7:020}"),
]  # fmt: skip
NOWHERE: list[tuple[str, dict[str, Any]]] = [
    ("postgresql", {}),
    ("postgresql", {"sequence": "[null,null]", "lsn": None}),
    ("postgresql", {"sequence": '[null,"-9223372036854775808"]', "lsn": -9223372036854775808}),
    ("postgresql", {"sequence": '["0","0"]', "lsn": 0}),
    ("mysql", {"file": "", "pos": 0, "row": 0}),
    ("mysql", {"file": "bin.000003", "pos": 0}),
    ("mysql", {"file": "bin", "pos": 4}),
    ("mariadb", {"file": None, "pos": 4, "gtid": ""}),
    ("sqlserver", {"commit_lsn": "00"}),
    ("sqlserver", {"commit_lsn": "00000000:00000000:0000", "change_lsn": "00000027:00000758:0003"}),
    ("db2", {"commit_lsn": "NULL"}),
    ("oracle", {"scn": "0", "commit_scn": "0"}),
    ("oracle", {"scn": None}),
    ("mongodb", {"ts_ms": 1000, "ord": -1}),
    ("mongodb", {"ts_ms": 1000, "ord": 0}),
    ("mongodb", {"ts_ms": 1000}),
    ("other", {"lsn": 9, "file": "bin.1", "pos": 4}),
]


def source(said: dict[str, Any]) -> Source:
    called = {"txSeq": "tx_seq", "txnNumber": "txn_number", "wallTime": "wall_time"}
    return Source(**{called.get(name, name): value for name, value in said.items()})


@pytest.mark.parametrize(("connector", "said", "expected"), PLACES)
def test_a_place_is_text_that_sorts(connector: str, said: dict[str, Any], expected: str) -> None:
    assert position(connector, source(said), 7) == expected


@pytest.mark.parametrize(("connector", "said"), NOWHERE)
def test_a_place_that_says_nothing_is_no_place(connector: str, said: dict[str, Any]) -> None:
    """As rows of snapshots have it, and all events of some producers."""
    assert position(connector, source(said), 7) is None


def test_places_of_other_producers() -> None:
    assert [lsn_position(text) for text in ("1/2A", "0/0", "x", None)] == [
        "00000001/0000002A",
        None,
        None,
        None,
    ]
    assert maxwell_position("master.000006:800911", "2") == digits(6, 800911, 2)
    assert [maxwell_position(text, "") for text in ("master.000006:0", "master", None)] == [None] * 3
