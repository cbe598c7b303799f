"""Overlays: several histories laid on each other, a row for each period in which none of them moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, WrongColumnType
from cdckit.history import (
    DELETED,
    FIELD_PROVENANCE,
    HISTORY_SCHEMA,
    SOURCE_MESSAGE,
    VALID_FROM,
    VALID_TO,
    business_fields,
    require_history,
)
from cdckit.parts.arguments import both_sides, require_fields, require_flag, require_name
from cdckit.parts.schemas import quoted, require_batch, require_distinct, require_struct
from cdckit.parts.values import comparable
from cdckit.query.allen import is_period
from cdckit.query.shared_instants import overlapping
from cdckit.query.standing_still import folded, kept, side_column, standing_still

_FUNCTION = "overlay"
_WAYS = ("inner", "left", "full")


@dataclass(frozen=True)
class Side:
    """
    One of the histories of an overlay.

    Args:
        history: One row per version.
        into: The name of the struct column that takes its versions.
        on: Of the first side, the key of the overlay: a field or several, `guid` by default.  Of every
            other side, what the first side and this one have in common: the name of a field, a list of names
            (the same in both), or a mapping of the first side's field to this one's.  A field is a
            business field or `guid`.  By default that is `guid`, too, which entities of two kinds have not in
            common: say what they have.  Null equals null: flights without a tail number lead to a plane
            without one (leave it out with `where`, if null means that nothing is known).
        fields: The business fields that the struct gets; all of them by default, none with `[]`.
        provenance: Whether the struct gets `field_provenance`, too.

    >>> Side(history, into="product", on="number", fields=["name"]).fields
    ['name']
    """

    history: DataFrame
    into: str
    on: str | Sequence[str] | Mapping[str, str] = "guid"
    fields: Sequence[str] | None = None
    provenance: bool = False


def overlay(*sides: Side, how: str = "inner", fold: bool = False) -> DataFrame:
    """
    Histories laid on each other: for each period in which none of them moves, what each of them says.

    At every instant it is the join of what was in force then: `as_of(overlay(a, b), at)`, so to speak, is the
    join of `as_of(a, at)` and `as_of(b, at)`.  The key is that of the first side.  Other sides are found

    - *by the same key*, where their `on` names exactly the key fields of the first;
    - *by a link*, where it names other fields of the first side: a flight's `tail` leads to the version of
      the plane that was in force, and when the flight is given another tail number it leads elsewhere.
      Many flights may lead to one plane.

    Deleted versions are not there: a side that is deleted, or of which nothing is known, is null.

    Args:
        sides: Two or more, the first of which has the key; see `Side`.
        how: Which periods are kept: "inner", those in which all sides are there; "left", those in which the
            first is; "full", those in which any is (by the same key only).
        fold: Make neighbouring periods one if the `guid` and the fields of all sides are equal in them
            (`cdckit.parts.values`).  Its structs are those of the first of them, so an end that is in one
            may come before the row's.  By default a version that differs in provenance alone is a period of
            its own.

    Returns:
        One row per key and period: the key fields (maps as their sorted entries); `valid_from_timestamp` and
        `valid_to_timestamp` (exclusive, null while the period goes on); and for each side a struct: `guid`,
        `valid_from_timestamp` and `valid_to_timestamp` of the version, the fields, `source_message` and, if
        asked for, `field_provenance`; null where that side is not there.  Periods of a key do not overlap.

    Raises:
        MissingColumns, WrongColumnType: A history lacks one of its columns, or two fields that should be
            equal have not the same type.
        InvalidArgument: Fewer than two sides; a history that is a stream, or has two columns that differ in
            case alone; an `on` or `fields` that names nothing, something twice or
            something that is not there; an `into` that another side, a key field or the period has
            already; another *how*; "full" with a link; a *fold* that is neither True nor False.
        SparkRuntimeException: When the result is computed (Spark's; its text names side, key and
            instant): two versions of one side with one key that are not deleted overlap.  Then either
            the history is not sound, or `on` does not tell one entity from the next: where a link leads to
            several entities at once, there is no one state to show, and `join_periods` gives the pairs.

    Cost: one shuffle of all versions by the key and one sort, however many sides there are; a row more for
    each version that ends where no other begins; *fold* sorts once more.  A link costs a `join_periods`
    before.

    Source:
        Snodgrass, Developing Time-Oriented Database Applications in SQL, 1999, ch. 6: sequenced joins.

    >>> prices = history.where("number = 1").withColumns({"price": F.length("name"), "name": F.lit(None)})
    >>> found = overlay(
    ...     Side(history, into="product", on="number", fields=["name"]),
    ...     Side(prices, into="cost", on="number", fields=["price"]),
    ...     how="left",
    ... )
    >>> found.select("number", "valid_from_timestamp", "product.name", "cost.price").orderBy(
    ...     "number", "valid_from_timestamp"
    ... ).show()
    +------+--------------------+------+-----+
    |number|valid_from_timestamp|  name|price|
    +------+--------------------+------+-----+
    |     1| 2024-01-01 09:00:00|kettle|    6|
    |     1| 2024-01-01 10:00:00|teapot|    6|
    |     2| 2024-01-01 09:00:00|   mug| NULL|
    +------+--------------------+------+-----+
    <BLANKLINE>
    """
    sides = _checked_sides(sides, how, fold)
    first, *others = sides
    key = _names(first.on)
    links = [_checked_link(first, side) for side in others]
    _require_names(sides, key)
    for side, link in zip(others, links, strict=True):
        if how == "full" and set(link) != set(key):
            needed = f"inner or left, where {side.into} is found by the link {', '.join(link)}"
            raise InvalidArgument(_FUNCTION, "how", needed, how)
    lines = [_line(first, key, 0)]
    for place, (side, link) in enumerate(zip(others, links, strict=True), 1):
        if set(link) == set(key):
            lines.append(_line(side, [link[name] for name in key], place))
        else:
            lines.append(_line_by_link(first, key, side, link, place))
    names = [_key_column(place) for place in range(len(key))]
    line = reduce(lambda one, more: one.unionByName(more, allowMissingColumns=True), lines)
    rows = kept(standing_still(line, names, [side.into for side in sides]), len(sides), how)
    if fold:
        said = (_said(side, place).alias(side_column(place)) for place, side in enumerate(sides))
        rows = folded(rows, names, F.struct(*said))
    return rows.select(
        *(F.col(column).alias(name) for column, name in zip(names, key, strict=True)),
        VALID_FROM,
        VALID_TO,
        *(F.col(side_column(place)).alias(side.into) for place, side in enumerate(sides)),
    )


def _checked_sides(sides: Sequence[Side], how: str, fold: bool) -> tuple[Side, ...]:
    """The sides, with null for every end that is open; raises for those of no meaning."""
    if len(sides) < 2 or not all(isinstance(side, Side) for side in sides):
        raise InvalidArgument(_FUNCTION, "sides", "two or more Side", sides)
    if how not in _WAYS:
        raise InvalidArgument(_FUNCTION, "how", f"one of {', '.join(_WAYS)}", how)
    require_flag(fold, "fold", function=_FUNCTION)
    for side in sides:
        require_name(side.into, "into", function=_FUNCTION)
        require_flag(side.provenance, "provenance", function=_FUNCTION)
        argument = f"history of {side.into!r}"
        require_distinct(side.history, argument, function=_FUNCTION)
        require_batch(side.history, argument, "ask the table that keeps it", function=_FUNCTION)
        if side.fields is not None and _names(side.fields):
            known = business_fields(side.history).fieldNames()
            require_fields(side.fields, known, "fields", function=_FUNCTION)
    columns = HISTORY_SCHEMA.fieldNames()
    return tuple(
        replace(side, history=require_history(side.history, *columns, function=_FUNCTION)) for side in sides
    )


def _require_names(sides: Sequence[Side], key: Sequence[str]) -> None:
    taken = {name.lower() for name in (*key, VALID_FROM, VALID_TO)}
    for side in sides:
        if side.into.lower() in taken:
            raise InvalidArgument(
                _FUNCTION, "into", f"a name other than {', '.join(sorted(taken))}", side.into
            )
        taken.add(side.into.lower())


def _names(on: str | Iterable[str]) -> list[str]:
    return [on] if isinstance(on, str) else list(on)


def _known(side: Side) -> list[str]:
    return ["guid", *business_fields(side.history).fieldNames()]


def _checked_link(first: Side, side: Side) -> dict[str, str]:
    """What the first side and this one have in common, as a mapping of its field to this one's."""
    if isinstance(first.on, Mapping):
        raise InvalidArgument(_FUNCTION, "on", "of the first side, a field or a list of fields", first.on)
    require_fields(_names(first.on), _known(first), "on", function=_FUNCTION)
    ours, theirs = both_sides(side.on)
    require_fields(ours, _known(first), "on", function=_FUNCTION)
    require_fields(theirs, _known(side), "on", function=_FUNCTION)
    link = dict(zip(ours, theirs, strict=True))
    for field, same in link.items():
        needed, found = (
            each.history.schema[name].dataType.simpleString() for each, name in ((first, field), (side, same))
        )
        if needed != found:
            raise WrongColumnType(_FUNCTION, same, f"{needed}, like {field} in {first.into}", found)
    return link


