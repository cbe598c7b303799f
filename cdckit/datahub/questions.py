"""Questions to one target of a hub: its history at a commit, and the query object that the hub answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.datahub.conversions import convert_values
from cdckit.datahub.mappings import DECIMAL, SPARK_TYPES, FieldType
from cdckit.datahub.state import State
from cdckit.errors import ErrorWithFacts, InvalidArgument
from cdckit.ledger import View
from cdckit.ledger.entity_guids import is_key
from cdckit.ledger.kind import Kind
from cdckit.ledger.views import Key
from cdckit.merging.arrow_changes import GUID, KEYS
from cdckit.model.history import DELETED, VALID_FROM, VALID_TO, business_fields
from cdckit.parts.argument_forms import takes
from cdckit.parts.arguments import quoted, require_columns, require_fields, require_instant
from cdckit.parts.instants import parse_instant
from cdckit.query.as_of import as_of
from cdckit.query.entity_keys import is_entity
from cdckit.store import Snapshot

_PROPERTIES = ("entity", "timestamp", "where", "fields", "deletes")


@takes()
def query(histories: Mapping[str, DataFrame], question: Mapping[str, Any], *, now: datetime) -> DataFrame:
    """
    Answer a question about one entity from its history.

    Args:
        histories: By entity.
        question: `entity` (needed); `timestamp` (ISO 8601: what was in force then; *now* without it);
            `where`, field: value, all of which must hold (a list means any of them, null that there is
            no value); `fields`, a list of the fields to return, all of them without it; `deletes`, true
            to return deleted rows too.
        now: The time that is asked about where the question says none; aware.

    Returns:
        One row per entity, with the fields asked for: business fields and the standard columns of a
        history alike.

    Raises:
        InvalidArgument: The question has another property, asks about what is not there, or is not of
            the needed form.

    Cost: one filter over the history, no shuffle.

    Source:
        Data hub, query object; facts on its properties.

    >>> from datetime import datetime, timezone
    >>> now = datetime(2024, 1, 2, tzinfo=timezone.utc)
    >>> question = {"entity": "product", "where": {"number": [1, 2]}, "fields": ["number", "name"]}
    >>> query({"product": history}, question, now=now).show()
    +------+------+
    |number|  name|
    +------+------+
    |     1|teapot|
    +------+------+
    <BLANKLINE>
    """
    _require(isinstance(question, Mapping), "question", f"an object of {', '.join(_PROPERTIES)}", question)
    unknown = sorted(set(question) - set(_PROPERTIES), key=str)
    _require(not unknown, "question", f"an object of {', '.join(_PROPERTIES)}", unknown)
    entity, deletes = question.get("entity"), question.get("deletes", False)
    is_known = isinstance(entity, str) and entity in histories
    _require(is_known, "question['entity']", f"one of {', '.join(sorted(histories))}", entity)
    history = histories[str(entity)]
    require_columns(history, [VALID_FROM, VALID_TO, DELETED])
    _require(isinstance(deletes, bool), "question['deletes']", "true or false", deletes)
    rows = as_of(history, _instant(question.get("timestamp"), now), deletes=deletes)
    for condition in _conditions(history, question.get("where")):
        rows = rows.where(condition)
    return rows.select(*(quoted(name) for name in _fields(history, question.get("fields"))))


def _require(sound: bool, argument: str, needed: str, found: object) -> None:
    if not sound:
        raise InvalidArgument(None, argument, needed, found)


def _instant(timestamp: Any, now: datetime) -> datetime:
    argument = "now" if timestamp is None else "question['timestamp']"
    instant = now if timestamp is None else timestamp
    parsed = instant if timestamp is None or isinstance(instant, datetime) else parse_instant(instant)
    if parsed is None:
        raise InvalidArgument(None, argument, "an instant, YYYY-MM-DDTHH:MM:SS", instant)
    require_instant(parsed, argument)
    return parsed


def _conditions(history: DataFrame, where: Any) -> list[Column]:
    if where is None:
        return []
    _require(isinstance(where, Mapping), "question['where']", "an object of field: value", where)
    types = {field.name: field.dataType for field in (history.schema["guid"], *business_fields(history))}
    conditions = []
    for name, value in where.items():
        _require(name in types, "question['where']", f"of fields among {', '.join(types)}", name)
        column, values = F.col(quoted(name)), value if isinstance(value, list | tuple) else [value]
        either = (column.eqNullSafe(_literal(name, types[name], value)) for value in values)
        conditions.append(reduce(Column.__or__, either, F.lit(False)))
    return conditions


def _literal(name: str, kind: T.DataType, value: Any) -> Column:
    """The value as the field's type converts it in a message."""
    argument = f"question['where'][{name!r}]"
    needed = f"a value of the type {kind.simpleString()}"
    if isinstance(value, int) and abs(value) >= 10**400:
        raise InvalidArgument(None, argument, needed, "a number of hundreds of digits")
    column = convert_values([value], _field_type(kind))
    if column.errors:
        raise InvalidArgument(None, argument, needed, value)
    converted = column.values[0].as_py()
    if isinstance(converted, datetime):
        return require_instant(converted, argument)
    return F.lit(converted).cast(kind)


