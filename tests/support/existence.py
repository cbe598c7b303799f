"""Messages about objects, and which codes they get."""

from __future__ import annotations

import json
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from cdckit.rdss.decoding import DECODED_SCHEMA

TYPES = {"C": "MetadataCreate", "U": "MetadataUpdate", "D": "MetadataDelete", "R": "MetadataRead"}


def decoded(spark: SparkSession, *lines: str) -> DataFrame:
    """Messages as `U a 10:05`: type, object, published; `A` for an answer, `!` for one in error."""
    rows = []
    for offset, line in enumerate(lines):
        kind, name, at = line.split()
        row = dict.fromkeys(DECODED_SCHEMA.fieldNames())
        row |= {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "message_id": line,
            "message_class": "Command",
        }
        row |= {"published_timestamp": datetime.fromisoformat(f"2024-03-01T{at}Z")}
        if kind == "!":
            row |= {"queue": "invalid", "error_code": "GENERR001", "error_description": "no"}
        elif kind == "A":
            row |= {"message_type": TYPES["R"], "message_class": "Document", "object_uuid": name}
        else:
            row |= {"message_type": TYPES[kind], "object_uuid": None if name == "-" else name}
        rows.append(tuple(row.values()))
    return spark.createDataFrame(rows, DECODED_SCHEMA)


def codes(frame: DataFrame) -> dict[str, str]:
    found = frame.where("error_code IS NOT NULL").collect()
    return {row["message_id"]: row["error_code"].removeprefix("APPERRMET") for row in found}


def uuid(number: int) -> str:
    return f"{number:08}-0000-4000-8000-000000000000"


def versions(*said: tuple[str, int, int | None]) -> list[tuple[str, str]]:
    """Lines and bodies: at that time, an update of an object that is the next version of another, if any."""
    found = []
    for at, number, other in said:
        relation = {"relationType": "isNewVersionOf", "identifier": {"identifierValue": uuid(other or 0)}}
        body = json.dumps({"objectRelatedIdentifier": [relation]}) if other else "{}"
        found.append((f"U {uuid(number)} {at}", body))
    return found
