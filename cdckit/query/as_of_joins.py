"""Joins in time: each fact with the versions that were in force when it happened, or as it was known then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.history import SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO, is_deleted
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import (
    both_sides,
    quoted,
    require_columns,
    require_instant,
    wrong_argument,
    wrong_type,
)
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.tables import AnyTable, as_spark, with_whole_numbers
from cdckit.parts.values import comparable
from cdckit.parts.workers import map_columns
from cdckit.query.as_of_join_kernel import (
    AT,
    FORGOTTEN,
    IS_DELETED,
    KNOWN,
    OVERLAP,
    REASON,
    SOURCE,
    STAND,
    UNTIL,
    LookupRule,
    answer_batches,
    answer_column,
    answer_columns,
)
from cdckit.query.intervals import (
    is_ever_in_force,
    is_period,
    key_columns,
    overlap_message,
    require_sound_rows,
)
from cdckit.query.lookups import Lookup, LookupGroup, check_key, check_lookups, group_lookups

__all__ = ["Lookup", "as_of_join"]


@takes()
def as_of_join(
    facts: AnyTable, *lookups: Lookup, time: str, known: str | datetime | None = None
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
        facts: One row per fact, of any columns: of Spark, of pandas or of what speaks Arrow's stream, by the
            rules of `changes_from`.
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
        NoSuchArrowType: A part of a key is of a type that workers cannot be given, and its lookup asks for
            more than the version in force, or *known* is given.
        SparkRuntimeException: When the result is computed (Spark's; the text names the lookup, the key and
            the instant in UTC): two versions of one key that are not deleted overlap.  Then either the
            history is not sound, or `on` does not tell one entity from the next.  With *known* an
            overlap that no fact meets may pass.

    Cost: lookups that ask by the same columns of *facts* go together, and those into the same table for the
    same fields read it once.  For each such group facts and versions are shuffled by key and sorted; no
    join, so the work does not grow with facts times versions of a key.  The JVM does that (sorting twice: by
    one number that brings rows near to their places, then in full) and spills to disk: a hot key costs time
    on a cluster, not memory.  With *known*, or any option of `Lookup`, rows are shuffled once more, and
    sorted twice more for each lookup: between, workers are given keys and times, and say which version each
    fact gets.  They hold those of one key in memory (some hundreds of bytes and the key for each fact and
    version, whatever else it has; several keys if Spark's hash of them is the same), and search in time that
    grows as sorting does, times the logarithm of how many beliefs the key has.  A filter of the result saves
    nothing, since an overlap must be found whoever looks: filter the facts before.  A ledger is asked by its
    `history()`, at the commit at which that was called.

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
    if not isinstance(facts, DataFrame):
        keys = {name for lookup in lookups if isinstance(lookup, Lookup) for name in both_sides(lookup.on)[0]}
        facts = as_spark(SparkSession.active(), with_whole_numbers(facts, keys))
    moment = _moment(facts, time, known)
    # All are checked before the first is joined: an error speaks of what the caller gave.
    beliefs = known is not None
    sound = check_lookups(facts, lookups, beliefs=beliefs)
    on = [check_key(facts, lookup) for lookup in sound]
    columns = [lookup.columns() for lookup in sound]
    names = [*facts.columns, *(name for lookup in sound for name in lookup.added_names.values())]
    joined = facts
    for group in group_lookups(sound, on, columns):
        plain = not beliefs and all(lookup.is_plain for lookup, _ in group.lookups)
        joined = _in_force(joined, group, time) if plain else _look_up(joined, group, time, moment)
    return joined.select(*map(quoted, names))


def _moment(facts: DataFrame, time: str, known: str | datetime | None) -> Column | None:
    """The facts' moment of knowledge, if one is asked for; raises for columns that are no instants."""
    if not isinstance(time, str):
        raise wrong_argument("time", "the name of a timestamp column of the facts", time)
    columns = [time, known] if isinstance(known, str) else [time]
    remedy = "A text is the name of a column; an instant is a datetime with tzinfo."
    require_columns(facts, columns, remedy=remedy)
    for name in columns:
        if not isinstance(kind := facts.schema[name].dataType, T.TimestampType):
            remedy = "Make it one: by `pandas.to_datetime(…, utc=True)`, or in Spark by `F.to_timestamp(…)`."
            raise wrong_type(name, "timestamp", kind.simpleString(), remedy)
    if known is None:
        return None
    if isinstance(known, str):
        return F.col(quoted(known))

    if not isinstance(known, datetime):
        needed = "the name of a timestamp column of the facts, or an aware datetime (one with tzinfo)"
        raise wrong_argument("known", needed, known)
    return require_instant(known, "known")


class _Line(NamedTuple):
    """
    A row for each fact and for each version of each source that lookups with one key look into.

    Args:
        rows: The rows.
        by: The columns that tell keys apart fastest.  The first is a number that all rows of a key have;
            other keys may have it too, unless it is the whole key.
        of_facts: The columns of the facts, from the rows of facts.
    """

    rows: DataFrame
    by: list[str]
    of_facts: list[Column]


