"""Zones: which entities changed in which, what each device is to be told, and which device connected when."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import CHANGE_SCHEMA, DELETE, UPSERT, sortable_number
from cdckit.model.history import require_history
from cdckit.model.rejected_records import without_rejects
from cdckit.parts.argument_forms import rows_of, rows_with, takes
from cdckit.parts.arguments import require_columns
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.guids import guid
from cdckit.query.as_of_joins import Lookup, as_of_join
from cdckit.streams.catalogue import CHANGES_BY_DEVICE, CONNECTIONS, CREATED, DELETED, SUBSCRIPTIONS, UPDATED
from cdckit.streams.requests import ANSWERS, UPDATE_SCHEMA, is_update, with_requested

WANTS = ("creates", "updates", "deletes")
"""The fields of a subscription that say what it wants to be told."""

ZONE_CHANGE_SCHEMA = T.StructType([*UPDATE_SCHEMA.fields, T.StructField("subject_zone", T.StringType())])
"""One row is one update of an entity, or of a subscription, and the zone that it is about."""

SUBSCRIPTION_FIELDS = T.StructType(
    [
        *(
            T.StructField(name, T.StringType())
            for name in ("db", "subscription", "device", "collection", "zone")
        ),
        *(T.StructField(name, T.BooleanType()) for name in WANTS),
    ]
)
"""What is known of a subscription; `db` and `subscription`, its entity, are the key."""

_ZONE_CHANGES = rows_of(ZONE_CHANGE_SCHEMA, "{} are not what `zone_changes` returned")
_CONNECTIONS = rows_of(spark_columns(CONNECTIONS.columns()), "{} are no connections")


@takes(answers=ANSWERS)
def zone_changes(answers: DataFrame) -> DataFrame:
    """
    The updates by the zone that they are about.

    Args:
        answers: What `apply_patches` returned.

    Returns:
        One row per update (`ZONE_CHANGE_SCHEMA`): the columns of `entity_updates`, `before` and `after` for
        subscriptions as if they had asked for them, and `subject_zone`: the zone of the entity; of a
        subscription the zone that it subscribes to, and not its own.  A subscription that moves from one
        zone to another is told in the one that it moves to.

    Cost: one filter and the JSON of subscriptions; no shuffle.

    Source:
        Debezium streams, "zone-changes".

    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> zone_changes(nothing).columns[-1]
    'subject_zone'
    """
    about = F.coalesce("after", "before")
    subscribes = F.col("collection").isin(*SUBSCRIPTIONS)
    zone = F.when(subscribes, F.get_json_object(about, "$.zone")).otherwise(F.col("zone"))
    columns = {"subject_zone": zone, "revision": F.col("revision_after")}
    updates = answers.where(is_update()).withColumns(columns)
    return with_requested(updates, always=subscribes).select(*ZONE_CHANGE_SCHEMA.fieldNames())


@takes(changes=_ZONE_CHANGES)
def subscription_changes(changes: DataFrame) -> DataFrame:
    """
    Make changes of what is said of subscriptions: `merge` makes their history of them.

    Args:
        changes: What `zone_changes` returned; all but subscriptions are passed over.

    Returns:
        One row per change (`cdckit.model.CHANGE_SCHEMA`) of the key `db`, `subscription`; each carries all
        fields (`SUBSCRIPTION_FIELDS`).  A wish that is not said, or is neither true nor the text `true`,
        is false; a device, collection or zone that is no text is its JSON text; no collection means all
        collections of the zone.

    Cost: one filter and a projection.

    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> subscription_changes(zone_changes(nothing)).schema["data"].dataType.names
    ['db', 'subscription', 'device', 'collection', 'zone', 'creates', 'updates', 'deletes']
    """
    subscriptions = changes.where(F.col("collection").isin(*SUBSCRIPTIONS))
    kept = F.from_json("after", _SUBSCRIPTION)
    texts = {name: kept[name] for name in ("device", "collection", "zone")}
    wishes = {name: F.coalesce(kept[name] == "true", F.lit(False)) for name in WANTS}
    data = {"db": F.col("db"), "subscription": F.col("entity"), **texts, **wishes}
    deleted = F.col("action") == DELETED
    carried = (F.lit(True) if name in ("db", "subscription") else ~deleted for name in data)
    return subscriptions.select(
        *change_columns(F.when(deleted, DELETE).otherwise(UPSERT)),
        F.struct(*(column.alias(name) for name, column in data.items())).alias("data"),
        F.struct(*(column.alias(name) for name, column in zip(data, carried, strict=True))).alias("carried"),
    )


_SUBSCRIPTION = ", ".join(f"{name} string" for name in ("device", "collection", "zone", *WANTS))


def change_columns(operation: Column) -> list[Column]:
    """The columns of changes that an update gives: its place, its message and its time."""
    columns = {
        "operation": operation,
        "effective_timestamp": F.timestamp_millis("ended"),
        "sequence": sortable_number(F.coalesce("revision", F.lit(0))),
        "arrival": F.struct(
            "timestamp", "topic", "partition", "offset", F.coalesce("part", F.lit(1)).alias("record_number")
        ),
        "message_id": F.concat_ws("/", "client_id", "request", "part"),
        "source": F.col("db"),
        "priority": F.lit(0),
    }
    return [columns[name].alias(name) for name in CHANGE_SCHEMA.fieldNames()]


@takes(changes=_ZONE_CHANGES)
def changes_by_device(changes: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """
    Tell each device: one message per device that wanted this action in this zone at this time.

    A subscription counts as it was when the entity changed: from the instant at which it was made, or
    altered, until that at which it was altered again, or deleted.

    Args:
        changes: What `zone_changes` returned; updates of subscriptions are told to nobody.
        subscriptions: Their history, over all zones: `merge` of `subscription_changes`, with the keys `db`
            and `subscription`.

    Returns:
        One row per device and change: `device`; `db`, `collection`, `zone`, `entity`, `action` (`created`,
        `updated` or `deleted`), `ended`; and `notification`, a UUID that is the same on every run.
        Several subscriptions of one device tell it once.

    Raises:
        MissingColumns, WrongColumnType: *subscriptions* are no such history.

    Cost: a join of the changes with the subscriptions that ever were to their zone, then `as_of_join`: one
    shuffle and sort of these pairs; and the removal of duplicates.

    Source:
        Debezium streams, "changes-by-device".

    >>> from cdckit import merge
    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> changes = zone_changes(nothing)
    >>> known = merge(subscription_changes(changes), entity="subscription", keys=["db", "subscription"])
    >>> changes_by_device(changes, known).columns
    ['device', 'db', 'collection', 'zone', 'entity', 'notification', 'action', 'ended']
    """
    subscriptions = require_history(subscriptions)
    require_columns(subscriptions, SUBSCRIPTION_FIELDS.fieldNames())
    changed = changes.where(~F.col("collection").isin(*SUBSCRIPTIONS))
    messages = changed.select(
        *("db", "collection", "zone", "entity", "action", "ended", "client_id", "request", "part"),
        F.timestamp_millis("ended").alias("at"),
    )
    ever = subscriptions.select("db", "zone", "subscription").where("zone IS NOT NULL").distinct()
    pairs = messages.join(ever, ["db", "zone"], "inner")
    fields = [name for name in SUBSCRIPTION_FIELDS.fieldNames() if name not in ("db", "subscription")]
    lookup = Lookup(subscriptions, on=["db", "subscription"], into="subscribed", fields=fields)
    joined = as_of_join(pairs, lookup, time="at")
    wanted = joined.where(_is_wanted() & F.col("subscribed.device").isNotNull())
    named = wanted.withColumn("device", F.col("subscribed.device"))
    message = named.withColumn("notification", notification_id())
    return message.select(*CHANGES_BY_DEVICE.columns().names).dropDuplicates(["notification"])


def notification_id() -> Column:
    """The id of the notification by which a device is told of an update."""
    names = ("device", "db", "collection", "zone", "entity", "client_id", "request", "part")
    return guid("notification", {name: F.col(name) for name in names})


def _is_wanted() -> Column:
    here = F.col("subscribed.zone") == F.col("zone")
    these = F.coalesce(F.col("subscribed.collection") == F.col("collection"), F.lit(True))
    wishes = zip((CREATED, UPDATED, DELETED), WANTS, strict=True)
    wants = ((F.col("action") == action) & F.col(f"subscribed.{wish}") for action, wish in wishes)
    return here & these & reduce(Column.__or__, wants)


@takes(
    changes=rows_with("db", "device", "notification", "ended"),
    devices=rows_with("db", "user", "device", "last_used"),
    acknowledged=rows_with("device", "notification").or_none(),
)
def device_notifications(
    changes: DataFrame, devices: DataFrame, acknowledged: DataFrame | None = None
) -> DataFrame:
    """
    List what each device has not acknowledged yet.

    Args:
        changes: What `changes_by_device` returned.
        devices: Which user has which device: what `user_devices` returned.  Of several users of a device in a
            database the one that used it last is told.
        acknowledged: One row per acknowledgement: `device` and `notification`; None if there are none.
            One that is not known, or comes twice, has no effect.

    Returns:
        One row per database and device that was told anything: `user` (null where nobody connected from it);
        `count`, how many are left, 0 where all is acknowledged; `begun` and `ended`, when the first and the
        last change of what is left were (milliseconds), or both the last of all where nothing is left.

    Cost: a join with what was acknowledged, an aggregation, and a join with the devices.

    Source:
        Debezium streams, "device-notifications".

    >>> from cdckit import streams
    >>> columns = "db string, device string, notification string, ended long"
    >>> rows = [("s", "d", "n1", 5), ("s", "d", "n2", 7), ("s", "d", "n3", 9)]
    >>> notifications = session().createDataFrame(rows, columns)
    >>> seen = session().createDataFrame([("d", "n1"), ("d", "n1")], "device string, notification string")
    >>> users = session().createDataFrame([("s", "ann", "d")], "db string, user string, device string")
    >>> users = users.withColumn("last_used", F.to_timestamp(F.lit("2024-01-01")))
    >>> device_notifications(notifications, users, seen).show()
    +---+----+------+-----+-----+-----+
    | db|user|device|count|begun|ended|
    +---+----+------+-----+-----+-----+
    |  s| ann|     d|    2|    7|    9|
    +---+----+------+-----+-----+-----+
    <BLANKLINE>
    """
    notifications = changes.dropDuplicates(["device", "notification"]).withColumn("_left", F.col("ended"))
    if acknowledged is not None:
        seen = acknowledged.select("device", "notification").distinct().withColumn("_seen", F.lit(True))
        joined = notifications.join(seen, ["device", "notification"], "left")
        notifications = joined.withColumn("_left", F.when(F.col("_seen").isNull(), F.col("ended")))
    last_of_all = F.max("ended")
    counted = notifications.groupBy("db", "device").agg(
        F.count("_left").cast("int").alias("count"),
        F.coalesce(F.min("_left"), last_of_all).alias("begun"),
        F.coalesce(F.max("_left"), last_of_all).alias("ended"),
    )
    last = devices.groupBy("db", "device").agg(F.max(F.struct("last_used", "user"))["user"].alias("user"))
    joined = counted.join(last, ["db", "device"], "left")
    return joined.select("db", "user", "device", "count", "begun", "ended")


@takes(connections=_CONNECTIONS)
def user_devices(connections: DataFrame) -> DataFrame:
    """
    The devices of each user, when each was used first and last, and with which version of the application
    last.

    Args:
        connections: What `decode` returned of `CONNECTIONS`; rows in error are passed over.

    Returns:
        One row per database, user and device: `first_used` and `last_used` (timestamps, of `begun`),
        `connections` (how many), `app_version` (of the last one; of several at one instant the greatest).

    Cost: one aggregation.

    Source:
        Debezium streams, "connections".

    >>> from cdckit import streams
    >>> text = b'{"db": "s", "clientid": "c", "user": "ann", "device": "d", "appVersion": "%s", "begun": %d}'
    >>> came = streams.decode(records_of(text % (b"1.1", 9000), text % (b"1.0", 1000)), streams.CONNECTIONS)
    >>> user_devices(came).select("user", "device", "first_used", "app_version", "connections").show()
    +----+------+-------------------+-----------+-----------+
    |user|device|         first_used|app_version|connections|
    +----+------+-------------------+-----------+-----------+
    | ann|     d|1970-01-01 00:00:01|        1.1|          2|
    +----+------+-------------------+-----------+-----------+
    <BLANKLINE>
    """
    return _keep_usable(connections).groupBy("db", "user", "device").agg(*_statistics())


@takes(connections=_CONNECTIONS)
def app_versions(connections: DataFrame) -> DataFrame:
    """
    The versions of the application that each database is used with.

    Args:
        connections: What `decode` returned of `CONNECTIONS`; rows in error are passed over.

    Returns:
        One row per database and version: `users` and `devices` (how many different ones), `first_used`,
        `last_used`, `connections`.

    Cost: one aggregation, with a shuffle for each of the two distinct counts.

    Source:
        Debezium streams, "connections": statistics of which versions of the app are being used.

    >>> from cdckit import streams
    >>> text = b'{"db": "s", "clientid": "c", "user": "ann", "device": "%s", "appVersion": "1", "begun": 1}'
    >>> came = streams.decode(records_of(text % b"d", text % b"e"), streams.CONNECTIONS)
    >>> app_versions(came).select("db", "app_version", "users", "devices").show()
    +---+-----------+-----+-------+
    | db|app_version|users|devices|
    +---+-----------+-----+-------+
    |  s|          1|    1|      2|
    +---+-----------+-----+-------+
    <BLANKLINE>
    """
    used = _keep_usable(connections)
    counts = (F.countDistinct(name).alias(f"{name}s") for name in ("user", "device"))
    return used.groupBy("db", "app_version").agg(*counts, *_statistics()[:3])


def _keep_usable(connections: DataFrame) -> DataFrame:
    return without_rejects(connections).withColumn("at", F.timestamp_millis("begun"))


def _statistics() -> list[Column]:
    last = F.max(F.struct("at", "app_version"))["app_version"]
    return [
        F.min("at").alias("first_used"),
        F.max("at").alias("last_used"),
        F.count(F.lit(1)).alias("connections"),
        last.alias("app_version"),
    ]
