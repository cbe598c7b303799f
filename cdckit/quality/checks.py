"""`check`: whether a table keeps what a suite promises, sentence by sentence, in one pass over it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import indent
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError, InvalidArgument
from cdckit.model.changes import CHANGE_SCHEMA, UNTIL
from cdckit.model.history import HISTORY_SCHEMA, SYSTEM_INTERVAL
from cdckit.model.rejected_records import REJECT, drop_rejects
from cdckit.notebook.options import ROWS
from cdckit.notebook.tables import Cell, Grid, Table, html_text, show
from cdckit.parts.argument_forms import one_of, rows_with, takes
from cdckit.parts.arguments import (
    quoted,
    require_batch,
    require_columns,
    require_types,
    with_number,
    wrong_argument,
)
from cdckit.parts.installation import require_package
from cdckit.parts.job_descriptions import describe_step
from cdckit.quality.suites import (
    ALIKE,
    BATCH,
    BREAKS,
    SEVERITIES,
    Sentence,
    SqlSentence,
    Suite,
    compare_with_log,
    group_by_rows,
    keep_promised,
    names_in_braces,
    read_suite,
    table_rows,
    to_sql,
    with_breaks,
    with_differences,
)


class BrokenPromises(CdcError, ValueError):
    """
    A table breaks sentences of its suite.

    Facts: `suite`, its name; `rows`, how many the table has; `broken`, by sentence how many break it;
    `first`, by sentence the first of these rows as text, of those that can be shown.
    """

    def __init__(
        self, suite: str, rows: int, broken: dict[str, int], first: Mapping[str, str] | None = None
    ) -> None:
        self.suite, self.rows, self.broken, self.first = suite, rows, broken, dict(first or {})
        super().__init__(suite, rows, broken, self.first)

    def __str__(self) -> str:
        listed = "\n".join(map(self._sentence_text, self.broken))
        what = with_number(len(self.broken), "sentence")
        return (
            f"A table of {with_number(self.rows, 'row')} breaks {what} of the suite {self.suite}:\n{listed}"
        )

    def _sentence_text(self, says: str) -> str:
        shown = indent(self.first.get(says, ""), "  ")
        return f"- {with_number(self.broken[says], 'row')}: {says}" + (f"\n{shown}" if shown else "")


@dataclass(frozen=True)
class SentenceResult:
    """One sentence, how many rows break it, and the first of these as a table to look at, if it has some."""

    sentence: Sentence
    broken: int
    examples: Table | None


class CheckResult:
    """
    What `check` returns: displays itself in Jupyter, and is text where there is none.

    `suite` is the name of the suite, `rows` the number of rows, `results` what was found, a `SentenceResult`
    for each sentence; `ok` says whether no sentence is broken.
    """

    def __init__(self, suite: str, rows: int, results: tuple[SentenceResult, ...]) -> None:
        self.suite, self.rows, self.results = suite, rows, results

    @property
    def ok(self) -> bool:
        """Whether the table keeps every sentence."""
        return not self.broken

    @property
    def broken(self) -> tuple[SentenceResult, ...]:
        """The sentences that the table breaks."""
        return tuple(result for result in self.results if result.broken)

    @takes(severity=one_of(*SEVERITIES))
    def require(self, severity: str = "info") -> CheckResult:
        """
        Raise if a sentence is broken that matters at least so much; else this same answer.

        Raises:
            BrokenPromises: It has the sentences, how many rows break each, and the first of these rows.
        """
        least = SEVERITIES.index(severity)
        broken = [result for result in self.broken if SEVERITIES.index(result.sentence.severity) >= least]
        if broken:
            # Of sentences that say the same, the second has a number behind it.
            by_name = dict(
                zip(distinct_names([result.sentence.says for result in broken]), broken, strict=True)
            )
            shown = {name: result.examples for name, result in by_name.items()}
            first = {name: repr(rows) for name, rows in shown.items() if rows is not None}
            numbers = {name: result.broken for name, result in by_name.items()}
            raise BrokenPromises(self.suite, self.rows, numbers, first)
        return self

    def __repr__(self) -> str:
        shown = [f"{says}\n{rows!r}" for says, rows in self._examples]
        return "\n\n".join([repr(self._sentences), *shown])

    def _repr_html_(self) -> str:
        shown = [
            f'<p style="margin:1em 0 0.2em">{html_text(says)}</p>{rows._repr_html_()}'
            for says, rows in self._examples
        ]
        return "".join([self._sentences._repr_html_(), *shown])

    @property
    def _examples(self) -> list[tuple[str, Table]]:
        pairs = ((result.sentence.says, result.examples) for result in self.broken)
        return [(says, rows) for says, rows in pairs if rows is not None]

    @property
    def _sentences(self) -> Table:
        return Table(self._grid)

    def _grid(self) -> Grid:
        some = any(result.broken for result in self.results)
        rows = [_row(result, some) for result in self.results]
        headings = ["rows that break it", "of what weight", "sentence"] if some else ["sentence"]
        kept = f"{len(self.results) - len(self.broken)} of {with_number(len(self.results), 'sentence')} kept"
        caption = f"{self.suite}: {kept} by {with_number(self.rows, 'row')}"
        return Grid(
            [*map(Cell, headings)], [True, False, False][-len(headings) :], rows, [False] * len(rows), caption
        )


def _row(result: SentenceResult, some: bool) -> list[Cell]:
    sentence = Cell(result.sentence.says, in_full=result.sentence.source)
    if not some:
        return [sentence]
    number = Cell(f"{result.broken:,}", look="mark") if result.broken else Cell("0", look="nothing")
    weight = Cell(result.sentence.severity, look="" if result.broken else "nothing")
    return [number, weight, sentence]


def ephemeral_context(part: str) -> Any:
    """A context of Great Expectations that writes no file, sends nothing and shows no progress."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    require_package("great_expectations", extra="quality", part=part)
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    return context


