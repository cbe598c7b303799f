"""What a store has to be asked: its tables, each with its suite, and where suites find other tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from pyspark.sql import DataFrame

from cdckit.errors import InvalidArgument
from cdckit.quality.suites import Suite, suite_of


@runtime_checkable
class HasContracts(Protocol):
    """
    What says of its tables which suites they keep: a ledger, a hub, an exchange, a relay, a feed, a service.

    Whoever has such a method can be asked: there is no list of those who do.
    """

    def contracts(self) -> Mapping[str, object]:
        """By name: a table and the name of its suite, or what has contracts, or a mapping like this one."""
        ...


class Asked(NamedTuple):
    """A table, the suite that it should keep, and the other tables that the suite may read."""

    table: DataFrame
    suite: Suite
    beside: Mapping[str, DataFrame]


def asked_of(given: object, *, function: str) -> dict[str, Asked]:
    """
    Every table that is asked, by its name, a name within another one behind a dot.

    A suite finds other tables among those beside its own: the table `changes` is the one that is to keep the
    suite `changes`.  If there are several, it is none of them.
    """
    return dict(_asked(given, "", function))


def _asked(given: object, within: str, function: str) -> Iterator[tuple[str, Asked]]:
    named = given.contracts() if isinstance(given, HasContracts) else given
    if not isinstance(named, Mapping):
        needed = "what has `contracts()`, as a ledger has, or a mapping of name to (table, suite)"
        raise InvalidArgument(
            function, "asked", needed, given, 'check_all({"flights": (history, "history")})'
        )
    pairs = {name: each for name, each in named.items() if isinstance(each, tuple)}
    suites = {name: suite_of(each[1], function=function) for name, each in pairs.items()}
    asked = Counter(suite.name for suite in suites.values())
    beside = {suites[name].name: each[0] for name, each in pairs.items() if asked[suites[name].name] == 1}
    for name, each in named.items():
        if name in pairs:
            yield within + name, Asked(each[0], suites[name], beside)
        else:
            yield from _asked(each, f"{within}{name}.", function)
