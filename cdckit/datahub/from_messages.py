"""Messages in, changes out, without a hub: nothing is kept, nothing is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.datahub.existence import facts, standing
from cdckit.datahub.intake import statements_about
from cdckit.datahub.message_store import DECODED_SCHEMA, with_statuses
from cdckit.datahub.readers import Filter, Reader, Work
from cdckit.datahub.source_systems import Schema
from cdckit.datahub.statement_changes import Derived
from cdckit.datahub.statuses import Status, routed
from cdckit.errors import InvalidArgument
from cdckit.merging import merge
from cdckit.parts.schemas import require_batch, require_types
from cdckit.parts.transitive_waits import falling

Held = Callable[[DataFrame], DataFrame]


def changes(
    messages: DataFrame,
    schema: Schema,
    entity: str,
    *,
    readers: Mapping[str, Reader] | None = None,
    filters: Mapping[str, Filter] | None = None,
    files: str | Path | None = None,
    held: Held | None = None,
) -> DataFrame:
    """
    The changes of one target, for `merge`: what `Hub.changes` gives after one run over these messages.

    Args:
        messages: All messages there are, as `decode` gives them.  Those in error, and all but the first of
            one identifier, say nothing.
        schema: The source systems.
        entity: A target that is not exported.
        readers: Readers of your own, by the names that mappings call them.
        filters: Filters of your own, likewise.
        files: The folder to which readers of files are confined.
        held: Is given what is looked at more than once, and returns it so that it is not computed each time
            anew: `lambda rows: rows.localCheckpoint()`, which runs jobs at once, for instance.

    Returns:
        One row per change (`cdckit.changes.CHANGE_SCHEMA`) with its `guid`: the records that can be applied,
        entities that links make, and absences, which are what refreshes, lists of children and deletes
        of parents did not name.  Records in error, and those whose links lead nowhere, give none.

    Raises:
        InvalidArgument: *schema* is none, or names a reader or a filter that is not given; *entity* is no
            target that is merged; *messages* are a stream.
        MissingColumns, WrongColumnType: *messages* are not as `decode` gives them.

    Cost: no job.  Without *held* the messages are read in Python several times for each target that decides
    about this one (where its links lead, what holds or makes it, and so on), and the plan of a child holds
    the histories of its parents.  Links cost a few shuffles by guid, and one task for the statements
    whose links lead nowhere, or to what has links itself: a kilobyte each.  Weak keys cost one task for all
    records of the target.  A `Hub` reads each message once, and keeps up what it makes.

    Source:
        Data hub specification.

    >>> from datetime import datetime, timezone
    >>> from cdckit import datahub
    >>> fields = [{"reference": "number", "type": "integer", "key": True}, {"reference": "name"}]
    >>> product = {"reference": "product", "fields": fields}
    >>> shop = datahub.schema({"reference": "*", "mappings": {"product": [product]}})
    >>> sent = [
    ...     {"entity": "product", "data": [{"number": 1, "name": "kettle"}, {"number": 2, "name": "mug"}]},
    ...     {"entity": "product", "refresh": True, "data": [{"number": 1, "name": "teapot"}]},
    ... ]
    >>> records = datahub.records(session(), sent, at=datetime(2024, 1, 1, tzinfo=timezone.utc))
    >>> said = datahub.changes(datahub.decode(records), shop, "product")
    >>> said.orderBy("arrival.offset", "arrival.record_number").select("operation", "data.number").show()
    +---------+------+
    |operation|number|
    +---------+------+
    |   upsert|     1|
    |   upsert|     2|
    |   upsert|     1|
    |   absent|  NULL|
    +---------+------+
    <BLANKLINE>
    """
    work = Work.by(schema, readers, filters, files, function="changes")
    if entity not in schema.families:
        raise InvalidArgument("changes", "entity", f"one of {', '.join(sorted(schema.families))}", entity)
    require_types(messages, DECODED_SCHEMA, function="changes")
    instead = "hand its batches to a hub: writeStream.foreachBatch(hub.sink('a name'))"
    require_batch(messages, "messages", instead, function="changes")
    return FromMessages(messages, work, entity, held or (lambda rows: rows)).changes(entity)


class FromMessages(Derived):
    """What follows from messages for one target: each part is described when it is asked for, and once."""

    def __init__(self, messages: DataFrame, work: Work, entity: str, held: Held) -> None:
        super().__init__(work.schema)
        first = with_statuses(messages).where(F.col("status") == int(Status.NOT_PROCESSED))
        read = held(routed(first, work.schema))
        self._hold, self.messages = held, lambda: read
        self._leading = work.schema.leading_to(entity)
        self.statements = cache(lambda each: held(statements_about(read, work, each)))
        self.looked_up = lambda kind, each, rows: held(rows)
        self.waiting = cache(self._find_waiting)
        # Whether one was is not known before the messages are read.
        self.may_be_refreshed = lambda each: True
        self.known_history = cache(self._merged)

    @property
    def entities(self) -> list[str]:
        """The targets that decide about the one."""
        return self._leading

    def _find_waiting(self) -> DataFrame | None:
        found = facts(self) if self.may_wait else None
        if found is None:
            return None
        valid = found.where("error_code IS NULL")
        return self._hold(falling(standing(valid, self.answers())))

    def _merged(self, entity: str) -> DataFrame:
        keys = self.schema.targets[entity].keys
        return self._hold(merge(self.changes(entity), entity=entity, keys=keys))
