"""The guid of an entity: a UUIDv5 of its name and key, computed and never looked up."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "cdckit")

# Spelled out because Spark's defaults follow the session's zone, and a guid must not.
_JSON_OPTIONS = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    # Spark's own cuts a timestamp without a zone to milliseconds: two keys would share a guid.
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}


def guid(entity: str, key: Mapping[str, Column]) -> Column:
    """
    The identifier of the entity with that key: the same on every machine and in every run.

    It is the version 5 UUID, in the namespace `NAMESPACE`, of the compact JSON text
    `{"entity": …, "key": {…}}`: keys in the order given, parts that are null left out, instants in
    UTC and local timestamps with six decimals, binary in base64.

    Args:
        entity: The name of the kind of entity: equal keys of two kinds have two guids.
        key: The key columns by name.  A number and the text of that number are different keys.

    Cost: one SHA-1 a row, in the JVM.

    Source:
        RFC 9562, section 5.5.

    >>> session().range(1).select(guid("product", {"product_number": F.lit(1234567)})).first()[0]
    'e5d2e9d5-3392-53e3-8df4-cbded0d4a616'
    >>> str(uuid.uuid5(NAMESPACE, '{"entity":"product","key":{"product_number":1234567}}'))
    'e5d2e9d5-3392-53e3-8df4-cbded0d4a616'
    """
    parts = F.struct(*(column.alias(name) for name, column in key.items()))
    name = F.to_json(F.struct(F.lit(entity).alias("entity"), parts.alias("key")), _JSON_OPTIONS)
    digest = F.sha1(F.concat(F.lit(NAMESPACE.bytes), F.encode(name, "utf-8")))
    # The 13th hex digit is the version; the top two bits of the 17th are the variant, 10.
    variant = F.translate(F.substring(digest, 17, 1), "0123456789abcdef", "89ab89ab89ab89ab")
    return F.concat(
        F.substring(digest, 1, 8),
        F.lit("-"),
        F.substring(digest, 9, 4),
        F.lit("-5"),
        F.substring(digest, 14, 3),
        F.lit("-"),
        variant,
        F.substring(digest, 18, 3),
        F.lit("-"),
        F.substring(digest, 21, 12),
    )
