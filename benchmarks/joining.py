"""The as-of join: against Spark's equi-join with a range, of a ledger, with two times, with a hot key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from benchmarks.measure import Result, content_hash, side_by_side
from cdckit import Ledger
from cdckit.model.history import DELETED, SOURCE_MESSAGE, SYSTEM_FROM, SYSTEM_TO, VALID_FROM, VALID_TO
from cdckit.query.as_of_joins import Lookup, as_of_join

FACTS, VERSIONS, PER_KEY = 2_000_000, 1_400_000, 7
HOT_FACTS, HOT_VERSIONS = 1_000_000, 100_000
HOT_KEY = 0
FIELDS = ("number", "name", "price", "gate", "weight")
VERSION = ("guid", VALID_FROM, VALID_TO, *FIELDS, SOURCE_MESSAGE)
BELIEF = ("guid", VALID_FROM, VALID_TO, SYSTEM_FROM, *FIELDS, SOURCE_MESSAGE)
START_SECONDS, SPAN_SECONDS = 1_360_000_000, 200_000_000


def results(spark: SparkSession, work: Path) -> list[Result]:
    """
    2,000,000 facts and 1,400,000 versions of 200,000 keys; and as many, of which one key has far more.

    With two times the versions are beliefs: what was said of four changes of each key, or of 50,000.
    """
    uniform = _inputs(spark, work, "uniform", hot=False)
    hot = _inputs(spark, work, "hot", hot=True)
    runs: dict[str, Callable[[], object]] = {
        "equi_join": _writing(equi_join(*uniform), work / "equi_join.parquet"),
        "as_of_join": _writing(looked_up(*uniform), work / "as_of_join.parquet"),
        "equi_join_not_written": _computing(equi_join(*uniform)),
        "as_of_join_not_written": _computing(looked_up(*uniform)),
        # The rows without a join: what is left when all else costs nothing.
        "rows_written": lambda: (
            spark.read.parquet(str(work / "equi_join.parquet"))
            .write.mode("overwrite")
            .parquet(str(work / "rows_written.parquet"))
        ),
        "of_ledger": _writing(
            looked_up(uniform[0], _ledger(spark, work).history()), work / "of_ledger.parquet"
        ),
        "as_of_join_hot": _writing(looked_up(*hot), work / "as_of_join_hot.parquet"),
        "known": _writing(looked_up_as_known(spark, work, "uniform"), work / "known.parquet"),
        "known_hot": _writing(looked_up_as_known(spark, work, "hot"), work / "known_hot.parquet"),
        "duckdb": lambda: duckdb_asof(work, "uniform"),
        "duckdb_hot": lambda: duckdb_asof(work, "hot"),
    }
    duckdb_known(work)
    took = side_by_side(runs)
    names = [name for name in (*runs, "duckdb_known") if not name.endswith("_not_written")]
    digests = {name: content_hash(spark.read.parquet(str(work / f"{name}.parquet"))) for name in names}
    same = {
        "as_of_join": ("equi_join", "duckdb"),
        "as_of_join_hot": ("duckdb_hot",),
        "known": ("duckdb_known",),
    }
    for ours, others in same.items():
        if any(digests[name] != digests[ours] for name in others):
            raise AssertionError(f"{ours} and {', '.join(others)} give different rows: {digests}")
    told = [_told(spark.read.parquet(str(work / f"{name}.parquet"))) for name in ("as_of_join", "of_ledger")]
    if told[0] != told[1]:
        raise AssertionError("the ledger of the same versions tells something else of the facts")

    def result(name: str, run: str, over: str, bar: float | None) -> Result:
        ratio = took[run].seconds / took[over].seconds
        return Result.of(name, ratio, bar, took[run], digests.get(run, ""))

    return [
        result("as_of_join_over_equi_join", "as_of_join", "equi_join", 1.0),
        # More than half of what both take is the writing of the same rows.
        result(
            "as_of_join_over_equi_join_not_written", "as_of_join_not_written", "equi_join_not_written", None
        ),
        result("equi_join_rows_written_over_equi_join", "rows_written", "equi_join", None),
        result("as_of_join_of_ledger_over_equi_join", "of_ledger", "equi_join", 0.6),
        result("as_of_join_hot_key_over_uniform", "as_of_join_hot", "as_of_join", 2.0),
        result("as_of_join_known_over_as_of_join", "known", "as_of_join", 2.0),
        result("as_of_join_known_hot_key_over_uniform", "known_hot", "known", 2.0),
        result("duckdb_asof_over_equi_join", "duckdb", "equi_join", None),
        result("duckdb_asof_hot_key_over_uniform", "duckdb_hot", "duckdb", None),
    ]


def _inputs(spark: SparkSession, work: Path, name: str, *, hot: bool) -> tuple[DataFrame, DataFrame]:
    """Facts and history, made once and then read."""
    makers = {"facts": random_facts, "versions": random_versions}
    for kind, make in makers.items():
        path = _input(work, kind, name)
        if not (path / "_SUCCESS").exists():
            make(spark, hot=hot).write.mode("overwrite").parquet(str(path))
    facts, versions = (spark.read.parquet(str(_input(work, kind, name))) for kind in makers)
    return facts, versions


def _input(work: Path, kind: str, name: str) -> Path:
    return work / f"join_{kind}_{name}.parquet"


def _writing(frame: DataFrame, path: Path) -> Callable[[], object]:
    return lambda: frame.write.mode("overwrite").parquet(str(path))


def _computing(frame: DataFrame) -> Callable[[], object]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def looked_up(facts: DataFrame, history: DataFrame) -> DataFrame:
    """Ours."""
    return as_of_join(facts, Lookup(history, on="number", into="product"), time="at")


def looked_up_as_known(spark: SparkSession, work: Path, name: str) -> DataFrame:
    """Ours, with two times."""
    facts, versions = _inputs(spark, work, name, hot=name == "hot")
    path = _input(work, "beliefs", name)
    if not (path / "_SUCCESS").exists():
        beliefs_of(versions).write.mode("overwrite").parquet(str(path))
    lookup = Lookup(spark.read.parquet(str(path)), on="number", into="product")
    return as_of_join(decided(facts), lookup, time="at", known="decided")


def _ledger(spark: SparkSession, work: Path) -> Ledger:
    """A ledger with the versions of many keys, made once and then read."""
    ledger = Ledger(spark, work / "join_ledger", entity="product", keys=["number"])
    if not (work / "join_ledger").exists():
        ledger.apply(changes_of(_inputs(spark, work, "uniform", hot=False)[1]))
    return ledger


def changes_of(versions: DataFrame) -> DataFrame:
    """What said these versions: for each of them one change, an upsert of all its fields or a delete."""
    return versions.select(
        F.when(F.col(DELETED), "delete").otherwise("upsert").alias("operation"),
        F.col(VALID_FROM).alias("effective_timestamp"),
        F.lit("").alias("sequence"),
        F.struct(
            F.col(VALID_FROM).alias("timestamp"),
            F.lit("products").alias("topic"),
            F.lit(0).alias("partition"),
            F.monotonically_increasing_id().alias("offset"),
            F.lit(1).alias("record_number"),
        ).alias("arrival"),
        F.col(SOURCE_MESSAGE).alias("message_id"),
        F.lit("products").alias("source"),
        F.lit(0).alias("priority"),
        F.struct(*FIELDS).alias("data"),
        F.struct(*(F.lit(True).alias(name) for name in FIELDS)).alias("carried"),
    )


def _told(found: DataFrame) -> str:
    """What facts were told: of another history of the same entities guids differ, and nothing else."""
    return content_hash(found.withColumn("product", F.col("product").dropFields("guid")))


def equi_join(facts: DataFrame, history: DataFrame) -> DataFrame:
    """What one writes by hand: fast while a key has few versions, and its square where it has many."""
    alive = history.where(~F.col(DELETED)).select(
        F.col("number").alias("same_number"), F.struct(*VERSION).alias("product")
    )
    start, end = F.col("product").getField(VALID_FROM), F.col("product").getField(VALID_TO)
    in_force = (start <= F.col("at")) & (end.isNull() | (end > F.col("at")))
    joined = facts.join(alive, (F.col("number") == F.col("same_number")) & in_force, how="left")
    return joined.drop("same_number")


def duckdb_asof(work: Path, name: str) -> None:
    """Another engine, on the same files: its ASOF join, which knows of no end, and the ends behind it."""
    facts, versions = (_input(work, kind, name) / "*.parquet" for kind in ("facts", "versions"))
    run = "duckdb" if name == "uniform" else f"duckdb_{name}"
    struct = ", ".join(f"{column} := version.{column}" for column in VERSION)
    query = f"""
        SELECT fact.*, CASE WHEN version.guid IS NOT NULL
            AND (version.{VALID_TO} IS NULL OR version.{VALID_TO} > fact.at)
            THEN struct_pack({struct}) END AS product
        FROM read_parquet('{facts}') AS fact
        ASOF LEFT JOIN (FROM read_parquet('{versions}') WHERE NOT {DELETED}) AS version
        ON fact.number = version.number AND fact.at >= version.{VALID_FROM}
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({query}) TO '{work / run}.parquet' (FORMAT parquet)")


