"""Which messages are about objects, and what each kind of them is."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.rdss.decoding import DECODED_SCHEMA
from cdckit.rejected import ERROR_CODE

CREATE = "MetadataCreate"
UPDATE = "MetadataUpdate"
REMOVE = "MetadataDelete"
READ = "MetadataRead"
PRESERVATION = "PreservationEvent"

_READ_COLUMNS = (
    *("topic", "partition", "offset", "timestamp", "message_id", "correlation_id", "message_class"),
    *("message_type", "return_address", "published_timestamp", "generator", "tenant_jisc_id"),
    *("object_uuid", "body", ERROR_CODE),
)

STATEMENT_SCHEMA = T.StructType([DECODED_SCHEMA[name] for name in _READ_COLUMNS])
"""What is read of `decode`'s rows for whatever is said of objects."""


def is_statement(*types: str, document: bool = False) -> Column:
    """
    Whether a row is a valid and whole message of one of these types.

    A part of a sequence holds a piece of a body, so it names no object.  *document* tells a response from
    the request of the same type.
    """
    is_document = F.col("message_class") == "Document"
    return (
        F.col(ERROR_CODE).isNull()
        & F.col("object_uuid").isNotNull()
        & F.col("message_type").isin(*types)
        & (is_document if document else ~is_document)
    )
