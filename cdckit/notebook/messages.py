"""The messages of a table, in words short enough to stand beside a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.changes import CHANGE_SCHEMA
from cdckit.parts.schemas import require_types

_LONGEST = 12


class Said(NamedTuple):
    """A message as a table names it, and all that is known of it."""

    short: str
    in_full: str


def by_their_names(messages: Iterable[str]) -> dict[str, Said]:
    """Long names without their middles, as far as the names of one table still differ."""
    names = sorted(set(messages))
    for tail in range(4, max(map(len, names), default=0)):
        short = {
            name: name if len(name) <= max(_LONGEST, tail + 5) else f"{name[:4]}…{name[-tail:]}"
            for name in names
        }
        if len(set(short.values())) == len(names):
            return {name: Said(one_line(text), one_line(name)) for name, text in short.items()}
    return {name: Said(one_line(name), one_line(name)) for name in names}


def by_their_sources(
    messages: Collection[str], changes: DataFrame, clock: Callable[[int], str]
) -> dict[str, Said]:
    """
    The source that sent each message; in full also when it was true, when it came, and from where.

    A message that *changes* do not hold keeps its name.  *clock* writes microseconds since 1970.
    """
    said = by_their_names(messages)
    if not messages:
        return said
    at = F.col("arrival")
    # As a table: a thousand rows of a hundred fields name more messages than a plan can hold.
    named = changes.sparkSession.createDataFrame([(each,) for each in messages], "message_id string")
    found = (
        changes.join(F.broadcast(named), on="message_id", how="left_semi")
        .groupBy("message_id")
        .agg(
            F.sort_array(F.collect_set("source")).alias("sources"),
            F.unix_micros(F.min("effective_timestamp")).alias("effective"),
            F.unix_micros(F.min(at["timestamp"])).alias("arrived"),
            F.min(F.concat_ws("/", at["topic"], at["partition"], at["offset"])).alias("place"),
        )
        .collect()
    )
    for row in found:
        # Sources number their messages independently: an id may be of several.
        name = one_line(" or ".join(row["sources"])) or said[row["message_id"]].short
        facts: Mapping[str, str] = {
            "message ": said[row["message_id"]].in_full,
            "effective ": "" if row["effective"] is None else clock(row["effective"]),
            "arrived ": "" if row["arrived"] is None else clock(row["arrived"]),
            "at ": one_line(row["place"] or ""),
        }
        in_full = ", ".join([name, *(word + fact for word, fact in facts.items() if fact)])
        said[row["message_id"]] = Said(name, in_full)
    return said


def require_changes(changes: DataFrame) -> None:
    """Raise `MissingColumns` or `WrongColumnType` unless *changes* say of a message who sent it, and when."""
    needed = ("message_id", "source", "effective_timestamp", "arrival")
    require_types(changes, type(CHANGE_SCHEMA)([CHANGE_SCHEMA[name] for name in needed]), function="show")


def one_line(text: str) -> str:
    """Line ends, and what would turn or hide the text around it, as their escapes."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
