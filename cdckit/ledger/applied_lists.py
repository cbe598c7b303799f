"""
Full lists of a source in a ledger: which ones it has, and what a list that comes or goes changes in the log.

The log holds what each list says against the one before it, and nothing else (`cdckit.changes_from_snapshots`
of all lists).  So what a source said at an instant is, of each entity, the last change of its lists until
then; and a list that comes between two others, or is revoked, changes what the one after it says.
Lists that said nothing new are in no change: the table `lists` has them all.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import SparkRuntimeException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import InvalidArgument, UnfitList
from cdckit.ledger.erasure.tombstones import Erasures
from cdckit.ledger.field_types import fit_changes
from cdckit.ledger.intake import ApplyResult, remove_changes, take_changes
from cdckit.ledger.kind import Kind
from cdckit.ledger.list_intake import GivenLists, cast_to_log, without_erased
from cdckit.ledger.log_rows import to_log_rows, visible_changes
from cdckit.ledger.views import Gate, run_gate
from cdckit.merging.arrow_changes import GUID
from cdckit.model.changes import ABSENT, empty_fields, note_empty
from cdckit.model.list_comparison import NAMED_LISTS, compare_lists, content_digest, is_list_change
from cdckit.model.sources import Priority, with_priorities
from cdckit.model.unions import unite
from cdckit.parts.arguments import microseconds, require_struct
from cdckit.parts.instants import EPOCH, INSTANT, instant_literal
from cdckit.parts.workers import local_frame
from cdckit.store import Snapshot, Transaction

_LOG = logging.getLogger(__name__)
FUNCTION = "apply_list"


class KnownList(NamedTuple):
    """A list that the ledger has: how many entities it names, and how much its source's word counts in it."""

    rows: int
    priority: Priority


KnownLists = dict[str, dict[int, KnownList]]
"""The lists of each source, by the instant in microseconds."""


def known_lists(base: Snapshot, kind: Kind) -> KnownLists:
    """The lists that a ledger has."""
    lists: KnownLists = {}
    if base.has(kind.lists):
        for row in base.arrow(kind.lists).to_pylist():
            known_list = KnownList(row["rows"], Priority(row["priority"], dict(row["field_priorities"])))
            lists.setdefault(row["source"], {})[microseconds(row["taken"], "taken")] = known_list
    return lists


def note_lists(transaction: Transaction, kind: Kind, stated_lists: KnownLists) -> None:
    """Let the ledger have these lists."""
    rows = [
        (source, at, known_list)
        for source, lists in stated_lists.items()
        for at, known_list in sorted(lists.items())
    ]
    of_fields = [list(known_list.priority.fields.items()) for *_, known_list in rows]
    columns = {
        "source": pa.array([row[0] for row in rows], pa.string()),
        "taken": pa.array([row[1] for row in rows], pa.int64()).cast(INSTANT),
        "rows": pa.array([known_list.rows for *_, known_list in rows], pa.int64()),
        "priority": pa.array([known_list.priority.entity for *_, known_list in rows], pa.int32()),
        "field_priorities": pa.array(of_fields, pa.map_(pa.string(), pa.int32())),
    }
    transaction.replace(kind.lists, pa.table(columns))


def _with_priorities(
    changes: DataFrame, source: str, priority: Priority, other_priorities: Mapping[int, Priority]
) -> DataFrame:
    """Let each change count as much as the list that says it: as *priority*, or as that of its instant."""
    if not other_priorities and not priority.fields and "field_priorities" not in changes.columns:
        return changes.withColumn("priority", F.lit(priority.entity))
    ranked, names = with_priorities(changes, {source: priority}), ("priority", "field_priorities")
    for at, other_priority in other_priorities.items():
        before = ranked.withColumn("before", F.struct(*names))
        is_its_word = F.unix_micros("effective_timestamp") == F.lit(at)
        restated = {
            name: F.when(is_its_word, F.col(name)).otherwise(F.col(f"before.{name}")) for name in names
        }
        ranked = with_priorities(before, {source: other_priority}).withColumns(restated).drop("before")
    return ranked


