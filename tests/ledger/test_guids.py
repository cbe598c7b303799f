"""The guids that workers make: beside an independent UUIDv5, and the same however often a key comes."""

from __future__ import annotations

import json
import uuid
import zlib
from decimal import Decimal

import pyarrow as pa
import pytest

from cdckit.ledger import guids as under_test
from cdckit.ledger.guids import Guids
from cdckit.ledger.kinds import Kind

CDCKIT = uuid.uuid5(uuid.NAMESPACE_DNS, "cdckit")
KIND = Kind("product", ("number", "name", "price", "sold"), 8, False)


def changes(*keys: tuple[int | None, str | None, str | None, bool | None]) -> pa.RecordBatch:
    number, name, price, sold = (list(column) for column in zip(*keys, strict=True))
    data = {
        "sold": pa.array(sold, pa.bool_()),
        "price": pa.array([each and Decimal(each) for each in price], pa.decimal128(10, 2)),
        "name": pa.array(name, pa.large_string()),
        "number": pa.array(number, pa.int64()),
        "beside": pa.array(range(len(keys))),
    }
    struct = pa.StructArray.from_arrays(list(data.values()), names=list(data))
    return pa.RecordBatch.from_pydict({"source": pa.array(["s"] * len(keys)), "data": struct})


def expected(members: str) -> str:
    return str(uuid.uuid5(CDCKIT, f'{{"entity":"product","key":{{{members}}}}}'))


def test_guid_and_bucket_stand_beside_each_change() -> None:
    keys = [
        (1, "mug", "1.50", True),
        (1, "mug", "1.00", True),
        (None, 'a "b"', None, False),
        (1, "mug", "1.50", True),
        (None, None, None, None),
    ]
    found = Guids(KIND).beside(changes(*keys))
    texts = [
        '"number":1,"name":"mug","price":1.5,"sold":true',
        '"number":1,"name":"mug","price":1,"sold":true',
        f'"name":{json.dumps(keys[2][1])},"sold":false',
        '"number":1,"name":"mug","price":1.5,"sold":true',
        "",
    ]
    wanted = [expected(text) for text in texts]
    assert found.column("guid").to_pylist() == wanted
    assert found.column("ledger_bucket").to_pylist() == [zlib.crc32(each.encode()) % 8 for each in wanted]
    assert found.column("data").field("beside").to_pylist() == list(range(5))


def test_a_key_has_one_guid_however_often_it_comes_and_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "_MOST", 3)
    made = Guids(KIND)
    batches = [[(number % 7, "mug", "1", None) for number in range(start, start + 5)] for start in (0, 3, 1)]
    for keys in batches:
        found = made.beside(changes(*keys)).column("guid").to_pylist()
        assert found == [expected(f'"number":{number},"name":"mug","price":1') for number, *_ in keys]


def test_bytes_that_are_no_text_have_the_guid_that_java_reads() -> None:
    kind = Kind("product", ("name",), 8, False)
    broken = pa.array([b"a\xff"], pa.large_binary()).view(pa.large_string())
    struct = pa.StructArray.from_arrays([broken], names=["name"])
    found = Guids(kind).beside(pa.RecordBatch.from_pydict({"data": struct}))
    assert found.column("guid").to_pylist() == [expected('"name":"a\ufffd"')]


def test_changes_that_bring_their_guids_keep_them() -> None:
    given = pa.RecordBatch.from_pydict({"guid": pa.array(["g"]), "ledger_bucket": pa.array([3], pa.int32())})
    assert Guids(KIND).beside(given) is given
