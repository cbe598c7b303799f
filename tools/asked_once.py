"""
Classes and methods of the JVM by name: a test run asks for each of them once.

PySpark asks whenever it uses one, as `F.col` does for each column: a test of many small frames spends a
quarter of the JVM's time on the answers, which are always the same.  So what Py4J is told it keeps.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


def install() -> None:
    """Let Py4J keep what names stand for: classes, and their methods."""
    _keep_answers(JVMView, JavaClass)
    _keep_answers(JavaClass, JavaMember)


def _keep_answers(asked: type, kept: type) -> None:
    ask = asked.__getattr__  # type: ignore[attr-defined]

    def answered(self: Any, name: str) -> Any:
        found = ask(self, name)
        if isinstance(found, kept):
            # Found here, Python does not ask again.
            self.__dict__[name] = found
        return found

    asked.__getattr__ = answered  # type: ignore[attr-defined]