class Restatement(NamedTuple):
    """
    What changes in the log where lists of a source come or go.

    Args:
        changes: What the lists *stated* say now, and `begins` beside it; perhaps the log has it already.
        stale: What the log has of them, and of those that are gone, and they say no longer: `guid` and
            `message_id`; None where that cannot be.
        before: Of each list that is stated anew the one before it; None for the first.
    """

    changes: DataFrame
    stale: DataFrame | None
    before: Mapping[int, int | None]


def restate_lists(
    transaction: Transaction,
    kind: Kind,
    source: str,
    lists: Mapping[int, KnownList],
    given: GivenLists | None,
    revoked: Collection[int] = (),
) -> Restatement:
    """
    Compare each list that comes with the one before it, and each that follows one that comes or goes.

    *lists* are those of the source that the ledger has, *given* those that come, of which the ledger may have
    some, and *revoked* those of the ledger that go.  Each keeps its own priority, also where another one
    makes it say something anew.

    Cost: one scan of the log, an aggregation of what the source's lists said, one shuffle of that and of
        what is given by key.
    """
    new = [] if given is None else [at for at in given.taken if at not in lists]
    after = sorted({*lists, *new} - set(revoked))
    later = [bisect_right(after, at) for at in (*new, *revoked)]
    stated = sorted({*new, *(after[place] for place in later if place < len(after))})
    previous = dict(zip(after, [None, *after], strict=False))
    before = {at: previous[at] for at in stated}
    neighbours = {*stated, *(at for at in before.values() if at is not None)} - set(new)
    if given is None:
        rows = list_rows_at(transaction, kind, source, neighbours)
    else:
        rows = given.rows.where(F.unix_micros("effective_timestamp").isin(new))
        if neighbours:
            rows = unite([list_rows_at(transaction, kind, source, neighbours), rows])
    empty = empty_fields(rows.schema)
    following = [(at, next_) for next_, at in before.items() if at is not None]
    changes = compare_lists(_with_next_list(rows, following), kind.keys, F.lit("")).where(
        F.unix_micros("effective_timestamp").isin(stated)
    )
    priorities = {at: lists[at].priority for at in stated if at in lists}
    priority = next(iter(priorities.values()), Priority()) if given is None else given.priority
    others = {at: other for at, other in priorities.items() if other != priority}
    changes = _with_priorities(changes, source, priority, others)
    try:
        kept = transaction.scratch(changes).withMetadata("data", note_empty(empty))
    except SparkRuntimeException as error:
        if given is not None and len(new) == 1 and error.getCondition() == "USER_RAISED_EXCEPTION":
            raise _unusable_list(source, new[0], error) from error
        raise
    touched = [at for at in {*stated, *revoked} if at in lists]
    return Restatement(kept, _stale(transaction, kind, source, touched, kept) if touched else None, before)


def list_rows_at(transaction: Transaction, kind: Kind, source: str, instants: Collection[int]) -> DataFrame:
    """Read what the lists of a source named at some instants, as upserts of these instants."""
    spark = transaction.spark
    log = visible_changes(transaction.read(kind.changes), kind).where(_is_of_source(source))
    at = local_frame(spark, [(instant,) for instant in instants], "at long")
    until = log.join(F.broadcast(at), F.unix_micros("effective_timestamp") <= F.col("at"))
    names = [name for name in log.columns if name not in (GUID, "effective_timestamp")]
    last = F.max_by(F.struct(*names), "effective_timestamp").alias("last")
    states = until.groupBy("at", GUID).agg(last).where(F.col("last.operation") != ABSENT)
    return states.select(F.timestamp_micros("at").alias("effective_timestamp"), "last.*")


def _is_of_source(source: str | None) -> Column:
    return F.col("source").eqNullSafe(F.lit(source)) & is_list_change()


def _with_next_list(rows: DataFrame, following: list[tuple[int, int]]) -> DataFrame:
    """The rows, each with when its list was taken, and the one after it where that is compared with it."""
    later = local_frame(rows.sparkSession, following, "at long, later long")
    joined = rows.join(F.broadcast(later), F.unix_micros("effective_timestamp") == F.col("at"), "left")
    weighed = [name for name in ("priority", "field_priorities") if name in rows.columns]
    times = F.col("effective_timestamp").alias("taken"), F.timestamp_micros("later").alias("next_taken")
    return joined.select("source", *times, *weighed, "data", "carried")


