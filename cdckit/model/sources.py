"""Sources that changes come from: their fields under one name, and priorities for none that is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from inspect import Parameter, signature
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.errors import CdcError, InvalidArgument
from cdckit.model.changes import MOVED, Priority, field_priority, find_unused_priorities, require_changes
from cdckit.parts.arguments import nearest_name, require_struct


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
        near = {source: nearest_name(source, known) if source in unused else source for source in priorities}
        right = {
            close: priorities[source]
            for source, close in near.items()
            # Two that are near one source: what was said of the source itself stands.
            if close is not None and (source not in unused or close not in priorities)
        }
        example = None if None in near.values() else f"with_priorities(changes, {right!r})"
        raise UnknownSource(unknown, known, example)


FieldRule = str | Callable[..., Column]
"""The name of a field, or a function of the fields after which its parameters are called."""


def with_fields(changes: DataFrame, fields: Mapping[str, FieldRule]) -> DataFrame:
    """
    The same changes in the words of another source: each field is made of the fields that there are.

    Give what two sources call differently one name and one form before `union_changes`, the fields of the
    key above all.

    Args:
        changes: One row per change.
        fields: By the name that a field shall have: the name that it has; or a function of columns, whose
            parameters are called as the fields that it is made of, such as
            `lambda carrier, number: F.concat(carrier, F.lit(" "), number)`.  For a key take `F.concat`,
            which is null where a part is null; `F.concat_ws` leaves the part out.

    Returns:
        The same rows.  `data` has these fields, in this order, and no others.  One that is made of several
        is carried where all of them are, and has the lowest of their priorities (`field_priorities`, null
        where none of them has one).  `guid` is dropped: the fields of the key may be others now.  `moved`
        says keys in the same words, of the fields that are made of the key alone: a key made of other fields
        too is not among them, and `merge` refuses the moves until `moved` is dropped.

    Raises:
        InvalidArgument: *fields* is no mapping of names to such names and functions, or names a field that
            `data` does not have; a function needs parameters by keyword only, or returns no column.
        MissingColumns, WrongColumnType: *changes* is not a table of changes.

    Cost: a projection, no shuffle.

    >>> told = with_fields(changes, {"id": lambda number: F.concat(F.lit("P"), number), "called": "name"})
    >>> told.where("message_id = 'm2'").select("source", "data", "carried").show()
    +------+------------+------------+
    |source|        data|     carried|
    +------+------------+------------+
    |  shop|{P1, teapot}|{true, true}|
    +------+------------+------------+
    <BLANKLINE>
    """
    require_changes(changes, function="with_fields")
    known = require_struct(changes, "data", function="with_fields").fieldNames()
    if not isinstance(fields, Mapping) or not fields:
        needed = "a mapping of names to fields, or to functions of fields"
        raise InvalidArgument("with_fields", "fields", needed, fields, '{"flight": "number"}')
    made_of = {name: _needed_fields(name, wording, known) for name, wording in fields.items()}
    data = [_said(name, wording, made_of[name]).alias(name) for name, wording in fields.items()]
    carried = [
        reduce(and_, (F.col("carried").getField(each) for each in names), F.lit(True)).alias(name)
        for name, names in made_of.items()
    ]
    replaced = {"data": F.struct(*data), "carried": F.struct(*carried)}
    if "field_priorities" in changes.columns:
        own = [_lowest(changes, names).alias(name) for name, names in made_of.items()]
        replaced["field_priorities"] = F.struct(*own)
    if MOVED in changes.columns:
        replaced[MOVED] = _rename_move(changes, fields, made_of)
    return changes.withColumns(replaced).drop("guid")


def _rename_move(
    changes: DataFrame, fields: Mapping[str, FieldRule], made_of: Mapping[str, list[str]]
) -> Column:
    """Both keys of a move in the same words: the fields that can be made of a key alone."""
    known = changes.select(f"{MOVED}.old_key.*").columns
    of_key = [name for name, names in made_of.items() if names and set(names) <= set(known)]
    if not of_key:
        return F.lit(None).cast(changes.schema[MOVED].dataType)

    def key(side: str) -> Column:
        said = (_said(name, fields[name], made_of[name], f"{MOVED}.{side}").alias(name) for name in of_key)
        return F.struct(*said).alias(side)

    both = F.struct(F.col(f"{MOVED}.id"), key("old_key"), key("new_key"))
    return F.when(F.col(MOVED).isNotNull(), both)


def _needed_fields(name: str, wording: FieldRule, known: list[str]) -> list[str]:
    """The fields that one is made of."""
    if callable(wording):
        parameters = signature(wording).parameters.values()
        needed = [each for each in parameters if each.default is Parameter.empty]
        if any(each.kind is Parameter.KEYWORD_ONLY for each in needed):
            form = "a function whose parameters are not by keyword only"
            raise InvalidArgument("with_fields", f"fields[{name!r}]", form, wording)
        names = [each.name for each in needed]
    else:
        names = [wording]
    unknown = [each for each in names if each not in known]
    if unknown:
        raise InvalidArgument("with_fields", f"fields[{name!r}]", f"of {', '.join(known)}", unknown)
    return names


def _said(name: str, wording: FieldRule, names: list[str], of: str = "data") -> Column:
    columns = [F.col(of).getField(each) for each in names]
    said = wording(*columns) if callable(wording) else columns[0]
    if not isinstance(said, Column):
        raise InvalidArgument("with_fields", f"fields[{name!r}]", "a function that returns a column", said)
    return said


def _lowest(changes: DataFrame, names: list[str]) -> Column:
    """Of the fields' own priorities the lowest; one without counts as the entity, if another has one."""
    own = [field_priority(changes, each) for each in names]
    if len(own) < 2:
        return own[0] if own else F.lit(None).cast("int")
    return F.when(F.coalesce(*own).isNotNull(), F.least(*(F.coalesce(each, "priority") for each in own)))
