"""Joins in time: each fact with the versions that were in force when it happened, or as it was known then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.asking import join_rows as rows
from cdckit.asking.join_answers import How
from cdckit.asking.join_rows import Asked, asked_by_key, version_column
from cdckit.asking.join_workers import joined
from cdckit.asking.lookups import FUNCTION, Lookup, checked_key, require_lookups, version_columns
from cdckit.asking.overlapping_versions import overlap_text, where_sound
from cdckit.errors import InvalidArgument
from cdckit.history import VALID_TO, end_of
from cdckit.parts.arguments import require_instant
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.schemas import quoted, require_columns, require_type
from cdckit.parts.workers import Made

__all__ = ["Lookup", "as_of_join"]


def as_of_join(
    facts: DataFrame, *lookups: Lookup, time: str, known: str | datetime | None = None
) -> DataFrame:
    """
    Each fact with the version of each lookup that was in force at the fact's time.

    A version is closed at its start and open at its end: a fact at the instant at which one version
    ends and the next starts gets the next.  Deleted versions match nothing, and neither do facts
    before the first version or without a time.  A null in a key is a value like any other, as it is
    in `merge`: it matches null, and keys of any type match if they are equal there (`cdckit.parts.values`).
    (Where null means that nothing is known, and several entities have it, leave them out:
    `history.where("gate IS NOT NULL")`.)

    With *known* it is the version in force *as it was known* at that moment, so that nothing which
    arrived later can leak into what a model learns from: messages that arrive after a fact's moment of
    knowledge change nothing that the struct holds, neither values nor the end that was expected then.
    (Without *known*, `valid_to_timestamp` is from the fact's future: it is no feature.)

    Other engines join by starts alone, and would answer otherwise in three places.  pandas' `merge_asof` and
    DuckDB's `ASOF JOIN` find the last start before a fact, also of a version that has ended or that is
    deleted; here nothing is found then, and forward and nearest pass over deleted versions.  With two rows
    of one key at one instant they take one; here that is an overlap.  tempo's `asofJoin` fills a null from
    an earlier row unless told not to; here a null is what the version says.

    Args:
        facts: One row per fact, of any columns.
        lookups: One or more, each with its own key; see `Lookup`, also for what else than the version in
            force can be asked for.
        time: The timestamp column of *facts* that says when a fact was.
        known: The moment of knowledge: a timestamp column of *facts*, or an aware datetime for all of them.
            What arrived at that moment was known.  Every lookup must then be a bitemporal table.

    Returns:
        Every fact as often as it was there, its columns unchanged (with their metadata, all of them
        nullable), and behind them for each lookup one struct column: `guid`, `valid_from_timestamp`,
        `valid_to_timestamp`, with *known* `system_from_timestamp` (since when it had been believed), the
        fields, `source_message` and, if asked for, `field_provenance`; and, if asked for, the reason.
        The struct is null where nothing was found: drop these rows for an inner join.

    Raises:
        MissingColumns, WrongColumnType: A column is not there, *time* or *known* is no timestamp, or a key
            has not the same type in the facts and in the history.
        InvalidArgument: No lookup at all; a *time* that is no name, a *known* that is neither a name nor an
            aware datetime; a lookup that is no bitemporal table where *known* is given, or is one where it is
            not; an `on` or `fields` that names nothing, something twice or something that is not there; an
            `into` or `reason` that is no name, or that a column of *facts* or another lookup has already, be
            it in another case; a `tolerance` below zero; another `direction`; a `provenance` or `strictly`
            that is neither True nor False; a table that is a stream, or has two columns that differ in case
            alone.
        NoSuchArrowType: A column is of a type that workers cannot be given, and a lookup asks for more than
            the version in force, or *known* is given.
        SparkRuntimeException: When the result is computed (Spark's; the text names the lookup, the key and
            the instant in UTC): two versions of one key that are not deleted overlap.  Then either the
            history is not sound, or `on` does not tell one entity from the next.  With *known* an
            overlap that no fact meets may pass.

    Cost: lookups that ask by the same columns of *facts* go together, and those into the same table for the
    same fields read it once.  Each such group is one shuffle of facts and versions by key, and a sort; no
    join, so the work does not grow with facts times versions of a key.  For the version in force alone, the
    JVM sorts the rows of a key (twice: by one number that brings them near to their places, then in full)
    and spills to disk: a hot key costs time on a cluster, not memory.  With *known*, or any option of
    `Lookup`, workers hold the facts and versions of one key in memory; they search in time that grows as
    sorting does, times the logarithm of how many beliefs the key has.  A filter of the result saves nothing,
    since an overlap must be found whoever looks: filter the facts before.  A ledger is
    asked by its `history()`, at the commit at which that was called.

    Source:
        SQL:2011, `FOR SYSTEM_TIME AS OF` with a point in application time; Feast, point-in-time joins.

    >>> orders = session().createDataFrame(
    ...     [("A", 1, "09:59:59"), ("B", 1, "10:00:00"), ("C", 2, "12:00:00")],
    ...     "order string, number int, time string",
    ... ).withColumn("time", F.to_timestamp(F.concat(F.lit("2024-01-01 "), "time")))
    >>> lookup = Lookup(history, on="number", into="product", reason="why_not")
    >>> found = as_of_join(orders, lookup, time="time")
    >>> found.orderBy("order").select("order", "product.name", "product.source_message", "why_not").show()
    +-----+------+--------------+-------+
    |order|  name|source_message|why_not|
    +-----+------+--------------+-------+
    |    A|kettle|            m1|   NULL|
    |    B|teapot|            m2|   NULL|
    |    C|  NULL|          NULL|deleted|
    +-----+------+--------------+-------+
    <BLANKLINE>

    As it was known half an hour before, when nobody had said yet that there would be a teapot:

    >>> from cdckit import bitemporal
    >>> table = bitemporal(changes, entity="product", keys=["number"])
    >>> early = orders.withColumn("decided", F.expr("time - INTERVAL 30 MINUTES"))
    >>> lookup = Lookup(table, on="number", into="product", fields=["name"])
    >>> found = as_of_join(early, lookup, time="time", known="decided")
    >>> found.orderBy("order").select("order", "product.name").show()
    +-----+------+
    |order|  name|
    +-----+------+
    |    A|kettle|
    |    B|kettle|
    |    C|  NULL|
    +-----+------+
    <BLANKLINE>
    """
    moment = _moment(facts, time, known)
    require_lookups(facts, lookups)
    # All are checked before the first is joined: an error speaks of what the caller gave.
    beliefs = known is not None
    keys = [checked_key(facts, lookup, beliefs=beliefs) for lookup in lookups]
    columns = [version_columns(lookup, beliefs=beliefs) for lookup in lookups]
    names = [*facts.columns, *(name for lookup in lookups for name in lookup.made.values())]
    found = facts
    for asked in asked_by_key(lookups, keys, columns):
        plain = not beliefs and all(lookup.is_plain for lookup in asked.lookups)
        found = _in_force(found, asked, time) if plain else _looked_up(found, asked, time, moment)
    return found.select(*map(quoted, names))


def _moment(facts: DataFrame, time: str, known: str | datetime | None) -> Column | None:
    """The facts' moment of knowledge, if one is asked for; raises for columns that are no instants."""
    if not isinstance(time, str):
        raise InvalidArgument(FUNCTION, "time", "the name of a timestamp column of the facts", time)
    columns = [time, known] if isinstance(known, str) else [time]
    require_columns(facts, columns, function=FUNCTION)
    for name in columns:
        require_type(facts, name, T.TimestampType(), function=FUNCTION)
    if known is None:
        return None
    if isinstance(known, str):
        return F.col(quoted(known))

    if not isinstance(known, datetime):
        needed = "the name of a timestamp column of the facts, or an aware datetime (one with tzinfo)"
        raise InvalidArgument(FUNCTION, "known", needed, known)

    def call(said: str) -> str:
        return f"as_of_join(facts, …, time={time!r}, known={said})"

    return require_instant(known, "known", function=FUNCTION, call=call)


def _looked_up(facts: DataFrame, asked: Asked, time: str, known: Column | None) -> DataFrame:
    """The facts with more columns, made by workers: a key's rows lie together, and one holds them all."""
    together = rows.rows(facts, asked, time, known, [rows.whole_fact(facts)]).repartition(*asked.key)
    of = together.sortWithinPartitions(*asked.key)
    made = [T.StructField(each.name, each.dataType, metadata=each.metadata) for each in facts.schema]
    for place, lookup in zip(asked.source_of, asked.lookups, strict=True):
        made.append(T.StructField(lookup.into, of.schema[version_column(place)].dataType))
        if lookup.reason is not None:
            made.append(T.StructField(lookup.reason, T.StringType()))
    overlap = _free_name("overlap", [each.name for each in made])
    said = T.StructType([of.schema[name] for name in (*asked.key, rows.AT)]).add(rows.LOOKUP, T.StringType())
    columns = T.StructType([*made, T.StructField(overlap, said)])
    hows = list(map(How.of, asked.lookups, asked.source_of))
    by = partial(joined, key=asked.key, hows=hows, schema=arrow_schema(columns, large=True))
    found = Made(of, by, columns, large=True).rows()
    told = {name: F.col(overlap).getField(name) for name in said.fieldNames()}
    key = [(told[name], said[name].dataType) for name in asked.key]
    text = _overlap_text(told[rows.LOOKUP], key, told[rows.AT])
    sound = where_sound(found, overlap=F.col(overlap).isNotNull(), text=text, keep=F.lit(True))
    return sound.drop(overlap)


def _in_force(facts: DataFrame, asked: Asked, time: str) -> DataFrame:
    """
    The facts with one more column for each lookup, made by the JVM: no key need fit into memory.

    Facts and versions stand in one line per key, by time: the version in force at a fact, if any, is
    the last one before it, and a version whose predecessor is still in force overlaps with it.  (If
    no version overlaps with the next one, none overlap: all of them last longer than an instant.)
    """
    places = rows.side_by_side(facts, asked, time)
    there = (*asked.key, rows.AT)
    carried = [F.col(quoted(name)).alias(place) for name, place in places.items() if place not in there]
    line, by = _nearly_sorted(rows.rows(facts, asked, time, None, carried), asked.key)
    is_fact = F.col(rows.SOURCE).isNull()
    # At one instant versions come first, since they are closed there; facts without a time before all.
    in_line = Window.partitionBy(*by).orderBy(
        F.col(rows.AT).asc_nulls_first(), F.col(rows.SOURCE).asc_nulls_last()
    )
    so_far = in_line.rowsBetween(Window.unboundedPreceding, -1)
    held = [version_column(place) for place in range(len(asked.sources))]
    line = line.withColumns(
        {_last(place): F.last(name, ignorenulls=True).over(so_far) for place, name in enumerate(held)}
    )
    overlapping = F.coalesce(
        *(
            F.when((F.col(rows.SOURCE) == place) & _lasts(asked, place), F.lit(asked.first_into(place)))
            for place in range(len(asked.sources))
        )
    )
    key = [(F.col(name), line.schema[name].dataType) for name in asked.key]
    text = _overlap_text(overlapping, key, F.col(rows.AT))
    return where_sound(line, overlap=overlapping.isNotNull(), text=text, keep=is_fact).select(
        *(
            _of_fact(line, places[each.name]).alias(each.name, metadata=each.metadata)
            for each in facts.schema
        ),
        *(
            F.when(_lasts(asked, place), F.col(_last(place))).alias(lookup.into)
            for place, lookup in zip(asked.source_of, asked.lookups, strict=True)
        ),
    )


_GROUP = "group"


def _nearly_sorted(line: DataFrame, key: Sequence[str]) -> tuple[DataFrame, list[str]]:
    """
    The rows of a key together and about in the order of time; and the columns that tell keys apart fastest.

    To sort by a key and a time, Spark compares row with row, each from anywhere in memory: that took most of
    the time of this join.  By one number it sorts without a look at the rows.  So they are sorted by a number
    first, which takes them near to their places, and the window's own sort has little left to do.
    """
    columns = list(key)
    if len(key) > 1 or not isinstance(line.schema[key[0]].dataType, T.IntegralType):
        line, columns = line.withColumn(_GROUP, F.hash(*key)), [_GROUP, *key]
    # The upper half is of the key, the lower of the time.  What this does not sort (keys with one upper half,
    # times from 2106 on), the window does.
    group = F.coalesce(F.col(columns[0]).cast("long"), F.lit(0))
    seconds = F.coalesce(F.unix_seconds(rows.AT), F.lit(0)).bitwiseAND(F.lit((1 << 32) - 1))
    together = line.repartition(columns[0])
    return together.sortWithinPartitions(F.shiftleft(group, 32).bitwiseOR(seconds)), columns


def _of_fact(line: DataFrame, name: str) -> Column:
    """A column of facts, nullable as all that workers make: no option of a lookup changes the schema."""
    if line.schema[name].nullable:
        return F.col(name)
    return F.when(F.col(rows.SOURCE).isNull(), F.col(name))


def _last(place: int) -> str:
    """The name of the column with the last version of a source."""
    return f"last_{place}"


def _lasts(asked: Asked, place: int) -> Column:
    """Whether the last version of a source is still in force."""
    end = end_of(asked.sources[place].history, end=F.col(_last(place)).getField(VALID_TO))
    return F.col(_last(place)).isNotNull() & (end.isNull() | (end > F.col(rows.AT)))


def _overlap_text(into: Column, key: Iterable[tuple[Column, T.DataType]], at: Column) -> Column:
    """What to say of a version that begins while another one of its key is in force."""
    lookup = F.concat(F.lit("lookup '"), into, F.lit("'"))
    return overlap_text(lookup, key, at, function=FUNCTION)


def _free_name(name: str, taken: Iterable[str]) -> str:
    """A name that no column has: this one, or with lines behind it."""
    lower = {each.lower() for each in taken}
    while name in lower:
        name += "_"
    return name
