"""
What an exchange forgets of messages: where each stood stays, and what they said goes.

Another object may be a version of one that is erased, and another message may bear the id of one about it:
what became of these stays as it is.  So under other names (`ErasedNames`) it stays known that there was a
message of that id, and when the object came to be and went.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdckit.ledger import ErasedPart
from cdckit.ledger.places import rewrite_rows
from cdckit.ledger.tombstones import DESCRIPTIONS, ENTITY_ERASED, REFUSE, REFUSED_SCHEMA, error_columns
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.erased_names import MESSAGE, OBJECT, SEQUENCE, ErasedNames
from cdckit.rdss.exchange_tables import (
    BUCKET,
    ERASED,
    MESSAGES,
    MESSAGES_SCHEMA,
    NAMINGS,
    NAMINGS_SCHEMA,
    OUTCOMES,
    PLACE,
    REPOSITORY,
    REPOSITORY_SCHEMA,
    SEQUENCES,
    SEQUENCES_SCHEMA,
    TAKEN,
    UNKNOWN,
    WHOLE_SCHEMA,
    Settings,
    assemble_wholes,
    is_erased,
    with_body,
    with_buckets,
)
from cdckit.rdss.existence import namings
from cdckit.rdss.objects import is_statement
from cdckit.rdss.sequences import IDENTITY, parts
from cdckit.rdss.validators import CREATE, REMOVE, UPDATE
from cdckit.store import Transaction
from cdckit.store.store import Tables, read_rows

_RECORD = ("topic", "partition", "offset", "timestamp")
_KEPT = (*_RECORD, "timestampType", "status", *PLACE)
_SAME = (*_RECORD, "message_id")
_SETTLING = ("message_id", "message_type", "published_timestamp", "object_uuid")
_REASON = "The message spoke of what was erased."


def object_uuids(tables: Tables) -> DataFrame:
    """The objects that messages are about, each once."""
    own = tables.read(MESSAGES).where(~is_erased()).select("object_uuid")
    of_parts = read_rows(tables, SEQUENCES, SEQUENCES_SCHEMA).select("object_uuid")
    return own.unionByName(of_parts).where("object_uuid IS NOT NULL").distinct()


# What comes -----------------------------------------------------------------------------------------------


def drop_erased_messages(rows: DataFrame, tables: Tables) -> DataFrame:
    """
    Messages that come (`MESSAGES`): those about objects that were erased as the places where they stood.

    Nobody has written these yet.  One that bears the id of an erased one has its other name as `identity`.
    """
    names = ErasedNames.of(tables)
    if names is None:
        return rows
    of_several = F.when(F.col("sequence_total") > 1, F.col("sequence_id"))
    found = names.with_other_name(rows, F.col("object_uuid"), OBJECT, "_object")
    found = names.with_other_name(found, of_several, SEQUENCE, "_sequence")
    theirs = F.col("_object").isNotNull() | F.col("_sequence").isNotNull()
    refused = theirs & (F.col("_object_later") == REFUSE) & is_statement(CREATE, UPDATE, REMOVE)
    marked = names.rename(found.withColumns({"_theirs": theirs, "_refused": refused}), IDENTITY, MESSAGE)
    values = {
        "generator": F.when(F.coalesce("_refused", F.lit(False)), F.col("generator")),
        ERROR_CODE: F.lit(ERASED),
        ERROR_DESCRIPTION: F.when(F.col("_refused"), DESCRIPTIONS[ENTITY_ERASED]).otherwise(_REASON),
    }
    return marked.select(
        *(
            F.when(~F.col("_theirs") | F.lit(name in _KEPT), F.col(name))
            .otherwise(values.get(name, F.lit(None)))
            .cast(rows.schema[name].dataType)
            .alias(name)
            for name in rows.columns
        )
    )


def note_refused(came: DataFrame, tables: Transaction, settings: Settings) -> None:
    """Let the ledgers tell of messages that came and were refused."""
    rows = came.withColumns({"record_number": F.lit(1), "source": F.col("generator")})
    rows = rows.withColumns(error_columns(ENTITY_ERASED)).select(*REFUSED_SCHEMA.fieldNames())
    for each in settings.types:
        tables.append(settings.kind(each).refused, rows)


def is_refused() -> Column:
    """Whether a message is the place of one that was refused when it came."""
    return is_erased() & (F.col(ERROR_DESCRIPTION) == DESCRIPTIONS[ENTITY_ERASED])


def drop_erased_wholes(
    wholes: DataFrame, tables: Transaction, settings: Settings
) -> tuple[DataFrame, DataFrame | None]:
    """
    Messages whose parts are all there, without those about objects that were erased; and the `sequence_id`
    of these.

    Of their parts nothing stays but the places; earlier commits have those that came before.
    """
    names = ErasedNames.of(tables)
    if names is None:
        return wholes, None
    named = names.with_other_name(wholes, F.col("object_uuid"), OBJECT, "_object")
    theirs = tables.scratch(named.where(F.col("_object").isNotNull()))
    if theirs.isEmpty():
        return wholes, None
    refused = (F.col("_object_later") == REFUSE) & is_statement(CREATE, UPDATE, REMOVE)
    note_refused(theirs.where(refused), tables, settings)
    _forget(tables, settings, None, theirs.select("sequence_id", *_unclaimed()), None)
    ids = theirs.select("sequence_id")
    return wholes.join(ids, "sequence_id", "left_anti").select(*wholes.columns), ids


def with_identity(wholes: DataFrame, tables: Tables) -> DataFrame:
    """Messages that were put together, and what makes each the same message again."""
    named, names = wholes.withColumn(IDENTITY, F.col("message_id")), ErasedNames.of(tables)
    return named if names is None else names.rename(named, IDENTITY, MESSAGE)


def existence(messages: DataFrame) -> DataFrame:
    """What is left of those by which an object came to be or went, in the columns of `decode`."""
    left = messages.where(is_erased() & F.col("object_uuid").isNotNull())
    sound = {name: F.lit(None).cast("string") for name in ("queue", ERROR_CODE, ERROR_DESCRIPTION)}
    found = left.withColumns({**sound, "message_class": F.lit("Command"), "body": F.lit(None).cast("string")})
    return found.select(*DECODED_SCHEMA.fieldNames())


def rename_objects(named: DataFrame, tables: Tables) -> DataFrame:
    """The objects that messages name (`namings`), those that were erased by their other names."""
    names = ErasedNames.of(tables)
    if names is None:
        return named
    each = named.dropDuplicates(["message_id"]).select("message_id", F.posexplode("objects"))
    renamed = names.rename(each, "col", OBJECT).groupBy("message_id")
    ordered = F.array_sort(F.collect_list(F.struct("pos", "col")))
    lists = renamed.agg(F.transform(ordered, lambda one: one["col"]).alias("_objects"))
    found = names.rename(named, "named", OBJECT).join(lists, "message_id", "inner")
    return found.withColumn("objects", F.col("_objects")).select(*named.columns)


# What goes ------------------------------------------------------------------------------------------------


def forget_objects(
    tables: Transaction, settings: Settings, objects: DataFrame, later: str
) -> list[ErasedPart]:
    """
    Take all messages about *objects* (`object_uuid`) out of the tables beside the ledgers.

    Cost: a few columns of all messages; the files that have some are written anew.
    """
    sequences = _sequences_about(tables, objects, settings)
    return _forget(tables, settings, objects, sequences, later)


def _unclaimed() -> list[Column]:
    message = F.lit(None).cast("string").alias("message_id")
    return [message, F.lit(None).cast(SEQUENCES_SCHEMA["last"].dataType).alias("last")]


def _sequences_about(tables: Transaction, objects: DataFrame, settings: Settings) -> DataFrame:
    """The sequences that are about objects, those of our own among them, which nobody has put together."""
    whole = read_rows(tables, SEQUENCES, SEQUENCES_SCHEMA)
    found = whole.join(objects, "object_uuid", "left_semi").select("sequence_id", "message_id", "last")
    sound = tables.read(MESSAGES).where(F.col(ERROR_CODE).isNull() & (F.col("sequence_total") > 1))
    others = with_body(sound.join(whole.select("sequence_id"), "sequence_id", "left_anti"))
    own = assemble_wholes(parts(others), settings.rules).join(objects, "object_uuid", "left_semi")
    return tables.scratch(found.unionByName(own.select("sequence_id", *_unclaimed())).distinct())


def _forget(
    tables: Transaction,
    settings: Settings,
    objects: DataFrame | None,
    sequences: DataFrame,
    later: str | None,
) -> list[ErasedPart]:
    messages = tables.read(MESSAGES).where(~is_erased())
    chosen = messages.where("sequence_total > 1").join(
        sequences.select("sequence_id"), "sequence_id", "left_semi"
    )
    chosen = chosen.select(*messages.columns)
    if objects is not None:
        about = messages.join(objects, "object_uuid", "left_semi").select(*messages.columns)
        chosen = chosen.unionByName(about).dropDuplicates([*PLACE])
    settling = _settling_messages(tables, objects)
    theirs = tables.scratch(_with_claims(chosen, sequences).join(settling, _is_same_message(), "left"))
    known = _known_messages(tables, theirs, sequences)
    names = ErasedNames.with_more(tables, _new_names(objects, sequences, known, later))
    left = names.rename(theirs, IDENTITY, MESSAGE)
    places = theirs.select(*PLACE).distinct()

    def as_places(rows: DataFrame) -> DataFrame:
        rest = left.select(*PLACE, IDENTITY, *(_settling_value(names, name) for name in _SETTLING))
        return rows.select(*_KEPT).join(rest, [*PLACE], "left").select(*_place_columns())

    found = rewrite_rows(tables, MESSAGES, places, as_places)
    found += rewrite_rows(tables, OUTCOMES, places)
    found += rewrite_rows(tables, SEQUENCES, sequences.select("sequence_id").distinct())
    if objects is not None:
        found += rewrite_rows(tables, UNKNOWN, objects.select("object_uuid").distinct())
        found += _forget_namings(tables, settings, objects, theirs)
    return found + _forget_known(tables, settings, known)


def _place_columns() -> list[Column]:
    """A message that was erased: the columns of `MESSAGES` that are kept of it."""
    found = {name: F.col(name) for name in (*_KEPT, IDENTITY, *_SETTLING)}
    found |= {ERROR_CODE: F.lit(ERASED), ERROR_DESCRIPTION: F.lit(_REASON)}
    return [
        found.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in MESSAGES_SCHEMA
    ]


def _with_claims(chosen: DataFrame, sequences: DataFrame) -> DataFrame:
    """The messages with the `identity` that each claims: of a sequence, its last part does."""
    of_wholes = sequences.where("message_id IS NOT NULL").select(
        *(F.col("last")[name].alias(name) for name in PLACE), F.col("message_id").alias("_whole")
    )
    found = chosen.join(of_wholes, [*PLACE], "left").withColumn(IDENTITY, F.coalesce(IDENTITY, "_whole"))
    return found.select(*PLACE, *_RECORD, "message_id", IDENTITY)


def _settling_messages(tables: Transaction, objects: DataFrame | None) -> DataFrame:
    """
    The messages by which objects came to be or went, and where each stood.

    A version of an object that existed is as good as a create from now on; what is refused changes nothing.
    """
    rows = read_rows(tables, NAMINGS, NAMINGS_SCHEMA)
    if objects is None:
        own = rows.limit(0)
    else:
        own = rows.where("named = object_uuid").join(objects, "object_uuid", "left_semi")
    refused = read_rows(tables, UNKNOWN, WHOLE_SCHEMA).select("message_id")
    is_version = (F.col("message_type") == UPDATE) & (F.size("objects") > 1)
    kind = F.when(is_version, CREATE).when(F.col("message_type").isin(CREATE, REMOVE), F.col("message_type"))
    right = own.join(refused, "message_id", "left_anti").withColumn("message_type", kind)
    found = right.where("message_type IS NOT NULL")
    return found.select(*(F.col(name).alias(f"_{name}") for name in _SAME), *_SETTLING[1:])


def _is_same_message() -> Column:
    return reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _SAME))


def _settling_value(names: ErasedNames, name: str) -> Column:
    """What is left of a column of a message by which an object came to be or went."""
    settles = F.col("object_uuid").isNotNull()
    value = names.other_name(F.col(name)) if name in ("message_id", "object_uuid") else F.col(name)
    return F.when(settles, value).alias(name)


def _known_messages(tables: Transaction, theirs: DataFrame, sequences: DataFrame) -> DataFrame:
    """By what messages are known to have come (`REPOSITORY`): the rows about these, but for other names."""
    rows = read_rows(tables, REPOSITORY, REPOSITORY_SCHEMA)
    ids = theirs.where(F.col(IDENTITY).isNotNull()).select(IDENTITY)
    of_parts = rows.join(sequences.select("sequence_id"), "sequence_id", "left_semi").select(IDENTITY)
    found = rows.join(ids.unionByName(of_parts).distinct(), IDENTITY, "left_semi").select(*rows.columns)
    names = ErasedNames.of(tables)
    if names is not None:
        others = names.rows.where(F.col("of") == MESSAGE).select(F.col("other_name").alias(IDENTITY))
        found = found.join(others, IDENTITY, "left_anti").select(*rows.columns)
    return tables.scratch(found)


def _new_names(
    objects: DataFrame | None, sequences: DataFrame, known: DataFrame, later: str | None
) -> DataFrame:
    """What is to be known by another name only."""
    some: list[tuple[DataFrame, str, str, str | None]]
    some = [(sequences, "sequence_id", SEQUENCE, None), (known, IDENTITY, MESSAGE, None)]
    if objects is not None:
        some.append((objects, "object_uuid", OBJECT, later))
    rows = (
        each.select(
            F.col(name).alias("name"), F.lit(of).alias("of"), F.lit(word).cast("string").alias("later")
        )
        for each, name, of, word in some
    )
    return reduce(DataFrame.unionByName, rows)


def _forget_namings(
    tables: Transaction, settings: Settings, objects: DataFrame, theirs: DataFrame
) -> list[ErasedPart]:
    """Let others name objects by their other names, and keep when these came to be and went."""
    if not tables.has(NAMINGS):
        return []
    about = objects.select(F.col("object_uuid").alias("named"))
    messages = tables.read(NAMINGS).join(about, "named", "left_semi").select("message_id").distinct()

    def rename(rows: DataFrame) -> DataFrame:
        others = rows.join(objects, "object_uuid", "left_anti").select(*rows.columns)
        return with_buckets(rename_objects(others, tables), settings)

    parts = rewrite_rows(tables, NAMINGS, messages, rename)
    left = existence(tables.read(MESSAGES).join(theirs.select(*PLACE), [*PLACE], "left_semi"))
    rows = with_buckets(namings(left).withColumn(TAKEN, F.lit(0).cast("long")), settings)
    tables.append(NAMINGS, rows.repartition(BUCKET), partition_by=[BUCKET])
    return parts


def _forget_known(tables: Transaction, settings: Settings, known: DataFrame) -> list[ErasedPart]:
    """Let it be known by other names only that messages came, or were sent."""
    found = rewrite_rows(tables, REPOSITORY, known.select(IDENTITY).distinct())
    names = ErasedNames.of(tables)
    if not found or names is None:
        return found
    other = names.other_name(F.col(IDENTITY))
    columns = {IDENTITY: other, "status": F.col("status"), BUCKET: settings.bucket(other)}
    rows = known.select(
        *(
            columns.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name)
            for each in REPOSITORY_SCHEMA
        )
    )
    tables.append(REPOSITORY, rows.repartition(BUCKET), partition_by=[BUCKET])
    return found
