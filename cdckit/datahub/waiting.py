"""Waiting: which records cannot be applied, since an entity that they need is not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import AUTOCREATE, DELETE, LIST, SOUGHT, UPSERT
from cdckit.parts.arguments import quoted, text_literal
from cdckit.parts.workers import WorkerPlan


def needed_links(schema: Schema, entity: str) -> str | None:
    """The links of a statement that must lead to what exists, as a list, in SQL; None if there never are."""
    target, own = schema.targets[entity], []
    for name in target.links:
        # What a link makes is there whatever its key leads to: the record that links is what waits.
        conditions = [f"operation <> '{AUTOCREATE}'"]
        places = [
            str(schema.numbers[place])
            for place, mapping in target.mappings.items()
            if any(each.reference == name and each.autocreate for each in mapping.columns)
        ]
        if places:
            conditions.append(f"place NOT IN ({', '.join(places)})")
        own.append(f"if({' AND '.join(conditions)}, data.{quoted(name)}, NULL)")
    listed = f"array_compact(array({', '.join(own)}))"
    # Only children, and what links make, need what the records need that hold or make them.
    if not schema.is_within(entity):
        return listed if own else None
    inherited = "coalesce(inherited, CAST(array() AS array<string>))"
    return f"concat({listed}, {inherited})" if own else inherited


def find_unsupported(statements: DataFrame) -> DataFrame:
    """
    Of statements that stand on each other, those that something is missing for in the end.

    Args:
        statements: One row per statement that is taken for applied so far: `statement` (a struct that tells
            it from others), `makes` (the guid of the entity that it makes, or null), and `needs`, those
            guids of what must exist for it that only such statements make.

    Returns:
        The column `statement`, of those that need what none of them makes, or only those that fall too.
        Statements that need each other in a circle, and nothing else, stand.

    Cost: one task, which holds all of them: about a kilobyte each.
    """
    columns = T.StructType([statements.schema["statement"]])
    return WorkerPlan(statements.repartition(1), _find_unsupported, columns).rows()


def _find_unsupported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    given = list(batches)
    if not given:
        return
    table = pa.Table.from_batches(given)
    fallen = unsupported_places(table.column("makes").to_pylist(), table.column("needs").to_pylist())
    yield from table.select(["statement"]).take(pa.array(fallen, pa.int64())).to_batches()


def unsupported_places(makes: Sequence[str | None], needs: Sequence[Sequence[str]]) -> list[int]:
    """The places of the statements that fall, by what each makes and needs."""
    makers = Counter(guid for guid in makes if guid is not None)
    needing: dict[str, list[int]] = {}
    for place, needed in enumerate(needs):
        for one in needed:
            needing.setdefault(one, []).append(place)
    fallen: set[int] = set()
    gone = [guid for guid in needing if not makers[guid]]
    while gone:
        for place in needing.get(gone.pop(), ()):
            if place not in fallen:
                fallen.add(place)
                entity = makes[place]
                if entity is not None:
                    makers[entity] -= 1
                    if not makers[entity]:
                        gone.append(entity)
    return sorted(fallen)


Keep = Callable[[DataFrame], DataFrame | None]
"""Computes rows once, and returns them so that they can be looked at again; None if there are none."""

_ROUNDS = 3
"""After how many rounds that found more the rest is found at once: schemas are seldom as deep as that."""

# One record may make several entities, but says itself once.
_KEY = f"""message_id, arrival.record_number AS number, record, operation, place,
    if(operation = '{AUTOCREATE}', guid, NULL) AS made"""

UNAPPLIED_COLUMNS = (
    "statement struct<entity: string, message_id: string, number: int, record: string, operation: string, "
    "place: int, made: string>, missing string"
)
"""One row is one valid statement that is not applied, and for what it waits: null if it does not wait."""


def with_statement(statements: DataFrame, entity: str) -> DataFrame:
    """Statements about one target, each with the struct `statement`, which tells it from all others."""
    return statements.selectExpr("*", f"struct({text_literal(entity)} AS entity, {_KEY}) AS statement")


def facts(schema: Schema, statements: Mapping[str, DataFrame]) -> DataFrame | None:
    """
    What resolved statements, by their targets, mean to each other, or what is wrong with them; None for no
    targets.

    One row per statement that can be applied, or is in error: `statement` (see `with_statement`), what it
    `makes`, what it `needs`, how that is `named`, `error_code` and `error`.
    """
    found, is_applied = [], f"operation IN {(UPSERT, DELETE, AUTOCREATE, LIST)}"
    for entity, stated in statements.items():
        links = map(quoted, schema.targets[entity].links)
        named = ", ".join(f"struct(data.{name} AS need, {SOUGHT}.{name} AS text)" for name in links)
        rows = stated.where(f"error_code IS NOT NULL OR {is_applied}")
        # As texts: made of columns, each would be a dozen calls into the JVM, for each target.
        found.append(
            with_statement(rows, entity).selectExpr(
                "statement",
                f"if(operation IN {(UPSERT, AUTOCREATE)}, guid, NULL) AS makes",
                f"{needed_links(schema, entity) or 'CAST(array() AS array<string>)'} AS needs",
                f"CAST(array({named}) AS array<struct<need:string,text:string>>) AS named",
                "error_code",
                "concat_ws(': ', error_code, error_description) AS error",
            )
        )
    return reduce(DataFrame.unionByName, found) if found else None


def known_makers(statements: DataFrame, needs: DataFrame) -> DataFrame:
    """
    Which `needs` (`need`) some *statements* make that are applied: as `facts` that need nothing themselves.

    Cost: one pass over what the statements make; no shuffle, where the needs are few.
    """
    makes = f"operation IN {(UPSERT, AUTOCREATE)} AND error_code IS NULL"
    made = statements.where(makes).select(F.col("guid").alias("need")).join(needs, "need", "left_semi")
    return made.distinct().selectExpr("need AS makes", "CAST(array() AS array<string>) AS needs")


def waiting_statements(
    stated: DataFrame, answers: DataFrame | None, unborn: DataFrame | None, keep: Keep
) -> DataFrame | None:
    """
    The statements that cannot be applied since an entity to which they link does not exist.

    All that are valid are taken for applied first; those that link to what nobody makes wait; what only
    they would have made does not exist either, and so on.  Statements that wait for each other in a circle,
    and for nothing else, are applied.

    Args:
        stated: The `facts` without those in error.
        answers: What links have found (`Resolution.answers`).
        unborn: The statements (`statement`, `missing`) that wait on and are not tried, as their messages are
            not due, or were given up.
        keep: By which rows are computed that are looked at again.

    Returns:
        `statement` (see `with_statement`) and `missing`, the key of one of the entities that are not there:
        "customer c = c1"; None if nothing waits.

    Cost: two aggregations over the guids and links of all statements.  Where something waits, a further
    round for each link of the longest chain of records that wait for each other, up to three; what is left
    of longer chains is found in one task (see `find_unsupported`).  It is given the statements that need what
    only statements with needs of their own make.
    """
    needing = stated.select("statement", F.explode("needs").alias("need"))
    makers = stated.where("makes IS NOT NULL")
    waiting, count, rounds = unborn, unborn.count() if unborn is not None else 0, 0
    while True:
        exists = drop_waiting(makers, waiting).select(F.col("makes").alias("need"))
        missing = _find_missing(needing.select("need"), exists)
        if answers is not None:
            missing = _find_unanswered(missing, answers, exists)
        leading_nowhere = keep(missing)
        if leading_nowhere is None:
            return unborn
        found = needing.join(leading_nowhere, "need", "left_semi").groupBy("statement")
        waiting = drop_waiting(found.agg(F.min("need").alias("missing")), unborn)
        waiting = keep(waiting if unborn is None else waiting.unionByName(unborn))
        now = 0 if waiting is None else waiting.count()
        if waiting is None or now == count:
            return None if waiting is None else _with_names(waiting, stated)
        count, rounds = now, rounds + 1
        if rounds == _ROUNDS:
            more = find_unsupported(waiting_candidates(drop_waiting(stated, waiting), answers, keep))
            waiting = keep(waiting.select("statement").unionByName(more))
            assert waiting is not None
            # The next round finds these, and says for what they wait.
            count = waiting.count()


def drop_waiting(statements: DataFrame, waiting: DataFrame | None) -> DataFrame:
    """The statements, which have `statement`, that are not among those that wait; None if none do."""
    if waiting is None:
        return statements
    return statements.join(waiting.select("statement"), "statement", "left_anti")


def _with_names(waiting: DataFrame, stated: DataFrame) -> DataFrame:
    """Those that wait, with the key of what is `missing` in the place of its guid or marked text."""
    texts = stated.select(F.inline("named")).where("text IS NOT NULL")
    missing = waiting.select(F.col("missing").alias("need"))
    named = texts.join(missing.distinct(), "need", "left_semi").withColumn("statement", F.lit(None))
    # Not by a join, of which Spark would take the size for the product of both.
    both = waiting.selectExpr("missing AS need", "CAST(NULL AS string) AS text", "statement")
    needs = both.unionByName(named).selectExpr("*", "min(text) OVER (PARTITION BY need) AS name")
    return needs.where("statement IS NOT NULL").selectExpr("statement", "coalesce(name, need) AS missing")


def waiting_candidates(
    stated: DataFrame, answers: DataFrame | None, keep: Keep = lambda statements: statements
) -> DataFrame:
    """
    Of the statements that may be applied those that may have to wait, as `find_unsupported` wants them.

    They need what only statements with needs of their own make, or what nobody makes.
    """
    needing = stated.select("statement", "makes", F.explode("needs").alias("need"))
    if answers is not None:
        led = answers.select(F.col("text").alias("need"), "found")
        needing = needing.join(led, "need", "left").withColumn("need", F.coalesce("found", "need"))
    uncertain = _uncertain(needing, stated.where(F.size("needs") == 0))
    kept = keep(uncertain)
    some = uncertain if kept is None else kept
    # What all of these need is certain: so is what they make.
    rest = some.select("statement", "makes", F.explode("needs").alias("need"))
    return _uncertain(rest, some.where(F.size("needs") == 0))


def _uncertain(needing: DataFrame, certain: DataFrame) -> DataFrame:
    """The statements, each with what it needs that the *certain* ones do not make."""
    there = certain.where("makes IS NOT NULL").select(F.col("makes").alias("made")).distinct()
    joined = needing.join(there, F.col("need") == F.col("made"), "left")
    open_ = F.collect_list(F.when(F.col("made").isNull(), F.col("need")))
    return joined.groupBy("statement", "makes").agg(open_.alias("needs"))


def _find_missing(needed: DataFrame, exists: DataFrame) -> DataFrame:
    """The distinct `need` of which `exists` has none: what is there often meets before it is shuffled."""
    both = needed.withColumn("made", F.lit(0)).unionByName(exists.withColumn("made", F.lit(1)))
    return both.groupBy("need").agg(F.max("made").alias("made")).where(F.col("made") == 0).select("need")


def _find_unanswered(missing: DataFrame, answers: DataFrame, exists: DataFrame) -> DataFrame:
    """Of the texts that are no guid of what exists, those that lead to none by a look-up either."""
    led = missing.join(answers, missing["need"] == answers["text"], "left").select("need", "found")
    return led.join(exists.withColumnRenamed("need", "found"), "found", "left_anti").select("need")
