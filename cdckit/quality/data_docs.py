"""Several tables checked at once, as pages of Great Expectations; and `gate` for batches of a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard, TypeVar, runtime_checkable

from pyspark.sql import DataFrame

from cdckit.errors import InvalidArgument
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import wrong_argument
from cdckit.quality.checks import CheckResult, SentenceResult, check, distinct_names, ephemeral_context
from cdckit.quality.suites import Suite, keep_promised, read_suite

_LONGEST = 200
"""So many bytes of a name stand in that of its file, which may have 255."""


@runtime_checkable
class HasContracts(Protocol):
    """
    What says of its tables which suites they keep: a ledger, a hub, an exchange, a relay, a feed, a service.

    A class of your own can be asked too, if it has this method.
    """

    def contracts(self) -> Mapping[str, object]:
        """Name contracts: a table and its suite, or what has contracts, or a mapping like this one."""
        ...


class ContractTable(NamedTuple):
    """A table, the suite that it should keep, and by their suites the tables beside it, each by its name."""

    table: DataFrame
    suite: Suite
    beside: Mapping[str, Mapping[str, DataFrame]]


def _find_contracts(given: object) -> dict[str, ContractTable]:
    """
    Every table that is asked, by its name, a name within another one behind a dot.

    A suite finds other tables among those beside its own: the table `changes` is the one that is to keep the
    suite `changes`.
    """
    contracts: dict[str, ContractTable] = {}
    for name, contract in _walk_contracts(given, ""):
        if name in contracts:
            raise wrong_argument("asked", "tables of different names", f"two of the name {name}")
        contracts[name] = contract
    return contracts


def _walk_contracts(given: object, within: str) -> Iterator[tuple[str, ContractTable]]:
    named = given.contracts() if _has_contracts(given) else given
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise _no_contracts(given, within)
    pairs = {name: entry for name, entry in named.items() if isinstance(entry, tuple)}
    wrong = [name for name, entry in pairs.items() if len(entry) != 2 or not isinstance(entry[0], DataFrame)]
    if wrong:
        raise _no_contracts(pairs[wrong[0]], f"{within}{wrong[0]}.")
    suites = {name: keep_promised(read_suite(suite), table) for name, (table, suite) in pairs.items()}
    beside: dict[str, dict[str, DataFrame]] = {}
    for name, suite in suites.items():
        beside.setdefault(suite.name, {})[name] = pairs[name][0]
    for name, entry in named.items():
        if name in pairs:
            yield within + name, ContractTable(entry[0], suites[name], beside)
        else:
            yield from _walk_contracts(entry, f"{within}{name}.")


def _has_contracts(given: object) -> TypeGuard[HasContracts]:
    """A table may have a column of that name, so it is asked whether it is a table."""
    return isinstance(given, HasContracts) and not isinstance(given, DataFrame)


def _no_contracts(given: object, within: str) -> InvalidArgument:
    where = f"asked[{within[:-1]!r}]" if within else "asked"
    needed = "what has `contracts()`, as a ledger has, or a mapping of name to (table, suite)"
    return wrong_argument(where, needed, given, 'check_all({"flights": (history, "history")})')


@takes()
def check_all(
    contracts: HasContracts | Mapping[str, object],
    *,
    tables: Mapping[str, DataFrame] | None = None,
    keys: Sequence[str] | None = None,
    rows: int = 3,
    docs: str | Path | None = None,
) -> dict[str, CheckResult]:
    """
    Check several tables, such as those of a store that have a suite, each by its own: a checkpoint.

    Args:
        contracts: A store, which knows its tables and their suites: a `Ledger`, or a shell of a door (`Hub`,
            `Feed`, `Relay`, `Exchange`, `Service`).  Or by what each is to be called, a table and the name of
            its suite, or a store, or a mapping like this one.
        tables: Other tables that suites read, as for `check`.  Those that are asked need not be told: the
            suite `ledger` of a history finds `changes` in the table beside it that is asked by this suite.
        keys: As for `check`, of the logs that do not say their keys.
        rows: As for `check`.
        docs: A folder for the pages of Great Expectations about what was found, its Data Docs; it is made
            where it is not there, and `index.html` in it is where to begin.  Signs of a name that a file
            cannot have, such as a slash, are underscores there.  Without it no file is written.

    Returns:
        By the same names, what `check` says of each; of a store in a mapping, and of a mapping in it, as
        "name.table".

    Raises:
        InvalidArgument, MissingColumns: As `check`.
        MissingExtra: *docs* are wanted, and Great Expectations is not installed: it comes with the extra
            `quality`.

    Cost: as `check`, of one table after the other.

    >>> found = check_all({"log": (changes, "changes"), "versions": (history, "history")})
    >>> {name: each.ok for name, each in found.items()}
    {'log': True, 'versions': True}
    >>> from tempfile import TemporaryDirectory
    >>> from cdckit import Ledger
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(session(), folder, entity="product", keys=["number"])
    ...     _ = ledger.apply(changes, "monday")
    ...     {name: each.rows for name, each in check_all(ledger).items()}
    {'changes': 4, 'history': 4, 'ledger': 4}
    """
    every = _find_contracts(contracts)
    beside = {name: _tables_beside(name, contract, tables or {}) for name, contract in every.items()}
    context = None if docs is None else ephemeral_context("Data Docs")
    results = {
        name: check(contract.table, contract.suite.stated, tables=beside[name], keys=keys, rows=rows)
        for name, contract in every.items()
    }
    if context is not None and docs is not None:
        _write(context, results, {name: contract.suite for name, contract in every.items()}, Path(docs))
    return results


def _tables_beside(
    name: str, wanted: ContractTable, tables: Mapping[str, DataFrame]
) -> Mapping[str, DataFrame]:
    """The tables that its suite may read; of several beside it that could be one of them, none is taken."""
    for table in wanted.suite.tables:
        if len(wanted.beside.get(table, ())) > 1 and table not in tables:
            names = ", ".join(wanted.beside[table])
            needed = (
                f"one table of the suite {table} beside {name}, which its suite {wanted.suite.name} reads"
            )
            remedy = f"Say which with tables={{{table!r}: …}}, or put each beside its own in a mapping."
            raise wrong_argument("asked", needed, names, remedy=remedy)
    return {suite: next(iter(named.values())) for suite, named in wanted.beside.items()} | dict(tables)


def _write(
    context: Any, results: Mapping[str, CheckResult], suites: Mapping[str, Suite], folder: Path
) -> None:
    """Write what was found as results of Great Expectations, and its pages about them in a folder."""
    from great_expectations.core import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    store = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder.absolute())}
    index = {"class_name": "DefaultSiteIndexBuilder"}
    site = {"class_name": "SiteBuilder", "store_backend": store, "site_index_builder": index}
    context.variables.data_docs_sites = {}
    context.add_data_docs_site("cdckit", site)
    now = datetime.now(UTC)
    run = RunIdentifier(run_name="cdckit", run_time=now)
    pages = _file_names(suites)
    names = _file_names({suite.name for suite in suites.values()})
    for name, stated in suites.items():
        suite = replace(stated, name=names[stated.name])
        written = _suite(suite)
        if written.name not in {suite.name for suite in context.suites.all()}:
            context.suites.add(written)
        key = ValidationResultIdentifier(ExpectationSuiteIdentifier(suite.name), run, pages[name])
        context.validation_results_store.set(key, _results(results[name], suite, name, run))
    context.build_data_docs(site_names=["cdckit"])


def _file_names(names: Collection[str]) -> dict[str, str]:
    """
    Name each page by what it is about, so that it can be a file.

    Great Expectations leaves a page out, without a word, if its name has a slash.  What is no letter, digit
    or harmless sign becomes an underscore; names that then differ in case at most get numbers.
    """
    in_order = sorted(names)
    plain = (re.sub(r"[^\w .()+=,@-]", "_", name).encode()[:_LONGEST] for name in in_order)
    pages = distinct_names([name.decode(errors="ignore") for name in plain])
    return dict(zip(in_order, pages, strict=True))


def _suite(suite: Suite) -> Any:
    """The suite, each expectation described by its sentence: that is what the pages show."""
    import great_expectations as gx

    described = [
        {**stated, "description": sentence.says}
        for stated, sentence in zip(suite.stated["expectations"], suite.sentences, strict=True)
    ]
    return gx.ExpectationSuite(**{**suite.stated, "name": suite.name, "expectations": described})


def _results(checked: CheckResult, suite: Suite, name: str, run: Any) -> Any:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult

    configurations = [expectation.configuration for expectation in _suite(suite).expectations]
    sound = {"raised_exception": False, "exception_message": None, "exception_traceback": None}
    results = [
        ExpectationValidationResult(
            success=not result.broken,
            expectation_config=configuration,
            result=_result(result, checked.rows),
            exception_info=sound,
        )
        for result, configuration in zip(checked.results, configurations, strict=True)
    ]
    kept, of = len(checked.results) - len(checked.broken), len(checked.results)
    statistics = {
        "evaluated_expectations": of,
        "successful_expectations": kept,
        "unsuccessful_expectations": of - kept,
        "success_percent": 100 * kept / of,
    }
    batch = {"datasource_name": "cdckit", "data_connector_name": "check", "data_asset_name": name}
    meta = {"run_id": run, "active_batch_definition": {**batch, "batch_identifiers": {}}}
    return ExpectationSuiteValidationResult(
        success=checked.ok, results=results, suite_name=suite.name, statistics=statistics, meta=meta
    )


def _result(result: SentenceResult, rows: int) -> dict[str, Any]:
    share = 100 * result.broken / rows if rows else 0.0
    return {
        "observed_value": result.broken,
        "element_count": rows,
        "unexpected_count": result.broken,
        "unexpected_percent": share,
        "unexpected_percent_total": share,
        "partial_unexpected_list": [],
    }


_Answer = TypeVar("_Answer")


@takes()
def gate(
    take: Callable[[DataFrame, int], _Answer],
    suite: str | Mapping[str, Any],
    *,
    severity: str = "critical",
    tables: Mapping[str, DataFrame] | None = None,
) -> Callable[[DataFrame, int], _Answer]:
    """
    Check the batches of a stream before they are taken: nothing is committed of a batch that fails.

    The stream ends with the error, and begins with the same batch when it is started again.

    Args:
        take: What `foreachBatch` would be given: `ledger.sink("a name")`, `feed.sink(…)`, or any function of
            a batch and its number.
        suite: As for `check`.
        severity: How much a broken sentence must matter to shut the gate: `info`, `warning` or `critical`.
        tables: As for `check`.

    Returns:
        A function for `foreachBatch`.  It raises `BrokenPromises` where the gate is shut.

    What a batch would do to a history is asked by the *gate* of `Ledger.apply` and `Ledger.sink` instead.

    Cost: for each batch that of `check`: the batch is read once more, so cache what is dear to compute.

    >>> taken = gate(lambda batch, number: batch.count(), "changes")
    >>> taken(changes, 0)
    4
    >>> taken(changes.withColumn("source", F.lit(None).cast("string")), 1)
    Traceback (most recent call last):
    ...
    cdckit.quality.checks.BrokenPromises: A table of 4 rows breaks 1 sentence of the suite changes:
    - 4 rows: A change says who said so: priorities go by it.
      source  operation  number  name    effective  arrived  message
      NULL    upsert     1       kettle  09:00      09:00    m1
      NULL    upsert     2       mug     09:00      09:00    m1
      NULL    upsert     1       teapot  10:00      10:00    m2
      (first 3 rows of more; instants of 2024-01-01, UTC)
    """

    def checked(batch: DataFrame, number: int) -> _Answer:
        check(batch, suite, tables=tables).require(severity)
        return take(batch, number)

    return checked
