"""Sources that changes come from, and the refusal of names that are none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame

from cdckit.changes import Priority, find_unused_priorities
from cdckit.errors import CdcError
from cdckit.parts.arguments import nearest, that_would_do

__all__ = ["UnknownSource", "require_sources"]


class UnknownSource(CdcError, ValueError):
    """Priorities are given for sources that no change comes from."""

    def __init__(
        self, unknown: Iterable[str], known: Iterable[str], example: str, unsaid: Iterable[str] = ()
    ) -> None:
        self.unknown, self.known, self.example = tuple(unknown), tuple(known), example
        self.unsaid = tuple(unsaid)
        super().__init__(self.unknown, self.known, example, self.unsaid)

    def __str__(self) -> str:
        found = ", ".join(repr(each) for each in self.known) or "no source that has a name"
        return (
            f"with_priorities() would do nothing for {', '.join(repr(each) for each in self.unknown)}: "
            f"the changes come from {found}. {that_would_do(self.example, self.unsaid)}"
        )


def require_sources(changes: DataFrame, priorities: Mapping[str, Priority]) -> None:
    """
    Raise unless a change comes from every source that priorities are given for.

    Args:
        changes: One row per change.
        priorities: By `source`, as for `with_priorities`.

    Raises:
        UnknownSource: No change comes from one of them; it names those that changes do come from, and a
            call of `with_priorities` with the nearest of them in its place.
        InvalidArgument, MissingColumns, WrongColumnType: As `find_unused_priorities`.

    Cost: a job, which reads the sources of all changes once.

    >>> require_sources(changes, {"shop": Priority(1)})
    >>> try:
    ...     require_sources(changes, {"shpo": Priority(2)})
    ... except UnknownSource as error:
    ...     print(error.example)
    with_priorities(changes, {'shop': Priority(2)})
    """
    unused = {row["source"]: row["sources"] for row in find_unused_priorities(changes, priorities).collect()}
    if unused:
        known = next(iter(unused.values()))
        unknown = [source for source in priorities if source in unused]
        right: dict[str, Priority] = {}
        unsaid = []
        for source, priority in priorities.items():
            near = nearest(source, known) if source in unused else source
            if near is None:
                unsaid.append(f"the priority of {source!r}")
            # Two that are near one source: what was said of the source itself stands.
            elif source not in unused or near not in priorities:
                right.setdefault(near, priority)
        if not right and known:
            right[known[0]] = priorities[unknown[0]]
        raise UnknownSource(unknown, known, f"with_priorities(changes, {right!r})", unsaid)
