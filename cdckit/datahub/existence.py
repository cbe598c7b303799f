"""Existence: which records can be applied, and which must wait for what they link to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.resolution import Resolution, needed_links
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import AUTOCREATE, DELETE, LIST, SOUGHT, UPSERT
from cdckit.parts.falling import falling

STATEMENT_KEY = ("entity", "message_id", "number", "operation", "place", "made")
"""What tells one statement from all others; one record may make several entities, but says itself once."""

Keep = Callable[[DataFrame], DataFrame | None]
"""Computes rows once, and returns them so that they can be looked at again; None if there are none."""

_ROUNDS = 3
"""After how many rounds that found more the rest is found at once: schemas are seldom as deep as that."""

_APPLIED = f"error_code IS NULL AND operation IN {(UPSERT, DELETE, AUTOCREATE, LIST)}"
"""As a text: made of columns, each condition would be a dozen calls into the JVM, for each target."""


def with_statement_key(statements: DataFrame) -> DataFrame:
    """Statements about one target with the columns of `STATEMENT_KEY`, but for `entity`."""
    made = f"if(operation = '{AUTOCREATE}', guid, NULL) AS made"
    return statements.selectExpr("*", "arrival.record_number AS number", made)


def waiting_statements(
    schema: Schema,
    resolution: Resolution,
    entities: Sequence[str],
    held: DataFrame | None,
    keep: Keep,
) -> DataFrame | None:
    """
    The statements that cannot be applied since an entity to which they link does not exist.

    An entity exists if a statement that is applied makes it: so all that are valid are taken for
    applied first; those that link to what nobody makes wait; what only they would have made does not
    exist either, and so on.  Statements that wait for each other in a circle, and for nothing else,
    are applied.

    Args:
        schema: The schema.
        resolution: The statements of all targets.
        entities: The targets of which there are any.
        held: The statements (`STATEMENT_KEY`, `missing`, `record`) that wait on and are not tried, as
            their messages are not due, or were given up.
        keep: By which rows are computed that are looked at again.

    Returns:
        `STATEMENT_KEY`, `record` and `missing`, one of the guids (or marked texts) that lead nowhere; None if
        nothing waits.

    Cost: two aggregations over the guids and links of all statements.  Where something waits, a further
    round for each link of the longest chain of records that wait for each other, up to three; what is left
    of longer chains is found in one task (see `falling`).  It is given the statements that need what only
    statements with needs of their own make.
    """
    stated, answers = _stated(schema, resolution, entities), resolution.answers()
    if stated is None:
        return None
    if answers is not None:
        # What was looked up is looked at several times.
        looked_up = keep(stated)
        if looked_up is None:
            return held
        stated = looked_up
    needing = stated.where(F.size("needs") > 0)
    needed = needing.select(F.explode("needs").alias("need"))
    makers = stated.where(F.col("operation").isin(UPSERT, AUTOCREATE))
    waiting, count, rounds = held, held.count() if held is not None else 0, 0
    while True:
        alive = makers if waiting is None else _without(makers, waiting)
        exists = alive.select(F.col("guid").alias("need"))
        missing = _not_among(needed, exists)
        if answers is not None:
            missing = _not_answered(missing, answers, exists)
        leading_nowhere = keep(missing)
        if leading_nowhere is None:
            return held
        needs = needing.select(*STATEMENT_KEY, "record", F.explode("needs").alias("need"))
        found = (
            needs.join(leading_nowhere, "need", "left_semi")
            .groupBy(*STATEMENT_KEY)
            .agg(F.min("need").alias("missing"), F.min("record").alias("record"))
        )
        if held is not None:
            found = _without(found, held).unionByName(held)
        waiting = keep(found)
        now = 0 if waiting is None else waiting.count()
        if now == count:
            return waiting
        count, rounds = now, rounds + 1
        if rounds == _ROUNDS:
            assert waiting is not None
            standing = _standing(_without(stated, waiting), answers, keep)
            more = falling(standing).select("statement.*")
            waiting = keep(waiting.select(*STATEMENT_KEY).unionByName(more))
            assert waiting is not None
            # The next round finds these, and says for what they wait.
            count = waiting.count()


def waiting_at_once(schema: Schema, resolution: Resolution, entities: Sequence[str]) -> DataFrame | None:
    """
    The same statements by their `STATEMENT_KEY` alone, without a job: for none that are held.

    Cost: one task is given all statements that need what only statements with needs of their own make, or
    what nobody makes: about a kilobyte each.
    """
    stated = _stated(schema, resolution, entities)
    if stated is None:
        return None
    return falling(_standing(stated, resolution.answers())).select("statement.*")


def with_sought(
    schema: Schema, resolution: Resolution, entities: Sequence[str], waiting: DataFrame
) -> DataFrame:
    """
    The statements that wait, `missing` being the key of what they wait for: "customer c = c1".

    Args:
        schema: The schema.
        resolution: The statements of all targets.
        entities: The targets of which there are any.
        waiting: As `waiting_statements` gives them; what is named already stays as it is.

    Cost: a look at the links of all statements, and a join by what is missing.
    """
    found = []
    for entity in entities:
        rows = resolution.resolved(entity)
        for name in schema.targets[entity].links:
            leads, text = (F.col(each).getField(name) for each in ("data", SOUGHT))
            found.append(rows.select(leads.alias("missing"), text.alias("text")).where(text.isNotNull()))
    if not found:
        return waiting
    missing = waiting.select("missing").distinct()
    texts = reduce(DataFrame.unionByName, found).join(missing, "missing", "left_semi")
    named = texts.groupBy("missing").agg(F.min("text").alias("text"))
    joined = waiting.join(named, "missing", "left").withColumn("missing", F.coalesce("text", "missing"))
    return joined.select(*waiting.columns)


def without_waiting(statements: DataFrame, waiting: DataFrame | None, entity: str) -> DataFrame:
    """The statements about one target that need not wait."""
    if waiting is None:
        return statements
    ours = waiting.where(F.col("entity") == entity).drop("entity")
    return _without(with_statement_key(statements), ours).drop("number", "made")


def _without(statements: DataFrame, waiting: DataFrame) -> DataFrame:
    columns = [name for name in STATEMENT_KEY if name in waiting.columns]
    left, right = statements.alias("s"), waiting.select(*columns).alias("w")
    # Only links that make something have `made`: null is a value here.
    same = [F.col(f"s.{name}").eqNullSafe(F.col(f"w.{name}")) for name in columns]
    return left.join(right, same, "left_anti")


def _stated(schema: Schema, resolution: Resolution, entities: Sequence[str]) -> DataFrame | None:
    """What can be applied: who says so, what it makes, and what it needs; None if nothing ever needs any."""
    links = {entity: needed_links(schema, entity) for entity in entities}
    if not any(each is not None for each in links.values()):
        return None
    found, nothing = [], F.array().cast("array<string>")
    for entity, needs in links.items():
        rows = resolution.resolved(entity).where(_APPLIED)
        columns = {"entity": F.lit(entity), "needs": nothing if needs is None else needs}
        keyed = with_statement_key(rows.withColumns(columns))
        found.append(keyed.selectExpr(*STATEMENT_KEY, "guid", "record", "needs"))
    return reduce(DataFrame.unionByName, found)


def _standing(
    stated: DataFrame, answers: DataFrame | None, keep: Keep = lambda statements: statements
) -> DataFrame:
    """Of the statements that may be applied those that may have to wait, as `falling` wants them."""
    makes = F.when(F.col("operation").isin(UPSERT, AUTOCREATE), F.col("guid")).alias("makes")
    needing = stated.where(F.size("needs") > 0).select(
        F.struct(*STATEMENT_KEY).alias("statement"), makes, F.explode("needs").alias("need")
    )
    if answers is not None:
        led = answers.select(F.col("text").alias("need"), "found")
        needing = needing.join(led, "need", "left").withColumn("need", F.coalesce("found", "need"))
    certain = stated.where(F.size("needs") == 0).select(makes)
    uncertain = _uncertain(needing, certain)
    kept = keep(uncertain)
    some = uncertain if kept is None else kept
    # What all of these need is certain: so is what they make.
    certain = some.where(F.size("needs") == 0).select("makes")
    rest = some.where(F.size("needs") > 0)
    return _uncertain(rest.select("statement", "makes", F.explode("needs").alias("need")), certain)


def _uncertain(needing: DataFrame, certain: DataFrame) -> DataFrame:
    """The statements, each with what it needs that is not *certain*."""
    there = certain.where(F.col("makes").isNotNull()).distinct().select(F.col("makes").alias("made"))
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
    there = exists.distinct().withColumnRenamed("need", "found").withColumn("there", F.lit(True))
    return led.join(there, "found", "left").where(F.col("there").isNull()).select("need")
