"""The types of fields that have no values: in the log, in the changes, or in both."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from cdckit.ledger.field_types import Types, fit_fields

VOID, TEXT, LONG, DOUBLE, DAY = T.NullType(), T.StringType(), T.LongType(), T.DoubleType(), T.DateType()
NO_TAGS, TAGS, NUMBERS = T.ArrayType(VOID), T.ArrayType(TEXT), T.ArrayType(LONG)

# The field in the log, what it lacks there, the field of the changes, what it lacks there; then what it lacks
# afterwards, the type that the changes are cast to, the type that the log gets.
CASES = {
    "values meet values": (LONG, None, DAY, None, None, None, None),
    "a new field with values": (None, None, DAY, None, None, None, None),
    "a new field without any": (None, None, VOID, VOID, VOID, TEXT, None),
    "a new field that pandas calls double": (None, None, DOUBLE, VOID, VOID, None, None),
    "nothing comes to values": (DAY, None, VOID, VOID, None, DAY, None),
    "nothing comes to values, as texts": (DAY, None, TEXT, VOID, None, DAY, None),
    "nothing comes to nothing": (TEXT, VOID, DOUBLE, VOID, VOID, TEXT, None),
    "the first values": (TEXT, VOID, DAY, None, None, None, DAY),
    "the first values are texts": (TEXT, VOID, TEXT, None, None, None, None),
    "the first values, where pandas said double": (DOUBLE, VOID, DAY, None, None, None, DAY),
    "lists that are all empty": (None, None, NO_TAGS, NO_TAGS, NO_TAGS, TAGS, None),
    "empty lists come to nothing": (TEXT, VOID, NO_TAGS, NO_TAGS, NO_TAGS, TAGS, TAGS),
    "the first elements": (TAGS, NO_TAGS, NUMBERS, None, None, None, NUMBERS),
    "empty lists come to full ones": (NUMBERS, None, NO_TAGS, NO_TAGS, None, NUMBERS, None),
    "nothing, as texts, comes to empty lists": (TAGS, NO_TAGS, TEXT, VOID, NO_TAGS, TAGS, None),
    "texts come to empty lists": (TAGS, NO_TAGS, TEXT, None, NO_TAGS, None, None),
}


def field(kind: T.DataType | None) -> Types:
    """The field by its name; none without a type."""
    return {} if kind is None else {"x": kind}


@pytest.mark.parametrize("name", CASES)
def test_what_has_no_values_takes_the_type_of_what_has(name: str) -> None:
    log, log_lacks, changes, changes_lack, lacks, cast, log_gets = CASES[name]
    types = fit_fields(field(log), field(log_lacks), field(changes), field(changes_lack))
    assert types == (field(lacks), field(cast), field(log_gets))


def test_a_field_that_the_changes_do_not_have_stays_as_it_is() -> None:
    assert fit_fields({"x": TEXT}, {"x": VOID}, {}, {}) == ({"x": VOID}, {}, {})
