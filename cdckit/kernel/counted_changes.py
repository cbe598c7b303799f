"""Which changes count at all, before anything is asked about what they do."""

from __future__ import annotations

import numpy as np

from cdckit.kernel.changes import Changes
from cdckit.kernel.states import steps
from cdckit.parts.running_aggregates import NOWHERE, Bools, Ints, last_where, row_before, segments


def counting(changes: Changes, entity: Ints) -> Bools:
    """
    All but repeats, deletes before the first upsert of an entity, and absences of what is not alive.

    Entities are numbered from 1, growing.
    """
    keep = ~changes.repeated(entity)
    keep &= last_where(keep & ~changes.is_delete, segments(entity)) != NOWHERE
    if (keep & changes.is_absence).any():
        keep &= ~changes.is_absence | _found_alive(changes, entity, keep)
    return keep


def _found_alive(changes: Changes, entity: Ints, keep: Bools) -> Bools:
    """
    Which absences stand where the entity is alive.

    What one of them finds depends on those before it.  So all are taken for deletes at first, and what
    they find then is right up to the first that is wrong; with that one left out it is right up to the
    next, and so on.  One that is wrong matters only where it raises the priority of a delete, so the
    rounds are about as many as priorities, not as absences.
    """
    of = segments(entity)
    alive = np.ones(len(changes), dtype=bool)
    while True:
        tried = keep & (~changes.is_absence | alive)
        dead = np.zeros(len(changes), dtype=bool)
        dead[tried] = steps(changes.where(tried), entity[tried]).dead
        before = row_before(last_where(tried, of), of)
        found: Bools = (before == NOWHERE) | ~dead[before]
        if (found == alive)[keep & changes.is_absence].all():
            return found
        alive = found