def _stale(
    transaction: Transaction, kind: Kind, source: str, instants: list[int], changes: DataFrame
) -> DataFrame:
    log = transaction.read(kind.changes).where(_is_of_source(source))
    logged = log.where(F.unix_micros("effective_timestamp").isin(instants)).select(GUID, "message_id")
    now = changes.select(kind.guid_of("data").alias(GUID), "message_id")
    return logged.join(now, [GUID, "message_id"], "left_anti")


# Applying -------------------------------------------------------------------------------------------------


def apply_lists(
    transaction: Transaction, kind: Kind, given: GivenLists, max_deleted: float | None, gate: Gate | None
) -> ApplyResult:
    """Do what `Ledger.apply_list` does, and commit."""
    kind, given = cast_to_log(transaction, kind, given)
    whole, given = given, without_erased(transaction, kind, given)
    all_lists = known_lists(transaction.base, kind)
    lists = all_lists.get(given.source, {})
    repeated = [at for at in given.taken if at in lists]
    if repeated:
        require_same(transaction, kind, given, lists, repeated)
    if len(repeated) == len(given.taken):
        return ApplyResult(transaction.commit(reads=[kind.lists]).version, 0, repeated=True)
    other_sources = ", ".join(sorted(repr(name) for name in all_lists if name != given.source))
    if other_sources and not lists:
        sentence = "apply_list(): the first list of source=%r, which ends nothing; there are lists of %s"
        _LOG.warning(sentence, given.source, other_sources)
    restatement = restate_lists(transaction, kind, given.source, lists, given)
    behind = {at: before for at, before in restatement.before.items() if at not in lists and before in lists}
    _warn_of_left_out(transaction, kind, given, behind)
    counts, lost = count_lists(transaction, kind, whole, lists, restatement, max_deleted)
    new = {at: KnownList(rows, given.priority) for at, rows in counts.items()}
    all_lists[given.source] = {**lists, **new}
    return replace(_apply_restatement(transaction, kind, restatement, all_lists, gate), deleted=lost)


def _warn_of_left_out(
    transaction: Transaction, kind: Kind, given: GivenLists, before: Mapping[int, int | None]
) -> None:
    """
    Log a warning where columns that the list before had are left out, or are called otherwise now.

    *before* are the lists of the ledger right before those that are given, which have all the same columns.
    """
    given_names = require_struct(given.rows, "data").names
    names = sorted(set(kind.fields(transaction).names) - set(given_names))
    previous = {at: list_ for list_, at in before.items() if at is not None}
    if not previous or not names:
        return
    rows = list_rows_at(transaction, kind, given.source, previous)
    at = F.unix_micros("effective_timestamp").alias("at")
    had = [F.coalesce(F.bool_or(F.col("carried").getField(name)), F.lit(False)).alias(name) for name in names]
    for row in rows.groupBy(at).agg(*had).orderBy("at").collect():
        left_out = ", ".join(name for name in names if row[name])
        if left_out:
            new = ", ".join(name for name in given_names if name not in kind.fields(transaction).names)
            renamed = f"; new in it: {new}.  A column that was renamed needs its old name: revoke_list(), and"
            sentence = "apply_list(): the list of %s has no %s, so what the list before says of it stands%s"
            also = f"{renamed} again" if new else ""
            _LOG.warning(sentence, to_instant(previous[row["at"]]).isoformat(), left_out, also)


def revoke_list(transaction: Transaction, kind: Kind, source: str, at: int, gate: Gate | None) -> ApplyResult:
    """Do what `Ledger.revoke_list` does, and commit."""
    all_lists = known_lists(transaction.base, kind)
    lists = all_lists.get(source, {})
    if at not in lists:
        needed = f"an instant at which a list of {source!r} was taken; ledger.lists() shows them"
        raise InvalidArgument(None, "taken_at", needed, to_instant(at))
    restatement = restate_lists(transaction, kind, source, lists, None, [at])
    all_lists[source] = {instant: known_list for instant, known_list in lists.items() if instant != at}
    return _apply_restatement(transaction, kind, restatement, all_lists, gate)


