"""What has been learnt of one entity type: a `Fold` over the messages of schema-learning."""

from __future__ import annotations

from typing import Any

from cdckit.streams.json_values import column_text, read, written
from cdckit.streams.value_types import common_type, typed_paths

_MOST_FIELDS = 10_000
_LONGEST_NAME = 1_000  # 100 names within each other may have 50 megabytes, of a document of one


class EntityType:
    """
    An entity type: how many entities there are, how many have each field, and of which types it was.

    What a schema declares of a field counts more than what is seen of it.  Types only widen: a field stays
    of the type that it was once seen with; one that was null each time has none yet, and is not told.  Of
    more than 10,000 fields the later ones are not learnt, nor is one whose path has more than 1,000
    characters.
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
        self.always: set[str] | None = None

    def load(self, type_: str | None, lessons: str | None) -> None:
        """Begin with what was learnt before."""
        known, self.always = read(lessons or "{}"), None
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
            self.declared, is_new = _fields_declared(after, collection), True
        else:
            # Both are counted, whatever the first one says.
            is_new = any([self._count(before, -1), self._count(after, 1)])
        always = {path for path, count in self.counts.items() if count >= self.entities}
        # To sort and write all fields takes much longer than to see that they are as they were.
        if always == self.always and not is_new:
            return (None, self.entities), 0
        self.always = always
        made = column_text(written({collection: {"fields": self._fields()}}))
        changed = made if made != self.type else None
        self.type = made
        return (changed, self.entities), len(changed or "")

    def _count(self, text: str | None, by: int) -> bool:
        """Count an entity in or out; whether a field, or a type of one, is new."""
        if text is None:
            return False
        self.entities += by
        is_new = False
        for path, kind in typed_paths(read(text)):
            if path not in self.counts:
                if len(path) > _LONGEST_NAME or len(self.counts) >= _MOST_FIELDS:
                    continue
                self.counts[path], self.types[path], is_new = 0, set(), True
            self.counts[path] += by
            if by > 0 and kind is not None and kind not in self.types[path]:
                self.types[path].add(kind)
                is_new = True
        return is_new

    def _fields(self) -> dict[str, Any]:
        seen = {
            path: {"type": common_type(self.types[path]), "optional": count < self.entities}
            for path, count in self.counts.items()
            if self.types[path]
        }
        fields = {**seen, **self.declared}
        return {path: fields[path] for path in sorted(fields)}


def _fields_declared(text: str | None, collection: str) -> dict[str, Any]:
    said = read(text) if text else None
    type_ = said.get(collection) if isinstance(said, dict) else None
    fields = type_.get("fields") if isinstance(type_, dict) else None
    return fields if isinstance(fields, dict) else {}
