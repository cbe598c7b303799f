"""Several histories together: laid on each other (`overlay`), or joined by period (`join_periods`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import (
    HISTORY_SCHEMA,
    STANDARD_COLUMNS,
    VALID_FROM,
    VALID_TO,
    business_fields,
    is_deleted,
    require_history,
)
from cdckit.parts.argument_forms import FLAG, one_of, takes
from cdckit.parts.arguments import (
    both_sides,
    listed,
    quoted,
    require_alike,
    require_batch,
    require_columns,
    require_distinct,
    require_fields,
    require_name,
    require_type,
    wrong_argument,
)
from cdckit.parts.values import comparable
from cdckit.query.intervals import (
    ALLEN_RELATIONS,
    APART,
    SHARING,
    TOUCHING,
    allen_relation,
    find_overlapping,
    fold_periods,
    is_ever_in_force,
    keep_present,
    key_column,
    key_columns,
    period_rows,
    split_periods,
)
from cdckit.query.lookups import JoinedHistory


@dataclass(frozen=True)
class Layer(JoinedHistory):
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

    >>> Layer(history, into="product", on="number", fields=["name"]).fields
    ['name']
    """

    on: str | Sequence[str] | Mapping[str, str] = "guid"


@takes(how=one_of("inner", "left", "full"), fold=FLAG)
def overlay(*layers: Layer, how: str = "inner", fold: bool = False) -> DataFrame:
    """
    Histories laid on each other: for each period in which none of them moves, what each of them says.

    At every instant it is the join of what was in force then: `as_of(overlay(a, b), at)`, so to speak, is the
    join of `as_of(a, valid_at)` and `as_of(b, valid_at)`.  The key is that of the first side.  Other sides
    are found

    - *by the same key*, where their `on` names exactly the key fields of the first;
    - *by a link*, where it names other fields of the first side: a flight's `tail` leads to the version of
      the plane that was in force, and when the flight is given another tail number it leads elsewhere.
      Many flights may lead to one plane.

    Deleted versions are not there: a side that is deleted, or of which nothing is known, is null.

    Args:
        layers: Two or more, the first of which has the key; see `Layer`.
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
            already; "full" with a link.
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
    ...     Layer(history, into="product", on="number", fields=["name"]),
    ...     Layer(prices, into="cost", on="number", fields=["price"]),
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
    layers = _check_layers(layers)
    columns = [side.columns() for side in layers]
    first, *others = layers
    key = listed(first.on)
    links = [dict(zip(key, key, strict=True)), *(_check_link(first, layer) for layer in others)]
    _require_names(layers, key)
    sides = [
        _Side(layer, f"side_{place}", layer_columns, link)
        for place, (layer, layer_columns, link) in enumerate(zip(layers, columns, links, strict=True))
    ]
    for side in sides:
        if how == "full" and not side.has_key(key):
            needed = f"inner or left, where {side.layer.into} is found by the link {', '.join(side.link)}"
            raise wrong_argument("how", needed, how)
    lines = [_line(side, key) if side.has_key(key) else _line_by_link(first, key, side) for side in sides]
    names = [key_column(place) for place in range(len(key))]
    line = reduce(lambda table, more: table.unionByName(more, allowMissingColumns=True), lines)
    into = {side.column: side.layer.into for side in sides}
    rows = keep_present(split_periods(line, names, into), into, how)
    if fold:
        rows = fold_periods(rows, names, F.struct(*map(_content, sides)))
    return rows.select(
        *(F.col(column).alias(name) for column, name in zip(names, key, strict=True)),
        VALID_FROM,
        VALID_TO,
        *(F.col(column).alias(name) for column, name in into.items()),
    )


class _Side(NamedTuple):
    """
    A layer in the line of all versions.

    Args:
        layer: The layer.
        column: The column with its versions.
        columns: What its struct holds.
        link: Its fields, by those of the first side that they are equal to.
    """

    layer: Layer
    column: str
    columns: list[str]
    link: Mapping[str, str]

    def has_key(self, key: Sequence[str]) -> bool:
        """Tell whether it is found by the key of the first side."""
        return set(self.link) == set(key)

    @property
    def version(self) -> Column:
        """The struct of a version."""
        return F.struct(*(F.col(quoted(name)) for name in self.columns))


def _check_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The sides, with null for every end that is open; raises for those of no meaning."""
    if len(layers) < 2 or not all(isinstance(side, Layer) for side in layers):
        raise wrong_argument("layers", "two or more Layers", layers)
    for side in layers:
        side.require_options()
        side.require_rows()
    columns = HISTORY_SCHEMA.fieldNames()
    return tuple(replace(side, history=require_history(side.history, *columns)) for side in layers)