def _line_up(facts: DataFrame, group: LookupGroup, time: str, known: Column | None = None) -> _Line:
    """Facts and versions; *time* is the facts' column that says when, *known* their moment of knowledge."""
    places = _name_places(facts, group, time)
    line_columns = (*group.key, AT)
    carried = [
        F.col(quoted(name)).alias(place) for name, place in places.items() if place not in line_columns
    ]
    knowledge = [] if known is None else [known.alias(KNOWN)]
    key = key_columns(facts, group.columns)
    questions = facts.select(*key, F.col(quoted(time)).alias(AT), *knowledge, *carried)
    answers = [_answers(group, place, beliefs=known is not None) for place in range(len(group.sources))]
    # The facts come first: a union takes the metadata of a column from its first table.
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), [questions, *answers])
    # All that workers make is nullable: no option of a lookup changes the schema.
    of_facts = [
        (F.col(place) if rows.schema[place].nullable else F.when(F.col(SOURCE).isNull(), F.col(place))).alias(
            name, metadata=facts.schema[name].metadata
        )
        for name, place in places.items()
    ]
    if len(group.key) > 1 or not isinstance(rows.schema[group.key[0]].dataType, T.IntegralType):
        return _Line(rows.withColumn(_GROUP, F.hash(*group.key)), [_GROUP, *group.key], of_facts)
    return _Line(rows, group.key, of_facts)


def _name_places(facts: DataFrame, group: LookupGroup, time: str) -> dict[str, str]:
    """
    Name the columns of the line in which those of the facts are.

    The time is there already, and a part of the key is, if it is compared as it stands.  Where rows are
    sorted and buffered, their width costs time, and so does each look into a struct.
    """
    places = {name: f"fact_{index}" for index, name in enumerate(facts.columns)}
    for part, name in zip(group.key, group.columns, strict=True):
        column = F.col(quoted(name))
        if comparable(column, facts.schema[name].dataType) is column:
            places[name] = part
    return {**places, time: AT}


def _answers(group: LookupGroup, place: int, *, beliefs: bool) -> DataFrame:
    """The versions of the source at a *place* that can answer, each in a struct beside its key and times."""
    source = group.sources[place]
    # Those that are in force at some instant, and believed at some moment: the others answer nothing.
    counts, knowledge = is_ever_in_force(), list[Column]()
    if beliefs:
        counts &= is_period(F.col(SYSTEM_FROM), F.col(SYSTEM_TO))
        knowledge = [F.col(SYSTEM_FROM).alias(KNOWN), F.col(SYSTEM_TO).alias(FORGOTTEN)]
    # A deleted version is no answer; where somebody asks for the reason, it is one.
    if all(lookup.reason is None for lookup in group.of(place)):
        counts &= ~is_deleted()
    return source.history.where(counts).select(
        *key_columns(source.history, source.key),
        F.lit(place).alias(SOURCE),
        F.col(VALID_FROM).alias(AT),
        F.col(VALID_TO).alias(UNTIL),
        is_deleted().alias(IS_DELETED),
        *knowledge,
        F.struct(*(F.col(quoted(name)) for name in source.columns)).alias(_version(place)),
    )


_GROUP = "group"


def _version(place: int) -> str:
    """The name of the column that holds the versions of a source."""
    return f"version_{place}"


def _sort_by_number(line: DataFrame, group: str, number: Column) -> DataFrame:
    """
    The rows of each partition about in the order of their group, and within it of a number.

    To sort by two columns, Spark compares row with row, each from anywhere in memory: that took most of
    the time of this join.  By one number it sorts without a look at the rows.  So they are sorted by a number
    first, which takes them near to their places, and the window's own sort has little left to do.
    """
    # The upper half is of the group, the lower of the number.
    upper, lower = (F.coalesce(half.cast("long"), F.lit(0)) for half in (F.col(group), number))
    return line.sortWithinPartitions(F.shiftleft(upper, 32).bitwiseOR(lower.bitwiseAND(F.lit((1 << 32) - 1))))


def _overlap_message(into: Column, line: DataFrame, group: LookupGroup) -> Column:
    """Say that a version begins while another one of its key is in force."""
    lookup = F.concat(F.lit("lookup '"), into, F.lit("'"))
    key = [(F.col(name), line.schema[name].dataType) for name in group.key]
    return overlap_message(lookup, key, F.col(AT))