def duckdb_known(work: Path) -> None:
    """The same answer by a join on the key and both ranges, for keys of few versions."""
    facts, versions = (_input(work, kind, "uniform") / "*.parquet" for kind in ("facts", "beliefs"))
    struct = ", ".join(f"{column} := version.{column}" for column in BELIEF)
    query = f"""
        SELECT fact.*, CASE WHEN version.guid IS NOT NULL THEN struct_pack({struct}) END AS product
        FROM (SELECT *, "at" - INTERVAL 30 DAY AS decided FROM read_parquet('{facts}')) AS fact
        LEFT JOIN (FROM read_parquet('{versions}') WHERE NOT {DELETED}) AS version
        ON fact.number = version.number
        AND fact.at >= version.{VALID_FROM} AND fact.at < coalesce(version.{VALID_TO}, 'infinity')
        AND fact.decided >= version.{SYSTEM_FROM} AND fact.decided < coalesce(version.{SYSTEM_TO}, 'infinity')
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"COPY ({query}) TO '{work}/duckdb_known.parquet' (FORMAT parquet)")


def decided(facts: DataFrame) -> DataFrame:
    """The facts, each decided on thirty days before it was."""
    return facts.withColumn("decided", F.expr("at - INTERVAL 30 DAYS"))


def beliefs_of(versions: DataFrame) -> DataFrame:
    """
    As many beliefs: each of a key's first versions until the next was said, and then with its end.

    What begins at an instant was said up to ten days before or after it, in the order of the instants.
    """
    of = Window.partitionBy("number").orderBy(VALID_FROM)
    placed = versions.withColumns(
        {"place": F.row_number().over(of), "many": F.count(F.lit(1)).over(Window.partitionBy("number"))}
    )
    first = placed.where(F.col("place") * 2 <= F.col("many") + 1)
    said = F.col(VALID_FROM) + F.expr("INTERVAL 1 DAY") * (F.pmod(F.xxhash64("number"), F.lit(21)) - 10)
    next_said = F.lead(said).over(of)
    told = first.withColumns(
        {SYSTEM_FROM: said, SYSTEM_TO: next_said, VALID_TO: F.lead(VALID_FROM).over(of)}
    ).drop("place", "many")
    before = told.withColumn(VALID_TO, F.lit(None).cast("timestamp"))
    after = told.where(F.col(SYSTEM_TO).isNotNull()).withColumns(
        {SYSTEM_FROM: F.col(SYSTEM_TO), SYSTEM_TO: F.lit(None).cast("timestamp")}
    )
    return before.unionByName(after)


def random_facts(spark: SparkSession, *, hot: bool) -> DataFrame:
    """Seeded facts at any time in the span; every other one of the hot key, if there is one."""
    keys = VERSIONS // PER_KEY
    number = _drawn("key", keys)
    if hot:
        number = F.when(F.col("id") < HOT_FACTS, HOT_KEY).otherwise(number + 1)
    micros = F.lit(START_SECONDS * 1_000_000) + _drawn("time", SPAN_SECONDS * 1_000_000)
    return spark.range(FACTS).select(
        F.concat(F.lit("order "), "id").alias("order"),
        number.cast("long").alias("number"),
        F.timestamp_micros(micros).alias("at"),
        (_drawn("amount", 1_000) / 8).alias("amount"),
        F.concat(F.lit("customer "), _drawn("customer", 50_000)).alias("customer"),
    )


def random_versions(spark: SparkSession, *, hot: bool) -> DataFrame:
    """Seeded versions without gaps, of which one in twenty is deleted: 7 per key, the hot key 100,000."""
    keys = VERSIONS // PER_KEY
    identity = F.col("id")
    number, place, of = identity % keys, F.floor(identity / keys), F.lit(PER_KEY)
    if hot:
        is_hot, rest, others = identity < HOT_VERSIONS, identity - HOT_VERSIONS, _other_keys()
        number = F.when(is_hot, HOT_KEY).otherwise(rest % others + 1)
        place = F.when(is_hot, identity).otherwise(F.floor(rest / others))
        of = F.when(is_hot, HOT_VERSIONS).otherwise(PER_KEY)
    placed = spark.range(VERSIONS).select(
        number.cast("long").alias("number"), place.cast("long").alias("place"), of.cast("long").alias("of")
    )
    later = F.when(F.col("place") + 1 < F.col("of"), _start(F.col("place") + 1))
    fields = {
        "number": F.col("number"),
        "name": F.concat(F.lit("product "), _drawn("name", 5_000, "number", "place")),
        "price": _drawn("price", 10_000, "number", "place") / 7,
        "gate": F.concat(F.lit("gate "), _drawn("gate", 50, "number", "place")),
        "weight": _drawn("weight", 1_000, "number", "place").cast("int"),
    }
    deleted = _drawn("deleted", 20, "number", "place") == 0
    return placed.select(
        F.regexp_replace(
            F.md5(F.col("number").cast("string")), "^(.{8})(.{4})(.{4})(.{4})", "$1-$2-$3-$4-"
        ).alias("guid"),
        _start(F.col("place")).alias(VALID_FROM),
        later.alias(VALID_TO),
        deleted.alias(DELETED),
        *(fields[name].alias(name) for name in FIELDS),
        F.concat(
            F.lit("products:"), F.lpad(_drawn("message", 10**9, "number", "place").cast("string"), 9, "0")
        ).alias(SOURCE_MESSAGE),
    )


def _other_keys() -> int:
    """How many keys share what the hot one leaves, so that none of them has more than 7 versions."""
    return -(-(VERSIONS - HOT_VERSIONS) // PER_KEY)


def _start(place: Column) -> Column:
    """Where the version at that place begins: anywhere in its share of the span."""
    share = F.floor(F.lit(SPAN_SECONDS * 1_000_000) / F.col("of"))
    jitter = F.pmod(F.xxhash64(F.lit("start"), "number", place.cast("long")), share)
    return F.timestamp_micros(F.lit(START_SECONDS * 1_000_000) + place * share + jitter)


def _drawn(salt: str, below: int, *of: str) -> Column:
    return F.pmod(F.xxhash64(F.lit(salt), *(of or ("id",))), F.lit(below))
