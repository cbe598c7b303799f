"""Which objects exist, by what messages say of them; and versions: which object is a newer one of which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.changes import ARRIVAL_TYPE, DELETE, UPSERT, require_changes
from cdckit.model.history import DELETED, SOURCE_MESSAGE, VALID_FROM, require_history
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arguments import require_batch, require_columns, require_flag, require_int, require_types
from cdckit.parts.workers import WorkerPlan, compute_once
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.findings import BODY, RdssFault, json_path
from cdckit.rdss.objects import CREATE, KEY, READ, RELATED, REMOVE, UPDATE, is_statement

IS_NEWER = "isNewVersionOf"
IS_OLDER = "isPreviousVersionOf"

_RELATIONS = (
    "array<struct<relationType string, identifier struct<identifierType string, identifierValue string>>>"
)
_UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

_KEYED = T.StructType([T.StructField(KEY, T.StringType())])
_OBJECTS = T.StructType([*_KEYED.fields, T.StructField(RELATED, T.StringType())])
_LINKS = T.StructType([T.StructField(name, T.StringType()) for name in ("newer", "older")])


def version_links(objects: DataFrame) -> DataFrame:
    """
    Which object is the next version of which, as the objects themselves say it.

    Args:
        objects: One row per object, or per version of one in a history: `objectUUID`, and
            `objectRelatedIdentifier` as JSON text.  Of a history, `cdckit.current` or `cdckit.as_of` gives
            what was said at one time; all of it gives what was ever said.

    Returns:
        One row per pair of objects, whoever of the two said it and how often: `newer`, `older`.  An
        object says `isNewVersionOf` of one before it, `isPreviousVersionOf` of one after it.
        Relations to what is no `objectUUID` (a DOI, for instance) are passed over; `urn:uuid:` before one is
        read, and large letters are.

    Raises:
        MissingColumns, WrongColumnType: *objects* lack these columns, or not as text.

    Cost: the relations are read as JSON; one shuffle of the pairs.

    Source:
        RDSS, "Digital Object Versioning".

    >>> first, second = "00000001-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000"
    >>> of_first = '[{"relationType": "isNewVersionOf", "identifier": {"identifierValue": "%s"}}]' % first
    >>> objects = session().createDataFrame(
    ...     [(first, None), (second, of_first)], "objectUUID string, objectRelatedIdentifier string"
    ... )
    >>> version_links(objects).select(F.left("newer", F.lit(8)), F.left("older", F.lit(8))).collect()
    [Row(left(newer, 8)='00000002', left(older, 8)='00000001')]
    """
    require_types(objects, _OBJECTS, function="version_links")
    relation = F.explode(F.from_json(RELATED, _RELATIONS)).alias("relation")
    kind = F.col("relation.relationType")
    own_relations = objects.select(F.col(KEY).alias("own"), relation).select(
        "own",
        _named_object(F.col("relation")).alias("other"),
        (kind == IS_NEWER).alias("is_newer"),
        (kind == IS_OLDER).alias("is_older"),
    )
    links = own_relations.where((F.col("is_newer") | F.col("is_older")) & F.col("other").rlike(_UUID))
    newer = F.when(F.col("is_newer"), F.col("own")).otherwise(F.col("other"))
    older = F.when(F.col("is_newer"), F.col("other")).otherwise(F.col("own"))
    return links.select(newer.alias("newer"), older.alias("older")).distinct()


def relations(body: Column) -> Column:
    """Of an object's text, its relations to others."""
    return F.from_json(body, f"{RELATED} {_RELATIONS}").getField(RELATED)


def related_versions(body: Column, own: Column) -> Column:
    """Of an object's text, the objects that it says it is the next or the previous version of; never null."""
    versions = F.filter(relations(body), lambda each: each.getField("relationType").isin(IS_NEWER, IS_OLDER))
    named = F.transform(versions, _named_object)
    return F.coalesce(F.filter(named, lambda each: each.rlike(_UUID) & (each != own)), F.array())


def _named_object(relation: Column) -> Column:
    """The object that a relation leads to, if it leads to one."""
    value = relation.getField("identifier").getField("identifierValue")
    return F.regexp_replace(F.lower(F.trim(value)), "^urn:uuid:", "")


