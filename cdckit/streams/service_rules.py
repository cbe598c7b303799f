"""What becomes of the records of a service: patches, their answers, what waits for others, what is learnt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.fold import Fold, FoldPlan, Result
from cdckit.parts.kept_folds import (
    KeptFold,
    Place,
    PlannedFold,
    RecordOutcome,
    number_rows,
    row_rank,
    scope_of,
)
from cdckit.streams.catalogue import (
    ARRIVAL,
    BATCH_HEADER,
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
from cdckit.streams.collection_types import DECLARED_TYPE, TYPE_PLAN, declared_types
from cdckit.streams.documents import ANSWERED_AT, PatchedDocument, answered_at, patch_plan
from cdckit.streams.json_values import column_text, read, to_text
from cdckit.streams.messages import Columns, message, message_text
from cdckit.streams.request_parts import (
    COMPLETE,
    CONTRADICTING,
    ERASED_REASON,
    PATCH,
    RESPONSE_PLAN,
    WAITING,
    ResponseParts,
    batch_patches,
    foreign_reasons,
)


@dataclass(frozen=True)
class ServiceRules:
    """
    What a service goes by.

    Args:
        databases: Those that are served; None for all.
        most_characters, remember: As for `apply_patches`.
        taken: The number of the batch that is taken.
    """

    databases: frozenset[str] | None
    most_characters: int
    remember: int
    taken: int = 0


class _Row(msgspec.Struct, array_like=True, tag=True):
    """A row that is on its way from fold to fold."""


class _PatchRow(_Row):
    """A patch: the record that brought it, where that came from, and what the patch says."""

    place: Place
    columns: Columns


class EntityPatch(_PatchRow):
    """A patch of an entity."""


class SchemaPatch(_PatchRow):
    """A patch of the schema of a database."""


class Response(_Row):
    """The response to a patch: the record that brought that, the columns of the answer, and the message."""

    place: Place
    columns: Columns
    text: str

    @property
    def request(self) -> tuple[str, int]:
        """The key of the request."""
        return self.columns["client_id"], self.columns["request"]


class Lesson(_Row):
    """What can be learnt from an update of an entity, or of a type that a schema declares (`is_type`)."""

    columns: Columns


class ForgetEntity(_Row):
    """An entity of which nothing is to be known any more: its key."""

    columns: Columns


class ForgetResponses(_Row):
    """A request whose responses are to have no word of an entity."""

    request: tuple[str, int]
    entity: tuple[str | None, ...]


class ForgetType(_Row):
    """An entity type of which nothing is to be known any more: its key."""

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


def read_patches(batch: pa.RecordBatch, rules: ServiceRules) -> Iterator[EntityPatch | SchemaPatch]:
    """The patches of records, of those that could be read."""
    for row in number_rows(batch):
        if row[ERROR_CODE] is None:
            place = row["batch"], row["number"]
            source = {name: row[name] for name in (*ARRIVAL.names, "batch")}
            for kind, patch in _patches_of(row["stream"], row["value"], rules):
                ended = answered_at(row["timestamp"], patch["begun"])
                yield kind(place, {**source, **patch, ANSWERED_AT: ended})


def _patches_of(
    stream: str, value: bytes, rules: ServiceRules
) -> Iterator[tuple[type[EntityPatch | SchemaPatch], Columns]]:
    if stream == ERASED_PATCHES.name:
        columns = message(value, ERASED_PATCHES)
        if ERROR_CODE not in columns:
            yield EntityPatch, {**columns, "errors": [ERASED_REASON]}
    elif stream == ENTITY_BATCHES.name:
        columns = message(value, ENTITY_BATCHES)
        header = {name: columns[name] for name in BATCH_HEADER}
        for patch in batch_patches(columns["db"], columns["patches"], False, databases=rules.databases):
            yield EntityPatch, {**header, **dict(zip(PATCH.names, patch, strict=True))}
    elif stream in (ENTITY_PATCHES.name, SCHEMA_PATCHES.name):
        columns = message(value, STREAMS[stream])
        kind = EntityPatch if stream == ENTITY_PATCHES.name else SchemaPatch
        yield kind, {**columns, "errors": foreign_reasons(columns["db"], rules.databases) or None}


def read_lessons(batch: pa.RecordBatch, types: frozenset[tuple[str, str]]) -> Iterator[Lesson]:
    """What some entity types can be learnt from, of answers as their table has them."""
    for answer in number_rows(batch):
        for lesson in _lessons(answer):
            if (lesson.columns["db"], lesson.columns["collection"]) in types:
                yield lesson


# Folds -----------------------------------------------------------------------------------------------------


def _of_batches(plan: FoldPlan) -> FoldPlan:
    """The plan of rows of which those of an earlier batch come first."""
    return replace(plan, order=("batch", *plan.order), time=("batch", *plan.time))


class EntityPatches(PlannedFold):
    """The document of an entity, and its patches one after the other; as one, all that have no name."""

    name = "entities"
    takes: ClassVar[tuple[type, ...]] = (EntityPatch, ForgetEntity)
    forgets = ForgetEntity
    plan = _of_batches(patch_plan(ENTITY))

    def begin(self, state: Result | None) -> Fold:
        rules = self._settings
        return PatchedDocument(state, most=rules.most_characters, remember=rules.remember)

    def follow(self, row: _PatchRow, result: Columns) -> Iterator[Any]:
        batch, number = row.place
        source = {"batch": batch, "number": number, "taken": self._settings.taken}
        answer = {**row.columns, **result, **source, "is_schema": isinstance(row, SchemaPatch)}
        yield Answer(answer)
        if not answer["is_repeat"]:
            yield _respond(row.place, answer)
        yield from _lessons(answer)


class SchemaPatches(EntityPatches):
    """The same of the schema of a database."""

    name = "schemas"
    takes = (SchemaPatch,)
    plan = _of_batches(patch_plan(DATABASE))


def _lessons(answer: Columns) -> Iterator[Lesson]:
    """What can be learnt from an answer: of a schema each of its types; an entity, if the patch lets it."""
    if answer["action"] is None:
        return
    names = (*ARRIVAL.names, "batch", "db", "collection", *REQUEST, "part", "ended", "taken")
    source = {name: answer.get(name) for name in names}
    if answer["is_schema"]:
        for declared in declared_types(answer["before"], answer["after"]):
            columns = dict(zip(DECLARED_TYPE.names, declared, strict=True))
            yield Lesson({**source, **columns, "before": None, "is_type": True})
    elif answer["learning"]:
        documents = {"before": answer["taught_before"], "after": answer["after"]}
        yield Lesson({**source, **documents, "is_type": False})


def _respond(place: Place, answer: Columns) -> Response:
    asked = {name: answer[name] if answer[f"include_{name}"] else None for name in ("before", "after")}
    names = (*ARRIVAL.names, *ENTITY, *REQUEST, "user", "part", "parts", "begun", "ended", "status")
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
        waited = {response.place for response in self._responses}
        responses = [*self._responses, *self._came]
        responses.sort(key=lambda response: row_rank(response.columns, RESPONSE_PLAN.order))
        parts = ResponseParts(None)
        for response in responses:
            columns: Any = map(response.columns.get, RESPONSE_PLAN.reads)
            parts.take(*columns)
        fates = defaultdict[str, list[Response]](list)
        for response, result in zip(responses, parts.settle(), strict=True):
            part_is, since, waits_for, code, sentence = result
            fates[part_is].append(response)
            if part_is in (WAITING, CONTRADICTING) or response.place in waited:
                yield RecordOutcome(response.place, part_is, code, sentence, since, waits_for)
        self._responses = [*fates[WAITING], *fates[CONTRADICTING]]
        if fates[COMPLETE]:
            self._is_complete = True
            yield CompleteResponse({**_together(fates[COMPLETE]), "taken": self._taken})

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
    nameless = {**response.columns, **dict.fromkeys(ENTITY[1:]), "status": Status.NOT_APPLIED.value}
    return Response(response.place, nameless, mask_response(response.text))


def mask_response(text: str) -> str:
    """A response without a word of its entity, as if that had been refused."""
    response = read(text)
    kept = {*ERASED_PATCHES.fields, "ended"} & response.keys()
    masked = {**response, "status": Status.NOT_APPLIED.value, "error": ERASED_REASON}
    names = [name for name in PARTIAL_RESPONSES.fields if name in kept or name in ("status", "error")]
    return column_text(to_text({name: masked[name] for name in names})) or ""


class TypeLessons(PlannedFold):
    """An entity type, and what is learnt of it."""

    name = "types"
    takes = (Lesson, ForgetType)
    forgets = ForgetType
    plan = _of_batches(TYPE_PLAN)

    def follow(self, row: Lesson, result: Columns) -> Iterator[Any]:
        if result["changed_type"] is not None:
            names = (*ARRIVAL.names, *TYPE_PLAN.scope, "ended", "taken")
            columns = {name: row.columns[name] for name in names}
            learned = {"entities": result["entities"], "entity_type": result["changed_type"]}
            yield LearnedType({**columns, **learned})


FOLDS = (EntityPatches, SchemaPatches, RequestResponses, TypeLessons)
"""The folds of a service, in their order."""


def read_state(scope: str, state: bytes) -> Result:
    """The key of an entity, a schema or an entity type, and what is known of it."""
    return *read(scope), *msgspec.msgpack.decode(state)