def _require_names(layers: Sequence[Layer], key: Sequence[str]) -> None:
    taken = {name.lower() for name in (*key, VALID_FROM, VALID_TO)}
    for side in layers:
        if side.into.lower() in taken:
            raise wrong_argument("into", f"a name other than {', '.join(sorted(taken))}", side.into)
        taken.add(side.into.lower())


def _check_link(first: Layer, layer: Layer) -> dict[str, str]:
    """Find what the first side and this one have in common: its field by this one's."""
    if isinstance(first.on, Mapping):
        raise wrong_argument("on", "of the first side, a field or a list of fields", first.on)
    first_fields, layer_fields = (
        ["guid", *business_fields(side.history).fieldNames()] for side in (first, layer)
    )
    require_fields(first.on, first_fields, "on")
    own_columns, layer_columns = both_sides(layer.on)
    require_fields(own_columns, first_fields, "on")
    require_fields(layer_columns, layer_fields, "on")
    for field, same in zip(own_columns, layer_columns, strict=True):
        require_alike(layer.history, same, first.history, field, f"in {first.into}")
    return dict(zip(own_columns, layer_columns, strict=True))


def _alive(layer: Layer) -> DataFrame:
    return layer.history.where(~is_deleted() & is_ever_in_force())


def _line(side: _Side, key: Sequence[str]) -> DataFrame:
    """The versions of a side, each where it begins."""
    fields = [side.link[name] for name in key]
    state = F.struct(F.col(VALID_TO).alias("ends"), side.version.alias("version")).alias(side.column)
    begins = F.col(VALID_FROM).alias("begins")
    return _alive(side.layer).select(*key_columns(side.layer.history, fields), begins, state)


def _line_by_link(first: Layer, key: Sequence[str], side: _Side) -> DataFrame:
    """The versions of a side that the versions of the first lead to, cut to these and under their key."""

    def periods(of: Layer, fields: Iterable[str], row: Column) -> DataFrame:
        period = (F.col(VALID_FROM).alias("begins"), F.col(VALID_TO).alias("ends"))
        return _alive(of).select(*key_columns(of.history, fields), *period, row.alias("row"))

    leading = periods(first, side.link, F.struct(*key_columns(first.history, key)))
    targets = periods(side.layer, side.link.values(), side.version)
    pairs = find_overlapping(leading, targets, [key_column(part) for part in range(len(side.link))])
    # Spark's least passes over nulls: an open end is later than any other.
    ends = F.least("a.ends", "b.ends")
    return pairs.select(
        "a.row.*",
        F.greatest("a.begins", "b.begins").alias("begins"),
        F.struct(ends.alias("ends"), F.col("b.row").alias("version")).alias(side.column),
    )


def _content(side: _Side) -> Column:
    """Choose what counts of a version where periods are folded: the entity and the fields."""
    version, schema = F.col(side.column), side.layer.history.schema
    fields = [name for name in side.columns if name == "guid" or name not in STANDARD_COLUMNS]
    parts = [
        comparable(version.getField(name), schema[name].dataType).alias(f"part_{index}")
        for index, name in enumerate(fields)
    ]
    return F.when(version.isNotNull(), F.struct(*parts)).alias(side.column)


