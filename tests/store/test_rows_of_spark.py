"""Rows of Spark in tables: written by workers, read as they were."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

import cdckit.store.writing
from cdckit.errors import InvalidArgument
from cdckit.parts import at_home
from cdckit.parts.workers import WorkerPlan
from cdckit.store import NotStorable, Store
from cdckit.store.files import sum_digests
from cdckit.store.store import replace_rows

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    """With every character that is special in a pattern or a URI in the path."""
    return Store(spark, tmp_path / "a b %c [x] {y,z}* ? #")


def write(store: Store, name: str, *rows: DataFrame | WorkerPlan, by: tuple[str, ...] = ()) -> None:
    with store.begin() as transaction:
        transaction.append(name, *rows, partition_by=by)
        transaction.commit()


def shown(rows: DataFrame) -> list[tuple[str | None, ...]]:
    """Every value as Spark's text of it, sorted."""
    texts = rows.selectExpr(*(f"cast(`{name}` as string)" for name in rows.columns)).collect()
    return sorted((tuple(row) for row in texts), key=str)


INSTANTS = ["0001-01-01 00:00:00", "1582-10-10 12:00:00", "1899-12-31 23:59:59.999999", "9999-12-31 00:00:00"]
EVERY_TYPE = """select i as n, cast(i as tinyint) as n8, cast(i as smallint) as n16, cast(i as int) as n32,
    cast(t as timestamp) as at, cast(t as timestamp_ntz) as naive, cast(t as date) as day,
    cast(i * 1.25 as decimal(5, 2)) as price, cast(i as decimal(38, 18)) as exact, i = 1 as flag,
    cast('nan' as double) as size, cast(-0.0 as float) as zero, 'é\\u0000😀' as text, x'00ff' as bytes,
    named_struct('m', t, 'p', i) as source, array(t, null) as listed, map(t, array(map('k', i))) as mapped,
    array(named_struct('a', cast(null as int))) as structs, cast(null as string) as nothing
    from values {} as v(i, t)"""