def _fields(side: Side) -> list[str]:
    return business_fields(side.history).fieldNames() if side.fields is None else _names(side.fields)


def _version(side: Side) -> Column:
    """The struct that a row gets."""
    columns = ["guid", VALID_FROM, VALID_TO, *_fields(side), SOURCE_MESSAGE]
    if side.provenance:
        require_struct(side.history, FIELD_PROVENANCE, function=_FUNCTION)
        columns.append(FIELD_PROVENANCE)
    return F.struct(*(F.col(quoted(name)) for name in columns))


def _alive(side: Side) -> DataFrame:
    return side.history.where(~F.col(DELETED) & is_period(F.col(VALID_FROM), F.col(VALID_TO)))


def _key_columns(side: Side, fields: Sequence[str]) -> list[Column]:
    """Under names of ours: whatever the fields are called, the versions stand in structs."""
    schema = side.history.schema
    return [
        comparable(F.col(quoted(name)), schema[name].dataType).alias(_key_column(place))
        for place, name in enumerate(fields)
    ]


def _line(side: Side, fields: Sequence[str], place: int) -> DataFrame:
    """The versions of a side, each where it begins."""
    state = F.struct(F.col(VALID_TO).alias("ends"), _version(side).alias("version"))
    return _alive(side).select(
        *_key_columns(side, fields), F.col(VALID_FROM).alias("begins"), state.alias(side_column(place))
    )


