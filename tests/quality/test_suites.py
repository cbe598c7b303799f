"""
The suites under expectations/: tables that keep them, and for each sentence rows that break just it.

The cases are in tests/cases/expectations, a file for each suite.  Each case is a table of its own, all of a
suite are asked in one plan: `{case}` in a text is the number of the case, so that cases share no key.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument, MissingColumns
from cdckit.model.faults import Fault
from cdckit.quality.checks import sql
from cdckit.quality.suites import SqlSentence, group_by_rows, read_suite, suite_names, table_rows, to_sql
from cdckit.rdss.findings import RdssFault
from cdckit.streams.catalogue import StreamFault
from support.suites import KNOWN_BY_GUID, KNOWN_BY_NUMBER, sentences, told, views


def test_every_sentence_of_every_suite_has_rows_that_break_it() -> None:
    for name in suite_names():
        assert list(told(name)["breaks"]) == [each.says for each in read_suite(name).sentences]


def test_what_only_spark_can_run_says_so() -> None:
    """Each query is in Spark's SQL; expectations of other sorts run on every engine of Great Expectations."""
    for name in suite_names():
        for each in read_suite(name).stated["expectations"]:
            is_query = each["type"] == "unexpected_rows_expectation"
            assert (each["meta"].get("engine") == "Spark") == is_query


def test_a_query_says_which_rows_break_it_of_those_that_it_looks_at() -> None:
    """So conditions on the same rows can be counted together."""
    for name in suite_names():
        for each in read_suite(name).sentences:
            if each.type == "unexpected_rows_expectation":
                made = to_sql(each, T.StructType())
                assert made is not None
                query = f"SELECT * FROM {made.rows} WHERE {each.breaks}"
                assert query == each.kwargs["unexpected_rows_query"]


def test_what_a_sentence_names_is_looked_up() -> None:
    """What is within a column Great Expectations finds; what is nowhere, and braces of a regex, are told."""
    schema = T.StructType().add("address", T.StructType().add("city", "string")).add("a.b", "string")

    def of(column: str) -> SqlSentence | None:
        stated = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": column}}
        return to_sql(*read_suite({"name": "x", "expectations": [stated]}).sentences, schema)

    assert of("address.city") is None
    assert of("a.b") == SqlSentence("{batch}", "`a.b` IS NULL")
    with pytest.raises(MissingColumns, match="columns adress; "):
        of("adress")
    for query in ("SELECT * FROM {batch} WHERE `a.b` RLIKE 'x{8}'", "SELECT '}' FROM {batch}"):
        stated = {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": query}}
        with pytest.raises(InvalidArgument, match="others are doubled"):
            to_sql(*read_suite({"name": "x", "expectations": [stated]}).sentences, schema)


@pytest.mark.parametrize("name", suite_names())
def test_what_breaks_a_sentence_breaks_no_other(spark: SparkSession, name: str) -> None:
    """And a sound table, the last case, breaks none; what else is said to break one does."""
    stated = told(name)
    more = stated.get("breaks_more", [])
    cases = [*stated["breaks"].values(), *more, stated["good"]]
    tables = views(spark, name, cases)
    made = sentences(read_suite(name), tables["batch"])
    parts = []
    for rows, places in group_by_rows(made):
        known = "int(number)" if name in KNOWN_BY_NUMBER else "`case`"
        number = known if rows in table_rows(made) else KNOWN_BY_GUID
        breaks = ", ".join(f"IF(count_if({made[place].breaks}) > 0, {place}, NULL)" for place in places)
        broken = f"array_compact(array({breaks})) AS broken"
        parts.append(f"SELECT {number} AS place, {broken} FROM {rows} GROUP BY {number}")
    found: dict[int, set[int]] = {place: set() for place in range(len(cases))}
    for row in sql(" UNION ALL ".join(parts), tables).collect():
        found[row["place"]].update(row["broken"])
    assert all(found.pop(len(made) + place) for place in range(len(more)))
    assert found == {**{place: {place} for place in range(len(made))}, len(cases) - 1: set()}


def test_the_codes_of_suites_are_those_of_the_catalogues() -> None:
    """A code that a door gets, or loses, is a change of the suite too."""
    for door in ("databus", "datahub", "debezium", "rdss", "replicate", "streams", "tables"):
        import_module(f"cdckit.{door}")
    catalogues = {each for each in Fault.__subclasses__() if each.__module__.startswith("cdckit.")}
    assert {RdssFault, StreamFault} < catalogues
    known = {str(fault) for each in catalogues for fault in each}
    assert set(values("rejects")) == known
    assert set(values("rdss_messages")) == {str(fault) for fault in RdssFault}


def values(name: str) -> list[str]:
    """The codes that a suite allows."""
    found: list[str] = next(
        each.kwargs["value_set"]
        for each in read_suite(name).sentences
        if each.kwargs.get("column") == "error_code" and "value_set" in each.kwargs
    )
    return found