def _field_type(kind: T.DataType) -> FieldType:
    if isinstance(kind, T.DecimalType):
        return FieldType(DECIMAL, None, kind.precision, kind.scale)
    return FieldType(next(name for name, spark_type in SPARK_TYPES.items() if spark_type == kind))


def _fields(history: DataFrame, names: Any) -> list[str]:
    if names is None:
        return history.columns
    if not isinstance(names, list | tuple):
        raise InvalidArgument(None, "question['fields']", "a list of fields", names)
    return require_fields(names, history.columns, "question['fields']")


class SchemaMismatch(ErrorWithFacts, RuntimeError):
    """A question about what messages say, and they were read by another schema than the hub's."""

    location: str
    sentence = (
        "The messages in {location} were read by another schema than this hub has. `run()` "
        "reads them anew by this one; a hub with the schema of the last run answers as that run left it."
    )


class TargetView(View):
    """
    A target as a hub has it at one commit; it has no files of its own.

    Its changes follow from what the messages say: no log is kept of them.
    """

    def __init__(self, state: State, tables: Snapshot, entity: str) -> None:
        super().__init__(
            tables, Kind(entity, tuple(state.schema.targets[entity].keys), by_guid=True, name=entity)
        )
        self._state = state

    def changes(self, key: Key | None = None) -> DataFrame:
        """The changes of which the history is made, with their `guid`; of one entity, with a *key*."""
        changes = self._state.derived.changes(self.kind.entity)
        return self._keep_entity(changes, key).withMetadata(GUID, {KEYS: [*self.kind.keys]})

    def history(self, key: Key | None = None) -> DataFrame:
        """Every version, in the columns that `merge` gives; of one entity, with a *key*."""
        return self._keep_entity(self._state.history(self.kind.entity), key)

    def as_of(self, valid_at: datetime, key: Key | None = None, *, deletes: bool = False) -> DataFrame:
        """The version of each entity that was in force at an instant, as `View.as_of`."""
        return as_of(self.history(key), valid_at, deletes=deletes)

    def contracts(self) -> dict[str, tuple[DataFrame, str]]:
        """The tables, each with the suite of sentences that it keeps, as `View.contracts`."""
        log, history = self.changes(), self.history()
        return {"changes": (log, "changes"), "history": (history, "history"), "ledger": (history, "ledger")}

    def _keep_entity(self, rows: DataFrame, key: Key | None) -> DataFrame:
        """The rows of one entity: all of them, also those that do not say its key, or said another one."""
        if key is None:
            return rows
        # Its changes bring guids, of which the hub made each.
        if not is_key(key, replace(self.kind, by_guid=False)):
            raise InvalidArgument(None, "key", f"a guid, or values of {', '.join(self.kind.keys)}", key)
        if isinstance(key, str):
            return rows.where(F.col(GUID) == key)
        history = self._state.history(self.kind.entity)
        guids = history.where(is_entity(key, business_fields(history))).select(GUID).distinct()
        return rows.join(F.broadcast(guids), GUID, "left_semi").select(*map(quoted, rows.columns))
