"""What becomes of the records of a service: patches, their answers, what waits for others, what is learnt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.fold import Result
from cdckit.parts.kept_folds import KeptFold, Place, RecordOutcome
from cdckit.streams.catalogue import (
    ARRIVAL,
    CONNECTIONS,
    DATABASE,
    ENTITY,
    ENTITY_BATCHES,
    ENTITY_PATCHES,
    ERASED_PATCHES,
    PARTIAL_RESPONSES,
    REQUEST,
    SCHEMA_PATCHES,
    STREAMS,
    Status,
    StreamFault,
)
from cdckit.streams.collection_types import DECLARED_TYPE, EntityType, declared_types
from cdckit.streams.documents import ANSWER, Document
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.messages import message, message_text
from cdckit.streams.request_parts import (
    COMPLETE,
    CONTRADICTING,
    DUPLICATE,
    ERASED_REASON,
    PATCH,
    WAITING,
    ResponseParts,
    batch_patches,
    foreign_reasons,
)

Columns = dict[str, Any]


@dataclass(frozen=True)
class ServiceRules:
    """
    What a service goes by.

    Args:
        databases: Those that are served; None for all.
        most, remember: As for a `Document`.
        taken: The number of the batch that is taken.
    """

    databases: frozenset[str] | None
    most: int
    remember: int
    taken: int


class _Row(msgspec.Struct, array_like=True, tag=True):
    """A row that is on its way from fold to fold."""


class _PatchRow(_Row):
    """A patch: the record that brought it, where that came from, and what the patch says."""

    key: ClassVar[tuple[str, ...]]
    place: Place
    columns: Columns


class EntityPatch(_PatchRow):
    """A patch of an entity."""

    key = ENTITY


class SchemaPatch(_PatchRow):
    """A patch of the schema of a database."""

    key = DATABASE


class Response(_Row):
    """The response to a patch: the record that brought that, the columns of the answer, and the message."""

    place: Place
    columns: Columns
    text: str

    @property
    def request(self) -> tuple[str, int]:
        """The key of the request."""
        return self.columns["client_id"], self.columns["request"]

    def order(self) -> tuple[Any, ...]:
        """Order by part, then as they came; at one place the texts decide."""
        arrival = map(self.columns.get, ARRIVAL.names)
        return self.columns["part"], *((value is None, value or 0) for value in arrival), self.text


class Lesson(_Row):
    """What can be learnt from an update of an entity, or of a type that a schema declares (`is_type`)."""

    columns: Columns


class ForgetEntity(_Row):
    """An entity of which nothing is to be known any more."""

    entity: tuple[str, ...]


class ForgetResponses(_Row):
    """A request whose responses are to have no word of an entity."""

    request: tuple[str, int]
    entity: tuple[str | None, ...]


class ForgetType(_Row):
    """An entity type of which nothing is to be known any more: its `db` and `collection`."""

    columns: Columns


class TableRow(_Row):
    """A row for a table of the service."""

    columns: Columns


class Answer(TableRow):
    """A patch, and what became of it."""


class CompleteResponse(TableRow):
    """The responses to all patches of a request."""


class LearnedType(TableRow):
    """An entity type as it was learnt."""


Row = (
    EntityPatch
    | SchemaPatch
    | Response
    | Lesson
    | ForgetEntity
    | ForgetResponses
    | ForgetType
    | Answer
    | CompleteResponse
    | LearnedType
)

# Records ---------------------------------------------------------------------------------------------------

TAKES = frozenset(stream.name for stream in (ENTITY_BATCHES, ENTITY_PATCHES, SCHEMA_PATCHES, CONNECTIONS))
"""The streams that a service takes, by name: all others are made of these."""

FAULT = pa.schema([(ERROR_CODE, pa.string()), (ERROR_DESCRIPTION, pa.string())])


def record_fault(stream: str | None, value: bytes | None, key: bytes | None) -> Result:
    """Tell what is wrong with a record (`FAULT`)."""
    if stream == ERASED_PATCHES.name:
        return None, None
    if stream not in TAKES:
        fault = StreamFault.OTHER_STREAM
        return fault.value, fault.describe()
    columns = message(value, STREAMS[stream], key)
    return columns.get(ERROR_CODE), columns.get(ERROR_DESCRIPTION)


READS = (*ARRIVAL.names, "key", "value", "stream", "batch", "number", ERROR_CODE)
"""The columns of a record that are looked at."""

_HEADER = [name for name in ENTITY_PATCHES.columns().names if name in ENTITY_BATCHES.columns().names]


def read_rows(batch: pa.RecordBatch, settings: ServiceRules) -> Iterator[EntityPatch | SchemaPatch]:
    """The patches of records, of those that could be read."""
    for row in _with_numbers(batch):
        if row[ERROR_CODE] is None:
            yield from _read_patches(row, settings)


def read_lessons(batch: pa.RecordBatch) -> Iterator[Lesson]:
    """Lessons, of messages of schema-learning, with the batches that brought them."""
    return map(Lesson, _with_numbers(batch))


def _with_numbers(batch: pa.RecordBatch) -> list[Columns]:
    """Rows whose instants are microseconds."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in batch.columns
    ]
    rows: list[Columns] = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return rows