def _apply_restatement(
    transaction: Transaction, kind: Kind, restatement: Restatement, all_lists: KnownLists, gate: Gate | None
) -> ApplyResult:
    """Let the log say what is restated, and the history follow."""
    remade_buckets = [] if restatement.stale is None else remove_changes(transaction, kind, restatement.stale)
    changes = fit_changes(transaction, kind, to_log_rows(restatement.changes, kind))
    taken = take_changes(transaction, changes, again=remade_buckets)
    note_lists(transaction, kind, all_lists)
    looked_at = run_gate(gate, transaction, taken.kind, taken.buckets)
    commit = transaction.commit(reads=[kind.lists, *looked_at])
    return ApplyResult(commit.version, taken.news)


def require_share(max_deleted: float | None) -> None:
    """Raise `InvalidArgument` for what is no share."""
    is_number = isinstance(max_deleted, int | float) and not isinstance(max_deleted, bool)
    if max_deleted is not None and not (is_number and 0 <= max_deleted <= 1):
        needed = "a share from 0 to 1, such as 0.1 for a tenth, or None"
        raise InvalidArgument(None, "max_deleted", needed, max_deleted)


# Judging --------------------------------------------------------------------------------------------------


def require_same(
    transaction: Transaction,
    kind: Kind,
    given: GivenLists,
    lists: Mapping[int, KnownList],
    repeated: list[int],
) -> None:
    """
    Require that lists which the ledger has, and that are given again, name the same, and count as much.

    Raises:
        UnfitList: One is given with other content, or with another priority.

    Cost: one scan of the log and two aggregations.
    """
    for instant in repeated:
        if (before := lists[instant].priority) != given.priority:
            reason = f"the ledger has a list of this instant, with {before!r}, and not {given.priority!r}"
            remedy = (
                "A list that the ledger has keeps its priority: give it with that one; or take it back, and "
                f"give it anew: {_revocation(given.source, instant)}."
            )
            raise UnfitList(FUNCTION, given.source, to_instant(instant), reason, remedy)
    logged = list_rows_at(transaction, kind, given.source, repeated).withColumn("given", F.lit(0))
    rows = given.rows.where(F.unix_micros("effective_timestamp").isin(repeated)).withColumn("given", F.lit(1))
    united = unite([logged, rows])
    at = F.unix_micros("effective_timestamp").alias("at")
    contents = united.select(at, "given", content_digest(united).alias("content")).distinct()
    alone = contents.groupBy("at", "content").count().where("count = 1")
    for instant, differing in alone.groupBy("at").count().orderBy("at").limit(1).collect():
        reason = f"the ledger has a list of this instant, and {differing} rows of the two differ"
        remedy = (
            "If both are parts of one list, take the old one back and apply them together, in one table (a "
            "stream goes on by list_sink(…, applied=[that instant])); if the new one is right, take the old "
            f"one back and apply that: {_revocation(given.source, instant)}."
        )
        raise UnfitList(FUNCTION, given.source, to_instant(instant), reason, remedy)


def _revocation(source: str, at: int) -> str:
    """The call that takes a list back."""
    return f"ledger.revoke_list(taken_at={instant_literal(to_instant(at))}, source={source!r})"


_MANY_LOST = 10
"""A list is told of that lacks so many entities of the one before, and more than one in so many."""