def count_by_great_expectations(frame: DataFrame, sentences: Sequence[Sentence]) -> Iterator[int]:
    """Count the rows that break each of the sentences; of a sentence about the whole table 1, if broken."""
    if not sentences:
        return
    context = ephemeral_context("check")
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    asset = context.data_sources.add_spark("frames", persist=False).add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    for sentence in sentences:
        try:
            stated = ExpectationConfiguration(
                type=sentence.type, kwargs=dict(sentence.kwargs)
            ).to_domain_obj()
        except (GreatExpectationsError, ValueError, TypeError) as error:
            raise _unusable_sentence(sentence, str(error)) from error
        result = batch.validate(stated, result_format="BASIC")
        message = _error_text(result.exception_info or {})
        if message is not None:
            raise _unusable_sentence(sentence, message)
        yield 0 if result.success else int(result.result.get("unexpected_count") or 1)


def _error_text(info: Mapping[str, Any]) -> str | None:
    """Say what went wrong: it is told once, or for each number that Great Expectations wanted."""
    infos = [info, *(part for part in info.values() if isinstance(part, Mapping))]
    return next(
        (str(entry.get("exception_message")) for entry in infos if entry.get("raised_exception")), None
    )


def _unusable_sentence(sentence: Sentence, message: str) -> InvalidArgument:
    text = " ".join(message.split())[:500]
    needed, remedy = "of expectations that Great Expectations can run", f"Great Expectations says: {text}"
    return wrong_argument("suite", needed, sentence.type, remedy=remedy)


VIEW = "cdckit_"
"""How the names of other tables begin that a suite reads: `cdckit_changes` is the table `changes`."""
_MERGED = f"{VIEW}merged"

_TYPES: Mapping[str, T.StructType] = {
    "bitemporal": T.StructType([*HISTORY_SCHEMA, *SYSTEM_INTERVAL]),
    "changes": T.StructType([*CHANGE_SCHEMA, T.StructField(UNTIL, T.TimestampType())]),
    "history": HISTORY_SCHEMA,
    "ledger": HISTORY_SCHEMA,
}
"""By suite, the types of its columns that do not depend on an entity, where the table has them."""