def _read_patches(row: Mapping[str, Any], rules: ServiceRules) -> Iterator[EntityPatch | SchemaPatch]:
    stream, value, place = row["stream"], row["value"], (row["batch"], row["number"])
    arrival = {name: row[name] for name in ARRIVAL.names}
    if stream == ERASED_PATCHES.name:
        columns = message(value, ERASED_PATCHES)
        if ERROR_CODE not in columns:
            yield EntityPatch(place, {**arrival, **columns, "errors": [ERASED_REASON]})
    elif stream == ENTITY_BATCHES.name:
        columns = message(value, ENTITY_BATCHES)
        header = {**arrival, **{name: columns[name] for name in _HEADER}}
        patches = batch_patches(columns["db"], columns["patches"], False, databases=rules.databases)
        for patch in patches:
            yield EntityPatch(place, {**header, **dict(zip(PATCH.names, patch, strict=True))})
    elif stream in (ENTITY_PATCHES.name, SCHEMA_PATCHES.name):
        columns = message(value, STREAMS[stream])
        errors = foreign_reasons(columns["db"], rules.databases) or None
        kind = EntityPatch if stream == ENTITY_PATCHES.name else SchemaPatch
        yield kind(place, {**arrival, **columns, "errors": errors})


# Folds -----------------------------------------------------------------------------------------------------


def scope_of(*key: str | int | None) -> str:
    """A key as one text."""
    return to_text(key)


def _order(columns: Columns) -> tuple[Any, ...]:
    """Order as records came; nulls come first."""
    values = map(columns.get, (*ARRIVAL.names, "part", "client_id", "request"))
    return tuple((value is not None, value or 0) for value in values)


_SAID = ("errors", *REQUEST, "part", "ops", "include_before", "include_after", "learning")


class EntityPatches(KeptFold):
    """The document of an entity, and its patches one after the other; of what has no name nothing is kept."""

    name = "entities"
    takes: ClassVar[tuple[type, ...]] = (EntityPatch, ForgetEntity)

    def __init__(self, state: bytes | None, settings: ServiceRules) -> None:
        self._settings, self._is_kept = settings, state is not None
        known_state = None if state is None else msgspec.msgpack.decode(state)
        self._document = Document(known_state, most=settings.most, remember=settings.remember)

    @staticmethod
    def spread(row: _PatchRow | ForgetEntity) -> Iterable[tuple[str, Any]]:
        key = row.entity if isinstance(row, ForgetEntity) else map(row.columns.get, row.key)
        return [(scope_of(*key), row)]

    @staticmethod
    def order(row: _PatchRow | ForgetEntity) -> Any:
        return () if isinstance(row, ForgetEntity) else _order(row.columns)

    def take(self, row: _PatchRow | ForgetEntity) -> Iterator[Any]:
        if isinstance(row, ForgetEntity):
            self._is_kept = False
            return
        patch = row.columns
        self._is_kept = all(patch.get(name) is not None for name in row.key)
        stamp = patch["timestamp"]
        at = (patch["begun"] or 0) if stamp is None else stamp // 1_000
        arguments: list[Any] = [*map(patch.get, _SAID), at, True]
        result = self._document.take(False, *arguments)
        answer = {**patch, **dict(zip(ANSWER.names, result, strict=True)), "taken": self._settings.taken}
        batch, number = row.place
        is_schema = isinstance(row, SchemaPatch)
        yield Answer({**answer, "batch": batch, "number": number, "is_schema": is_schema})
        if not answer["is_repeat"]:
            yield _respond(row.place, answer)
        if answer["action"] is not None:
            yield from self._lessons(answer)

    def _lessons(self, answer: Columns) -> Iterator[Lesson]:
        if answer["learning"]:
            documents = {"before": answer["taught_before"], "after": answer["after"]}
            yield Lesson({**_source(answer), **documents, "is_type": False})

    def state(self) -> bytes | None:
        return msgspec.msgpack.encode(self._document.state()) if self._is_kept else None


class SchemaPatches(EntityPatches):
    """The same of the schema of a database."""

    name = "schemas"
    takes = (SchemaPatch,)

    def _lessons(self, answer: Columns) -> Iterator[Lesson]:
        for declared in declared_types(answer["before"], answer["after"]):
            columns = dict(zip(DECLARED_TYPE.names, declared, strict=True))
            yield Lesson({**_source(answer), **columns, "before": None, "is_type": True})


def _source(answer: Columns) -> Columns:
    """Name where a lesson comes from, and about what it is."""
    names = (*ARRIVAL.names, "db", "collection", *REQUEST, "part", "ended", "taken")
    return {name: answer.get(name) for name in names}