@takes()
def join_periods(
    a: DataFrame,
    b: DataFrame,
    relations: str | Sequence[str] = SHARING,
    *,
    on: str | Sequence[str] | Mapping[str, str] = (),
    period: tuple[str, str] = (VALID_FROM, VALID_TO),
    into: tuple[str, str] = ("a", "b"),
) -> DataFrame:
    """
    The pairs of rows of two tables whose periods have one of Allen's relations.

    Args:
        a: One row per period, of any columns.  Versions of deleted entities are periods, too: leave them out
            with `where`, if they are not meant.
        b: Another such table.
        relations: One of `ALLEN_RELATIONS`, or several: what a is to b.  By default the nine in which the two
            share an instant.
        on: What the two rows of a pair have in common, besides: a column, a list of columns (the same in
            both), or a mapping of a's column to b's.  Null equals null.  Nothing by default.
        period: The two columns, in both tables, where a period begins, and where it ends (exclusive, null
            for an open end, or what stands for it in a table that `scd_type_2` made).  A row without a
            beginning, or with an end that is not after it, is no period and in no pair.
        into: The names of the two struct columns.

    Returns:
        One row per pair, each as often as its rows are there: a struct with the row of *a*, one with the row
        of *b*, and `relation` (text).

    Raises:
        MissingColumns, WrongColumnType: A column is not there, *period* is not of timestamps, or *on* has not
            the same type in both.
        InvalidArgument: A table that is a stream, or has two columns that differ in case alone; a relation
            that is none, or none at all; "before" or "after" without *on*: nearly every row is before or
            after every other; a *period* or *into* that is no pair of names; two equal names in *into*.

    Cost: each table is read more than once.  With *on*, rows are counted by it first.  Of a value that few
    rows have (64 in both tables together), all pairs are compared: that takes a quarter more than a join by
    equality.  Rows of other values, and all without *on*, are sorted by their beginnings and numbered, by
    *on* or else by the hour; each period knows then which numbers of the other table begin within it, and
    is joined with those by equality.  So the work grows with rows and pairs that share an instant, also
    for long periods among short ones and for many at one time: nothing is compared with everything.  Of each
    value of *on*, or hour, one task sorts the beginnings.  "meets" and "met_by" are joins by equality;
    "before" and "after" compare all rows of one value of *on*.

    >>> def periods(*rows):
    ...     frame = session().createDataFrame(list(rows), "what string, begins int, ends int")
    ...     hours = (F.timestamp_seconds(3600 * F.col(end)).alias(end) for end in ("begins", "ends"))
    ...     return frame.select("what", *hours)
    >>> shifts = periods(("early", 6, 14), ("late", 14, 22))
    >>> repairs = periods(("lamp", 13, 15), ("lift", 20, 21))
    >>> pairs = join_periods(repairs, shifts, period=("begins", "ends"), into=("repair", "shift"))
    >>> relations = pairs.select("repair.what", "relation", F.col("shift.what").alias("shift"))
    >>> relations.orderBy("what", "shift").show()
    +----+-------------+-----+
    |what|     relation|shift|
    +----+-------------+-----+
    |lamp|overlapped_by|early|
    |lamp|     overlaps| late|
    |lift|       during| late|
    +----+-------------+-----+
    <BLANKLINE>
    """
    wanted = require_fields(relations, ALLEN_RELATIONS, "relations")
    key = _require_tables(a, b, on, period, into)
    if not key and set(wanted) & set(APART):
        needed = "on, where before or after is asked for: nearly every row is before or after every other"
        raise wrong_argument("on", needed, on)
    names = [key_column(index) for index in range(len(key))]
    left, other = period_rows(a, list(key), period), period_rows(b, list(key.values()), period)
    tables = [
        join(left, other, names)
        for kinds, join in ((SHARING, find_overlapping), (TOUCHING, _pair_touching), (APART, _pair_apart))
        if set(wanted) & set(kinds)
    ]
    pairs = reduce(DataFrame.unionByName, tables)
    # A name of a column has no parts: these are fields of structs.
    relation = allen_relation(*(F.col(f"{side}.{end}") for side in "ab" for end in ("begins", "ends")))
    related = pairs.select("a", "b", relation.alias("relation")).where(F.col("relation").isin(wanted))
    return related.select(F.col("a.row").alias(into[0]), F.col("b.row").alias(into[1]), "relation")


def _require_tables(
    a: DataFrame,
    b: DataFrame,
    on: str | Sequence[str] | Mapping[str, str],
    period: tuple[str, str],
    into: tuple[str, str],
) -> dict[str, str]:
    """The common columns as a mapping of a's to b's."""
    key = dict(zip(*both_sides(on), strict=True))
    for argument, two in (("period", period), ("into", into)):
        if isinstance(two, str) or not isinstance(two, Sequence) or len(two) != 2:
            raise wrong_argument(argument, "a pair of names", two)
    for argument, frame, columns in (("a", a, key), ("b", b, key.values())):
        require_columns(frame, [*period, *columns])
        for column in period:
            require_type(frame, column, T.TimestampType())
        require_distinct(frame, argument)
        require_batch(frame, argument, "join what it has written")
    for column, same in key.items():
        require_alike(b, same, a, column, "of a")
    for name in into:
        require_name(name, "into")
    if len({name.lower() for name in (*into, "relation")}) < 3:
        raise wrong_argument("into", "two names, neither of them relation", into)
    return key


def _pair_touching(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs in which one period ends as the other begins."""
    meets = _pair_where(a, b, keys, F.col("a.ends") == F.col("b.begins"))
    return meets.unionByName(_pair_where(a, b, keys, F.col("a.begins") == F.col("b.ends")))


def _pair_apart(a: DataFrame, b: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The pairs of one key in which one period is over before the other begins."""
    apart = (F.col("a.ends") < F.col("b.begins")) | (F.col("b.ends") < F.col("a.begins"))
    return _pair_where(a, b, keys, apart)


def _pair_where(a: DataFrame, b: DataFrame, keys: Sequence[str], condition: Column) -> DataFrame:
    """The pairs of one key for which a condition on the structs `a` and `b` holds."""
    period = F.struct("begins", "ends", "row")
    left, other = (
        frame.select(*(F.col(key).alias(f"{side}_{key}") for key in keys), period.alias(side))
        for frame, side in ((a, "a"), (b, "b"))
    )
    same = (F.col(f"a_{key}").eqNullSafe(F.col(f"b_{key}")) for key in keys)
    return left.join(other, reduce(Column.__and__, same, condition), "inner").select("a", "b")
