"""Plain envelopes opened by position hold what the reader finds in them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cdckit.replicate.envelope import _open_any, open_envelopes, open_plain

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "replicate"
HEAD = b"atMSG\x04DT\x00\x02\x40" + b"f" * 32 + b"\x00"


@pytest.fixture(scope="module")
def values() -> pa.Array:
    tables = [
        pq.read_table(SAMPLE / f"{name}.parquet", columns=["value"])
        for name in ("metadata", "schedule", "operations")
    ]
    return pa.concat_tables(tables).column("value").combine_chunks()


def columns(values: pa.Array, opened: object) -> dict[str, list[object]]:
    names = ("form", "type", "headers", "schema_id", "message_schema", "message")
    return {name: getattr(opened, name).to_pylist() for name in names}


def test_the_two_roads_agree_on_a_feed(values: pa.Array) -> None:
    """Every record of the samples, the damaged ones among them; and nearly all of them are plain."""
    opened, read = open_envelopes(values), _open_any(values)
    assert columns(values, opened) == columns(values, read)
    assert opened.findings == read.findings
    assert open_plain(values).rows.sum() == 15_499


@pytest.mark.parametrize("seed", range(2))
def test_the_two_roads_agree_on_damage(values: pa.Array, seed: int) -> None:
    """Any byte of the head or behind it changed, cut or doubled, in 4,000 messages."""
    chance = random.Random(seed)
    damaged = []
    for value in pc.drop_null(values).take(pa.array(chance.sample(range(15_000), 4000))).to_pylist():
        place = chance.randrange(min(len(value), 60) + 1)
        damaged.append(
            value[:place] + chance.randbytes(chance.randrange(3)) + value[place + chance.randrange(3) :]
        )
    array = pa.array(damaged, pa.binary())
    opened, read = open_envelopes(array), _open_any(array)
    assert columns(array, opened) == columns(array, read)
    assert opened.findings == read.findings


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (HEAD + b"\x00", b""),
        (HEAD + b"\x04hi", b"hi"),
        (HEAD + b"\x80\x01" + b"m" * 64, b"m" * 64),
        (HEAD + b"\x06hi", None),
        (HEAD + b"\x02hi", None),
        (HEAD + b"\x03hi", None),
        (HEAD + b"\x84\x00hi", None),
        (HEAD, None),
        (HEAD[:30], None),
        (b"", None),
        (None, None),
        (HEAD.replace(b"f", b"\xff") + b"\x04hi", None),
        (HEAD.replace(b"DT", b"MD") + b"\x04hi", None),
    ],
    ids=["empty", "short", "two length bytes", "cut", "overlong", "negative length", "length spelt longer",
         "no length", "cut head", "nothing", "null", "id that is no text", "metadata"],
)  # fmt: skip
def test_only_the_exact_shape_is_plain(value: bytes | None, message: bytes | None) -> None:
    """Everything else is left to the reader, whatever it will say."""
    opened = open_plain(pa.array([b"x", value, HEAD + b"\x02!"], pa.binary()))
    assert opened.rows.tolist() == [False, message is not None, True]
    assert opened.message.to_pylist() == [None, message, b"!"]
    assert opened.schema_id.to_pylist()[1] == ("f" * 32 if message is not None else None)