def version_ancestry(links: DataFrame, *, rounds: int = 10) -> DataFrame:
    """
    Every version with all versions before it, however many stand between them.

    The versions before one are `ancestry.where(F.col("newer") == one)`, those after it
    `ancestry.where(F.col("older") == one)`.  An object may have several next versions, and several before it;
    in a cycle each is before itself.

    Args:
        links: One row per pair: `newer`, `older`, both not null; as `version_links` makes them.
        rounds: How often the distance is doubled: ten are enough for 1,024 versions in a row.

    Returns:
        One row per pair: `newer`, `older`, and `steps`, the smallest number of links between them.

    Raises:
        InvalidArgument: *rounds* are too few for the longest chain, or no number above zero; or *links* are
            a stream.
        MissingColumns, WrongColumnType: *links* are none.

    Cost: this one runs when it is called: a join of the pairs with themselves for each doubling of the
    longest chain, and once more; their number grows with the square of a chain's length.

    Source:
        RDSS, "Digital Object Versioning".

    >>> links = session().createDataFrame([("c", "b"), ("b", "a")], "newer string, older string")
    >>> version_ancestry(links).orderBy("newer", "older").show()
    +-----+-----+-----+
    |newer|older|steps|
    +-----+-----+-----+
    |    b|    a|    1|
    |    c|    a|    2|
    |    c|    b|    1|
    +-----+-----+-----+
    <BLANKLINE>
    """
    require_types(links, _LINKS, function="version_ancestry")
    require_batch(links, "links", "link what is kept of it", function="version_ancestry")
    if require_int(rounds, "rounds", function="version_ancestry") < 1:
        raise InvalidArgument("version_ancestry", "rounds", "a number above zero", rounds)
    first = links.select("newer", "older", F.lit(1).alias("steps")).distinct()
    pairs = compute_once(first)
    if pairs is None:
        return first
    count = pairs.count()
    for _ in range(rounds + 1):
        longer = compute_once(_with_longer(pairs))
        assert longer is not None
        found = longer.count()
        if found == count:
            return pairs
        pairs, count = longer, found
    needed = f"enough for the longest chain, which is longer than {2**rounds:,} links"
    raise InvalidArgument("version_ancestry", "rounds", needed, rounds)


def _with_longer(pairs: DataFrame) -> DataFrame:
    """The pairs, and those of twice the distance."""
    above = pairs.selectExpr("newer", "older AS between", "steps AS first_steps")
    below = pairs.selectExpr("newer AS between", "older", "steps AS further_steps")
    steps = (F.col("first_steps") + F.col("further_steps")).alias("steps")
    longer = above.join(below, on="between", how="inner").select("newer", "older", steps)
    return pairs.unionByName(longer).groupBy("newer", "older").agg(F.min("steps").alias("steps"))


def latest_versions(objects: DataFrame, ancestry: DataFrame) -> DataFrame:
    """
    The latest version of each object: the one after it that has none after itself.

    Args:
        objects: One row per object, or per version of one in a history: `objectUUID`.
        ancestry: What `version_ancestry` returned.

    Returns:
        One row per object and latest version: `objectUUID`, `latest`, and `steps`, how many versions the
        object is behind.  An object without a newer version is its own latest, 0 steps behind.  If
        the chain has parted, each end is a latest version; if it only runs in a cycle, `latest` is null
        (see `find_version_cycles`).  A latest version may be none of *objects* (see `missed_versions`).

    Raises:
        MissingColumns, WrongColumnType: *objects* have no `objectUUID`, or *ancestry* is none.

    Cost: joins by object, no more than the pairs with each other.

    >>> links = session().createDataFrame([("c", "b"), ("b", "a")], "newer string, older string")
    >>> objects = session().createDataFrame([("a",), ("b",), ("x",)], "objectUUID string")
    >>> latest_versions(objects, version_ancestry(links)).orderBy("objectUUID").show()
    +----------+------+-----+
    |objectUUID|latest|steps|
    +----------+------+-----+
    |         a|     c|    2|
    |         b|     c|    1|
    |         x|     x|    0|
    +----------+------+-----+
    <BLANKLINE>
    """
    _require_both(objects, ancestry, function="latest_versions")
    replaced = ancestry.select(F.col("older").alias("latest")).distinct()
    ends = ancestry.withColumnRenamed("newer", "latest").join(replaced, on="latest", how="left_anti")
    own = objects.select(KEY).distinct()
    alone = own.join(replaced, own[KEY] == replaced["latest"], how="left_anti")
    behind = own.join(ancestry.select(F.col("older").alias(KEY)).distinct(), on=KEY, how="left_semi")
    later = behind.join(ends.withColumnRenamed("older", KEY), on=KEY, how="left")
    itself = alone.select(KEY, F.col(KEY).alias("latest"), F.lit(0).alias("steps"))
    return itself.unionByName(later.select(KEY, "latest", "steps"))


