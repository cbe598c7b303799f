"""Tables drawn at random: of every library, of every type by itself and two deep, under odd names."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdckit import changes_from, merge
from cdckit.errors import InvalidArgument

ROWS = 6
AT = datetime(2024, 1, 1, tzinfo=UTC)


class Kind(NamedTuple):
    """A type of Arrow, the type of Spark that a reader expects, a value, and how that reads in a history."""

    arrow: pa.DataType
    spark: str
    draw: Callable[[random.Random], Any]
    kept: Callable[[Any], Any] = lambda value: value


def whole(low: int, high: int) -> Callable[[random.Random], int]:
    """Whole numbers, often the least and the greatest."""
    return lambda chance: chance.choice([low, high - 1, chance.randrange(low, high)])


def text(chance: random.Random) -> str:
    return "".join(chance.choices(f"{string.printable}éß€𝄞", k=chance.randrange(20)))


def clock(chance: random.Random) -> datetime:
    seconds = chance.choice([0, -1, chance.randrange(-(10**10), 10**11)])
    return datetime(1970, 1, 1) + timedelta(seconds=seconds, milliseconds=chance.randrange(1000))


def day(chance: random.Random) -> date:
    return date.fromordinal(chance.choice([1, date.max.toordinal(), chance.randrange(1, 3_652_060)]))


def in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)


def price(chance: random.Random) -> Decimal:
    return Decimal(chance.choice([1, -1]) * chance.randrange(10**9, 10**10)).scaleb(-2)


BITS = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
SIGNED = [
    Kind(getattr(pa, f"int{bits}")(), name, whole(-(2 ** (bits - 1)), 2 ** (bits - 1)))
    for bits, name in BITS.items()
]
UNSIGNED = [
    Kind(pa.uint8(), "smallint", whole(0, 2**8)),
    Kind(pa.uint16(), "int", whole(0, 2**16)),
    Kind(pa.uint32(), "bigint", whole(0, 2**32)),
    Kind(pa.uint64(), "decimal(20,0)", whole(0, 2**64), Decimal),
]
TEXT = Kind(pa.string(), "string", text)
BYTES = Kind(pa.binary(), "binary", lambda chance: chance.randbytes(chance.randrange(20)))
TRUTH = Kind(pa.bool_(), "boolean", lambda chance: chance.random() < 0.5)
DOUBLE = Kind(pa.float64(), "double", lambda chance: chance.uniform(-1e300, 1e300))
DAY, INSTANT = Kind(pa.date32(), "date", day), Kind(pa.timestamp("us"), "timestamp", clock, in_utc)
PRICE = Kind(pa.decimal128(10, 2), "decimal(10,2)", price)
LONG = SIGNED[-1]
DURATION = Kind(
    pa.duration("us"), "interval day to second", lambda chance: timedelta(0, 0, chance.randrange(10**15))
)
OF_ARROW = [
    *SIGNED, *UNSIGNED, TEXT, BYTES, TRUTH, DOUBLE, DAY, INSTANT, PRICE, DURATION,
    Kind(pa.float32(), "float", lambda chance: chance.randrange(-(2**20), 2**20) / 8),
    Kind(pa.large_string(), "string", text),
    Kind(pa.timestamp("ms"), "timestamp", clock, in_utc),
    Kind(pa.timestamp("us", "UTC"), "timestamp", lambda chance: in_utc(clock(chance))),
    Kind(pa.decimal128(38, 0), "decimal(38,0)", lambda chance: Decimal(chance.randrange(10**37, 10**38))),
]  # fmt: skip
OF_SPARK = [
    *SIGNED, TEXT, BYTES, TRUTH, DOUBLE, DAY, PRICE, DURATION,
    Kind(pa.timestamp("us", "UTC"), "timestamp", lambda chance: in_utc(clock(chance))),
    Kind(pa.timestamp("us"), "timestamp_ntz", clock),
]  # fmt: skip
OF_PYTHON = [LONG, TEXT, BYTES, TRUTH, DOUBLE, DAY, INSTANT, PRICE]


def list_of(part: Kind) -> Kind:
    return Kind(
        pa.list_(part.arrow),
        f"array<{part.spark}>",
        # The first one says of what type they are, where objects of Python are all there is.
        lambda chance: [part.draw(chance), *maybe(part, chance, chance.randrange(3))],
        lambda value: [one if one is None else part.kept(one) for one in value],
    )


def struct_of(parts: dict[str, Kind]) -> Kind:
    return Kind(
        pa.struct([(name, part.arrow) for name, part in parts.items()]),
        f"struct<{','.join(f'{name}:{part.spark}' for name, part in parts.items())}>",
        lambda chance: {name: part.draw(chance) for name, part in parts.items()},
        lambda value: {name: part.kept(value[name]) for name, part in parts.items()},
    )


def map_of(part: Kind) -> Kind:
    return Kind(
        pa.map_(pa.string(), part.arrow),
        f"map<string,{part.spark}>",
        lambda chance: dict(zip("ab", maybe(part, chance, 2), strict=True)),
        lambda value: [(name, one if one is None else part.kept(one)) for name, one in value.items()],
    )


def maybe(kind: Kind, chance: random.Random, count: int) -> list[Any]:
    """So many values, some of them null."""
    return [kind.draw(chance) if chance.random() < 0.7 else None for _ in range(count)]


def draw_kind(leaves: list[Kind], chance: random.Random, depth: int, *, maps: bool) -> Kind:
    form = chance.choice(["leaf", "list", "struct", *(["map"] if maps else [])]) if depth else "leaf"
    if form == "leaf":
        return chance.choice(leaves)
    part = draw_kind(leaves, chance, depth - 1, maps=maps)
    if form == "struct":
        return struct_of({"a": part, "b": chance.choice(leaves)})
    return list_of(part) if form == "list" else map_of(part)


class Drawn(NamedTuple):
    """Columns of a table by name, with the values of all rows: the first row has no null."""

    kinds: dict[str, Kind]
    values: dict[str, list[Any]]
    ids: Sequence[int] = range(ROWS)

    @classmethod
    def of(cls, leaves: list[Kind], chance: random.Random, *, maps: bool) -> Drawn:
        """Every leaf by itself, within a list and a struct, and some more, two deep."""
        drawn = [*leaves, *map(list_of, leaves)]
        drawn += [draw_kind(leaves, chance, 2, maps=maps) for _ in range(16)]
        names = (name.format(n) for n in range(len(drawn)) for name in [chance.choice(NAMES)])
        kinds = dict(zip(names, drawn, strict=True))
        return cls(
            kinds,
            {name: [kind.draw(chance), *maybe(kind, chance, ROWS - 1)] for name, kind in kinds.items()},
        )

    def without(self, names: set[str]) -> Drawn:
        kinds, values = (
            {name: part[name] for name in part if name not in names} for part in (self.kinds, self.values)
        )
        return Drawn(kinds, values, self.ids)

    def rows(self, ids: Sequence[int]) -> Drawn:
        """Some rows of it."""
        values = {name: [column[row] for row in ids] for name, column in self.values.items()}
        return Drawn(self.kinds, values, ids)

    def arrow(self) -> pa.Table:
        arrays = {name: pa.array(self.values[name], kind.arrow) for name, kind in self.kinds.items()}
        return pa.table({"id": pa.array(self.ids), **arrays})


NAMES = ["v{}", "a price {}", "net.price{}", "{}", "select{}", "é{}"]


def of_objects(drawn: Drawn, spark: SparkSession) -> Any:
    columns = {name: pd.Series(values, dtype=object) for name, values in drawn.values.items()}
    return pd.DataFrame({"id": drawn.ids, **columns})


def of_polars(drawn: Drawn, spark: SparkSession) -> Any:
    return pytest.importorskip("polars").from_arrow(drawn.arrow())


def of_spark(drawn: Drawn, spark: SparkSession) -> Any:
    schema = ", ".join(f"`{name}` {kind.spark}" for name, kind in drawn.kinds.items())
    rows = list(zip(drawn.ids, *drawn.values.values(), strict=True))
    return spark.createDataFrame(rows, f"id bigint, {schema}")


class Library(NamedTuple):
    """How it makes a table, of which leaves; types that it hands on as others are refused by the column."""

    table: Callable[[Drawn, SparkSession], Any]
    leaves: list[Kind]
    maps: bool
    refused: str = "^$"


LIBRARIES = {
    "pandas, objects": Library(of_objects, OF_PYTHON, maps=False),
    "pandas": Library(
        lambda drawn, _: drawn.arrow().to_pandas(types_mapper=pd.ArrowDtype), OF_ARROW, maps=True
    ),
    "pyarrow": Library(lambda drawn, _: drawn.arrow(), OF_ARROW, maps=True),
    "polars": Library(of_polars, OF_ARROW, maps=False),
    "duckdb": Library(
        lambda drawn, _: duckdb.from_arrow(drawn.arrow()), OF_ARROW, maps=True, refused="duration"
    ),
    "spark": Library(of_spark, OF_SPARK, maps=True),
}


def require_values_and_types(spark: SparkSession, library: str, seed: int) -> None:
    """Require that a history has the values and types of a drawn table, or that a column is refused."""
    table, leaves, maps, refused = LIBRARIES[library]
    drawn = Drawn.of(leaves, random.Random(f"{library} {seed}"), maps=maps)
    unfit = {name for name, kind in drawn.kinds.items() if re.search(refused, str(kind.arrow))}
    if unfit:
        with pytest.raises(InvalidArgument) as caught:
            changes_from(table(drawn, spark), keys=["id"], effective=AT)
        assert {one.rsplit(" (", 1)[0] for one in caught.value.found} == unfit
    drawn = drawn.without(unfit)
    # What is of Spark is merged as Spark's, whichever library it came from.
    changes = changes_from(table(drawn, spark), keys=["id"], effective=AT)
    history = (
        merge(changes, entity="thing", keys=["id"])
        if library in ("pyarrow", "spark")
        else changes.select("data.*")
    )
    types = {name: history.schema[name].dataType.simpleString() for name in drawn.kinds}
    assert types == {name: kind.spark for name, kind in drawn.kinds.items()}
    rows = history.orderBy("id").select("id", *(f"`{name}`" for name in drawn.kinds)).toArrow()
    for name, kind in drawn.kinds.items():
        kept = [one if one is None else kind.kept(one) for one in drawn.values[name]]
        assert (name, kind.spark, rows[name].to_pylist()) == (name, kind.spark, kept)
