"""
The types of a ledger's fields, where changes and the log do not agree, or one of them has no values yet.

`look_for_values` asks the rows of texts that may be empty, `fit_fields` decides, and `fit_changes` does
both for changes on their way into a log.  All else, such as two types of numbers, the tables unite by
themselves (`cdckit.store.columns.unite_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import WrongColumnType
from cdckit.ledger.columns import log_fields
from cdckit.ledger.kind import Kind
from cdckit.model.changes import AS_SENT, empty_fields, typed_fields, untyped_fields, with_empty_as
from cdckit.model.rejected_records import usable_changes
from cdckit.parts.widening import fill_void, has_void, void_as_text
from cdckit.store import Transaction

Types = dict[str, T.DataType]
"""Types of fields by name; of an empty field void stands where, or in which part, it has no values."""


class FieldTypes(NamedTuple):
    """
    What becomes of fields that have no values, or have their first ones.

    Args:
        empty: The fields of the log that have none, or parts without any, afterwards.
        changes: The fields of the changes that are cast, which is without loss: they have no values there.
        log: The same of fields of the log.
    """

    empty: Types
    changes: Types
    log: Types


def fit_fields(log: Types, log_empty: Types, changes: Types, changes_empty: Types) -> FieldTypes:
    """
    Decide the types of fields that have no values in the log, in changes, or in both.

    What one of the two leaves open the other one says; if neither does, it is text.

    Args:
        log: The fields of the log; none before the first changes.
        log_empty: Those of them that have no values, or parts without any.
        changes: The fields of the changes.
        changes_empty: The same of these.

    >>> void, text, day = T.NullType(), T.StringType(), T.DateType()
    >>> fit_fields({"day": text}, {"day": void}, {"day": day}, {})
    FieldTypes(empty={}, changes={}, log={'day': DateType()})
    >>> fit_fields({"day": day}, {}, {"day": text}, {"day": void})
    FieldTypes(empty={}, changes={'day': DateType()}, log={})
    """
    empty, of_changes, of_log = dict(log_empty), Types(), Types()
    for name, given in changes.items():
        before = log_empty.get(name, log.get(name, T.NullType()))
        now = changes_empty.get(name, given)
        filled = fill_void(before, now)
        if filled is None or not (has_void(before) or has_void(now)):
            continue
        type_ = log[name] if name in log and filled == before else void_as_text(filled)
        if name in log and type_ != log[name]:
            of_log[name] = type_
        # A type that says nothing is good enough where nothing better is known.
        is_better = name in log or has_void(given) or not isinstance(filled, T.NullType)
        if given != type_ and is_better:
            of_changes[name] = type_
        if name in log_empty or name not in log:
            empty[name] = filled
    return FieldTypes({name: kind for name, kind in empty.items() if has_void(kind)}, of_changes, of_log)


def look_for_values(transaction: Transaction, kind: Kind, rows: DataFrame) -> tuple[Kind, Types]:
    """
    Find the fields without values, of changes and of the log, where one has texts and the other has none.

    Returns:
        The same kind, which knows more of the log; and the empty fields of the changes.

    Cost: none; where texts come to a field of another type, a job over the rows, and where another type
        comes to texts for the first time, one over the log.
    """
    log, changes, empty = kind.fields(transaction), log_fields(rows.schema), empty_fields(rows.schema)
    others = [
        field
        for field in changes
        if field.name not in empty and field.name in log.names and log[field.name].dataType != field.dataType
    ]
    of_texts = [field.name for field in others if isinstance(field.dataType, T.StringType)]
    empty |= dict.fromkeys(_find_empty(usable_changes(rows), of_texts), T.NullType())
    beside_texts = [
        field.name
        for field in others
        if isinstance(log[field.name].dataType, T.StringType)
        and field.name not in {*kind.empty.names, *kind.texts}
    ]
    if not beside_texts:
        return kind, empty
    filled = _find_empty(transaction.read(kind.changes), beside_texts)
    more = [T.StructField(name, T.NullType()) for name in filled]
    texts = (*kind.texts, *(name for name in beside_texts if name not in filled))
    return replace(kind, empty=T.StructType([*kind.empty, *more]), texts=texts), empty


class FittedChanges(NamedTuple):
    """
    Changes on their way into a log, whose fields have types that the log has or can have.

    Args:
        rows: The rows of `to_log_rows`.
        kind: The ledger, after them.
        before: The fields of the log that have values, in all of their parts.
        log_types: The fields of the log that get another type, since these are the first values in them.
    """

    rows: DataFrame
    kind: Kind
    before: T.StructType
    log_types: Types


def fit_changes(transaction: Transaction, kind: Kind, rows: DataFrame) -> FittedChanges:
    """
    Fit the fields of changes and those of the log; see `look_for_values` for what it costs.

    Raises:
        WrongColumnType: The changes do not say how a field is written of which the ledger has the values, or
            the other way round: the two would not be the same.
    """
    kind = with_untyped_fields(kind, kind.fields(transaction), rows.schema)
    kind, empty = look_for_values(transaction, kind, rows)
    types = fit_types(transaction, kind, rows, empty)
    before = kind.filled_fields(transaction)
    fields = T.StructType([T.StructField(name, type_) for name, type_ in types.empty.items()])
    return FittedChanges(with_empty_as(rows, types.changes), replace(kind, empty=fields), before, types.log)


def fit_types(transaction: Transaction, kind: Kind, rows: DataFrame, empty: Types) -> FieldTypes:
    """`fit_fields` of changes of which these fields are *empty*."""
    log, changes = _as_types(kind.fields(transaction)), _as_types(log_fields(rows.schema))
    return fit_fields(log, _as_types(kind.empty), changes, empty)


def _as_types(fields: T.StructType) -> Types:
    return {field.name: field.dataType for field in fields}


def with_untyped_fields(kind: Kind, fields: T.StructType, rows: T.StructType) -> Kind:
    """The same kind, for changes in these columns; raises as `fit_changes`."""
    untyped = untyped_fields(rows)
    for name in untyped:
        if name in fields.names and name not in kind.untyped:
            needed = f"{fields[name].dataType.simpleString()}, as before"
            raise WrongColumnType(None, f"data.{name}", needed, AS_SENT, _ask_for_types(fields))
    for name in typed_fields(rows):
        if name in kind.untyped:
            type_name = log_fields(rows)[name].dataType.simpleString()
            remedy = _offer_texts(kind.untyped)
            raise WrongColumnType(None, f"data.{name}", f"{AS_SENT}, as before", type_name, remedy)
    return replace(kind, untyped=tuple(dict.fromkeys([*kind.untyped, *untyped])))


def _find_empty(rows: DataFrame, names: Sequence[str]) -> list[str]:
    """Find the fields that have no values."""
    if not names:
        return []
    filled = rows.agg(*(F.count(F.col("data").getField(name)).alias(name) for name in names)).first()
    assert filled is not None
    return [name for name in names if not filled[name]]


def _ask_for_types(fields: T.StructType) -> str:
    types = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
    return (
        "Give `columns=` where these changes are made: for each column how the source writes it, such as "
        f"days or microseconds. Known are {types}."
    )


def _offer_texts(names: Iterable[str]) -> str:
    columns = ", ".join(f'"{name}": "untyped"' for name in names)
    return (
        "What is there is not the values but how they were written, such as 19800 for a day: make the ledger "
        f"anew from all that was sent, with `columns=`; or go on in texts, with columns={{{columns}}}."
    )