def missed_versions(objects: DataFrame, ancestry: DataFrame) -> DataFrame:
    """
    The versions that somebody has missed, of the objects that he has: what to catch up on.

    Args:
        objects: What he has: one row per object, or per version of one in a history: `objectUUID`.
        ancestry: What `version_ancestry` returned: of his own objects, whose links may lead to what he has
            not; or of others', such as of a producer that has published its objects anew.

    Returns:
        One row per object that he has not, and that is before or after one that he has: `objectUUID`;
        `held_older` and `held_newer`, the objects that he has before and after it, sorted.  Where
        `held_newer` is empty he is behind; otherwise there is a gap.

    Raises:
        MissingColumns, WrongColumnType: *objects* have no `objectUUID`, or *ancestry* is none.

    Cost: joins by object, and a shuffle of the pairs found.

    Source:
        RDSS, "Digital Object Versioning" ("catch up" with missed messages).

    >>> links = session().createDataFrame([("c", "b"), ("b", "a")], "newer string, older string")
    >>> objects = session().createDataFrame([("a",)], "objectUUID string")
    >>> missed_versions(objects, version_ancestry(links)).orderBy("objectUUID").show()
    +----------+----------+----------+
    |objectUUID|held_older|held_newer|
    +----------+----------+----------+
    |         b|       [a]|        []|
    |         c|       [a]|        []|
    +----------+----------+----------+
    <BLANKLINE>
    """
    _require_both(objects, ancestry, function="missed_versions")
    known = objects.select(KEY).distinct()
    of_newer = ancestry.selectExpr(f"newer AS {KEY}", "older AS held", "true AS is_older")
    of_older = ancestry.selectExpr(f"older AS {KEY}", "newer AS held", "false AS is_older")
    both = of_newer.unionByName(of_older).join(known, on=KEY, how="left_anti")
    related = both.join(known.withColumnRenamed(KEY, "held"), on="held", how="left_semi")
    older, newer = (F.when(condition, F.col("held")) for condition in (F.col("is_older"), ~F.col("is_older")))
    return related.groupBy(KEY).agg(
        F.array_sort(F.collect_set(older)).alias("held_older"),
        F.array_sort(F.collect_set(newer)).alias("held_newer"),
    )


def find_version_cycles(ancestry: DataFrame) -> DataFrame:
    """
    Versions that are before each other, which cannot be: somebody's links are wrong.

    Args:
        ancestry: What `version_ancestry` returned.

    Returns:
        One row per cycle, or per knot of several: `versions`, the objects in it, sorted.  An object that
        says that it is a version of itself is one alone.

    Raises:
        MissingColumns, WrongColumnType: *ancestry* is none.

    Cost: a join of the pairs with themselves, and two shuffles.

    >>> links = session().createDataFrame([("b", "a"), ("a", "b"), ("c", "b")], "newer string, older string")
    >>> find_version_cycles(version_ancestry(links)).show()
    +--------+
    |versions|
    +--------+
    |  [a, b]|
    +--------+
    <BLANKLINE>
    """
    require_types(ancestry, _LINKS, function="find_version_cycles")
    turned = ancestry.selectExpr("older AS newer", "newer AS older")
    mutual = ancestry.select("newer", "older").join(turned, on=["newer", "older"], how="inner")
    members = F.array_sort(F.collect_set("older")).alias("versions")
    return mutual.groupBy("newer").agg(members).select("versions").distinct()


def _require_both(objects: DataFrame, ancestry: DataFrame, *, function: str) -> None:
    require_types(objects, _KEYED, function=function)
    require_types(ancestry, _LINKS, function=function)


_LIGHT = (
    *("topic", "partition", "offset", "timestamp", "message_id", "message_class", "message_type"),
    *("published_timestamp", "object_uuid", "body"),
)

NAMING_SCHEMA = T.StructType(
    [
        T.StructField("named", T.StringType()),
        T.StructField("objects", T.ArrayType(T.StringType())),
        *(DECODED_SCHEMA[name] for name in _LIGHT),
    ]
)
"""One row is one message and an object that must exist for it, or does through it (`named`); `objects` are
all of these.  `body` holds of the body what is read of it: the relations to other objects."""


