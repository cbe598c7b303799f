"""Reads: who asked for an object, where the answer goes, and what it was."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdckit.parts.schemas import require_batch, require_types
from cdckit.rdss.statements import READ, STATEMENT_SCHEMA, is_statement


def reads(decoded: DataFrame) -> DataFrame:
    """
    The requests to read an object, each with its response.

    Args:
        decoded: What `decode` returned, its sequences assembled; all but valid reads is passed over.

    Returns:
        One row per request, and per response if there are several: `message_id`, `published_timestamp`,
        `generator`, `return_address` (where the response is to be sent; null where the request does not say)
        and `object_uuid` of the request; `response_message_id`, `response_timestamp`, `response_generator`
        and `response_body` (JSON text as it came), all null where no response has come yet.  A response
        is one whose `correlationId` is the request's `messageId`; redelivered messages count once.

    Raises:
        InvalidArgument: *decoded* is a stream.
        MissingColumns, WrongColumnType: *decoded* is not what `decode` returned.

    Cost: the reads are shuffled by their message id, the responses by their correlation id.

    Source:
        RDSS, "Messages" (MetadataRead), "correlationId", "returnAddress".

    >>> reads(decoded).count()
    0
    """
    require_types(decoded, STATEMENT_SCHEMA, function="reads")
    require_batch(decoded, "decoded", "decode each batch (foreachBatch)", function="reads")
    requests = decoded.where(is_statement(READ)).select(
        "message_id", "published_timestamp", "generator", "return_address", "object_uuid"
    )
    responses = decoded.where(is_statement(READ, document=True)).select(
        F.col("correlation_id").alias("of_request"),
        F.col("message_id").alias("response_message_id"),
        F.col("published_timestamp").alias("response_timestamp"),
        F.col("generator").alias("response_generator"),
        F.col("body").alias("response_body"),
    )
    # A messageId is unique system-wide, whoever sent it.
    told = responses.dropDuplicates(["of_request", "response_message_id"])
    answered = F.col("message_id") == F.col("of_request")
    return requests.dropDuplicates(["message_id"]).join(told, answered, how="left").drop("of_request")
