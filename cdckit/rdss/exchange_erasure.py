"""
What an exchange forgets of messages: where each stood stays, and what they said goes.

Another object may be a version of one that is erased, and another message may bear the id of one about it:
what became of these stays as it is.  States know all by other names (`Names`) from the start, so of them only
the sequences go, and the statements about an object are left as if it stayed what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger import ErasedPart
from cdckit.ledger.erasure.tombstones import ENTITY_ERASED, REFUSE, REFUSED_SCHEMA, error_columns
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arguments import schema_columns, typed_nulls
from cdckit.parts.arrow_types import arrow_schema
from cdckit.parts.folded_rows import with_rule
from cdckit.parts.kept_folds import Place
from cdckit.parts.workers import local_frame
from cdckit.rdss.exchange_rows import (
    ERASED,
    ERASED_REASON,
    ArrivedMessage,
    ErasedWhole,
    ForgetObject,
    ForgetSequence,
    Left,
    left_of,
)
from cdckit.rdss.exchange_tables import (
    ERASED_NAMES,
    ERASED_NAMES_SCHEMA,
    MESSAGES,
    MESSAGES_SCHEMA,
    OBJECT,
    OWN,
    OWN_SCHEMA,
    SEQUENCE,
    Settings,
    is_erased,
    names_within,
    whole_messages,
)
from cdckit.shell.record_places import rewrite_rows
from cdckit.shell.states_and_outcomes import MANY_FILES, OUTCOMES, PLACE, PLACE_SCHEMA, StatesAndOutcomes
from cdckit.store import Transaction
from cdckit.store.store import Tables

_KEPT = ("topic", "partition", "offset", "timestamp", "timestampType", *PLACE)


def object_uuids(tables: Tables) -> DataFrame:
    """The objects that messages are about, each once."""
    of_messages = tables.read(MESSAGES).where(~is_erased()).select("object_uuid")
    of_parts = tables.read(OUTCOMES).select(F.col("about").alias("object_uuid"))
    return of_messages.unionByName(of_parts).where("object_uuid IS NOT NULL").distinct()


def is_refused() -> Column:
    """Tell whether a message is the place of one that was refused when it came: it says from whom."""
    return is_erased() & F.col("generator").isNotNull()


def note_refused(messages: DataFrame, tables: Transaction, settings: Settings) -> None:
    """Let the ledgers tell of messages that came and were refused."""
    rows = messages.withColumns({"record_number": F.lit(1), "source": F.col("generator")})
    rows = rows.withColumns(error_columns(ENTITY_ERASED)).select(*REFUSED_SCHEMA.fieldNames())
    for object_type in settings.types:
        tables.append(settings.kind(object_type).refused, rows)


def forget_sequences(tables: Transaction, settings: Settings, erased: Sequence[ErasedWhole]) -> None:
    """Take sequences out that turned out, now that all parts came, to be about an object that was erased."""
    refused = [whole.places[0] for whole in erased if whole.is_refused]
    if refused:
        first = F.broadcast(local_frame(tables.spark, refused, PLACE_SCHEMA))
        note_refused(tables.read(MESSAGES).join(first, [*PLACE], "left_semi"), tables, settings)
    _forget(tables, [whole.sequence_id for whole in erased], None, {})


def forget_objects(
    tables: Transaction, settings: Settings, objects: DataFrame, later: str
) -> list[ErasedPart]:
    """
    Take all messages about *objects* (`object_uuid`) out of the tables beside the ledgers.

    Cost: a few columns of all messages; the files that have some are written anew, and the states of their
    buckets.
    """
    uuids = [row["object_uuid"] for row in objects.select("object_uuid").collect()]
    sequences = _sequences_about(tables, objects, settings)
    names, folds = names_within(tables).of, settings.folds(tables)
    rows: list[ForgetObject | ForgetSequence] = [ForgetObject(names(uuid)) for uuid in uuids]
    rows += [ForgetSequence(names(sequence)) for sequence in sequences]
    # What was written of them before goes with the files.
    handed = StatesAndOutcomes(tables, folds).take_rows(rows, rewrites=1).few
    # A statement about an object is behind what its sequence claims.
    left = {row.message.arrival.place: row.message for row in handed if isinstance(row, Left)}
    _remember(tables, OBJECT, uuids, later == REFUSE)
    return _forget(tables, sequences, objects, left)


def _sequences_about(tables: Transaction, objects: DataFrame, settings: Settings) -> list[str]:
    """The sequences that are about objects, those of our own among them, which nobody has put together."""
    about = objects.select(F.col("object_uuid").alias("about"))
    places = tables.read(OUTCOMES).join(about, "about", "left_semi").select(*PLACE)
    parts = tables.read(MESSAGES).where(F.col(ERROR_CODE).isNull() & (F.col("sequence_total") > 1))
    sequences = parts.join(places, [*PLACE], "left_semi").select("sequence_id")
    if tables.has(OWN):
        sent = parts.join(tables.read(OWN).select("sequence_id").distinct(), "sequence_id", "left_semi")
        same = sent.dropDuplicates(["sequence_id", "sequence_position"]).select(*parts.columns)
        put_together = whole_messages(same, tables, settings.rules)
        sequences = sequences.unionByName(
            put_together.join(objects, "object_uuid", "left_semi").select("sequence_id")
        )
    return [row[0] for row in sequences.distinct().collect()]


def _remember(tables: Transaction, of: str, erased: Iterable[str], refuses: bool | None) -> None:
    """Let the names of what was erased be known, of what comes later."""
    names = names_within(tables).of
    rows = [{"name": names(name), "of": of, "refuses": refuses} for name in erased]
    tables.append(
        ERASED_NAMES, pa.Table.from_pylist(rows, arrow_schema(ERASED_NAMES_SCHEMA)), compact_at=MANY_FILES
    )


def _forget(
    tables: Transaction,
    sequences: Sequence[str],
    objects: DataFrame | None,
    left: dict[Place, ArrivedMessage],
) -> list[ErasedPart]:
    """Leave of messages where they stood, and what others are judged by."""
    names = names_within(tables)
    _remember(tables, SEQUENCE, sequences, None)
    ids = local_frame(tables.spark, [(sequence,) for sequence in sequences], "sequence_id string")
    messages = tables.read(MESSAGES).where(~is_erased())
    chosen = (
        messages.where("sequence_total > 1").join(ids, "sequence_id", "left_semi").select(*messages.columns)
    )
    if objects is not None:
        about = messages.join(objects, "object_uuid", "left_semi").select(*messages.columns)
        chosen = chosen.unionByName(about).dropDuplicates([*PLACE])
    chosen = tables.scratch(chosen.select(*PLACE, "message_id"))
    rows = [(*place, msgspec.msgpack.encode(message)) for place, message in left.items()]
    remains = local_frame(tables.spark, rows, "batch bigint, number bigint, remains binary")
    reads = ("value", "message_id", "sequence_total", ERROR_CODE, "remains")
    makes = pa.schema([("left", pa.binary())])

    def blank(some: DataFrame) -> DataFrame:
        rule = partial(left_of, names=names)
        kept = with_rule(some.join(remains, [*PLACE], "left"), _KEPT, reads, rule, makes)
        values = {ERROR_CODE: F.lit(ERASED), ERROR_DESCRIPTION: F.lit(ERASED_REASON)}
        values |= {name: F.col(name) for name in kept.columns}
        return kept.select(*schema_columns(MESSAGES_SCHEMA, values))

    places = chosen.select(*PLACE)
    rewritten = rewrite_rows(tables, MESSAGES, places, blank) + rewrite_rows(tables, OUTCOMES, places)
    return rewritten + _forget_own(tables, chosen.select("message_id"), ids)


def _forget_own(tables: Transaction, messages: DataFrame, sequences: DataFrame) -> list[ErasedPart]:
    """Let it be known by other names only that messages were sent."""
    if not tables.has(OWN):
        return []
    sent = tables.read(OWN)
    chosen = sent.join(messages.distinct(), "message_id", "left_semi").select("identity")
    of_parts = sent.join(sequences, "sequence_id", "left_semi").select("identity")

    def blank(some: DataFrame) -> DataFrame:
        blanked = [name for name in OWN_SCHEMA.names if name not in ("identity", "status")]
        return some.withColumns(typed_nulls(OWN_SCHEMA, blanked))

    return rewrite_rows(tables, OWN, chosen.unionByName(of_parts).distinct(), blank)
