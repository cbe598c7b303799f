"""Waiting: which records cannot be applied, since an entity that they need is not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statements import AUTOCREATE, DELETE, LIST, MAKES, SOUGHT, UPSERT
from cdckit.parts.arguments import quoted, text_literal
from cdckit.parts.arrays import ints
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.workers import (
    WorkerPlan,
    compute_once,
    compute_rows,
    local_frame,
    local_table,
    table_frame,
)


def needed_links(schema: Schema, entity: str) -> str | None:
    """The links of a statement that must lead to what exists, as a list, in SQL; None if there never are."""
    target, links = schema.targets[entity], []
    for name in target.links:
        # What a link makes is there whatever its key leads to: the record that links is what waits.
        conditions = [f"operation <> '{AUTOCREATE}'"]
        numbers = [
            str(schema.numbers[place])
            for place, mapping in target.mappings.items()
            if any(column.reference == name and column.autocreate for column in mapping.columns)
        ]
        if numbers:
            conditions.append(f"place NOT IN ({', '.join(numbers)})")
        links.append(f"if({' AND '.join(conditions)}, data.{quoted(name)}, NULL)")
    listed = f"array_compact(array({', '.join(links)}))"
    # Only children, and what links make, need what the records need that hold or make them.
    if not schema.is_within(entity):
        return listed if links else None
    inherited = "coalesce(inherited, CAST(array() AS array<string>))"
    return f"concat({listed}, {inherited})" if links else inherited


TASK_STATEMENTS = 1_000_000
"""So many statements one task looks through, in a second or two."""
ROUNDS = 3
"""Of more, what stands on little is decided in so many rounds first: schemas are seldom deeper than that."""

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
    `makes` to which a link may lead, what it `needs`, how that is `named`, `error_code` and `error`.  What is
    in error makes and needs nothing.
    """
    nothing = "CAST(array() AS array<string>)"
    tables, is_applied = [], f"operation IN {(UPSERT, DELETE, AUTOCREATE, LIST)}"
    for entity, stated in statements.items():
        links = map(quoted, schema.targets[entity].links)
        named = ", ".join(f"struct(data.{name} AS need, {SOUGHT}.{name} AS text)" for name in links)
        rows = stated.where(f"error_code IS NOT NULL OR {is_applied}")
        makes = f"error_code IS NULL AND {MAKES}" if entity in schema.linked else "false"
        needs = needed_links(schema, entity)
        # As texts: made of columns, each would be a dozen calls into the JVM, for each target.
        tables.append(
            with_statement(rows, entity).selectExpr(
                "statement",
                f"if({makes}, guid, NULL) AS makes",
                f"{nothing if needs is None else f'if(error_code IS NULL, {needs}, {nothing})'} AS needs",
                f"CAST(array({named}) AS array<struct<need:string,text:string>>) AS named",
                "error_code",
                "concat_ws(': ', error_code, error_description) AS error",
            )
        )
    return reduce(DataFrame.unionByName, tables) if tables else None


def waiting_statements(
    stated: DataFrame,
    answers: DataFrame | None,
    known: DataFrame | None = None,
    table: pa.Table | None = None,
) -> DataFrame | None:
    """
    The statements that cannot be applied since an entity to which they link does not exist.

    All that are valid are taken for applied first; those that link to what nobody makes wait; what only
    they would have made does not exist either, and so on.  Statements that wait for each other in a circle,
    and for nothing else, are applied.

    Args:
        stated: The `facts`; where they are held, each has a number of its own, `fact_number`.
        answers: What links have found (`Resolution.answers`).
        known: The entities that exist whatever is stated (`makes`), where no link is looked up.
        table: The same facts, where this program holds them.

    Returns:
        `statement` (see `with_statement`) and `missing`, the key of the first of the entities that are not
        there: "customer c = c1"; None if nothing waits.

    Cost: the work of this program, where it holds the facts, and a pass over the guids of *known* if any are
    needed.  Of others, a shuffle of the guids that they make and need; if anybody needs what is not there,
    they are held, and one task has no more than a million that make or need anything.  More are looked at in
    rounds, each of which shuffles their guids and links: one for each link of the longest chain of records
    that stand on each other, up to three, and one more.  What is left of longer chains is for one task.
    """
    if table is None and _unmade_needs(stated, answers, known).isEmpty():
        return None
    if table is not None and answers is None:
        rows = _with_known_entities(table.select(["fact_number", "makes", "needs"]), known)
    else:
        if "fact_number" not in stated.columns:
            held = compute_once(with_fact_numbers(stated))
            assert held is not None
            stated = held
        tied = stated.select("fact_number", "makes", "needs").where("makes IS NOT NULL OR size(needs) > 0")
        rows = compute_rows(with_answers(_with_known_rows(tied, known), answers, by="fact_number"))
    if isinstance(rows, pa.Table):
        fallen = unsupported_rows(rows)
        waiting = table_frame(stated.sparkSession, fallen, spark_columns(fallen.schema))
    elif rows.count() <= TASK_STATEMENTS:
        waiting = compute_once(find_unsupported(rows, by="fact_number"))
    else:
        waiting = find_waiting(rows)
    return None if waiting is None else _with_names(waiting, stated)


