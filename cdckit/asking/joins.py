"""Joins in time: each fact with the versions that were in force when it happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
from cdckit.parts.arguments import require_fields, require_flag, require_name
from cdckit.parts.schemas import quoted, require_columns, require_struct, require_type
from cdckit.parts.values import as_text, comparable

_FUNCTION = "as_of_join"


@dataclass(frozen=True)
class Lookup:
    """
    A history that facts are looked up in, and by what.

    Args:
        history: One row per version.
        on: What a fact and its versions have in common: the name of a field, a list of names (the
            same in both), or a mapping of fact column to field.  A field is a business field of the
            history or its `guid`.
        into: The name of the struct column that takes the version.
        fields: The business fields that the struct gets; all of them by default, none with `[]`.
        provenance: Whether the struct gets `field_provenance`, too.  It is often wider than all
            else together, and everything that the struct holds is shuffled and sorted.

    >>> Lookup(history, on={"product": "number"}, into="sold", fields=["name"]).fields
    ['name']
    """

    history: DataFrame
    on: str | Sequence[str] | Mapping[str, str]
    into: str
    fields: Sequence[str] | None = None
    provenance: bool = False


def as_of_join(facts: DataFrame, *lookups: Lookup, time: str) -> DataFrame:
    """
    Each fact with the version of each lookup that was in force at the fact's time.

    A version is closed at its start and open at its end: a fact at the instant at which one version
    ends and the next starts gets the next.  Deleted versions match nothing, and neither do facts
    before the first version or without a time.  A null in a key is a value like any other, as it is
    in `merge`: it matches null, and keys of any type match if they are equal there (`cdckit.parts.values`).
    (Where null means that nothing is known, and several entities have it, leave them out:
    `history.where("gate IS NOT NULL")`.)

    Args:
        facts: One row per fact, of any columns.
        lookups: One or more, each with its own key; see `Lookup`.
        time: The timestamp column of *facts* that says when a fact was.

    Returns:
        Every fact as often as it was there, its columns unchanged (all of them nullable), and
        behind them one struct column per lookup: `guid`, `valid_from_timestamp`,
        `valid_to_timestamp`, the fields, `source_message` and, if asked for, `field_provenance`.
        The struct is null where no version was in force: drop these rows for an inner join.

    Raises:
        MissingColumns, WrongColumnType: A column is not there, *time* is no timestamp, or a key has not
            the same type in the facts and in the history.
        InvalidArgument: No lookup at all; an `on` or `fields` that names nothing, something twice or
            something that is not there; an `into` that is no name, or that a column of *facts* or another
            lookup has already, be it in another case; a `provenance` that is neither True nor False; or
            two columns of *facts* that differ in case alone.
        SparkRuntimeException: When the result is computed (Spark's; its text names the lookup, the
            key and the instant): two versions of one key that are not deleted overlap.  Then either
            the history is not sound, or `on` does not tell one entity from the next.

    Cost: per lookup one shuffle of facts and versions together by its key and one sort; no join,
    so the work does not grow with facts times versions of a key.  All rows of one key are sorted
    by one task, which spills to disk: a hot key costs time on a cluster, not memory.  A filter of the
    result saves nothing, since an overlap must be found whoever looks: filter the facts before.

    >>> orders = session().createDataFrame(
    ...     [("A", 1, "09:59:59"), ("B", 1, "10:00:00"), ("C", 2, "12:00:00")],
    ...     "order string, number int, time string",
    ... ).withColumn("time", F.to_timestamp(F.concat(F.lit("2024-01-01 "), "time")))
    >>> found = as_of_join(orders, Lookup(history, on="number", into="product"), time="time")
    >>> found.orderBy("order").select("order", "product.name", "product.source_message").show()
    +-----+------+--------------+
    |order|  name|source_message|
    +-----+------+--------------+
    |    A|kettle|            m1|
    |    B|teapot|            m2|
    |    C|  NULL|          NULL|
    +-----+------+--------------+
    <BLANKLINE>
    """
    require_columns(facts, [time], function=_FUNCTION)
    require_type(facts, time, T.TimestampType(), function=_FUNCTION)
    _require_lookups(facts, lookups)
    # All are checked before the first is joined: an error speaks of what the caller gave.
    keys = [_checked_key(facts, lookup) for lookup in lookups]
    held = [_version(lookup) for lookup in lookups]
    for lookup, key, version in zip(lookups, keys, held, strict=True):
        facts = _joined(facts, lookup, key, version, time)
    return facts


def _require_lookups(facts: DataFrame, lookups: Sequence[Lookup]) -> None:
    if not lookups or not all(isinstance(lookup, Lookup) for lookup in lookups):
        raise InvalidArgument(_FUNCTION, "lookups", "one or more Lookup", lookups)
    for lookup in lookups:
        require_name(lookup.into, "into", function=_FUNCTION)
        require_flag(lookup.provenance, "provenance", function=_FUNCTION)
    taken: dict[str, str] = {}
    for name in facts.columns:
        if name.lower() in taken:
            needed = "of columns that differ in more than case"
            raise InvalidArgument(_FUNCTION, "facts", needed, [taken[name.lower()], name])
        taken[name.lower()] = name
    for lookup in lookups:
        if lookup.into.lower() in taken:
            needed = f"a name other than {', '.join(taken.values())}"
            raise InvalidArgument(_FUNCTION, "into", needed, lookup.into)
        taken[lookup.into.lower()] = lookup.into


def _checked_key(facts: DataFrame, lookup: Lookup) -> dict[str, str]:
    """The lookup's key as a mapping of fact column to field."""
    history, on = lookup.history, lookup.on
    require_history(history, *HISTORY_SCHEMA.fieldNames(), function=_FUNCTION)
    key = dict(on) if isinstance(on, Mapping) else {name: name for name in _names(on)}
    known = ["guid", *business_fields(history).fieldNames()]
    require_fields(_names(on.values() if isinstance(on, Mapping) else on), known, "on", function=_FUNCTION)
    require_columns(facts, key, function=_FUNCTION)
    for column, field in key.items():
        needed = history.schema[field].dataType.simpleString()
        found = facts.schema[column].dataType.simpleString()
        if needed != found:
            raise WrongColumnType(_FUNCTION, column, f"{needed}, like {field} in {lookup.into}", found)
    return key


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _version(lookup: Lookup) -> Column:
    """The struct that a fact gets."""
    known = business_fields(lookup.history).fieldNames()
    fields = known if lookup.fields is None else _names(lookup.fields)
    if fields:
        require_fields(fields, known, "fields", function=_FUNCTION)
    columns = ["guid", VALID_FROM, VALID_TO, *fields, SOURCE_MESSAGE]
    if lookup.provenance:
        require_struct(lookup.history, FIELD_PROVENANCE, function=_FUNCTION)
        columns.append(FIELD_PROVENANCE)
    return F.struct(*(F.col(quoted(name)) for name in columns))