@pytest.mark.parametrize("few", [0, 1_000], ids=["read by Spark", "read at once"])
def test_values_of_every_type_come_back(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(at_home, "READ_ROWS", few)
    texts = ", ".join(f"({number}, '{each}')" for number, each in enumerate(INSTANTS))
    rows = spark.sql(EVERY_TYPE.format(texts))
    write(store, "all", rows)
    read = store.snapshot().read("all")
    assert bool(read.inputFiles()) == (few == 0)
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert shown(read) == shown(rows)
    first = store.snapshot().read("all", where={"n": (None, 1)})
    assert shown(first) == shown(rows)[:2]
    assert store.snapshot().read("all", where={"nothing": (None, None)}).count() == 0
    # Another reader agrees, which has no timestamps that Spark could move to another calendar.
    table = pa.table(DeltaTable(store.snapshot().path("all")).to_pyarrow_table()).sort_by("n")
    assert table.column("day").to_pylist() == [
        date(1, 1, 1),
        date(1582, 10, 10),
        date(1899, 12, 31),
        date(9999, 12, 31),
    ]
    assert table.column("at").to_pylist()[2] == datetime(1899, 12, 31, 23, 59, 59, 999999, UTC)
    assert store.snapshot().arrow("all").sort_by("n").column("text").to_pylist() == ["é\0😀"] * 4
    write(store, "all", rows)
    store.compact()
    assert len(store.snapshot().files("all")) == 1
    assert shown(store.snapshot().read("all")) == sorted(shown(rows) * 2, key=str)


@pytest.mark.parametrize(
    ("expression", "column", "found"),
    [
        ("null", "c", "void"),
        ("interval 1 day", "c", "interval day"),
        ("interval 1 month", "c", "interval month"),
        ("parse_json('1')", "c", "variant"),
        ("named_struct('x', array(null))", "c.x.element", "void"),
        ("map('k', time'12:00:00')", "c.value", "time(6)"),
    ],
)
def test_types_that_delta_lacks_are_refused(
    spark: SparkSession, store: Store, expression: str, column: str, found: str
) -> None:
    with store.begin() as transaction, pytest.raises(NotStorable) as refused:
        transaction.append("t", spark.sql(f"select {expression} as c"))
    assert (refused.value.table, refused.value.column, refused.value.found) == ("t", column, found)


def test_names_that_delta_does_not_take_are_true_for_users(spark: SparkSession, store: Store) -> None:
    rows = spark.sql(
        "select 1 as `a b`, 2 as `a_b`, named_struct('x,y', 3, 'X,y', 4, 'z', array(named_struct('=', 5))) "
        "as `s;{}()`, map('k', named_struct('tab\\t', 6)) as `m.n`"
    )
    write(store, "odd/näme", rows)
    write(store, "odd/näme", rows.select("`m.n`", "`a b`"))
    read = store.snapshot().read("odd/näme")
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert shown(read) == [
        ("1", "2", "{3, 4, [{5}]}", "{k -> {6}}"),
        ("1", None, None, "{k -> {6}}"),
    ]
    assert store.snapshot().read("odd/näme", where={"a b": {2}}).count() == 0
    assert store.snapshot().arrow("odd/näme").schema.names == rows.columns
    delta = DeltaTable(store.snapshot().path("odd/näme"))
    braces = "s_x003B__x007B__x007D__x0028__x0029_"
    assert [field.name for field in delta.schema().fields] == ["a_x0020_b", "a_b", braces, "m.n"]
    assert delta.protocol().min_reader_version == 1


def test_names_that_differ_in_case_alone(spark: SparkSession, store: Store) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        write(store, "t", spark.sql("select 1 as n, 2 as N"))
        assert [tuple(row) for row in store.snapshot().read("t").collect()] == [(1, 2)]
        assert store.snapshot().schema("t").fieldNames() == ["n", "N"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert store.snapshot().read("t").count() == 1


def test_new_columns_and_wider_types_come_with_later_rows(spark: SparkSession, store: Store) -> None:
    write(store, "t", spark.sql("select 1 as n, 'a' as kept, named_struct('x', 1) as s, 7L as k"))
    before = store.snapshot()
    write(store, "t", spark.sql("select 2 as n, named_struct('y', 'new', 'x', 2) as s"))
    write(store, "t", spark.sql("select 3000000000 as n, date'2024-01-01' as day, 'text' as k"))
    write(store, "t", spark.sql("select 4 as n, 1.5 as day, named_struct('x', 5L) as s"))
    read = store.snapshot().read("t")
    assert read.schema.simpleString() == (
        "struct<n:bigint,kept:string,s:struct<x:bigint,y:string>,k:string,day:string>"
    )
    assert shown(read) == [
        ("1", "a", "{1, null}", "7", None),
        ("2", None, "{2, new}", None, None),
        ("3000000000", None, None, "text", "2024-01-01"),
        ("4", None, "{5, null}", None, "1.5"),
    ]
    # At an older commit the table is what it was.
    assert shown(before.read("t")) == [("1", "a", "{1}", "7")]
    with (
        store.begin() as transaction,
        pytest.raises(NotStorable, match="as struct<x:bigint,y:string>; it is int"),
    ):
        transaction.append("t", spark.sql("select 1 as s"))


def test_fields_come_to_structs_within_lists_and_maps(spark: SparkSession, store: Store) -> None:
    """Delta adds no columns there: all rows are written anew, and none goes."""
    write(store, "t", spark.sql("select 1 as n, array(named_struct('x', 1)) as l"))
    write(store, "t", spark.sql("select 2 as n, array(named_struct('y', 3, 'x', 2)) as l"))
    write(store, "t", spark.sql("select 3 as n, map('k', named_struct('x', 1)) as m"))
    write(store, "t", spark.sql("select 4 as n, map('k', named_struct('x', 1, 'y', 2)) as m"))
    assert shown(store.snapshot().read("t")) == [
        ("1", "[{1, null}]", None),
        ("2", "[{2, 3}]", None),
        ("3", None, "{k -> {1, null}}"),
        ("4", None, "{k -> {1, 2}}"),
    ]
    assert store.check() is None


def test_a_naive_timestamp_may_come_later(spark: SparkSession, store: Store) -> None:
    write(store, "t", spark.sql("select 1 as n"))
    write(store, "t", spark.sql("select 2 as n, timestamp_ntz'2024-01-01 00:00:00' as at"))
    assert shown(store.snapshot().read("t")) == [("1", None), ("2", "2024-01-01 00:00:00")]


def test_partitions_and_bounds_choose_the_files(spark: SparkSession, store: Store) -> None:
    rows = spark.sql(
        "select id as n, cast(id % 3 as int) as part, if(id = 5, null, date'2024-01-01' + cast(id as int)) "
        "as day from range(0, 30, 1, 1)"
    )
    write(store, "t", rows.repartition(2, "part"), by=("part",))
    snapshot = store.snapshot()
    assert [(one.partition["part"], one.rows) for one in sorted(snapshot.files("t"), key=part_of)] == [
        (0, 10),
        (1, 10),
        (2, 10),
    ]
    assert snapshot.table("t").partition_by == ("part",)
    where = {"part": {1, 2}, "n": (4, 8)}
    assert len(snapshot.files("t", where)) == 2
    assert sorted(row["n"] for row in snapshot.read("t", where).collect()) == [4, 5, 7, 8]
    assert sorted(snapshot.arrow("t", where).column("n").to_pylist()) == [4, 5, 7, 8]
    assert [one.partition["part"] for one in snapshot.files("t", {"n": (29, None)})] == [2]
    assert [one.partition["part"] for one in snapshot.files("t", {"day": {None}})] == [2]
    assert [row["n"] for row in snapshot.read("t", {"day": {None}}).collect()] == [5]
    assert snapshot.files("t", {"day": (date(2025, 1, 1), None)}) == []
    assert snapshot.read("t", {"day": (date(2025, 1, 1), None)}).count() == 0


def part_of(file: object) -> int:
    return file.partition["part"]  # type: ignore[attr-defined, no-any-return]


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"n": pc.multiply(batch.column("id"), 2)})