def with_fact_numbers(stated: DataFrame) -> DataFrame:
    """The facts, each with a number of its own, `fact_number`: another one each time that they are made."""
    return stated.selectExpr("*", "monotonically_increasing_id() AS fact_number")


def _unmade_needs(stated: DataFrame, answers: DataFrame | None, known: DataFrame | None) -> DataFrame:
    """Find what is needed and neither made nor known: if there is nothing, nothing can wait."""
    needs, makes = stated.select(F.explode("needs").alias("makes")).distinct(), stated.select("makes")
    if answers is not None:
        found = answers.select(F.col("text").alias("makes"), "found")
        needs = needs.join(found, "makes", "left").select(F.coalesce("found", "makes").alias("makes"))
    there = makes if known is None else makes.unionByName(known)
    return needs.join(there.where("makes IS NOT NULL").distinct(), "makes", "left_anti")


def _with_known_entities(rows: pa.Table, known: DataFrame | None) -> pa.Table:
    """Facts of this program, and those `_with_known_rows`, if any can be missing."""
    needs = rows.column("needs").combine_chunks().flatten().unique()
    if known is None or pc.all(pc.is_in(needs, rows.column("makes").combine_chunks()), min_count=0).as_py():
        return rows
    sought = local_frame(known.sparkSession, [(need,) for need in needs.to_pylist()], "makes string")
    makes = local_table(known.join(sought, "makes", "left_semi").distinct()).column("makes")
    columns = {"fact_number": pa.nulls(len(makes)), "makes": makes, "needs": [[]] * len(makes)}
    return pa.concat_tables([rows, pa.table(columns, rows.schema)])


def _with_known_rows(tied: DataFrame, known: DataFrame | None) -> DataFrame:
    """The facts, and the entities that they need and are *known*, which need nothing and have no number."""
    if known is None:
        return tied
    needs = tied.select(F.explode("needs").alias("makes")).distinct()
    makes = known.join(needs, "makes", "left_semi").distinct()
    needless = ("CAST(NULL AS long) AS fact_number", "makes", "CAST(array() AS array<string>) AS needs")
    return tied.unionByName(makes.selectExpr(*needless))


def drop_waiting(statements: DataFrame, waiting: DataFrame | None) -> DataFrame:
    """The statements, which have `statement`, that are not among those that wait."""
    if waiting is None:
        return statements
    return statements.join(waiting.select("statement"), "statement", "left_anti")


def with_answers(statements: DataFrame, answers: DataFrame | None, *, by: str) -> DataFrame:
    """
    Statements of which each need that an answer is known for is a guid; in the same order.

    Each has what tells it from others in the column *by*, what it `makes`, and its `needs`.
    """
    if answers is None:
        return statements
    needs = statements.select(by, "makes", F.posexplode_outer("needs").alias("position", "text"))
    guids = needs.join(answers.select("text", "found"), "text", "left").groupBy(by, "makes")
    in_order = F.array_sort(F.collect_list(F.expr("struct(position, coalesce(found, text) AS need)")))
    return guids.agg(in_order.alias("needs")).withColumn("needs", F.expr("array_compact(needs.need)"))


