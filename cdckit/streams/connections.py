"""Connections: which user came with which device and version of the application, and when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.parts.schemas import require_types
from cdckit.rejected import ERROR_CODE
from cdckit.streams.catalogue import CONNECTIONS

CONNECTION_SCHEMA = CONNECTIONS.columns()
"""The fields of a connection."""


def user_devices(connections: DataFrame) -> DataFrame:
    """
    The devices of each user, when each was used first and last, and with which version of the application
    last.

    Args:
        connections: What `decode` returned of `CONNECTIONS`; rows in error are passed over.

    Returns:
        One row per database, user and device: `first_used` and `last_used` (timestamps, of `begun`),
        `connections` (how many), `app_version` (of the last one; of several at one instant the greatest).

    Raises:
        MissingColumns, WrongColumnType: These are no connections.

    Cost: one aggregation.

    Source:
        Debezium streams, "connections".

    >>> from cdckit import streams
    >>> said = b'{"db": "s", "clientid": "c", "user": "ann", "device": "d", "appVersion": "%s", "begun": %d}'
    >>> came = streams.decode(records_of(said % (b"1.1", 9000), said % (b"1.0", 1000)), streams.CONNECTIONS)
    >>> user_devices(came).select("user", "device", "first_used", "app_version", "connections").show()
    +----+------+-------------------+-----------+-----------+
    |user|device|         first_used|app_version|connections|
    +----+------+-------------------+-----------+-----------+
    | ann|     d|1970-01-01 00:00:01|        1.1|          2|
    +----+------+-------------------+-----------+-----------+
    <BLANKLINE>
    """
    return _usable(connections, "user_devices").groupBy("db", "user", "device").agg(*_statistics())


def app_versions(connections: DataFrame) -> DataFrame:
    """
    The versions of the application that each database is used with.

    Args:
        connections: What `decode` returned of `CONNECTIONS`; rows in error are passed over.

    Returns:
        One row per database and version: `users` and `devices` (how many different ones), `first_used`,
        `last_used`, `connections`.

    Raises:
        MissingColumns, WrongColumnType: These are no connections.

    Cost: one aggregation, with a shuffle for each of the two distinct counts.

    Source:
        Debezium streams, "connections": statistics of which versions of the app are being used.

    >>> from cdckit import streams
    >>> said = b'{"db": "s", "clientid": "c", "user": "ann", "device": "%s", "appVersion": "1", "begun": 1}'
    >>> came = streams.decode(records_of(said % b"d", said % b"e"), streams.CONNECTIONS)
    >>> app_versions(came).select("db", "app_version", "users", "devices").show()
    +---+-----------+-----+-------+
    | db|app_version|users|devices|
    +---+-----------+-----+-------+
    |  s|          1|    1|      2|
    +---+-----------+-----+-------+
    <BLANKLINE>
    """
    used = _usable(connections, "app_versions")
    counts = (F.countDistinct(name).alias(f"{name}s") for name in ("user", "device"))
    return used.groupBy("db", "app_version").agg(*counts, *_statistics()[:3])


def _usable(connections: DataFrame, function: str) -> DataFrame:
    require_types(connections, T.StructType(CONNECTION_SCHEMA.fields), function=function)
    usable = (
        connections.where(F.col(ERROR_CODE).isNull()) if ERROR_CODE in connections.columns else connections
    )
    return usable.withColumn("at", F.timestamp_millis("begun"))


def _statistics() -> list[Column]:
    last = F.max(F.struct("at", "app_version"))["app_version"]
    return [
        F.min("at").alias("first_used"),
        F.max("at").alias("last_used"),
        F.count(F.lit(1)).alias("connections"),
        last.alias("app_version"),
    ]