def _look_up(facts: DataFrame, lookup_group: LookupGroup, time: str, known: Column | None) -> DataFrame:
    """
    The facts with more columns: workers are given keys and times, and say which version each fact gets.

    All else waits in the JVM, where the versions are then put beside their facts.
    """
    line, (group, *_), of_facts = _line_up(facts, lookup_group, time, known)
    together = line.repartition(group).sortWithinPartitions(group)
    arrow_schema(together.select(*lookup_group.key).schema)  # raises for a key that workers cannot be given
    hows = [LookupRule.from_lookup(lookup, place) for lookup, place in lookup_group.lookups]
    times = [AT, UNTIL, *([KNOWN, FORGOTTEN] if known is not None else [])]
    read = dict.fromkeys([group, *lookup_group.key, SOURCE, *times, IS_DELETED])
    by = partial(answer_batches, group=group, key=lookup_group.key, hows=hows)
    answered = together.withColumn(_ANSWER, map_columns(list(read), by, answer_columns(hows), large=True))
    line = answered.select(*line.columns, f"{_ANSWER}.*")
    overlap = F.col(OVERLAP)
    text = _overlap_message(overlap, line, lookup_group)
    line = require_sound_rows(line, overlap=overlap.isNotNull(), text=text, keep=F.lit(True))
    places = [place for _, place in lookup_group.lookups]
    for index, place in enumerate(places):
        line = _with_version(line, group, index, place, later=places[index + 1 :])
    columns = []
    for index, (lookup, _) in enumerate(lookup_group.lookups):
        columns.append(F.col(_found_column(index)).alias(lookup.into))
        if lookup.reason is not None:
            columns.append(F.col(answer_column(REASON, index)).alias(lookup.reason))
    return line.select(*of_facts, *columns)


_ANSWER = "said"


def _with_version(line: DataFrame, group: str, index: int, place: int, later: Sequence[int]) -> DataFrame:
    """
    Each fact with the version that stands where a lookup says, in a new column.

    A version and the facts that get it have one number, as nothing else of their group has: sorted by it,
    they follow their version.  Facts that get none have no number, and come first.

    Args:
        line: Facts and versions, with what workers said of them.
        group: The column of the group.
        index: Which lookup.
        place: That of its source.
        later: The places of sources that are needed afterwards; of others the versions go.
    """
    stand, source = F.col(answer_column(STAND, index)), F.col(SOURCE)
    near = _sort_by_number(line, group, stand * 2 + source.isNull().cast("long"))
    in_line = Window.partitionBy(group).orderBy(stand.asc_nulls_first(), source.asc_nulls_last())
    so_far = in_line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    version = F.last(_version(place), ignorenulls=True).over(so_far)
    # Versions that are needed afterwards carry none: what is sorted again is to be narrow.
    of_fact = F.when(source.isNull(), version) if later else version
    return near.withColumn(_found_column(index), of_fact).where(source.isNull() | source.isin(*later))


def _found_column(index: int) -> str:
    """The name of the column with what a lookup found."""
    return f"found_{index}"


def _in_force(facts: DataFrame, group: LookupGroup, time: str) -> DataFrame:
    """
    The facts with one more column for each lookup, made by the JVM: no key need fit into memory.

    Facts and versions stand in one line per key, by time: the version in force at a fact, if any, is
    the last one before it, and a version whose predecessor is still in force overlaps with it.  (If
    no version overlaps with the next one, none overlap: all of them last longer than an instant.)
    """
    line, by, of_facts = _line_up(facts, group, time)
    # What this does not sort (keys with one upper half, times before 1970 or from 2106 on), the window does.
    line = _sort_by_number(line.repartition(by[0]), by[0], F.unix_seconds(AT))
    is_fact = F.col(SOURCE).isNull()
    # At one instant versions come first, since they are closed there; facts without a time before all.
    in_line = Window.partitionBy(*by).orderBy(F.col(AT).asc_nulls_first(), F.col(SOURCE).asc_nulls_last())
    so_far = in_line.rowsBetween(Window.unboundedPreceding, -1)
    versions = [_version(place) for place in range(len(group.sources))]
    last = {_last_column(n): F.last(name, ignorenulls=True).over(so_far) for n, name in enumerate(versions)}
    line = line.withColumns(last)
    overlaps = (
        F.when((F.col(SOURCE) == place) & _is_in_force(place), F.lit(group.of(place)[0].into))
        for place in range(len(group.sources))
    )
    overlapping = F.coalesce(*overlaps)
    text = _overlap_message(overlapping, line, group)
    return require_sound_rows(line, overlap=overlapping.isNotNull(), text=text, keep=is_fact).select(
        *of_facts,
        *(
            F.when(_is_in_force(place), F.col(_last_column(place))).alias(lookup.into)
            for lookup, place in group.lookups
        ),
    )


def _last_column(place: int) -> str:
    """The name of the column with the last version of a source."""
    return f"last_{place}"


def _is_in_force(place: int) -> Column:
    """Tell whether the last version of a source is still in force."""
    end = F.col(_last_column(place)).getField(VALID_TO)
    return F.col(_last_column(place)).isNotNull() & (end.isNull() | (end > F.col(AT)))