def find_waiting(statements: DataFrame) -> DataFrame | None:
    """Find `find_unsupported` of many (`fact_number`, `makes`, `needs`); None for none."""
    fallen, undecided = list[DataFrame](), statements
    for _ in range(ROUNDS):
        decided = compute_once(with_open_needs(undecided, by="fact_number"))
        if decided is None:
            break
        fallen.append(decided.where("missing IS NOT NULL").select("fact_number"))
        undecided = decided.where("missing IS NULL")
    else:
        chained = with_open_needs(undecided, by="fact_number")
        fallen.append(find_unsupported(chained, by="fact_number").select("fact_number"))
    waiting = compute_once(reduce(DataFrame.unionByName, fallen)) if fallen else None
    if waiting is None:
        return None
    # What they would have made is known only now.
    applied = statements.join(waiting, "fact_number", "left_anti")
    waiting_rows = statements.join(waiting, "fact_number", "left_semi")
    missing = with_open_needs(waiting_rows, applied, by="fact_number")
    return compute_once(missing.select("fact_number", "missing"))


def with_open_needs(statements: DataFrame, makers: DataFrame | None = None, *, by: str) -> DataFrame:
    """
    One round: what becomes of the statements that need anything, if all are taken for applied.

    Args:
        statements: As for `find_unsupported`, but that any statement may make what they need.
        makers: Those that may make it; without them, the same.
        by: The column that tells each of the statements from others.

    Returns:
        Those that need anything: that column, `makes`, the first that is `missing` of what they need,
        since nobody makes it, and those `needs` that no statement makes which needs nothing itself.
    """
    needs = statements.select(by, "makes", F.posexplode("needs").alias("position", "need"))
    made = (statements if makers is None else makers).where("makes IS NOT NULL")
    free = made.selectExpr("makes AS need", "size(needs) = 0 AS is_free").groupBy("need")
    entities = free.agg(F.max("is_free").alias("is_certain"))
    return (
        needs.join(entities, "need", "left")
        .groupBy(by, "makes")
        .agg(
            F.expr("min(if(is_certain IS NULL, struct(position, need), NULL)).need AS missing"),
            F.expr("collect_list(if(is_certain, NULL, need)) AS needs"),
        )
    )


def find_unsupported(statements: DataFrame, *, by: str) -> DataFrame:
    """
    Find those of statements that stand on each other for which something is missing in the end.

    Args:
        statements: One row per statement that is taken for applied so far: `makes` (the guid of the entity
            that it makes, or null), and `needs`, those guids of what must exist for it that only such
            statements make.
        by: The column that tells each of them from others.

    Returns:
        Of those that need what none of them makes, or only those that fall too: that column, and
        `missing`, the first of these guids.  Statements that need each other in a circle, and nothing else,
        stand.

    Cost: one task, which holds all of them: some three hundred bytes, and a µs, each.
    """
    columns = T.StructType([statements.schema[by], T.StructField("missing", T.StringType())])
    single = statements.select(by, "makes", "needs").repartition(1)
    return WorkerPlan(single, _find_unsupported, columns, large=True).rows()


def _find_unsupported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if given := list(batches):
        yield from unsupported_rows(pa.Table.from_batches(given)).to_batches()


def unsupported_rows(statements: pa.Table) -> pa.Table:
    """Find `find_unsupported` of statements of this program; their first column tells each from others."""
    made, needed = (statements.column(name).combine_chunks() for name in ("makes", "needs"))
    fallen, missing = find_unsupported_rows(made, needed)
    return statements.select([0]).take(fallen).append_column("missing", missing)


