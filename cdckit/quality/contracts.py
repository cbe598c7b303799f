"""What a store is asked: its tables with their suites, and the history that its log gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeGuard, runtime_checkable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.changes import MADE_OF, UNTIL, require_changes
from cdckit.errors import InvalidArgument
from cdckit.history import DELETED, FIELD_PROVENANCE, VALID_FROM, provenance_type
from cdckit.kernel.changes import GUID, KEYS
from cdckit.merging import KEY_TYPES, merge_changes
from cdckit.parts.arguments import quoted, require_columns, require_struct
from cdckit.parts.values import as_text, comparable, is_collated
from cdckit.parts.widening import as_type
from cdckit.quality.suites import Suite, keep_promised, read_suite


@runtime_checkable
class HasContracts(Protocol):
    """
    What says of its tables which suites they keep: a ledger, a hub, an exchange, a relay, a feed, a service.

    A class of your own can be asked too, if it has this method.
    """

    def contracts(self) -> Mapping[str, object]:
        """By name: a table and the name of its suite, or what has contracts, or a mapping like this one."""
        ...


class ContractTable(NamedTuple):
    """
    A table, the suite that it should keep, and the other tables that the suite may read.

    *several* has, by suite, the names of tables beside it of which it is not clear which one is meant.
    """

    table: DataFrame
    suite: Suite
    beside: Mapping[str, DataFrame]
    several: Mapping[str, Sequence[str]]


def find_contracts(given: object, *, function: str) -> dict[str, ContractTable]:
    """
    Every table that is asked, by its name, a name within another one behind a dot.

    A suite finds other tables among those beside its own: the table `changes` is the one that is to keep the
    suite `changes`.  If there are several, it is none of them.

    Raises:
        InvalidArgument: Something is neither a table with its suite nor a mapping of such, or two tables
            have the same name.
    """
    found: dict[str, ContractTable] = {}
    for name, each in _walk_contracts(given, "", function):
        if name in found:
            raise InvalidArgument(function, "asked", "tables of different names", f"two of the name {name}")
        found[name] = each
    return found


def _walk_contracts(given: object, within: str, function: str) -> Iterator[tuple[str, ContractTable]]:
    named = given.contracts() if _has_contracts(given) else given
    if not isinstance(named, Mapping) or not all(isinstance(name, str) for name in named):
        raise _no_contracts(given, within, function)
    pairs = {name: each for name, each in named.items() if isinstance(each, tuple)}
    wrong = [name for name, each in pairs.items() if len(each) != 2 or not isinstance(each[0], DataFrame)]
    if wrong:
        raise _no_contracts(pairs[wrong[0]], f"{within}{wrong[0]}.", function)
    suites = {
        name: keep_promised(read_suite(suite, function=function), table)
        for name, (table, suite) in pairs.items()
    }
    by_suite: dict[str, list[str]] = {}
    for name, suite in suites.items():
        by_suite.setdefault(suite.name, []).append(name)
    beside = {suite: pairs[names[0]][0] for suite, names in by_suite.items() if len(names) == 1}
    several = {suite: names for suite, names in by_suite.items() if len(names) > 1}
    for name, each in named.items():
        if name in pairs:
            yield within + name, ContractTable(each[0], suites[name], beside, several)
        else:
            yield from _walk_contracts(each, f"{within}{name}.", function)


def _has_contracts(given: object) -> TypeGuard[HasContracts]:
    """A table may have a column of that name, so it is asked whether it is a table."""
    return isinstance(given, HasContracts) and not isinstance(given, DataFrame)


def _no_contracts(given: object, within: str, function: str) -> InvalidArgument:
    where = f"asked[{within[:-1]!r}]" if within else "asked"
    needed = "what has `contracts()`, as a ledger has, or a mapping of name to (table, suite)"
    return InvalidArgument(function, where, needed, given, 'check_all({"flights": (history, "history")})')


SIDES, FIELDS = ("has", "due"), "fields"
"""How the suite calls a version of the table, that of the log, and the fields in either."""

_NEEDED = [GUID, "operation", "effective_timestamp", "message_id", "priority", "data", "carried"]


def compare_with_log(history: DataFrame, log: DataFrame, *, function: str) -> tuple[DataFrame, DataFrame]:
    """
    The history, and the one that its log gives, in the same columns and in forms that Spark can compare.

    A field that only one of them has is null in the other.  Changes that say too little to be merged are left
    out: the suite `changes` tells of them.
    """
    require_changes(log, function=function)
    require_columns(log, [GUID], function=function)
    found = require_struct(history, FIELD_PROVENANCE, function=function)
    # The log of a ledger, or of a target of a hub, says them.
    said = log.schema[GUID].metadata
    keys = said.get(MADE_OF) or said.get(KEYS) or _guess_keys(history, log, found.names)
    whole = log.dropna(subset=_NEEDED)
    if UNTIL in log.columns:
        whole = whole.where(f"{UNTIL} IS NULL OR {UNTIL} > effective_timestamp")
    due = merge_changes(whole, entity=GUID, keys=keys, function=function)
    names = [*due.columns, *(name for name in history.columns if name not in due.columns)]
    columns = [_common_form(name, history, due) for name in names]
    return history.select(*(one for one, _ in columns)), due.select(*(other for _, other in columns))


def with_differences(found: DataFrame) -> DataFrame:
    """
    The same rows, each with what differs between its structs `has` and `due` as texts in their place.

    A text says, by name, what the fields have that the other side has not so; other tables stay as they are.
    """
    kinds = [found.schema[side].dataType for side in SIDES if side in found.columns]
    if len(kinds) < 2 or not all(isinstance(kind, T.StructType) for kind in kinds):
        return found
    texts = [_texts(F.col(side), kind) for side, kind in zip(SIDES, kinds, strict=True)]
    names = [name for name in texts[0] if name in texts[1]]
    same = {name: texts[0][name].eqNullSafe(texts[1][name]) for name in names}
    shown = {}
    for side, by_name in zip(SIDES, texts, strict=True):
        parts = [
            F.when(~same[name], F.concat(F.lit(f"{name}: "), F.coalesce(by_name[name], F.lit("NULL"))))
            for name in names
        ]
        shown[side] = F.when(F.col(side).isNotNull(), F.concat_ws(", ", *parts))
    return found.withColumns(shown)


def _texts(side: Column, kind: T.DataType) -> dict[str, Column]:
    """By name the texts of a struct's parts, of the fields of a version the values, which come first."""
    assert isinstance(kind, T.StructType)
    found: dict[str, Column] = {}
    for part in sorted(kind, key=lambda each: each.name != FIELDS):
        value = side[part.name]
        if isinstance(part.dataType, T.StructType):
            inner = {each.name: as_text(value[each.name], each.dataType) for each in part.dataType}
            prefix = "" if part.name == FIELDS else f"{part.name}."
            found |= {prefix + name: text for name, text in inner.items()}
        else:
            found[part.name] = as_text(value, part.dataType)
    return found


