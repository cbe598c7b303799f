"""What has been learnt of one entity type: a `Fold` over the messages of schema-learning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cdckit.debezium.streams.json_values import column_text, read, written
from cdckit.debezium.streams.value_types import common_type, typed_paths

_MOST_FIELDS = 10_000


class EntityType:
    """
    An entity type: how many entities there are, how many have each field, and of which types it was.

    What a schema declares of a field counts more than what is seen of it.  Types only widen: a field stays
    of the type that it was once seen with.  Of more than 10,000 fields the later ones are not learnt.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all: another entity type."""
        self.entities = 0
        self.counts: dict[str, int] = {}
        self.types: dict[str, set[str]] = {}
        self.declared: dict[str, Any] = {}
        self.type: str | None = None

    def load(self, type_: str | None, lessons: str | None) -> None:
        """Begin with what was learnt before."""
        known = read(lessons or "{}")
        self.type, self.entities = type_, known.get("entities", 0)
        self.declared = known.get("declared", {})
        fields = known.get("fields", {})
        self.counts = {path: count for path, (count, _) in fields.items()}
        self.types = {path: set(types) for path, (_, types) in fields.items()}

    def state(self) -> tuple[str | None, str]:
        """The entity type, and what it was made of."""
        fields = {path: [count, sorted(self.types[path])] for path, count in sorted(self.counts.items())}
        lessons = {"entities": self.entities, "fields": fields, "declared": self.declared}
        return self.type, column_text(written(lessons)) or ""

    def step(
        self, is_type: bool, collection: str, before: str | None, after: str | None
    ) -> tuple[tuple[str | None, int], int]:
        """The entity type if the message changed it, and how many entities there are."""
        if is_type:
            self.declared = _fields_declared(after, collection)
        else:
            self._count(before, -1)
            self._count(after, 1)
        made = column_text(written({collection: {"fields": self._fields()}}))
        changed = made if made != self.type else None
        self.type = made
        return (changed, self.entities), len(changed or "")

    def _count(self, text: str | None, by: int) -> None:
        if text is None:
            return
        self.entities += by
        for path, kind in typed_paths(read(text)):
            if path in self.counts or len(self.counts) < _MOST_FIELDS:
                self.counts[path] = self.counts.get(path, 0) + by
                self.types.setdefault(path, set()).update(_some(kind) if by > 0 else ())

    def _fields(self) -> dict[str, Any]:
        seen = {
            path: {"type": common_type(self.types[path]), "optional": count < self.entities}
            for path, count in self.counts.items()
        }
        fields = {**seen, **self.declared}
        return {path: fields[path] for path in sorted(fields)}


def _some(kind: str | None) -> Iterable[str]:
    return () if kind is None else (kind,)


def _fields_declared(text: str | None, collection: str) -> dict[str, Any]:
    said = read(text) if text else None
    type_ = said.get(collection) if isinstance(said, dict) else None
    fields = type_.get("fields") if isinstance(type_, dict) else None
    return fields if isinstance(fields, dict) else {}