def count_lists(
    transaction: Transaction,
    kind: Kind,
    given: GivenLists,
    lists: Mapping[int, KnownList],
    restatement: Restatement,
    max_deleted: float | None,
) -> tuple[dict[int, int], int]:
    """
    Count the entities that each new list names, and those that all of them lack beside the lists before.

    *given* are the new lists with who was erased, whom *restatement* leaves out.

    Raises:
        UnfitList: One lost a larger share of the one before it than *max_deleted*; or all, without that; or
            it is the first one and names nothing, unless *max_deleted* is 1.

    Cost: of what changes, one aggregation; a scan of the log where something was erased.
    """
    source, at = given.source, F.unix_micros("effective_timestamp").alias("at")
    # After an erasure fewer are left than were named.
    is_whole = Erasures.of(transaction, kind) is None
    counts = {instant: known_list.rows for instant, known_list in lists.items()} if is_whole else {}
    before = [instant for instant in restatement.before.values() if instant is not None]
    unknown = [instant for instant in before if instant in lists and instant not in counts]
    if unknown:
        counts |= dict.fromkeys(unknown, 0)
        logged = list_rows_at(transaction, kind, source, unknown).groupBy(at).count()
        counts |= {row["at"]: row["count"] for row in logged.collect()}
    ended = F.count_if(F.col("operation") == ABSENT)
    begun_and_ended = F.count_if("begins").alias("begun"), ended.alias("ended")
    counted = restatement.changes.groupBy(at).agg(*begun_and_ended).collect()
    news = {row["at"]: (row["begun"], row["ended"]) for row in counted}
    new = [instant for instant in restatement.before if instant not in lists]
    for instant in new:
        begun, lost = news.get(instant, (0, 0))
        previous = restatement.before[instant]
        named_before = 0 if previous is None else counts[previous]
        # A list that names only who was erased is no empty one.
        is_empty = not begun and (is_whole or given.rows.where(at == F.lit(instant)).isEmpty())
        if max_deleted is None and named_before and lost == named_before and is_empty:
            reason = f"it names nothing, and the list before it named {named_before} entities"
            remedy = "Look whether the export went wrong; if they are gone, apply it with max_deleted=1."
            raise UnfitList(FUNCTION, source, to_instant(instant), reason, remedy)
        if max_deleted != 1 and previous is None and is_empty:
            reason = "it names nothing, and there is no list before it"
            remedy = (
                "Look whether the export went wrong; if nothing is there yet, apply it with max_deleted=1."
            )
            raise UnfitList(FUNCTION, source, to_instant(instant), reason, remedy)
        if max_deleted is not None and lost > max_deleted * named_before:
            reason = (
                f"it lacks {lost} of the {named_before} entities that the list before it named, more than "
            )
            reason += f"max_deleted={max_deleted!r} allows"
            remedy = "Look whether it is whole; if it is, apply it with a larger share."
            raise UnfitList(FUNCTION, source, to_instant(instant), reason, remedy)
        if max_deleted is None and lost >= _MANY_LOST and lost * _MANY_LOST > named_before:
            sentence = (
                "apply_list(): the list of %s lacks %d of the %d entities that the list before it named, "
                "which are deleted now: max_deleted=… refuses such a list, revoke_list() takes it back"
            )
            _LOG.warning(sentence, to_instant(instant).isoformat(), lost, named_before)
        counts[instant] = named_before + begun - lost
    return {instant: counts[instant] for instant in new}, sum(news.get(instant, (0, 0))[1] for instant in new)


def require_no_lists(changes: DataFrame, logged: Iterable[tuple[str | None, int]] = ()) -> None:
    """
    Raise `UnfitList` for changes that full lists were compared for, as they or what was *logged* of them say.

    What such a list says is right against the one before it in the call that compared them.  The ledger
    compares each with the one before it in the ledger, and knows then which lists it has.
    """
    named: dict[str, list[int]] = changes.schema["message_id"].metadata.get(NAMED_LISTS, {})
    for source, at in [*((source, instants[0]) for source, instants in named.items()), *logged]:
        reason = "a ledger compares full lists by itself, so it takes none as changes"
        remedy = (
            f"Give the list as it is: ledger.apply_list(rows, taken_at={instant_literal(to_instant(at))}, "
            f"source={source!r}); or many at once, with taken_at= the name of a column that tells them apart."
        )
        raise UnfitList("apply", source, to_instant(at), reason, remedy)


def _unusable_list(source: str, at: int, error: SparkRuntimeException) -> UnfitList:
    """Turn what `compare_lists` says of a row that no list can hold into the error of the ledger."""
    sentence = (error.getMessageParameters() or {})["errorMessage"].removeprefix(f"{FUNCTION}() ")
    remedy = "Nothing of the list was taken: mend it, and give it again."
    return UnfitList(FUNCTION, source, to_instant(at), f"it {sentence}", remedy)


def to_instant(at: int) -> datetime:
    """The instant of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=at)
