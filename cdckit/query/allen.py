"""How two periods lie to each other: Allen's thirteen relations."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.parts.schemas import quoted

APART = ("before", "after")
TOUCHING = ("meets", "met_by")
SHARING = (
    "overlaps",
    "overlapped_by",
    "starts",
    "started_by",
    "during",
    "contains",
    "finishes",
    "finished_by",
    "equals",
)
"""Those in which the two periods have an instant in common."""

ALLEN_RELATIONS = (*APART, *TOUCHING, *SHARING)
"""All thirteen: of two periods exactly one holds."""


def allen_relation(
    a_from: Column | str, a_to: Column | str, b_from: Column | str, b_to: Column | str
) -> Column:
    """
    Which of Allen's thirteen relations period a has to period b.

    Periods are half-open, so a *meets* b where a ends at the instant at which b begins, and they share no
    instant.

    | relation | a and b | the other way round |
    |---|---|---|
    | `before` | a ends before b begins | `after` |
    | `meets` | a ends as b begins | `met_by` |
    | `overlaps` | a begins first and ends within b | `overlapped_by` |
    | `starts` | they begin together, a ends first | `started_by` |
    | `during` | a lies within b and shares neither beginning nor end with it | `contains` |
    | `finishes` | they end together, a begins last | `finished_by` |
    | `equals` | they are the same | `equals` |

    Args:
        a_from: Where period a begins: a column of timestamps (or of any type with an order), or its name.
        a_to: Where it ends, exclusive; null for an open end, which is later than any other, and the same
            as another open end.
        b_from: Where period b begins.
        b_to: Where it ends.

    Returns:
        A column with the name of the relation; null if one of them is no period: without a beginning, or
        with an end that is not after it.

    Source:
        J. F. Allen, Maintaining Knowledge about Temporal Intervals, Communications of the ACM 26, 1983.

    >>> rows = [(1, 3, 3, 5), (1, 4, 3, None), (4, None, 2, None)]
    >>> spans = session().createDataFrame(rows, "a_from int, a_to int, b_from int, b_to int")
    >>> spans.select(allen_relation("a_from", "a_to", "b_from", "b_to").alias("relation")).show()
    +--------+
    |relation|
    +--------+
    |   meets|
    |overlaps|
    |finishes|
    +--------+
    <BLANKLINE>
    """
    begins, ends, other_begins, other_ends = (_column(given) for given in (a_from, a_to, b_from, b_to))
    begin, end = _order(begins, other_begins), _end_order(ends, other_ends)
    relation = (
        F.when(ends < other_begins, "before")
        .when(ends == other_begins, "meets")
        .when(other_ends < begins, "after")
        .when(other_ends == begins, "met_by")
    )
    names = {
        (-1, -1): "overlaps",
        (-1, 0): "finished_by",
        (-1, 1): "contains",
        (0, -1): "starts",
        (0, 0): "equals",
        (0, 1): "started_by",
        (1, -1): "during",
        (1, 0): "finishes",
        (1, 1): "overlapped_by",
    }
    for (beginning, ending), name in names.items():
        relation = relation.when((begin == beginning) & (end == ending), name)
    return F.when(is_period(begins, ends) & is_period(other_begins, other_ends), relation)


def is_period(begins: Column, ends: Column) -> Column:
    """Whether there is an instant from *begins* on and before *ends*; an end of null is open."""
    return begins.isNotNull() & (ends.isNull() | (ends > begins))


def _column(given: Column | str) -> Column:
    return F.col(quoted(given)) if isinstance(given, str) else given


def _order(one: Column, other: Column) -> Column:
    return F.when(one < other, -1).when(one == other, 0).otherwise(1)


def _end_order(one: Column, other: Column) -> Column:
    open_ends = F.when(other.isNull(), F.when(one.isNull(), 0).otherwise(-1)).when(one.isNull(), 1)
    return F.coalesce(open_ends, _order(one, other))
