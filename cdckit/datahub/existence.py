"""Existence: which records can be applied, and which must wait for what they link to."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.resolution import Resolution, needed_links
from cdckit.datahub.statements import AUTOCREATE, DELETE, LIST, SOUGHT, UPSERT
from cdckit.parts.schemas import quoted, text_literal
from cdckit.parts.transitive_waits import falling

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


def facts(resolution: Resolution) -> DataFrame | None:
    """
    What the statements of all targets mean to each other, or what is wrong with them; None for no targets.

    One row per statement that can be applied, or is in error: `statement` (see `with_statement`), what it
    `makes`, what it `needs`, how that is `named`, `error_code` and `error`.
    """
    schema, found, is_applied = resolution.schema, [], f"operation IN {(UPSERT, DELETE, AUTOCREATE, LIST)}"
    for entity in resolution.entities:
        links = map(quoted, schema.targets[entity].links)
        named = ", ".join(f"struct(data.{name} AS need, {SOUGHT}.{name} AS text)" for name in links)
        rows = resolution.resolved(entity).where(f"error_code IS NOT NULL OR {is_applied}")
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


def waiting_statements(
    stated: DataFrame, answers: DataFrame | None, held: DataFrame | None, keep: Keep
) -> DataFrame | None:
    """
    The statements that cannot be applied since an entity to which they link does not exist.

    All that are valid are taken for applied first; those that link to what nobody makes wait; what only
    they would have made does not exist either, and so on.  Statements that wait for each other in a circle,
    and for nothing else, are applied.

    Args:
        stated: The `facts` without those in error.
        answers: What links have found (`Resolution.answers`).
        held: The statements (`statement`, `missing`) that wait on and are not tried, as their messages are
            not due, or were given up.
        keep: By which rows are computed that are looked at again.

    Returns:
        `statement` (see `with_statement`) and `missing`, the key of one of the entities that are not there:
        "customer c = c1"; None if nothing waits.

    Cost: two aggregations over the guids and links of all statements.  Where something waits, a further
    round for each link of the longest chain of records that wait for each other, up to three; what is left
    of longer chains is found in one task (see `falling`).  It is given the statements that need what only
    statements with needs of their own make.
    """
    needing = stated.select("statement", F.explode("needs").alias("need"))
    makers = stated.where("makes IS NOT NULL")
    waiting, count, rounds = held, held.count() if held is not None else 0, 0
    while True:
        exists = without(makers, waiting).select(F.col("makes").alias("need"))
        missing = _not_among(needing.select("need"), exists)
        if answers is not None:
            missing = _not_answered(missing, answers, exists)
        leading_nowhere = keep(missing)
        if leading_nowhere is None:
            return held
        found = needing.join(leading_nowhere, "need", "left_semi").groupBy("statement")
        waiting = without(found.agg(F.min("need").alias("missing")), held)
        waiting = keep(waiting if held is None else waiting.unionByName(held))
        now = 0 if waiting is None else waiting.count()
        if waiting is None or now == count:
            return None if waiting is None else _with_names(waiting, stated)
        count, rounds = now, rounds + 1
        if rounds == _ROUNDS:
            more = falling(standing(without(stated, waiting), answers, keep))
            waiting = keep(waiting.select("statement").unionByName(more))
            assert waiting is not None
            # The next round finds these, and says for what they wait.
            count = waiting.count()


def without(statements: DataFrame, waiting: DataFrame | None) -> DataFrame:
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
    said = both.unionByName(named).selectExpr("*", "min(text) OVER (PARTITION BY need) AS name")
    return said.where("statement IS NOT NULL").selectExpr("statement", "coalesce(name, need) AS missing")


def standing(
    stated: DataFrame, answers: DataFrame | None, keep: Keep = lambda statements: statements
) -> DataFrame:
    """
    Of the statements that may be applied those that may have to wait, as `falling` wants them.

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


def _not_among(needed: DataFrame, exists: DataFrame) -> DataFrame:
    """The distinct `need` of which `exists` has none: what is there often meets before it is shuffled."""
    both = needed.withColumn("made", F.lit(0)).unionByName(exists.withColumn("made", F.lit(1)))
    return both.groupBy("need").agg(F.max("made").alias("made")).where(F.col("made") == 0).select("need")


def _not_answered(missing: DataFrame, answers: DataFrame, exists: DataFrame) -> DataFrame:
    """Of the texts that are no guid of what exists, those that lead to none by a look-up either."""
    led = missing.join(answers, missing["need"] == answers["text"], "left").select("need", "found")
    return led.join(exists.withColumnRenamed("need", "found"), "found", "left_anti").select("need")
