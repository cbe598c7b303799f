"""Several sources together: their fields under one name, and their priorities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from inspect import Parameter, signature
from operator import and_
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import CdcError, InvalidArgument
from cdckit.model.changes import CHANGE_SCHEMA, MOVED, RANKED, field_names, field_priority, ranked_sources
from cdckit.model.forms import CHANGES
from cdckit.parts.argument_forms import rows_of, takes
from cdckit.parts.arguments import require_int, wrong_argument
from cdckit.parts.near_names import suggest_name, suggest_names
from cdckit.parts.public_calls import called, called_function


class UnknownSource(CdcError, ValueError):
    """Priorities are given for *unknown* sources, of which no change comes; *known* are those of changes."""

    def __init__(self, unknown: Iterable[str], known: Iterable[str]) -> None:
        self.unknown, self.known = tuple(unknown), tuple(known)
        super().__init__(self.unknown, self.known)

    def __str__(self) -> str:
        unknown = ", ".join(f"{name!r}{suggest_name(name, self.known)}" for name in self.unknown)
        names = ", ".join(map(repr, self.known)) or "no source that has a name"
        return f"with_priorities() would do nothing for {unknown}: the changes come from {names}."


@takes()
def require_sources(changes: DataFrame, priorities: Mapping[str, Priority]) -> None:
    """
    Raise unless a change comes from every source that priorities are given for.

    Args:
        changes: One row per change.
        priorities: By `source`, as for `with_priorities`.

    Raises:
        UnknownSource: No change comes from one of them; it names those that changes do come from, and the
            nearest of them, if one is near.
        InvalidArgument, MissingColumns, WrongColumnType: As `find_unused_priorities`.

    Cost: a job, which reads the sources of all changes once.

    >>> require_sources(changes, {"shop": Priority(1)})
    >>> try:
    ...     require_sources(changes, {"shpo": Priority(2)})
    ... except UnknownSource as error:
    ...     print(error)
    with_priorities() would do nothing for 'shpo' (is it shop?): the changes come from 'shop'.
    """
    unused = {row["source"]: row["sources"] for row in find_unused_priorities(changes, priorities).collect()}
    if unused:
        known = next(iter(unused.values()))
        raise UnknownSource((source for source in priorities if source in unused), known)


FieldRule = str | Callable[..., Column]
"""The name of a field, or a function of the fields after which its parameters are called."""


@takes(changes=CHANGES)
def with_fields(changes: DataFrame, fields: Mapping[str, FieldRule]) -> DataFrame:
    """
    Put changes into the words of another source: each field is made of the fields that there are.

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

    Cost: a projection, no shuffle.

    >>> renamed = with_fields(changes, {"id": lambda number: F.concat(F.lit("P"), number), "called": "name"})
    >>> renamed.where("message_id = 'm2'").select("source", "data", "carried").show()
    +------+------------+------------+
    |source|        data|     carried|
    +------+------------+------------+
    |  shop|{P1, teapot}|{true, true}|
    +------+------------+------------+
    <BLANKLINE>
    """
    fields_there = field_names(changes)
    if not isinstance(fields, Mapping) or not fields:
        needed = "a mapping of names to fields, or to functions of fields"
        raise InvalidArgument(None, "fields", needed, fields, '{"flight": "number"}')
    made_of = {name: _needed_fields(name, wording, fields_there) for name, wording in fields.items()}
    data = [_worded_field(name, wording, made_of[name]).alias(name) for name, wording in fields.items()]
    carried = [
        reduce(and_, (F.col("carried").getField(name) for name in names), F.lit(True)).alias(name)
        for name, names in made_of.items()
    ]
    replaced = {"data": F.struct(*data), "carried": F.struct(*carried)}
    if "field_priorities" in changes.columns:
        priorities = [_lowest_priority(changes, names).alias(name) for name, names in made_of.items()]
        replaced["field_priorities"] = F.struct(*priorities)
    if MOVED in changes.columns:
        replaced[MOVED] = _rename_move(changes, fields, made_of)
    return changes.withColumns(replaced).drop("guid")


def _rename_move(
    changes: DataFrame, fields: Mapping[str, FieldRule], made_of: Mapping[str, list[str]]
) -> Column:
    """Both keys of a move in the same words: the fields that can be made of a key alone."""
    key_fields = changes.select(f"{MOVED}.old_key.*").columns
    of_key = [name for name, names in made_of.items() if names and set(names) <= set(key_fields)]
    if not of_key:
        return F.lit(None).cast(changes.schema[MOVED].dataType)

    def key(side: str) -> Column:
        renamed = (
            _worded_field(name, fields[name], made_of[name], f"{MOVED}.{side}").alias(name) for name in of_key
        )
        return F.struct(*renamed).alias(side)

    move = F.struct(F.col(f"{MOVED}.id"), key("old_key"), key("new_key"))
    return F.when(F.col(MOVED).isNotNull(), move)


def _needed_fields(name: str, wording: FieldRule, names_there: list[str]) -> list[str]:
    """The fields that one is made of."""
    if callable(wording):
        parameters = signature(wording).parameters.values()
        needed = [parameter for parameter in parameters if parameter.default is Parameter.empty]
        if any(parameter.kind is Parameter.KEYWORD_ONLY for parameter in needed):
            form = "a function whose parameters are not by keyword only"
            raise InvalidArgument(None, f"fields[{name!r}]", form, wording)
        names = [parameter.name for parameter in needed]
    else:
        names = [wording]
    unknown = [name for name in names if name not in names_there]
    if unknown:
        raise InvalidArgument(None, f"fields[{name!r}]", f"of {', '.join(names_there)}", unknown)
    return names


def _worded_field(name: str, wording: FieldRule, names: list[str], of: str = "data") -> Column:
    columns = [F.col(of).getField(name) for name in names]
    column = wording(*columns) if callable(wording) else columns[0]
    if not isinstance(column, Column):
        raise InvalidArgument(None, f"fields[{name!r}]", "a function that returns a column", column)
    return column


def _lowest_priority(changes: DataFrame, names: list[str]) -> Column:
    """Find the lowest of the fields' own priorities; one without counts as the entity, if another has one."""
    priorities = [field_priority(changes, name) for name in names]
    if len(priorities) < 2:
        return priorities[0] if priorities else F.lit(None).cast("int")
    return F.when(
        F.coalesce(*priorities).isNotNull(),
        F.least(*(F.coalesce(priority, "priority") for priority in priorities)),
    )


