"""What messages say of the existence of objects, without all else that they hold."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_types
from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rdss.object_types import RELATED
from cdckit.rdss.statements import CREATE, READ, REMOVE, UPDATE, is_statement
from cdckit.rdss.version_chains import related_versions, relations

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

    >>> said = namings(decoded).select("message_type", F.left("named", F.lit(8)).alias("named"))
    >>> said.orderBy("message_type").show()
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