def _line_by_link(
    first: Side, key: Sequence[str], side: Side, link: Mapping[str, str], place: int
) -> DataFrame:
    """The versions of a side that the versions of the first lead to, cut to these and under their key."""

    def periods(of: Side, fields: Iterable[str], row: Column) -> DataFrame:
        period = (F.col(VALID_FROM).alias("begins"), F.col(VALID_TO).alias("ends"))
        return _alive(of).select(*_key_columns(of, list(fields)), *period, row.alias("row"))

    leading = periods(first, link, F.struct(*_key_columns(first, key)))
    pairs = overlapping(
        leading, periods(side, link.values(), _version(side)), [_key_column(p) for p in range(len(link))]
    )
    # Spark's least passes over nulls: an open end is later than any other.
    ends = F.least("a.ends", "b.ends")
    return pairs.select(
        *(F.col("a.row").getField(_key_column(p)).alias(_key_column(p)) for p in range(len(key))),
        F.greatest("a.begins", "b.begins").alias("begins"),
        F.struct(ends.alias("ends"), F.col("b.row").alias("version")).alias(side_column(place)),
    )


def _said(side: Side, place: int) -> Column:
    version, schema = F.col(side_column(place)), side.history.schema
    parts = [
        comparable(version.getField(name), schema[name].dataType).alias(f"part_{index}")
        for index, name in enumerate(["guid", *_fields(side)])
    ]
    return F.when(version.isNotNull(), F.struct(*parts))


def _key_column(place: int) -> str:
    return f"key_{place}"