_EXAMPLE = 'Priority(1, {"name": 9})'


@dataclass(frozen=True)
class Priority:
    """
    How much one source's word counts: a higher number wins, negative ones are allowed.

    Args:
        entity: For the row itself, deletes, and every field that is not named.
        fields: For single fields.  Whether a delete counts, `entity` decides; it clears every field, and
            each has the priority named here from there on.

    Raises:
        InvalidArgument: A priority is no whole number that an int can hold, or *fields* is no mapping of
            names to such numbers.

    Source:
        Data hub, "Higher priorities take precedence, and priorities can be negative".

    >>> Priority(5, {"price": 10}).fields["price"]
    10
    """

    entity: int = 0
    fields: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @called("Priority")
    def __post_init__(self) -> None:
        require_int(self.entity, "entity", example=_EXAMPLE)
        if not isinstance(self.fields, Mapping):
            raise InvalidArgument(None, "fields", "a mapping of field to priority", self.fields, _EXAMPLE)
        for name, priority in self.fields.items():
            require_int(priority, f"fields[{name!r}]", example=_EXAMPLE)

    def __repr__(self) -> str:
        return f"Priority({self.entity}{f', {dict(self.fields)!r}' if self.fields else ''})"


@takes(changes=CHANGES)
def with_priorities(changes: DataFrame, priorities: Mapping[str, Priority]) -> DataFrame:
    """
    Set `priority` and `field_priorities` by the source of each change.

    Args:
        changes: One row per change.
        priorities: By `source`.  A source that is not named keeps what its changes say already.  A name
            that no change has, such as a misspelt one, has no effect: only the data can tell.
            `require_sources` asks it, and the first `Ledger.apply` warns.

    Returns:
        The same rows; the two columns replaced (`field_priorities` added where it was missing).

    Raises:
        InvalidArgument: *priorities* is no mapping of texts to `Priority`, or one of them names a field
            that `data` does not have.

    Cost: a projection, no shuffle.

    >>> ranked = with_priorities(changes, {"shop": Priority(1, {"name": 9})})
    >>> ranked.select("source", "priority", "field_priorities").distinct().show()
    +------+--------+----------------+
    |source|priority|field_priorities|
    +------+--------+----------------+
    |  shop|       1|       {NULL, 9}|
    +------+--------+----------------+
    <BLANKLINE>
    """
    fields = field_names(changes)
    _require_priorities(priorities)
    for source, priority in priorities.items():
        unknown = sorted(set(priority.fields) - set(fields))
        if unknown:
            needed, remedy = f"of fields among {', '.join(fields)}", suggest_names(unknown, fields)
            raise wrong_argument(f"priorities[{source!r}].fields", needed, unknown, remedy=remedy)
    entity = _value_by_source({source: p.entity for source, p in priorities.items()}, F.col("priority"))
    single = [
        _value_by_source(
            {source: p.fields.get(name) for source, p in priorities.items()}, field_priority(changes, name)
        )
        for name in fields
    ]
    named = F.struct(*(column.alias(name) for name, column in zip(fields, single, strict=True)))
    ranked = dict.fromkeys([*ranked_sources(changes.schema), *priorities])
    replaced = changes.withColumns({"priority": entity, "field_priorities": named})
    return replaced.withMetadata("priority", {RANKED: list(ranked)})