@takes(frame=rows_with(), rows=ROWS)
def check(
    frame: DataFrame,
    suite: str | Mapping[str, Any],
    *,
    tables: Mapping[str, DataFrame] | None = None,
    keys: Sequence[str] | None = None,
    rows: int = 3,
    cache: bool = False,
) -> CheckResult:
    """
    Check whether a table keeps what a suite promises, sentence by sentence, with the rows that break it.

    Args:
        frame: The table; of changes without the rejects among them.
        suite: The name of a suite that comes with cdckit (`history`, `changes`, `rejects` …), or any suite
            in the JSON of Great Expectations, as a mapping: its `name` and its `expectations`.
        tables: Other tables that the suite reads, by their names: the suite `ledger`, of a history, reads
            `changes`, the whole log of its entities with their `guid`, as a ledger's `changes()` are.  It is
            merged, and what that gives compared with *frame*.
        keys: The key fields, as for `merge`, of such a log.  That of a ledger or a hub says them itself.
        rows: How many of the rows that break a sentence are shown, from 1 on.
        cache: Hold *frame* in memory while it is checked.  That costs more than it saves, unless the table is
            dear to compute and read more than once: by several sentences that are broken, or by a suite
            that speaks of other rows too.  However the check ends, it is released.

    Of a history of changes with an end (`effective_until`) the suite `history` asks less: it may have gaps,
    and an end may take back what was once there.  Of what was believed the suite `bitemporal` then does not
    ask how often an instant is: it does not find two versions at once, as it does without ends.

    Returns:
        A `CheckResult`: in a notebook a table of the sentences, each with the number of rows that break it,
        and below it the first of these rows; of the suite `ledger` what the version `has` and what by the log
        it is `due` to have, where the two differ.  `require()` raises if a sentence is broken.

    Raises:
        InvalidArgument: There is no such suite, a table that it reads is not given, or *keys* are not where
            the log does not say them; Great Expectations cannot run one of its expectations; a query has
            something else than `batch` in braces; or *frame* is a stream: check its batches, in
            `foreachBatch`.
        MissingColumns: *frame* lacks a column that the suite reads, or an expectation is about.
        WrongColumnType: A history or changes have a standard column in another type, such as instants of a
            file that are texts: as such they would be compared.
        MissingExtra: The suite has an expectation of a sort that only Great Expectations can run
            (it comes with the extra `quality`).  None of the suites of cdckit has one.

    Cost: one query that reads the table once, and of a suite that looks at neighbouring rows one shuffle and
        one sort; once more for each query of your own, unless its `meta` has the condition as `breaks` (and
        says `keeps_rows`, where it adds columns to all rows of the table), as in the suites of cdckit; and
        for each sentence that is broken one more, for its rows.  `bitemporal` reads its table three times:
        one that is computed anew for each reading, such as `ledger.beliefs()`, which is a merge, should be
        cached (`cache=True`).  On 1,400,000 versions of 8 fields the suite `history`
        took three tenths of the time of their merge, and `changes` a twentieth.  The suite `ledger` is a
        merge of the log and a join with the table.

    >>> check(history, "history").ok
    True
    >>> named = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name"}}
    >>> mine = {"name": "products", "expectations": [{**named, "notes": "A product has a name."}]}
    >>> check(history.drop("guid"), mine)
    rows that break it  of what weight  sentence
    1                   critical        A product has a name.
    (products: 0 of 1 sentence kept by 4 rows)
    <BLANKLINE>
    A product has a name.
    valid_from  valid_to  number   name        state          message
    11:00       …         2 ·m1/0  NULL ·m3/0  deleted ·m3/0  m3
    (1 row; instants of 2024-01-01, UTC; … is an open end; after a value its message/the value's priority)
    """
    promised = read_suite(suite)
    if REJECT in frame.columns:
        frame = drop_rejects(frame)
    require_columns(frame, promised.columns)
    types = _TYPES.get(promised.name, T.StructType())
    require_types(frame, T.StructType([field for field in types if field.name in frame.columns]))
    require_batch(frame, "frame", "check each batch in writeStream.foreachBatch(…)")
    _require_free(frame)
    promised = keep_promised(promised, frame)
    views = _views(frame, promised, tables or {}, keys)
    with describe_step(frame.sparkSession, f"check: {promised.name}"), _cache_frame(frame, cache):
        return CheckResult(promised.name, *_check_sentences(promised, views, rows))


def _require_free(frame: DataFrame) -> None:
    taken = [name for name in frame.columns if name.lower() in (BREAKS, ALIKE)]
    if taken:
        needed = f"a table without the columns {BREAKS} and {ALIKE}, which check makes itself"
        raise wrong_argument("frame", needed, taken, remedy="Give them other names.")


def _check_sentences(
    suite: Suite, views: Mapping[str, DataFrame], rows: int
) -> tuple[int, tuple[SentenceResult, ...]]:
    queries = [to_sql(sentence, views["batch"].schema) for sentence in suite.sentences]
    seen, numbers = count([query for query in queries if query is not None], views)
    strange = [sentence for sentence, query in zip(suite.sentences, queries, strict=True) if query is None]
    others = count_by_great_expectations(views["batch"], strange)
    results = []
    for sentence, query in zip(suite.sentences, queries, strict=True):
        number = next(others) if query is None else next(numbers)
        shown = None
        if number and query is not None:
            broken_by = with_differences(breaking_rows(query, views))
            order = [name for name in suite.order_by if name in broken_by.columns]
            shown = show(broken_by, rows=rows, order_by=order or None)
            repr(shown)  # now, while the table is there
        results.append(SentenceResult(sentence, number, shown))
    return seen, tuple(results)


