"""Plain envelopes opened by position hold what the reader finds in them."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cdckit.replicate.envelopes import ENVELOPE_TYPES, Envelopes, open_envelopes, open_plain, read_envelopes

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "replicate"
HEAD = b"atMSG\x04DT\x00\x02\x40" + b"f" * 32 + b"\x00"


@pytest.fixture(scope="module")
def values() -> pa.Array:
    tables = [
        pq.read_table(SAMPLE / f"{name}.parquet", columns=["value"])
        for name in ("metadata", "schedule", "operations")
    ]
    return pa.concat_tables(tables).column("value").combine_chunks()


def agree(values: pa.Array) -> Envelopes:
    """What is in the values, by both roads."""
    opened, (envelopes, findings) = open_envelopes(values), read_envelopes(values)
    for name, parts in zip(ENVELOPE_TYPES, zip(*envelopes, strict=True), strict=True):
        assert getattr(opened, name).to_pylist() == list(parts), name
    assert opened.findings == findings
    return opened


def test_the_two_roads_agree_on_a_feed(values: pa.Array) -> None:
    """Every record of the samples, the damaged ones among them; and nearly all of them are plain."""
    agree(values)
    assert open_plain(values).form.is_valid().sum().as_py() == 15_499


@pytest.mark.parametrize("seed", range(2))
def test_the_two_roads_agree_on_damage(values: pa.Array, seed: int) -> None:
    """Any byte of the head or behind it changed, cut or doubled, in 4,000 messages, forty at once."""
    chance = random.Random(seed)
    damaged = []
    for value in pc.drop_null(values).take(pa.array(chance.sample(range(15_000), 4000))).to_pylist():
        place = chance.randrange(min(len(value), 60) + 1)
        damaged.append(
            value[:place] + chance.randbytes(chance.randrange(3)) + value[place + chance.randrange(3) :]
        )
    for start in range(0, len(damaged), 40):
        agree(pa.array(damaged[start : start + 40], pa.binary()))


def test_an_id_that_is_no_text_leaves_its_batch_to_the_reader() -> None:
    sound = HEAD + b"\x02!"
    opened = agree(pa.array([sound, HEAD.replace(b"f", b"\xff") + b"\x04hi", None, sound], pa.binary()))
    assert opened.message.to_pylist() == [b"!", None, None, b"!"]
    assert [fault.value for fault, _ in opened.findings.values()] == ["ENVELOPE_UNREADABLE", "NO_VALUE"]


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
        (HEAD.replace(b"DT", b"MD") + b"\x04hi", None),
    ],
    ids=["empty", "short", "two length bytes", "cut", "overlong", "negative length", "length spelt longer",
         "no length", "cut head", "nothing", "null", "metadata"],
)  # fmt: skip
def test_only_the_exact_shape_is_plain(value: bytes | None, message: bytes | None) -> None:
    """Everything else is left to the reader, whatever it will say."""
    opened = open_plain(pa.array([b"x", value, HEAD + b"\x02!"], pa.binary()))
    assert opened.form.is_valid().to_pylist() == [False, message is not None, True]
    assert opened.message.to_pylist() == [None, message, b"!"]
    assert opened.schema_id.to_pylist()[1] == ("f" * 32 if message is not None else None)