def namings(decoded: DataFrame) -> DataFrame:
    """
    Which objects each message about one names: its own, and those of which it is a version.

    These rows are all that `with_unknown` needs (see `as_decoded`), and small: they can be kept, and found
    again by object.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid creates, updates, deletes and
            requests to read is passed over.

    Returns:
        One row per message and object (`NAMING_SCHEMA`).

    Raises:
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: the relations of updates are read as JSON, no shuffle.

    >>> named = namings(decoded).select("message_type", F.left("named", F.lit(8)).alias("named"))
    >>> named.orderBy("message_type").show()
    +--------------+--------+
    |  message_type|   named|
    +--------------+--------+
    |MetadataCreate|00000384|
    |MetadataDelete|00000384|
    |MetadataUpdate|00000384|
    +--------------+--------+
    <BLANKLINE>
    """
    require_types(decoded, DECODED_SCHEMA, function="namings")
    is_update = is_statement(UPDATE)
    related = F.when(is_update, related_versions(F.col("body"), F.col("object_uuid")))
    own, none = F.array("object_uuid"), F.array().cast("array<string>")
    light = decoded.where(is_statement(CREATE, UPDATE, REMOVE, READ)).select(
        F.array_distinct(F.concat(own, F.coalesce(related, none))).alias("objects"),
        *_LIGHT[:-1],
        F.when(is_update, F.to_json(F.struct(relations(F.col("body")).alias(RELATED)))).alias("body"),
    )
    return light.select(F.explode("objects").alias("named"), "*")


def as_decoded(namings: DataFrame) -> DataFrame:
    """
    The messages of such rows, each once, in the columns of `decode`: null but for what they hold.

    Raises:
        MissingColumns, WrongColumnType: *namings* are none.

    Cost: one shuffle by message.

    >>> as_decoded(namings(decoded)).count()
    3
    """
    require_types(namings, NAMING_SCHEMA, function="as_decoded")
    once = namings.dropDuplicates(["message_id"])
    return once.select(
        *(
            F.col(field.name) if field.name in _LIGHT else F.lit(None).cast(field.dataType).alias(field.name)
            for field in DECODED_SCHEMA
        )
    )


_CODES = {
    UPDATE: RdssFault.UPDATE_OF_UNKNOWN,
    REMOVE: RdssFault.DELETE_OF_UNKNOWN,
    READ: RdssFault.READ_OF_UNKNOWN,
}

UNKNOWN_CODES = tuple(code.value for code in _CODES.values())
"""The codes of what is about an unknown object."""

_HELP = ("versions", "place", "asked", "is_own", "is_message", "settles", "settled", "by", "wrong")
_WRONG = T.StructType([T.StructField("message_id", T.StringType())])


