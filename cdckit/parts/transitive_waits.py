"""Falling: what else must wait since it stands on what waits, to any depth, in one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from cdckit.parts.workers import Made


def falling(statements: DataFrame) -> DataFrame:
    """
    Of statements that stand on each other, those that something is missing for in the end.

    Args:
        statements: One row per statement that is taken for applied so far: `statement` (a struct that tells
            it from others), `makes` (the guid of the entity that it makes, or null), and `needs`, those
            guids of what must exist for it that only such statements make.

    Returns:
        The column `statement`, of those that need what none of them makes, or only those that fall too.
        Statements that need each other in a circle, and nothing else, stand.

    Cost: one task, which holds all of them: about a kilobyte each.
    """
    columns = T.StructType([statements.schema["statement"]])
    return Made(statements.repartition(1), _fallen, columns).rows()


def _fallen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    given = list(batches)
    if not given:
        return
    table = pa.Table.from_batches(given)
    fallen = fallen_places(table.column("makes").to_pylist(), table.column("needs").to_pylist())
    yield from table.select(["statement"]).take(pa.array(fallen, pa.int64())).to_batches()


def fallen_places(makes: Sequence[str | None], needs: Sequence[Sequence[str]]) -> list[int]:
    """The places of the statements that fall, by what each makes and needs."""
    makers = Counter(guid for guid in makes if guid is not None)
    needing: dict[str, list[int]] = {}
    for place, guids in enumerate(needs):
        for guid in guids:
            needing.setdefault(guid, []).append(place)
    fallen: set[int] = set()
    gone = [guid for guid in needing if not makers[guid]]
    while gone:
        for place in needing.get(gone.pop(), ()):
            if place not in fallen:
                fallen.add(place)
                made = makes[place]
                if made is not None:
                    makers[made] -= 1
                    if not makers[made]:
                        gone.append(made)
    return sorted(fallen)