def _respond(place: Place, answer: Columns) -> Response:
    asked = {name: answer[name] if answer[f"include_{name}"] else None for name in ("before", "after")}
    names = (*ARRIVAL.names, *ENTITY, *REQUEST, "user", "part", "parts", "begun", "ended")
    text = message_text({**answer, **asked}, PARTIAL_RESPONSES)
    return Response(place, {name: answer.get(name) for name in names}, text)


class RequestResponses(KeptFold):
    """The responses to one request, until they are complete."""

    name = "requests"
    takes = (Response, ForgetResponses)

    def __init__(self, state: bytes | None, settings: ServiceRules) -> None:
        self._taken = settings.taken
        self._is_complete, self._responses = (False, []) if state is None else _read_request(state)
        self._came: list[Response] = []

    @staticmethod
    def spread(row: Response | ForgetResponses) -> Iterable[tuple[str, Any]]:
        return [(scope_of(*row.request), row)]

    @staticmethod
    def order(row: Response | ForgetResponses) -> Any:
        return isinstance(row, Response)

    def take(self, row: Response | ForgetResponses) -> Iterable[Any]:
        if isinstance(row, Response):
            self._came.append(row)
        else:
            self._responses = [
                _mask(response) if tuple(map(response.columns.get, ENTITY)) == row.entity else response
                for response in self._responses
            ]
        return ()

    def settle(self) -> Iterator[Any]:
        if self._is_complete or not self._came:
            return
        before = {response.place for response in self._responses}
        responses = sorted([*self._responses, *self._came], key=Response.order)
        parts, complete, self._responses = ResponseParts(None), list[Response](), []
        for response in responses:
            part: list[Any] = list(map(response.columns.get, ("part", "parts", "user", "timestamp")))
            parts.take(*part)
        for response, result in zip(responses, parts.settle(), strict=True):
            part_is, since, waits_for, code, sentence = result
            if part_is == COMPLETE:
                complete.append(response)
            elif part_is != DUPLICATE:
                self._responses.append(response)
            if part_is in (WAITING, CONTRADICTING) or response.place in before:
                yield RecordOutcome(response.place, part_is, code, sentence, since, waits_for)
        if complete:
            self._is_complete = True
            yield CompleteResponse({**_together(complete), "taken": self._taken})

    def state(self) -> bytes | None:
        if not self._is_complete and not self._responses:
            return None
        return msgspec.msgpack.encode((self._is_complete, self._responses))


_read_request = msgspec.msgpack.Decoder(tuple[bool, list[Response]]).decode


def _together(responses: list[Response]) -> Columns:
    """The columns of a complete response."""
    return {
        **{name: responses[0].columns[name] for name in (*REQUEST, "user", "parts")},
        "begun": min(response.columns["begun"] for response in responses),
        "ended": max(response.columns["ended"] for response in responses),
        "responses": [response.text for response in responses],
    }


def _mask(response: Response) -> Response:
    nameless = {**response.columns, **dict.fromkeys(ENTITY[1:])}
    return Response(response.place, nameless, mask_response(response.text))


_LEFT = ("db", "clientid", "request", "user", "begun", "ended", "part", "parts")
_FLAGS = ("learning", "includeBefore", "includeAfter")


def mask_response(text: str) -> str:
    """A response without a word of its entity, as if that had been refused."""
    response = read(text)
    left = {name: response[name] for name in (*_LEFT, *_FLAGS) if name in response}
    masked = {**left, "status": Status.NOT_APPLIED.value, "error": ERASED_REASON}
    return column_text(to_text(masked)) or ""


class TypeLessons(KeptFold):
    """An entity type, and what is learnt of it."""

    name = "types"
    takes = (Lesson, ForgetType)

    def __init__(self, state: bytes | None, settings: ServiceRules) -> None:
        self._type: EntityType | None = EntityType(None if state is None else msgspec.msgpack.decode(state))

    @staticmethod
    def spread(row: Lesson | ForgetType) -> Iterable[tuple[str, Any]]:
        key = row.columns["db"], row.columns["collection"]
        return [(scope_of(*key), row)]

    @staticmethod
    def order(row: Lesson | ForgetType) -> Any:
        return _order(row.columns) if isinstance(row, Lesson) else ()

    def take(self, row: Lesson | ForgetType) -> Iterator[Any]:
        if isinstance(row, ForgetType):
            self._type = None
            return
        self._type = self._type or EntityType()
        lesson: Any = map(row.columns.get, ("is_type", "collection", "before", "after"))
        changed, entities = self._type.take(*lesson)
        if changed is not None:
            names = (*ARRIVAL.names, "db", "collection", "ended", "taken")
            columns = {name: row.columns[name] for name in names}
            yield LearnedType({**columns, "entities": entities, "entity_type": changed})

    def state(self) -> bytes | None:
        return None if self._type is None else msgspec.msgpack.encode(self._type.state())


FOLDS = (EntityPatches, SchemaPatches, RequestResponses, TypeLessons)
"""In their order."""


def read_state(scope: str, state: bytes) -> Result:
    """The key of an entity, a schema or an entity type, and what is known of it."""
    return *read(scope), *msgspec.msgpack.decode(state)
