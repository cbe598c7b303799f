"""Which objects exist, by what messages say of them; and versions: which object is a newer one of which."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.changes import DELETE, UPSERT, require_changes
from cdckit.model.history import DELETED, SOURCE_MESSAGE, VALID_FROM, require_history
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.parts.arguments import require_batch, require_columns, require_flag, require_int, require_types
from cdckit.parts.folded_rows import explode_rule, fold_rows, with_rule
from cdckit.parts.workers import compute_once
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.existence_rules import FAULTS, published_statements
from cdckit.rdss.findings import BODY, RdssFault, json_path
from cdckit.rdss.object_bodies import KEY, LINKS, RELATED, named_objects, version_pairs
from cdckit.rdss.objects import is_statement
from cdckit.rdss.validators import CREATE, UPDATE

_KEYED = T.StructType([T.StructField(KEY, T.StringType())])
_OBJECTS = T.StructType([*_KEYED.fields, T.StructField(RELATED, T.StringType())])
_LINKS = T.StructType([T.StructField(name, T.StringType()) for name in ("newer", "older")])


def version_links(objects: DataFrame) -> DataFrame:
    """
    Find which object is the next version of which, as the objects themselves say it.

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
    return explode_rule(objects, [], [KEY, RELATED], version_pairs, LINKS).distinct()


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
        longer_count = longer.count()
        if longer_count == count:
            return pairs
        pairs, count = longer, longer_count
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
    ids = objects.select(KEY).distinct()
    alone = ids.join(replaced, ids[KEY] == replaced["latest"], how="left_anti")
    behind = ids.join(ancestry.select(F.col("older").alias(KEY)).distinct(), on=KEY, how="left_semi")
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
    held_objects = objects.select(KEY).distinct()
    of_newer = ancestry.selectExpr(f"newer AS {KEY}", "older AS held", "true AS is_older")
    of_older = ancestry.selectExpr(f"older AS {KEY}", "newer AS held", "false AS is_older")
    both = of_newer.unionByName(of_older).join(held_objects, on=KEY, how="left_anti")
    related = both.join(held_objects.withColumnRenamed(KEY, "held"), on="held", how="left_semi")
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


def with_unknown(
    decoded: DataFrame, *, known_objects: DataFrame | None = None, keeps_deleted: bool = False
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
            verdict each time, also where *known_objects* have it already.
        known_objects: What was known before: a history of research objects, or changes of them (of the kind
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
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned; or *known_objects* are
            neither a history nor changes of research objects.

    Cost: the ids of the messages are shuffled by object, with what is known of them; those about objects
        that are versions of each other go through one task.  The messages themselves are joined with the
        ids of those that are wrong.

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
    wrong = _unknown_statements(decoded, known_objects, keeps_deleted)
    places = wrong.select(
        *(F.col(name).alias(f"_{name}") for name in _RECORD), F.lit(True).alias("_is_wrong")
    )
    same = reduce(Column.__and__, (F.col(name).eqNullSafe(F.col(f"_{name}")) for name in _RECORD))
    is_wrong = is_statement(*FAULTS) & F.col("_is_wrong").isNotNull()
    compared = decoded.join(places, same, "left")
    columns = {
        name: F.when(is_wrong, text).otherwise(F.col(name))
        for name, text in object_fault(F.col("object_uuid")).items()
    }
    return compared.withColumns(columns).select(*decoded.columns)


# A topic that was made anew counts its offsets from 0 again: its records hold other messages.
_RECORD = ("topic", "partition", "offset", "message_id")
_ARRIVAL = ("timestamp", *_RECORD)


def _unknown_statements(
    decoded: DataFrame, known_objects: DataFrame | None, keeps_deleted: bool
) -> DataFrame:
    """The messages about unknown objects: one row for each, its `_RECORD`."""
    light = (*_ARRIVAL, "message_type", "published_timestamp", "object_uuid")
    body = F.when(F.col("message_type") == UPDATE, F.col("body")).alias("body")
    messages = decoded.where(is_statement(CREATE, *FAULTS)).select(*light, body)
    reads = ["message_type", "object_uuid", "body"]
    named = with_rule(messages, light, reads, _list_objects, pa.schema([_OBJECT_LIST]))
    statements = named.withColumns({"is_message": F.lit(True), "known": F.lit(None).cast("boolean")})
    if known_objects is not None:
        before = _known_instants(known_objects).withColumn("is_message", F.lit(False))
        statements = statements.unionByName(before, allowMissingColumns=True)
    # Versions of each other are looked at together, all others object by object.
    linked = statements.where(F.size("objects") > 1).select(F.explode("objects").alias("object_uuid"))
    is_linked = linked.distinct().withColumn("is_linked", F.lit(True))
    family = F.when(F.col("is_linked").isNull(), F.col("object_uuid"))
    statements = statements.join(is_linked, "object_uuid", "left").withColumn("family", family)
    # At one instant, what was known before stands first.
    order = ("published_timestamp", "is_message", *_ARRIVAL)
    plan = published_statements(keeps_deleted)
    verdicts = fold_rows(statements, plan, keeps=_RECORD, order=order)
    return verdicts.where("is_wrong").select(*_RECORD).distinct()


_OBJECT_LIST = pa.field("objects", pa.list_(pa.string()))


def _list_objects(message_type: str, object_uuid: str, body: str | None) -> tuple[list[str]]:
    return (named_objects(message_type, object_uuid, body),)


def _known_instants(known_objects: DataFrame) -> DataFrame:
    """The instants at which known objects came to be, changed or went."""
    if "operation" in known_objects.columns:
        require_changes(known_objects, function="with_unknown")
        key = F.col("data").getField(KEY)
        at, message, exists = "effective_timestamp", "message_id", F.col("operation") == UPSERT
        known_objects = known_objects.where(F.col("operation").isin(UPSERT, DELETE))
    else:
        require_columns(known_objects, [KEY], function="with_unknown")
        known_objects = require_history(
            known_objects, VALID_FROM, DELETED, SOURCE_MESSAGE, function="with_unknown"
        )
        key, at, message, exists = F.col(KEY), VALID_FROM, SOURCE_MESSAGE, ~F.col(DELETED)
    return known_objects.select(
        key.alias("object_uuid"),
        F.array(key).alias("objects"),
        F.col(at).alias("published_timestamp"),
        F.col(message).alias("message_id"),
        exists.alias("known"),
    )


def object_fault(about: Column) -> dict[str, Column]:
    """The verdict on a message *about* an unknown object: what its columns have then."""
    place = f" At {json_path((*BODY, KEY))}: no object "
    return {
        "queue": _text_by_type(lambda fault: fault.queue.value),
        ERROR_CODE: _text_by_type(lambda fault: fault.value),
        ERROR_DESCRIPTION: F.concat(
            _text_by_type(lambda fault: f"{fault.describe()}{place}"),
            about,
            F.lit(" was known when the message was published."),
        ),
    }


def _text_by_type(text: Callable[[RdssFault], str]) -> Column:
    """Say something of a message by its type."""
    return F.coalesce(*(F.when(F.col("message_type") == name, text(fault)) for name, fault in FAULTS.items()))