def find_unsupported_rows(makes: pa.Array, needs: pa.ListArray) -> tuple[pa.Array, pa.Array]:
    """Find the rows of the statements that fall, by what each makes and needs, and what each misses first."""
    guids = pa.concat_arrays([makes, needs.flatten()]).dictionary_encode()
    # What makes nothing makes one more, which nobody needs.
    nothing = len(guids.dictionary)
    numbers, row = ints(pc.fill_null(guids.indices, nothing)), ints(pc.list_parent_indices(needs))
    made, needed = numbers[: len(makes)], numbers[len(makes) :]
    # The rows of those that need one guid stand together, and end where `ends` says.
    needing = row[np.argsort(needed, kind="stable")].tolist()
    ends = np.cumsum(np.bincount(needed, minlength=nothing + 1)).tolist()
    makers, made_by = np.bincount(made, minlength=nothing + 1), made.tolist()
    # How many statements that stand make each guid.
    left, fallen = makers.tolist(), bytearray(len(made))
    lost = np.unique(needed[makers[needed] == 0]).tolist()
    while lost:
        guid = lost.pop()
        for statement in needing[ends[guid - 1] if guid else 0 : ends[guid]]:
            if not fallen[statement]:
                fallen[statement] = True
                left[made_by[statement]] -= 1
                if not left[made_by[statement]]:
                    lost.append(made_by[statement])
    is_missing = np.array(left)[needed] == 0
    rows, first = np.unique(row[is_missing], return_index=True)
    missing = needs.flatten().take(pa.array(np.flatnonzero(is_missing)[first]))
    return pa.array(rows), missing


_MESSAGE = T.StructType([T.StructField("message_identifier", T.StringType())])


def find_joined(waiting: DataFrame, there: DataFrame) -> DataFrame:
    """
    Find the messages that are to be tried with others, since records of both wait for each other.

    Args:
        waiting: One row per statement that waits: `statement`, `makes`, `needs`, and whether it *is_tried*.
        there: The entities that exist without these (`makes`).

    Returns:
        The messages (`message_identifier`) of statements that are not tried, would fall without those that
        are, and stand with them.  What would stand alone is not tried, nor anybody for it.

    Cost: a pass over the guids of *there*, and one task, which holds what waits.
    """
    needs = waiting.select(F.explode("needs").alias("makes")).distinct()
    known = there.join(needs, "makes", "left_semi").distinct()
    rows = waiting.selectExpr("statement.message_id AS message_identifier", "makes", "needs", "is_tried")
    united = rows.unionByName(known, allowMissingColumns=True).repartition(1)
    return WorkerPlan(united, _find_joined, _MESSAGE, large=True).rows().distinct()


def _find_joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if given := list(batches):
        yield from joined_messages(pa.Table.from_batches(given)).to_batches()


def joined_messages(rows: pa.Table) -> pa.Table:
    """Find `find_joined` of rows of this program; of what exists, it is null whether it is tried."""
    is_tried = rows.column("is_tried")
    alone = rows.filter(pc.invert(pc.fill_null(is_tried, False)))
    with_tried = [rows.filter(pc.fill_null(is_tried, True)), alone.take(_fallen_rows(alone))]
    together = pa.concat_tables(with_tried)
    stands = np.ones(len(together), bool)
    stands[_fallen_rows(together)] = False
    joined = pc.and_(pa.array(stands), pc.equal(together.column("is_tried"), False))
    return together.filter(joined).select(["message_identifier"])


def _fallen_rows(statements: pa.Table) -> pa.Array:
    made, needed = (statements.column(name).combine_chunks() for name in ("makes", "needs"))
    return find_unsupported_rows(made, needed)[0]


def _with_names(waiting: DataFrame, stated: DataFrame) -> DataFrame:
    """The statements that wait, with the key of what is `missing` in the place of its guid or marked text."""
    # Not by joins, of which Spark would take the size for the product of both.
    ours = stated.select("fact_number", "statement", "named").join(waiting, "fact_number", "left_semi")
    united = ours.unionByName(waiting, allowMissingColumns=True).groupBy("fact_number")
    rows = united.agg(*(F.max(name).alias(name) for name in ("statement", "named", "missing")))
    texts = "transform(named, each -> struct(each.need, each.text, false AS is_missing))"
    own_text = "get(filter(named, each -> each.need = missing AND each.text IS NOT NULL), 0).text"
    both = f"array_append({texts}, struct(missing AS need, {own_text} AS text, true AS is_missing))"
    needs = rows.select("statement", F.expr(f"inline({both})"))
    # A record that does not name it itself is held or made by one that does, of the same message, which waits
    # too.  Over all messages, what many miss would be one task's.
    name = "coalesce(text, min(text) OVER (PARTITION BY statement.message_id, need), need) AS missing"
    return needs.selectExpr("statement", name, "is_missing").where("is_missing").drop("is_missing")
