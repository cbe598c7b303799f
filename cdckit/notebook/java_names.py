"""What names of Java's classes and methods stand for, asked once."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember
from pyspark import SparkContext

# PySpark asks the JVM at every use what these stand for, and then what their methods do: for each column, and
# for each `select`.  For a short name Java looks through all jars of Spark, in one package after another, and
# for a method through the seven hundred of `functions`.
_ASKED_AT_EVERY_USE = (
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)


class _CachedClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of the JVM that looks up each of its methods once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        if isinstance(member, JavaMember):
            self.__dict__[name] = member
        return member


def cache_java_names() -> None:
    """Let PySpark's view of its JVM keep what names of classes and methods stand for: always the same."""
    jvm: Any = SparkContext._jvm
    for name in _ASKED_AT_EVERY_USE if jvm is not None else ():
        java_class = getattr(jvm, name)
        if isinstance(java_class, JavaClass):
            vars(jvm)[name] = _CachedClass(java_class._fqn, java_class._gateway_client)
