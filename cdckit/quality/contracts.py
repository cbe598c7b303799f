"""What a store has to be asked: its tables, each with its suite, and where suites find other tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from pyspark.sql import DataFrame

from cdckit.errors import InvalidArgument
from cdckit.quality.suites import Suite, suite_of


@runtime_checkable
class HasContracts(Protocol):
    """
    What says of its tables which suites they keep: a ledger, a hub, an exchange, a relay, a feed, a service.

    A class of your own can be asked too, if it has this method.
    """

    def contracts(self) -> Mapping[str, object]:
        """By name: a table and the name of its suite, or what has contracts, or a mapping like this one."""
        ...


class Asked(NamedTuple):
    """
    A table, the suite that it should keep, and the other tables that the suite may read.

    *several* has, by suite, the names of tables beside it of which it is not clear which one is meant.
    """

    table: DataFrame
    suite: Suite
    beside: Mapping[str, DataFrame]
    several: Mapping[str, Sequence[str]]


def asked_of(given: object, *, function: str) -> dict[str, Asked]:
    """
    Every table that is asked, by its name, a name within another one behind a dot.

    A suite finds other tables among those beside its own: the table `changes` is the one that is to keep the
    suite `changes`.  If there are several, it is none of them.

    Raises:
        InvalidArgument: Something is neither a table with its suite nor a mapping of such, or two tables
            have the same name.
    """
    found: dict[str, Asked] = {}
    for name, each in _asked(given, "", function):
        if name in found:
            raise InvalidArgument(function, "asked", "tables of different names", f"two of the name {name}")
        found[name] = each
    return found


def _asked(given: object, within: str, function: str) -> Iterator[tuple[str, Asked]]:
    named = given.contracts() if _has_contracts(given) else given
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise _not_asked(given, within, function)
    pairs = {name: each for name, each in named.items() if isinstance(each, tuple)}
    wrong = [name for name, each in pairs.items() if len(each) != 2 or not isinstance(each[0], DataFrame)]
    if wrong:
        raise _not_asked(pairs[wrong[0]], f"{within}{wrong[0]}.", function)
    suites = {name: suite_of(each[1], function=function) for name, each in pairs.items()}
    by_suite: dict[str, list[str]] = {}
    for name, suite in suites.items():
        by_suite.setdefault(suite.name, []).append(name)
    beside = {suite: pairs[names[0]][0] for suite, names in by_suite.items() if len(names) == 1}
    several = {suite: names for suite, names in by_suite.items() if len(names) > 1}
    for name, each in named.items():
        if name in pairs:
            yield within + name, Asked(each[0], suites[name], beside, several)
        else:
            yield from _asked(each, f"{within}{name}.", function)


def _has_contracts(given: object) -> TypeGuard[HasContracts]:
    """A table may have a column of that name, so it is asked whether it is a table."""
    return isinstance(given, HasContracts) and not isinstance(given, DataFrame)


def _not_asked(given: object, within: str, function: str) -> InvalidArgument:
    where = f"asked[{within[:-1]!r}]" if within else "asked"
    needed = "what has `contracts()`, as a ledger has, or a mapping of name to (table, suite)"
    return InvalidArgument(function, where, needed, given, 'check_all({"flights": (history, "history")})')