def _common_form(name: str, one: DataFrame, other: DataFrame) -> tuple[Column, Column]:
    """A column of two tables in one type: text, unless they have it in the same."""
    kinds = [each.schema[name].dataType if name in each.columns else None for each in (one, other)]
    if name == FIELD_PROVENANCE:
        fields = {field: None for kind in kinds if isinstance(kind, T.StructType) for field in kind.names}
        made = [_provenance(kind, [*fields]) for kind in kinds]
    elif kinds[0] and kinds[1] and kinds[0].simpleString() == kinds[1].simpleString():
        made = [comparable(F.col(quoted(name)), kind) for kind in kinds if kind]
    else:
        made = [_text(name, kind) for kind in kinds]
    return made[0].alias(name), made[1].alias(name)


def _text(name: str, kind: T.DataType | None) -> Column:
    return F.lit(None).cast("string") if kind is None else as_type(F.col(quoted(name)), kind, T.StringType())


def _provenance(kind: T.DataType | None, fields: Sequence[str]) -> Column:
    assert isinstance(kind, T.StructType)
    entry, column = provenance_type(), F.col(FIELD_PROVENANCE)
    if kind.names == fields and all(each.dataType == entry for each in kind):
        return column
    entries = (column[each].cast(entry) if each in kind.names else F.lit(None).cast(entry) for each in fields)
    return F.struct(*(made.alias(each) for made, each in zip(entries, fields, strict=True)))


def _guess_keys(history: DataFrame, log: DataFrame, names: Sequence[str]) -> Sequence[str]:
    """
    The fields that the history treats as keys, for a log that does not say which they are.

    A delete leaves a key its value, and a message that says the value again, with more weight, does not
    become the one that it is from.  Each version that shows it has a vote, as one of them may be wrong.  A
    history of which none does is the same whatever its keys are.
    """
    data = require_struct(log, "data", function="check")
    may_be = [
        field.name
        for field in data
        if field.name in names
        and field.name in history.columns
        and isinstance(field.dataType, KEY_TYPES)
        and not is_collated(field.dataType)
    ]
    version = F.struct("*")
    before = F.lag(version).over(Window.partitionBy(GUID).orderBy(VALID_FROM))
    pairs = history.select(version.alias("now"), before.alias("was"))
    votes = pairs.agg(*(F.sum(_vote(name)).alias(str(place)) for place, name in enumerate(may_be))).collect()
    kept = [name for place, name in enumerate(may_be) if (votes[0][place] or 0) > 0]
    return kept or may_be[:1]


def _vote(name: str) -> Column:
    """Of one version: 1 if it treats a field as a key, -1 if it does not, 0 if it does not show it."""
    now, was = F.col("now"), F.col("was")
    entry, entry_before = (each[FIELD_PROVENANCE][name] for each in (now, was))
    emptied = now[name].isNull() & entry["m"].eqNullSafe(now[FIELD_PROVENANCE][GUID]["m"])
    said_again = now[name].eqNullSafe(was[name]) & (entry["p"] > entry_before["p"]) & ~was[DELETED]
    stays = entry["m"].eqNullSafe(entry_before["m"])
    return (
        F.when(entry.isNull(), 0)
        .when(now[DELETED], F.when(emptied, -1).otherwise(1))
        .when(said_again, F.when(stays, 1).otherwise(-1))
        .otherwise(0)
    )
