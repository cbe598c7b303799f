"""Numbers that edges connect, directly or over others, are a family."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdckit.parts.families import connect_numbers


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([], {}),
        ([(1, 2)], {1: 1, 2: 1}),
        ([(7, 7)], {7: 7}),
        # A chain, from its end; and another family beside it.
        ([(5, 4), (3, 2), (4, 3), (9, 8)], {2: 2, 3: 2, 4: 2, 5: 2, 8: 8, 9: 8}),
        ([(-(2**63), 2**63 - 1), (0, 2**63 - 1)], dict.fromkeys([-(2**63), 0, 2**63 - 1], -(2**63))),
    ],
)
def test_a_family_has_the_least_number_in_it(edges: list[tuple[int, int]], expected: dict[int, int]) -> None:
    """In however many batches the edges come."""
    batches = [pa.record_batch({"one": [one], "other": [other]}) for one, other in edges]
    [found] = connect_numbers(batches)
    assert dict(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
