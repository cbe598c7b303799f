"""RDSS, "Digital Object Versioning": which object is a newer version of which."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.parts.argument_forms import ABOVE_ZERO, no_stream, rows_of, takes
from cdckit.parts.folded_rows import explode_rule
from cdckit.parts.workers import compute_once
from cdckit.rdss.object_bodies import KEY, LINKS, RELATED, version_pairs

_KEYED = T.StructType([T.StructField(KEY, T.StringType())])
_OBJECTS = T.StructType([*_KEYED.fields, T.StructField(RELATED, T.StringType())])
_LINKS = T.StructType([T.StructField(name, T.StringType()) for name in ("newer", "older")])
_WITH_KEY = rows_of(_KEYED, "{} have no `objectUUID`, or not as text")
_ANCESTRY = rows_of(_LINKS, "{} is none")


@takes(objects=rows_of(_OBJECTS, "{} lack these columns, or not as text"))
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
    return explode_rule(objects, [], [KEY, RELATED], version_pairs, LINKS).distinct()


@takes(links=[rows_of(_LINKS, "{} are none"), no_stream("link what is kept of it")], rounds=ABOVE_ZERO)
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
        InvalidArgument: *rounds* are too few for the longest chain.

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
    raise InvalidArgument(None, "rounds", needed, rounds)


def _with_longer(pairs: DataFrame) -> DataFrame:
    """The pairs, and those of twice the distance."""
    above = pairs.selectExpr("newer", "older AS between", "steps AS first_steps")
    below = pairs.selectExpr("newer AS between", "older", "steps AS further_steps")
    steps = (F.col("first_steps") + F.col("further_steps")).alias("steps")
    longer = above.join(below, on="between", how="inner").select("newer", "older", steps)
    return pairs.unionByName(longer).groupBy("newer", "older").agg(F.min("steps").alias("steps"))


@takes(objects=_WITH_KEY, ancestry=_ANCESTRY)
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
    replaced = ancestry.select(F.col("older").alias("latest")).distinct()
    ends = ancestry.withColumnRenamed("newer", "latest").join(replaced, on="latest", how="left_anti")
    ids = objects.select(KEY).distinct()
    alone = ids.join(replaced, ids[KEY] == replaced["latest"], how="left_anti")
    behind = ids.join(ancestry.select(F.col("older").alias(KEY)).distinct(), on=KEY, how="left_semi")
    later = behind.join(ends.withColumnRenamed("older", KEY), on=KEY, how="left")
    itself = alone.select(KEY, F.col(KEY).alias("latest"), F.lit(0).alias("steps"))
    return itself.unionByName(later.select(KEY, "latest", "steps"))


@takes(objects=_WITH_KEY, ancestry=_ANCESTRY)
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


@takes(ancestry=_ANCESTRY)
def find_version_cycles(ancestry: DataFrame) -> DataFrame:
    """
    Versions that are before each other, which cannot be: somebody's links are wrong.

    Args:
        ancestry: What `version_ancestry` returned.

    Returns:
        One row per cycle, or per knot of several: `versions`, the objects in it, sorted.  An object that
        says that it is a version of itself is one alone.

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
    turned = ancestry.selectExpr("older AS newer", "newer AS older")
    mutual = ancestry.select("newer", "older").join(turned, on=["newer", "older"], how="inner")
    members = F.array_sort(F.collect_set("older")).alias("versions")
    return mutual.groupBy("newer").agg(members).select("versions").distinct()
