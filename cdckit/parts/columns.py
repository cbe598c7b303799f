"""Columns of Spark that are built once and used again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

from pyspark import SparkContext
from pyspark.sql.utils import is_remote

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
        return kept(SparkContext._gateway, is_remote(), *given, **named)  # type: ignore[arg-type]

    return built
