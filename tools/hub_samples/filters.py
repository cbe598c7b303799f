"""
The message filters that the schema documents name; a hub is given them by these names.

A hub calls each with a record and with what is known of its message, which none of them needs.
"""

from collections.abc import Callable
from typing import Any

Record = dict[str, Any]


def designator(record: Record, context: object = None) -> Record:
    """
    Split `flt`, the designator of a flight, into the code of its carrier and its number.

    A record without `flt` is left as it is; a designator without a space is an error.

    >>> designator({"flt": "HA 51"})
    {'flt': 'HA 51', 'al': 'HA', 'no': '51'}
    """
    if "flt" not in record:
        return record
    carrier, number = record["flt"].split(" ")
    return record | {"al": carrier, "no": number}


def without_towing(record: Record, context: object = None) -> Record | None:
    """
    Drop the movements in which a plane is towed and nobody flies.

    >>> without_towing({"kind": "tow"}) is None
    True
    """
    return None if record.get("kind") == "tow" else record


FILTERS: dict[str, Callable[..., Record | None]] = {
    "designator": designator,
    "without_towing": without_towing,
}