def with_unknown(
    decoded: DataFrame, *, known: DataFrame | None = None, keeps_deleted: bool = False
) -> DataFrame:
    """
    Give the messages about unknown objects their verdict: APPERRMET001 to 003.

    Whether an object exists is settled by the last create or delete of it that was published before the
    message; of messages of one instant, that which arrived before.  So it does not depend on how the
    messages were batched.  A create never is an error: an object that is known to some already, and
    becomes public, comes as a create.

    Each version of an object has an `objectUUID` of its own, and comes as an update.  So an update is right
    too if it says, by isNewVersionOf or isPreviousVersionOf, that it is a version of an object that exists.
    Its own object exists from then on.  One that is refused makes no object exist, so a chain of versions
    that leads to no create is refused whole, until the create comes.

    Args:
        decoded: What `decode` returned, its sequences assembled.  A message that comes twice has the same
            verdict each time, also where *known* has it already.
        known: What was known before: a history of research objects, or changes of them (of the kind
            `ResearchObject`); without it, nothing.
        keeps_deleted: Whether an object that was deleted can be updated, deleted and read all the same, as
            in a preservation system, which keeps what it has.

    Returns:
        The same rows: valid updates, deletes and reads of unknown objects have `queue`, `error_code` and
        `error_description` now.  So `cdckit.rejects`, `queue_records` and `changes` treat them as refused.
        They
        can heal: a create that comes late, and was published before them, makes them right.

    Raises:
        InvalidArgument: *decoded* is a stream, or *keeps_deleted* is no bool.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned; or *known* is neither a
            history nor changes of research objects.

    Cost: two shuffles of the messages: by object, with what is known of them, and by record.  The ids of the
        updates that are versions of others, and which they follow, go through one task.

    Source:
        RDSS, "Metadata Error Codes", "Metadata Update", "Digital Object Versioning".

    >>> later = decoded.where("message_type != 'MetadataCreate'").orderBy("offset")
    >>> with_unknown(later).select("message_type", "queue", "error_code").show()
    +--------------+-------+------------+
    |  message_type|  queue|  error_code|
    +--------------+-------+------------+
    |MetadataUpdate|invalid|APPERRMET001|
    |MetadataDelete|invalid|APPERRMET002|
    +--------------+-------+------------+
    <BLANKLINE>
    """
    require_types(decoded, DECODED_SCHEMA, function="with_unknown")
    require_batch(decoded, "decoded", "decode each batch (foreachBatch)", function="with_unknown")
    require_flag(keeps_deleted, "keeps_deleted", function="with_unknown")
    judged_rows = _with_existence(decoded, known, keeps_deleted)
    unknown = is_statement(*_CODES) & ~F.col("existed")
    verdict = {
        "queue": _text_by_type(lambda code: code.queue.value),
        ERROR_CODE: _text_by_type(lambda code: code.value),
        ERROR_DESCRIPTION: _description(),
    }
    judged = {name: F.when(unknown, text).otherwise(F.col(name)) for name, text in verdict.items()}
    return judged_rows.withColumns(judged).drop("existed")


def find_unknown(
    decoded: DataFrame, *, known: DataFrame | None = None, keeps_deleted: bool = False
) -> DataFrame:
    """
    The messages about objects that do not exist: updates, deletes and reads.

    Args:
        decoded: As for `with_unknown`.
        known: As for `with_unknown`.
        keeps_deleted: As for `with_unknown`.

    Returns:
        Those rows of *decoded*, with their verdict: APPERRMET001 for an update, 002 for a delete, 003 for a
        read.  Rows that `decode` refused are not among them.

    Raises:
        InvalidArgument, MissingColumns, WrongColumnType: As for `with_unknown`.

    Cost: as for `with_unknown`.

    >>> find_unknown(decoded).count()
    0
    """
    judged = with_unknown(decoded, known=known, keeps_deleted=keeps_deleted)
    return judged.where(F.col(ERROR_CODE).isin(*UNKNOWN_CODES))


