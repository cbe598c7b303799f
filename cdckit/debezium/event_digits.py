"""Numbers of Debezium's JSON, digit by digit, where the types of their columns ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.encodings import Digits, Encoding
from cdckit.debezium.events import DELETE, TEXTS, without_schema
from cdckit.debezium.json_values import MANY_DIGITS, MAY_BE_CUT, digits, pointed, read_marked
from cdckit.debezium.mongo_documents import MONGODB

_IMAGES = ("before", "after")
_ENVELOPE = T.StructType([T.StructField(name, TEXTS) for name in _IMAGES])
_VALUE = T.StructType([*_ENVELOPE, T.StructField("payload", _ENVELOPE)])
_DIGITS_ALONE = r"^(?:true|(?:\d{4})+)$"
"""A whole number or a word, or Base64."""
_FROM_DOUBLE = r'^(?:[\[{]|-?\d+\.\d+(?:E-?\d+)?$|"?-?Infinity"?$)'
"""What Spark's reader made of a fraction, or of what may hold some."""


def with_digits(decoded: DataFrame, encodings: Mapping[str, Sequence[Encoding]]) -> DataFrame:
    """
    The events, whose `before`, `after` and `row_key` have every digit that the encodings need.

    Spark's reader makes a double of a fraction before it makes a text of it, and does not say whether a text
    was one or a number.  To look through every event would cost a fifth; so what has been read is asked
    first, then the event's own text, and few are read once more.

    A whole number, or `true`, where a text would be Base64 has a point behind it.
    """
    coded = coded_names(encodings)
    again = F.when(_asks(encodings), _images(coded))
    # What both need Spark works out once; in a step of its own it would have to be carried there.
    exact = {name: F.coalesce(again[name], F.col(name)) for name in _IMAGES}
    return decoded.withColumns({"row_key": _key(coded), **exact})


def coded_names(encodings: Mapping[str, Sequence[Encoding]]) -> list[str]:
    """The columns of which a text is Base64."""
    return [name for name, each in encodings.items() if Digits.CODED in {kind.digits for kind in each}]


def exact_key(text: Column, coded: Sequence[str]) -> Column:
    """The columns of a key that is JSON text, as `with_digits` has those of a row."""
    return _exact(read_marked(text, TEXTS, chosen=without_schema), coded)


def _images(coded: Sequence[str]) -> Column:
    told = F.transform(
        F.array(read_marked(_text("value"), _VALUE)),
        lambda value: F.struct(
            *(_exact(F.coalesce(value["payload"][name], value[name]), coded).alias(name) for name in _IMAGES)
        ),
    )
    return F.element_at(told, 1)


def _key(coded: Sequence[str]) -> Column:
    """The key of a delete; of any other event the row itself says it."""
    exact = F.when(~F.col("connector").eqNullSafe(F.lit(MONGODB)), exact_key(_text("key"), coded))
    return F.when(F.col("operation") == DELETE, F.coalesce(exact, F.col("row_key")))


def _text(name: str) -> Column:
    return F.try_validate_utf8(F.col(name).cast("string"))


def _exact(image: Column, coded: Sequence[str]) -> Column:
    def own(name: Column, value: Column) -> Column:
        return F.when(name.isin(*coded), pointed(value)).otherwise(digits(value)) if coded else digits(value)

    return F.transform_values(image, own)


def _asks(encodings: Mapping[str, Sequence[Encoding]]) -> Column:
    """Whether what was read of an event may be another number, or no number, than what it says."""
    found: dict[Digits, list[Column]] = {need: [] for need in Digits}
    for name, kinds in encodings.items():
        for need in {kind.digits for kind in kinds}:
            found[need] += [F.col(image)[name] for image in _IMAGES]
    unclear = [each.rlike(_DIGITS_ALONE) for each in found[Digits.CODED]]
    written = [_may_be_double(each) & each.rlike(_FROM_DOUBLE) for each in found[Digits.WRITTEN]]
    cut = [_may_be_double(each) for each in (*found[Digits.ALL], *found[Digits.CODED])]
    # Branches, not *and*: of what two parts of it need, Spark works all out first.
    return (
        F.when(_any(unclear), True)
        .when(_any(written), _text("value").rlike(MAY_BE_CUT))
        .when(_any(cut), _text("value").rlike(MANY_DIGITS))
    )


def _may_be_double(text: Column) -> Column:
    """Whether a text may come of a double: what is beyond all of them is named Infinity."""
    return F.contains(text, F.lit(".")) | F.contains(text, F.lit("Infinity"))


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(or_, conditions, F.lit(False))
