"""Conflicts: which changes of others a transaction cannot be committed over, by what it read and writes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.store.columns import true_name
from cdckit.store.files import File, Table
from cdckit.store.table_plans import Change, missing_columns

Scope = str | tuple[str, Mapping[str, Collection[Any]]]
"""
What a transaction has read: a table, or the part of it where columns by which it is partitioned have
certain values.
"""

_Where = Mapping[str, Collection[Any]]
Part = tuple[str, _Where | None]


def parse_scope(scope: Scope) -> Part:
    """A table's name, and which part of it; None for all of it."""
    if isinstance(scope, str):
        return scope, None
    if isinstance(scope, tuple) and len(scope) == 2 and isinstance(scope[1], Mapping):
        return scope
    raise InvalidArgument("commit", "reads", "table names, or pairs of one and partition values", scope)


def find_conflict(
    change: Change | None, parts: Sequence[_Where | None], before: Table | None, after: Table | None
) -> str | None:
    """
    Find what others did to a table that a transaction changes, or of which it has read *parts*.

    None if that does not concern it; *before* is the table at its base, *after* the one that there is now.
    """
    if before is after or (before is not None and after is not None and before.is_like(after)):
        return None
    if None in parts or (change and (change.rewritten or change.before is None)):
        return "it has changed a table that was read, made, replaced or dropped"
    if before is None or after is None or before.folder != after.folder:
        return "it has made or dropped a table that is used here"
    if change and missing_columns(before.stored, after.stored) != T.StructType():
        return "it has changed the columns of a table that is written here"
    if change and change.removed & (before.files.keys() - after.files.keys()):
        return "it has replaced files that are replaced here"
    names = {true_name(column): column.name for column in after.stored}
    touched = [
        *(file for path, file in before.files.items() if path not in after.files),
        *(file for path, file in after.files.items() if path not in before.files),
    ]
    for part in filter(None, parts):
        where = {names.get(column, column): values for column, values in part.items()}
        if any(_is_within(file, where) for file in touched):
            return "it has changed a part of a table that was read"
    return None


def _is_within(file: File, where: _Where) -> bool:
    return all(
        column not in file.partition or file.partition[column] in values for column, values in where.items()
    )
