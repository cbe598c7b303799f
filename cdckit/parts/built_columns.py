"""Columns of Spark that are built once and used again, or worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from cdckit.parts.arguments import free_name
from cdckit.parts.guids import from_digest

_Arguments = ParamSpec("_Arguments")
_Columns = TypeVar("_Columns")


def built_once(build: Callable[_Arguments, _Columns]) -> Callable[_Arguments, _Columns]:
    """
    A function of hashable arguments alone, whose columns are built once while one JVM runs.

    Every part of a column is a call or two to the JVM, a fifth of a millisecond each.  The changes of a table
    of ten columns are 8,000 of them, which each small batch of a stream would make anew.
    """

    # Columns belong to the JVM that they were built in, and those of Spark Connect to none.
    @lru_cache(maxsize=64)
    def kept(jvm: object, is_connect: bool, *given: _Arguments.args, **named: _Arguments.kwargs) -> _Columns:
        return build(*given, **named)

    @wraps(build)
    def built(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Columns:
        return kept(_jvm(), is_remote(), *given, **named)  # type: ignore[arg-type]

    return built


def _jvm() -> object:
    """The JVM that runs; None for a client of Spark Connect, whose PySpark may have no such thing."""
    if is_remote():
        return None
    from pyspark import SparkContext

    return SparkContext._gateway


def with_guid(rows: DataFrame, digest: Column) -> DataFrame:
    """
    Rows with the column `guid`: what `guid` gives for keys of which this is the `key_digest`.

    The digest, which is read at six places, is planned and computed once.
    """
    name = free_name("digest", rows.columns)
    return rows.withColumn(name, digest).withColumn("guid", from_digest(F.col(name))).drop(name)