def fails_at_the_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from doubled(batches)
    raise RuntimeError("no more")


NUMBERS = T.StructType().add("n", T.LongType())


def test_what_workers_make_and_rows_can_be_one_table(spark: SparkSession, store: Store) -> None:
    with store.begin() as transaction:
        made = WorkerPlan(spark.range(0, 5, 1, 2), doubled, NUMBERS)
        written = transaction.replace("t", made, spark.sql("select 1 as n"))
        assert (written.rows, len(written.files)) == (6, 3)
        [one] = transaction.read("t", where={"n": {8}}).collect()
        assert one["n"] == 8
        transaction.commit()
    assert sorted(row["n"] for row in store.snapshot().read("t").collect()) == [0, 1, 2, 4, 6, 8]


def test_a_task_that_fails_leaves_nothing_that_is_seen(spark: SparkSession, store: Store) -> None:
    write(store, "t", spark.sql("select 1L as n"))
    with store.begin() as transaction, pytest.raises(PythonException, match="no more"):
        transaction.append("t", WorkerPlan(spark.range(0, 10, 1, 2), fails_at_the_end, NUMBERS))
    assert [row["n"] for row in store.snapshot().read("t").collect()] == [1]


def test_a_digest_is_that_of_the_rows_in_any_order(spark: SparkSession) -> None:
    rows = spark.range(100).withColumn("text", F.concat(F.lit("é"), F.col("id")))
    samples = [
        rows.repartition(1),
        rows.repartition(5, "id"),
        rows.orderBy(rows["id"].desc()),
        rows.where("id < 99"),
        rows.union(rows.where("id = 1")),
        rows.limit(0),
    ]
    digests = [sum_digests(sample, F.xxhash64("id", "text")) for sample in samples]
    assert len(set(digests[:3])) == 1
    assert len(set(digests)) == 4
    assert digests[5] == 0


