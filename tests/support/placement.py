"""Where work is not spread: rows that come to this program, go through one task, or to every executor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

PROGRAM, ONE_TASK, EVERY_EXECUTOR = "this program", "one task", "every executor"

_ROWS_OF = "shuffle records written", "number of output rows"


@contextmanager
def rows_by_place(spark: SparkSession) -> Iterator[Counter[str]]:
    """Within it, and whole after it: how many rows went where they are not spread, as Spark's plans say."""
    found: Counter[str] = Counter()
    store: Any = spark._jsparkSession.sharedState().statusStore()
    before = _latest(store)
    fetches = {name: getattr(DataFrame, name) for name in ("collect", "toArrow")}

    def counted(name: str) -> Callable[..., Any]:
        def fetch(self: DataFrame, *given: Any) -> Any:
            rows = fetches[name](self, *given)
            found[PROGRAM] += len(rows)
            return rows

        return fetch

    for name in fetches:
        setattr(DataFrame, name, counted(name))
    try:
        yield found
    finally:
        for name, fetch in fetches.items():
            setattr(DataFrame, name, fetch)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
    for execution in _listed(store.executionsList()):
        if execution.executionId() > before:
            found += _gathered(store, execution.executionId())


def _latest(store: Any) -> int:
    return max((each.executionId() for each in _listed(store.executionsList())), default=-1)


def _gathered(store: Any, execution: int) -> Counter[str]:
    """The rows of one execution that are together in one partition, or are sent to all executors."""
    graph, values = store.planGraph(execution), store.executionMetrics(execution)
    nodes = {each.id(): each for each in _listed(graph.allNodes().toSeq())}
    below: dict[int, list[int]] = {}
    for edge in _listed(graph.edges().toSeq()):
        below.setdefault(edge.toId(), []).append(edge.fromId())

    def rows(number: int) -> int:
        """What a node hands on; of one that does not count, what comes to it."""
        for metric in _listed(nodes[number].metrics().toSeq()):
            value = values.get(metric.accumulatorId())
            if metric.name() in _ROWS_OF and value.isDefined():
                return int(value.get().replace(",", ""))
        return sum(map(rows, below.get(number, ())))

    found: Counter[str] = Counter()
    for number, node in nodes.items():
        said = node.desc()
        if said.startswith("Coalesce 1") or (node.name() == "Exchange" and "SinglePartition" in said):
            found[ONE_TASK] += rows(number)
        elif node.name() == "BroadcastExchange":
            found[EVERY_EXECUTOR] += rows(number)
    return found


def _listed(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.size())]
