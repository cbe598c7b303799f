"""How a table calls messages: by a short name, or by the source that sent them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.model.changes import CHANGE_SCHEMA
from cdckit.parts.arguments import require_types
from cdckit.parts.workers import local_frame

_LONGEST = 12


class MessageLabel(NamedTuple):
    """A message as a table names it, and all that is known of it."""

    short: str
    in_full: str


def shorten_messages(messages: Iterable[str]) -> dict[str, MessageLabel]:
    """
    Messages without ids of their own by their sources, other long names by a word and an end that differs.

    >>> named = ["shop-3c5a3b1c6f2f4a0e9d8c7b6a5f4e3d2c", "ny2/operations:20130207185408001586", "m1"]
    >>> [label.short for label in shorten_messages(named).values()]
    ['m1', 'operations…1586', 'shop']
    """
    names = sorted(set(messages))
    made = {name: match[1] for name in names if (match := _MADE.fullmatch(name))}
    others = [name for name in names if name not in made]
    ends = range(4, max(map(len, others), default=0))
    several = ({name: _shorten_name(name, end) for name in others} for end in ends)
    short = next((some for some in several if len(set(some.values())) == len(others)), {})
    called = {name: name for name in names} | short | made
    return {name: MessageLabel(one_line(text), one_line(name)) for name, text in called.items()}


# What `changes_from` calls a message that its table does not name: the source, and a digest.
_MADE = re.compile(r"(.+)-[0-9a-f]{32}", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{3,}")
_DIGITS = re.compile(r"[0-9a-fA-F-]+")


def _shorten_name(name: str, end: int) -> str:
    """The last word of a long name, if there is one, and its end."""
    if len(name) <= max(_LONGEST, end + 5):
        return name
    words = [] if _DIGITS.fullmatch(name) else _WORD.findall(name[:-end])
    short = f"{words[-1][:_LONGEST] if words else name[:4]}…{name[-end:]}"
    return short if len(short) < len(name) else name


def label_messages(
    messages: Collection[str], changes: DataFrame, clock: Callable[[int], str]
) -> dict[str, MessageLabel]:
    """
    The source that sent each message; in full also when it was true, when it came, and from where.

    A message that *changes* do not hold keeps its name.  *clock* writes microseconds since 1970.
    """
    labels = shorten_messages(messages)
    if not messages:
        return labels
    at = F.col("arrival")
    # As a table: a thousand rows of a hundred fields name more messages than a plan can hold.
    named = local_frame(changes.sparkSession, [(message,) for message in messages], "message_id string")
    senders = (
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
    for row in senders:
        # Sources number their messages independently: an id may be of several.
        name = one_line(" or ".join(row["sources"])) or labels[row["message_id"]].short
        facts: Mapping[str, str] = {
            "message ": labels[row["message_id"]].in_full,
            "effective ": "" if row["effective"] is None else clock(row["effective"]),
            "arrived ": "" if row["arrived"] is None else clock(row["arrived"]),
            "at ": one_line(row["place"] or ""),
        }
        in_full = ", ".join([name, *(word + fact for word, fact in facts.items() if fact)])
        labels[row["message_id"]] = MessageLabel(name, in_full)
    return labels


def require_changes(changes: DataFrame) -> None:
    """Raise `MissingColumns` or `WrongColumnType` unless *changes* say of a message who sent it, and when."""
    needed = ("message_id", "source", "effective_timestamp", "arrival")
    require_types(changes, type(CHANGE_SCHEMA)([CHANGE_SCHEMA[name] for name in needed]))


def one_line(text: str) -> str:
    """Line ends, and what would turn or hide the text around it, as their escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