def _with_existence(decoded: DataFrame, known: DataFrame | None, keeps_deleted: bool) -> DataFrame:
    """Each message, and whether its object existed before it: `existed`."""
    statements = _with_needed_objects(decoded).withColumns(
        {"settles": _existence_after(keeps_deleted), "is_message": F.lit(True)}
    )
    if known is not None:
        before = _known_instants(known).withColumn("is_message", F.lit(False))
        kept = before.where("settles.exists") if keeps_deleted else before
        statements = statements.unionByName(kept, allowMissingColumns=True)
    # What names no object is of none: each such row is looked at alone, not all of them by one task.
    # A topic that was made anew counts its offsets from 0 again: its records hold other messages.
    record = ("topic", "partition", "offset", "message_id")
    entity = F.coalesce("asked", F.to_json(F.struct(*record)))
    arrival = [name for name in ARRIVAL_TYPE.fieldNames() if name != "record_number"]
    # At one instant, what was known before stands first.
    in_order = Window.partitionBy(entity).orderBy("published_timestamp", "is_message", *arrival, "message_id")
    before_it = in_order.rowsBetween(Window.unboundedPreceding, -1)
    settled = F.last("settles", ignorenulls=True).over(before_it)
    # A message that comes again, or is known already, is as right as it was the first time.
    same = Window.partitionBy(entity, "message_id").orderBy("is_message", "published_timestamp", *arrival)
    first = F.first("settled").over(same.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    settled_rows = statements.withColumn("settled", settled).withColumn("settled", first).where("is_message")
    place = F.struct("published_timestamp", *arrival, "message_id")
    wrong = _unfounded_updates(settled_rows.withColumn("at", place)).select(
        F.col("message_id").alias("by"), F.lit(True).alias("wrong")
    )
    followed = settled_rows.withColumn("by", F.col("settled.by")).join(wrong, "by", "left")
    is_followed = F.col("by").isNotNull() & F.col("wrong").isNull()
    existed = F.coalesce(F.col("settled.exists"), is_followed)
    any_of_them = F.max(existed).over(Window.partitionBy(*record))
    return followed.withColumn("existed", any_of_them).where("is_own").drop(*_HELP)


def _unfounded_updates(verdicts: DataFrame) -> DataFrame:
    """The ids of the updates that are versions of others, none of which existed: they make nothing exist."""
    linked = (
        verdicts.where(F.size("versions") > 0)
        .groupBy("message_id")
        .agg(
            F.min("at").alias("at"),
            F.coalesce(F.max("settled.exists"), F.lit(False)).alias("is_right"),
            F.collect_set("settled.by").alias("follows"),
        )
    )
    undecided = linked.where("NOT is_right").repartition(1).sortWithinPartitions("at")
    return WorkerPlan(undecided.select("message_id", "follows"), _find_wrong, _WRONG).rows()


def _find_wrong(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each update comes after those that it follows; of which those that are not here are right."""
    wrong: set[str] = set()
    for batch in batches:
        ids, follows = (batch.column(place).to_pylist() for place in (0, 1))
        found = [each for each, before in zip(ids, follows, strict=True) if _is_wrong(each, before, wrong)]
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.string())], names=_WRONG.fieldNames())


def _is_wrong(message_id: str, follows: Iterable[str], wrong: set[str]) -> bool:
    if wrong.issuperset(follows):
        wrong.add(message_id)
        return True
    return False


def _with_needed_objects(decoded: DataFrame) -> DataFrame:
    """One row per message and object of which one must exist: its own, and those it is a version of."""
    versions = F.when(is_statement(UPDATE), related_versions(F.col("body"), F.col("object_uuid")))
    with_versions = decoded.withColumn("versions", F.coalesce(versions, F.array().cast("array<string>")))
    objects = F.concat(F.array("object_uuid"), F.array_distinct("versions"))
    spread = with_versions.select("*", F.posexplode(objects).alias("place", "asked"))
    is_own = F.col("place") == 0
    # What is large travels once.
    large = {name: F.when(is_own, F.col(name)) for name in ("key", "value", "body", "headers")}
    return spread.withColumns({**large, "is_own": is_own})


def _existence_after(keeps_deleted: bool) -> Column:
    """Whether the object exists after a message, or `by` which update it does if that is right; or null."""
    by_version = F.size("versions") > 0
    is_own = F.col("is_own")
    found = F.when(is_own & is_statement(CREATE), _settle(F.lit(True)))
    found = found.when(is_own & by_version, _settle(F.lit(None), F.col("message_id")))
    return found if keeps_deleted else found.when(is_own & is_statement(REMOVE), _settle(F.lit(False)))


def _settle(exists: Column, by: Column | None = None) -> Column:
    return F.struct(
        exists.cast("boolean").alias("exists"),
        (F.lit(None) if by is None else by).cast("string").alias("by"),
    )


def _known_instants(known: DataFrame) -> DataFrame:
    """The instants at which known objects came to be, changed or went."""
    if "operation" in known.columns:
        require_changes(known, function="with_unknown")
        key = F.col("data").getField(KEY)
        at, message, exists = "effective_timestamp", "message_id", F.col("operation") == UPSERT
        known = known.where(F.col("operation").isin(UPSERT, DELETE))
    else:
        require_columns(known, [KEY], function="with_unknown")
        known = require_history(known, VALID_FROM, DELETED, SOURCE_MESSAGE, function="with_unknown")
        key, at, message, exists = F.col(KEY), VALID_FROM, SOURCE_MESSAGE, ~F.col(DELETED)
    return known.select(
        key.alias("asked"),
        F.col(at).alias("published_timestamp"),
        F.col(message).alias("message_id"),
        _settle(exists).alias("settles"),
    )


def _text_by_type(text: Callable[[RdssFault], str]) -> Column:
    """What is said of a message by its type."""
    chosen = [F.when(F.col("message_type") == name, F.lit(text(code))) for name, code in _CODES.items()]
    return F.coalesce(*chosen)


def _description() -> Column:
    place = f"At {json_path((*BODY, KEY))}: "
    return F.concat(
        _text_by_type(RdssFault.describe),
        F.lit(f" {place}no object "),
        F.col("object_uuid"),
        F.lit(" was known when the message was published."),
    )