@takes(changes=rows_of(T.StructType([CHANGE_SCHEMA["source"]]), "{} have no `source`, or not as text"))
def find_unused_priorities(changes: DataFrame, priorities: Mapping[str, Priority]) -> DataFrame:
    """
    The sources that priorities are given for, and that no change comes from: misspelt ones among them.

    Args:
        changes: One row per change.
        priorities: By `source`, as for `with_priorities`.

    Returns:
        One row per such name: `source`, and `sources`, those that the changes do come from, in their
        order.  None if every name is in use.  Rows have no order.

    Raises:
        InvalidArgument: *priorities* is no mapping of texts to `Priority`.

    Cost: reads the sources of all changes once; no shuffle but that of the distinct ones.

    >>> find_unused_priorities(changes, {"shop": Priority(1), "shpo": Priority(2)}).show()
    +------+-------+
    |source|sources|
    +------+-------+
    |  shpo| [shop]|
    +------+-------+
    <BLANKLINE>
    """
    _require_priorities(priorities)
    sources = changes.agg(F.array_sort(F.collect_set("source")).alias("sources"))
    named = F.array(*map(F.lit, priorities)).cast("array<string>")
    return sources.select(F.explode(F.array_except(named, "sources")).alias("source"), "sources")


def _require_priorities(priorities: Mapping[str, Priority]) -> None:
    example = f'{called_function()}(changes, {{"shop": {_EXAMPLE}}})'
    if not isinstance(priorities, Mapping):
        raise InvalidArgument(None, "priorities", "a mapping of source to Priority", priorities, example)
    for source, priority in priorities.items():
        if not isinstance(source, str):
            raise InvalidArgument(None, "priorities", "of sources that are texts", source, example)
        if not isinstance(priority, Priority):
            raise InvalidArgument(None, f"priorities[{source!r}]", "a Priority", priority, example)


def _value_by_source(values: Mapping[str, int | None], otherwise: Column) -> Column:
    chosen = otherwise
    for source, value in values.items():
        chosen = F.when(F.col("source") == source, F.lit(value).cast("int")).otherwise(chosen)
    return chosen
