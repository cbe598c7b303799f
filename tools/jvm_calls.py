"""
Calls of Python to the JVM: a test run makes fewer of them, and gets the same answers.

PySpark calls the JVM for each function of a column.  Py4J adds more: it asks what a name stands for whenever
it is used, hands a list over item by item, and says of each object by itself that Python has no use for it
any more.  A test of many small frames spends more time on those than on its plans.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, ClientServerConnection, FinalizerWorker
from py4j.java_collections import ListConverter
from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JVMView
from py4j.protocol import ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID

MANY = 200
"""So many objects are worth calls of their own; fewer wait for more."""

_MOST_ITEMS = 10
"""So many items Java's `List.of` takes one by one."""

_ALWAYS_THERE = {ENTRY_POINT_OBJECT_ID, GATEWAY_SERVER_OBJECT_ID}

_PAUSE = 1
"""Seconds between two looks at what Python has no use for any more, as in Py4J."""


count = 0
"""How many calls this process has made."""


def install() -> None:
    """Let Py4J keep what names stand for, hand over lists and what is not needed at once, and count."""
    _keep_answers(JVMView, JavaClass)
    _keep_answers(JavaClass, JavaMember)
    ListConverter.convert = _at_once(ListConverter.convert)
    FinalizerWorker.run = _let_go_together
    ClientServerConnection.send_command = _counted(ClientServerConnection.send_command)


def _counted(send: Callable[..., Any]) -> Callable[..., Any]:
    def send_command(self: Any, command: str) -> Any:
        global count
        count += 1
        return send(self, command)

    return send_command


def _keep_answers(asked: type, kept: type) -> None:
    ask = asked.__getattr__  # type: ignore[attr-defined]

    def answered(self: Any, name: str) -> Any:
        found = ask(self, name)
        if isinstance(found, kept):
            # Found here, Python does not ask again.
            self.__dict__[name] = found
        return found

    asked.__getattr__ = answered  # type: ignore[attr-defined]


def _at_once(one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    """How a list becomes one of Java; what is in it are columns nearly always."""

    def convert(self: Any, given: Iterable[Any], client: Any) -> Any:
        items = list(given)
        if not all(type(item) is JavaObject for item in items):
            return one_by_one(self, items, client)
        some = _java_class("java.util.List", client).of
        if len(items) <= _MOST_ITEMS:
            return some(*items)
        found = _java_class("java.util.ArrayList", client)()
        for begin in range(0, len(items), _MOST_ITEMS):
            found.addAll(some(*items[begin : begin + _MOST_ITEMS]))
        return found

    return convert


@cache
def _java_class(name: str, client: Any) -> JavaClass:
    return JavaClass(name, client)


def _let_go_together(worker: Any) -> None:
    """The thread of Py4J that tells the JVM what Python has no use for: of many objects in a few calls."""
    ended = False
    while not ended:
        time.sleep(_PAUSE)
        ended = SHUTDOWN_FINALIZER_WORKER in list(worker.deque)
        if ended or len(worker.deque) >= MANY:
            let_go(worker.deque)


def let_go(waiting: Any) -> None:
    """Let the JVM forget the objects that wait for it, each with the client of its JVM."""
    tasks = [waiting.pop() for _ in range(len(waiting))]
    found = [task for task in tasks if task != SHUTDOWN_FINALIZER_WORKER]
    for client in {client for client, _ in found}:
        names = {name for of, name in found if of is client} - _ALWAYS_THERE
        with suppress(Exception):  # a JVM that has ended has forgotten everything
            tokens = _java_class("java.util.StringTokenizer", client)(" ".join(names))
            _known_objects(client).removeAll(_java_class("java.util.Collections", client).list(tokens))


@cache
def _known_objects(client: Any) -> Any:
    """The names of all objects that a JVM keeps for Python."""
    return JavaObject(GATEWAY_SERVER_OBJECT_ID, client).getGateway().getBindings().keySet()