def _joined(
    facts: DataFrame, lookup: Lookup, key: Mapping[str, str], version: Column, time: str
) -> DataFrame:
    """
    The facts with one more column.

    Facts and versions stand in one line per key, by time: the version in force at a fact, if any, is
    the last one before it, and a version whose predecessor is still in force overlaps with it.  (If
    no version overlaps with the next one, none overlap: all of them last longer than an instant.)
    """
    fact = F.struct(*(F.col(quoted(name)) for name in facts.columns))
    questions = _in_line(facts, key.keys(), time, F.lit(True).alias("is_fact"), fact.alias("fact"))
    starts = _alive(lookup.history)
    answers = _in_line(
        starts, key.values(), VALID_FROM, F.lit(False).alias("is_fact"), version.alias("version")
    )
    names = [_key_column(index) for index in range(len(key))]
    # At one instant versions come first, since they are closed there; facts without a time before all.
    in_line = Window.partitionBy(*names).orderBy(F.col("instant").asc_nulls_first(), "is_fact")
    last = F.last("version", ignorenulls=True).over(in_line.rowsBetween(Window.unboundedPreceding, -1))
    line = answers.unionByName(questions, allowMissingColumns=True).withColumn("last", last)
    end = F.col("last").getField(VALID_TO)
    in_force = F.col("last").isNotNull() & (end.isNull() | (end > F.col("instant")))
    overlap = F.raise_error(_overlap(lookup.into, {name: line.schema[name].dataType for name in names}))
    # Spark puts no filter of the caller's before one that may give another answer each time; it would ask
    # the caller's first, and never find the overlap of rows that are not wanted.
    looked_at = F.monotonically_increasing_id() >= 0
    kept = line.where(looked_at & F.when(F.col("is_fact"), True).when(in_force, overlap).otherwise(False))
    return kept.select(
        *(F.col("fact").getField(name).alias(name) for name in facts.columns),
        F.when(in_force, F.col("last")).alias(lookup.into),
    )


def _alive(history: DataFrame) -> DataFrame:
    """The versions that are in force at some instant: not deleted, and not over as they start."""
    lasts = F.col(VALID_TO).isNull() | (F.col(VALID_TO) > F.col(VALID_FROM))
    return history.where(~F.col(DELETED) & F.col(VALID_FROM).isNotNull() & lasts)


def _in_line(frame: DataFrame, key: Iterable[str], instant: str, *held: Column) -> DataFrame:
    """The rows of *frame* under names of ours: whatever its columns are called, they stand in a struct."""
    return frame.select(
        *(
            comparable(F.col(quoted(name)), frame.schema[name].dataType).alias(_key_column(index))
            for index, name in enumerate(key)
        ),
        F.col(quoted(instant)).alias("instant"),
        *held,
    )


def _key_column(index: int) -> str:
    return f"key_{index}"


def _overlap(into: str, key: Mapping[str, T.DataType]) -> Column:
    """What to say of a version that begins while another one of its key is in force."""
    values = F.to_json(F.array(*(as_text(F.col(name), kind) for name, kind in key.items())))
    return F.concat(
        F.lit(f"as_of_join() needs one version at a time per key in the lookup {into!r}; of the key "),
        values,
        F.lit(" two overlap at "),
        F.col("instant").cast("string"),
        F.lit(": the history is not sound, or `on` does not tell one entity from the next."),
    )