def test_scratch_files_are_gone_at_the_end(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    with store.begin() as transaction:
        rows = transaction.scratch(spark.range(10).toDF("a b"))
        assert (rows.columns, rows.count()) == (["a b"], 10)
        transaction.append("t", rows)
        transaction.commit()
    assert store.snapshot().read("t").count() == 10
    [place] = tmp_path.iterdir()
    assert list((place / "scratch").iterdir()) == []


@pytest.mark.parametrize("many", [10, 5_000])
@pytest.mark.parametrize(("condition", "nulls"), [("id % 5 > 0", 0.8), ("true", 1), ("false", 0)])
def test_scratch_by_null_knows_which_part_has_rows(
    spark: SparkSession, store: Store, many: int, condition: str, nulls: float
) -> None:
    """The column may stand behind many others, of any names."""
    others = [f"{number} AS `a.{number} b`" for number in range(40)]
    rows = spark.range(many).selectExpr("id", *others, f"IF({condition}, NULL, 'x') AS code")
    with store.begin() as transaction:
        parts = transaction.scratch_by_null(rows, "code")
        counts = [None if part is None else part.where("`a.7 b` = 7").count() for part in parts]
        codes = [None if part is None else {row["code"] for row in part.collect()} for part in parts]
        assert transaction.scratch_by_null(rows.limit(0), "code") == (None, None)
    expected = int(many * nulls)
    assert counts == [expected or None, many - expected or None]
    assert codes == [{None} if expected else None, {"x"} if expected < many else None]


AT_HOME = pytest.mark.parametrize("few", [0, 1_000], ids=["by workers", "by this program"])


@AT_HOME
def test_small_files_become_one(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(at_home, "READ_ROWS", few)
    with store.begin() as transaction:
        for number in range(6):
            rows = spark.sql(f"select {number} as n, {number % 2} as part")
            transaction.append("t", rows, partition_by=["part"], compact_at=3)
        # The third file of each partition made one of them all.
        assert sorted(one.rows for one in transaction.files("t")) == [3, 3]
        transaction.commit()
    write(store, "t", spark.sql("select 6 as n, 0 as part, 'new' as more"))
    before = store.snapshot()
    assert len(before.files("t")) == 3
    store.compact()
    assert sorted(one.rows for one in store.snapshot().files("t")) == [3, 4]
    assert shown(store.snapshot().read("t")) == shown(before.read("t"))
    version = store.snapshot().version
    store.compact()
    assert store.snapshot().version == version


@AT_HOME
def test_a_file_has_no_more_rows_than_it_may(
    spark: SparkSession, store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Whoever writes to the table, also in a later transaction; those that are put together, too."""
    monkeypatch.setattr(at_home, "READ_ROWS", few)
    with store.begin() as transaction:
        transaction.limit_files("t", 100)
        rows = spark.range(0, 1050, 1, 1).selectExpr("id AS n", "id % 2 AS part")
        transaction.append("t", rows, partition_by=["part"])
        transaction.append("other", rows)
        files = transaction.files("t")
        assert sorted((one.partition["part"], one.rows) for one in files) == [
            *[(0, 25), *[(0, 100)] * 5],
            *[(1, 25), *[(1, 100)] * 5],
        ]
        # In the order in which the rows came: so files of sorted rows follow one another.
        assert sorted((one.low["n"], one.high["n"]) for one in files if one.partition["part"])[:2] == [
            (1, 199),
            (201, 399),
        ]
        assert len(transaction.files("other")) == 1
        transaction.commit()
    version = store.snapshot().version
    store.compact()
    assert store.snapshot().version == version, "a full file is not a small one"
    for begin in range(2_000, 2_120, 40):
        write(store, "t", spark.range(begin, begin + 40, 1, 1).selectExpr("id AS n", "0L AS part"))
    store.compact()
    some = [one.rows for one in store.snapshot().files("t") if one.partition["part"] == 0]
    # Those of 25 and three times 40 rows, of which no three fit into a file.
    assert sorted(some) == [65, 80, *[100] * 5]
    assert store.snapshot().read("t").select("n").distinct().count() == 1_170
    with store.begin() as transaction, pytest.raises(InvalidArgument, match="rows to be 1 or more; it is 0"):
        transaction.limit_files("t", 0)


def test_a_file_that_is_begun_has_room_for_the_rest_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cdckit.store.writing, "_ROWS_AT_ONCE", 60)
    numbers = pa.table({"n": list(range(250))})
    with store.begin() as transaction:
        transaction.limit_files("t", 100)
        transaction.append("t", pa.Table.from_batches(numbers.to_batches(max_chunksize=60)))
        assert [one.rows for one in transaction.files("t")] == [100, 100, 50]


def test_commits_are_a_table_too(spark: SparkSession, store: Store) -> None:
    assert store.commits().count() == 0
    with store.begin() as transaction:
        transaction.append("t", spark.range(1))
        transaction.note("kind", "test")
        transaction.commit(batch="b", digest=3)
    rows = [
        row.asDict(recursive=True) for row in store.commits().orderBy("version").drop("timestamp").collect()
    ]
    assert isinstance(rows[1]["tables"]["t"].pop("digest"), int)
    assert rows == [
        {"version": 0, "batch": None, "digest": None, "tables": {}, "notes": {}},
        {
            "version": 1,
            "batch": "b",
            "digest": 3,
            "tables": {"t": {"folder": "t", "version": 0, "commit": 1, "files": 1, "rows": 1}},
            "notes": {"kind": "test"},
        },
    ]


def test_rows_of_some_keys_are_replaced_and_files_without_them_stay(
    spark: SparkSession, store: Store
) -> None:
    """Key 2 is in the first file; key 9 is in none, and its row is written all the same."""
    write(store, "t", spark.sql("select 'a' as text, 1L as n union all select 'b', 2L").coalesce(1))
    write(store, "t", spark.sql("select 'c' as text, 3L as n").coalesce(1))
    before = store.snapshot().files("t")
    with store.begin() as transaction:
        new = spark.sql("select 'B' as text, 2L as n union all select 'i', 9L")
        replace_rows(transaction, "t", spark.sql("select explode(array(2L, 9L)) as n"), new)
        transaction.commit()
    assert shown(store.snapshot().read("t")) == [("B", "2"), ("a", "1"), ("c", "3"), ("i", "9")]
    [stays] = {one.path for one in before} & {one.path for one in store.snapshot().files("t")}
    assert [one.rows for one in before if one.path == stays] == [1]
    with store.begin() as transaction:
        replace_rows(transaction, "t", spark.sql("select explode(array(2L, 7L)) as n"))
        transaction.commit()
    assert shown(store.snapshot().read("t")) == [("a", "1"), ("c", "3"), ("i", "9")]