def _views(
    frame: DataFrame, suite: Suite, tables: Mapping[str, DataFrame], keys: Sequence[str] | None
) -> dict[str, DataFrame]:
    lacking = [name for name in suite.tables if name not in tables]
    if lacking:
        needed = f"a mapping with {', '.join(suite.tables)}, which the suite {suite.name} reads"
        example = f"check(frame, {suite.name!r}, tables={{{lacking[0]!r}: …}})"
        raise wrong_argument("tables", needed, sorted(tables), example)
    views = {"batch": frame} | {VIEW + name: tables[name] for name in suite.tables}
    if any(_MERGED in str(sentence.kwargs) for sentence in suite.sentences):
        views["batch"], views[_MERGED] = compare_with_log(frame, tables["changes"], keys)
    return views


@contextmanager
def _cache_frame(frame: DataFrame, cache: bool) -> Iterator[None]:
    # `is_cached` knows only what this very object was told; what others hold is theirs to release.
    if not cache or frame.storageLevel.useMemory or frame.storageLevel.useDisk:
        yield
        return
    frame.persist()
    try:
        yield
    finally:
        frame.unpersist()


def count(sentences: Sequence[SqlSentence], views: Mapping[str, DataFrame]) -> tuple[int, Iterator[int]]:
    """Count the rows of the table, and those that break each sentence."""
    groups, of_table = group_by_rows(sentences), table_rows(sentences)
    if not any(rows in of_table for rows, _ in groups):
        groups.append((BATCH, []))
    parts = []
    for rows, places in groups:
        marked, conditions = with_breaks(rows, {place: sentences[place] for place in places})
        breaks = [f"count_if({condition})" for condition in conditions]
        count = "count(*)" if rows in of_table else "CAST(NULL AS bigint)"
        parts.append(f"SELECT {count} AS seen, array({', '.join(breaks)}) AS broken FROM {marked}")
    query = " UNION ALL ".join(f"SELECT {n} AS part, * FROM ({part})" for n, part in enumerate(parts))
    answers = {row["part"]: row for row in sql(query, views).collect()}
    numbers = dict.fromkeys(range(len(sentences)), 0)
    for part, (_, places) in enumerate(groups):
        numbers |= dict(zip(places, answers[part]["broken"], strict=True))
    seen = next(row["seen"] for row in answers.values() if row["seen"] is not None)
    return seen, iter(numbers[place] for place in range(len(sentences)))


def breaking_rows(sentence: SqlSentence, views: Mapping[str, DataFrame]) -> DataFrame:
    """The rows that break a sentence, with the columns of the table where they are rows of it."""
    rows = sql(f"SELECT * FROM {sentence.rows} WHERE {sentence.breaks}", views)
    columns = views["batch"].columns
    if len({name.lower() for name in rows.columns}) < len(rows.columns):
        return rows.toDF(*distinct_names(rows.columns))
    if set(columns) <= set(rows.columns):
        return rows.select(*(F.col(quoted(name)) for name in columns))
    return rows


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, numbered where one was there before in any case: Spark, or a disk, knows no two."""
    apart: list[str] = []
    for name in names:
        new, number, taken = name, 2, {other.casefold() for other in apart}
        while new.casefold() in taken:
            new, number = f"{name} ({number})", number + 1
        apart.append(new)
    return apart


def sql(query: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """The answer to a query in which tables stand under their names: `{batch}`, and those of views."""
    beside = [f"{quoted(name)} AS (SELECT * FROM {{{name}}})" for name in views if name.startswith(VIEW)]
    whole = f"WITH {', '.join(beside)} {query}" if beside else query
    used = {name: views[name] for name in names_in_braces(whole)}
    return _answer(views["batch"].sparkSession, whole, used)


def _answer(spark: SparkSession, query: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """
    Ask as `spark.sql(query, **views)`, also of tables of other sessions, and what is cached stays so.

    A batch of a stream has a session of its own, and PySpark names each table in that table's session only.
    Afterwards it drops the names by the catalog, which gives up what is cached of the table: `DROP VIEW`
    does not.
    """
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect, which resolves names only when a query runs
        return spark.sql(query, **dict[str, Any](views))
    database = spark.conf.get("spark.sql.globalTempDatabase", "global_temp")
    names: dict[str, str] = {}
    try:
        for view, table in views.items():
            name = f"{VIEW}{uuid4().hex}"
            table.createGlobalTempView(name)
            names[view] = f"{database}.{name}"
        return spark.sql(query.format(**names))
    finally:
        for name in names.values():
            spark.sql(f"DROP VIEW {name}")
