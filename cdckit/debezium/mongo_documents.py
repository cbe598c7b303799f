"""MongoDB's rows: documents, which are JSON text within the event, and their keys."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdckit.debezium.events import TEXTS

MONGODB = "mongodb"
_ID = "_id"


def document_of(text: Column, connector: Column, row_key: Column) -> Column:
    """
    The document of an event, field by field; null for another connector.

    Its `_id` is what the record's key says, where there is one: the two write it by different rules, such as
    `{"$numberLong": "7"}` and `7`, and a delete has the key alone.
    """
    inner = F.coalesce(F.get_json_object(text, "$.payload.after"), F.get_json_object(text, "$.after"))
    known = document_key(row_key)[_ID]
    fields = F.transform_values(
        F.from_json(inner, TEXTS.simpleString()),
        lambda name, value: F.when(name == _ID, F.coalesce(known, value)).otherwise(value),
    )
    return F.when(connector == MONGODB, fields)


def document_key(row_key: Column) -> Column:
    """The key `{"id": "…"}` of a document, whose value is JSON text, under the name that documents have."""
    named = F.concat(F.lit(f'{{"{_ID}":'), row_key["id"], F.lit("}"))
    return F.from_json(named, TEXTS.simpleString())
