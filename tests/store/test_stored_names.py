"""Under which names columns are stored: a name that Delta takes is that column's and nobody else's."""

from __future__ import annotations

from itertools import permutations

import pytest
from pyspark.sql import types as T

from cdckit.store.columns import renamed_columns, stored_names, true_names


def of(*names: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.LongType()) for name in names])


PLAIN = ["a.b", "a`b", 'a"b', "a-b", "ä", "价格", "1", "SELECT"]
NAMES: list[dict[str, str]] = [
    {"net price": "net_x0020_price", "net_price": "net_price"},
    {"a,b": "a_x002C_b", "a;b": "a_x003B_b", "a=b": "a_x003D_b", "a{b}": "a_x007B_b_x007D_"},
    {"a(b)": "a_x0028_b_x0029_", "a\tb": "a_x0009_b", "a\nb": "a_x000A_b"},
    {"net price": "net_x0020_price_2", "net_x0020_price": "net_x0020_price"},
    {"": "__2", "_": "_"},
    {name: name for name in PLAIN},
]


@pytest.mark.parametrize("expected", NAMES)
def test_each_column_is_under_its_own_name_in_any_order(expected: dict[str, str]) -> None:
    for order in list(permutations(expected))[:30]:
        found = stored_names(of(*order))
        assert dict(zip(order, found.names, strict=True)) == expected
        assert true_names(found) == of(*order)
        renamed = {true: name for true, name in expected.items() if true != name}
        assert dict(renamed_columns(found)) == renamed


def test_of_names_that_differ_in_case_alone_the_first_stays() -> None:
    """And none gets the name that a third one has."""
    assert stored_names(of("Price", "price", "price_2", "PRICE")).names == [
        "Price", "price_3", "price_2", "PRICE_4",
    ]  # fmt: skip


def test_a_column_that_is_known_keeps_its_name_and_what_others_say_of_it() -> None:
    before = stored_names(of("net price", "X"))
    before["X"].metadata["comment"] = "the unknown"
    after = stored_names(of("net_x0020_price", "x", "X", "net price"), before)
    assert after.names == ["net_x0020_price_2", "x_2", "X", "net_x0020_price"]
    assert after["X"].metadata == {"comment": "the unknown"}
    # A name that no column has any more is free.
    assert stored_names(of("x"), before).names == ["x"]


def test_readers_of_the_table_are_told_the_true_name() -> None:
    [renamed, kept] = stored_names(of("net price", "x"))
    assert (renamed.metadata["comment"], kept.metadata) == ("net price", {})


def test_names_within_structs_lists_and_maps_are_those_of_their_fields() -> None:
    inner = of("a b", "a_b")
    columns = (
        T.StructType()
        .add("s", inner)
        .add("l", T.ArrayType(inner))
        .add("m m", T.MapType(T.StringType(), inner))
    )
    found = stored_names(columns)
    wanted = "struct<a_x0020_b:bigint,a_b:bigint>"
    assert found.simpleString() == (f"struct<s:{wanted},l:array<{wanted}>,m_x0020_m:map<string,{wanted}>>")
    assert true_names(found) == columns
    assert dict(renamed_columns(found)) == {
        "s.a b": "a_x0020_b", "l.a b": "a_x0020_b", "m m": "m_x0020_m", "m m.a b": "a_x0020_b",
    }  # fmt: skip
