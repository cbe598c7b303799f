"""Sources that changes come from, and the refusal of names that are none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame

from cdckit.changes import Priority, find_unused_priorities
from cdckit.errors import CdcError
from cdckit.parts.arguments import nearest

__all__ = ["UnknownSource", "require_sources"]


class UnknownSource(CdcError, ValueError):
    """
    Priorities are given for sources that no change comes from.

    *example* is the call with the names that are near them, None where one is near none.
    """

    def __init__(self, unknown: Iterable[str], known: Iterable[str], example: str | None) -> None:
        self.unknown, self.known, self.example = tuple(unknown), tuple(known), example
        super().__init__(self.unknown, self.known, example)

    def __str__(self) -> str:
        found = ", ".join(repr(each) for each in self.known) or "no source that has a name"
        said = (
            f"with_priorities() would do nothing for {', '.join(repr(each) for each in self.unknown)}: "
            f"the changes come from {found}."
        )
        return said if self.example is None else f"{said} A call that would do: {self.example}"


def require_sources(changes: DataFrame, priorities: Mapping[str, Priority]) -> None:
    """
    Raise unless a change comes from every source that priorities are given for.

    Args:
        changes: One row per change.
        priorities: By `source`, as for `with_priorities`.

    Raises:
        UnknownSource: No change comes from one of them; it names those that changes do come from, and a
            call of `with_priorities` with the nearest of them in its place, if one is near.
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
        near = {source: nearest(source, known) if source in unused else source for source in priorities}
        right = {
            close: priorities[source]
            for source, close in near.items()
            # Two that are near one source: what was said of the source itself stands.
            if close is not None and (source not in unused or close not in priorities)
        }
        example = None if None in near.values() else f"with_priorities(changes, {right!r})"
        raise UnknownSource(unknown, known, example)
