"""Responses: one for each patch, and one for each request once all its patches are answered."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import InvalidArgument
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.rejected_records import ERROR_FIELDS, without_rejects
from cdckit.parts.argument_forms import (
    DURATION,
    FOR_EACH_BATCH,
    INSTANT,
    no_stream,
    one_of,
    rows_of,
    rows_with,
    takes,
)
from cdckit.parts.arguments import require_columns
from cdckit.parts.arrow_types import spark_columns
from cdckit.parts.folded_rows import fold_rows
from cdckit.shell.waiting import with_waited
from cdckit.streams.catalogue import ARRIVAL, COMPLETE_RESPONSES, PARTIAL_RESPONSES, REQUEST, StreamFault
from cdckit.streams.decoding import with_text
from cdckit.streams.request_parts import COMPLETE, PART, RESPONSE_PLAN, WAITING
from cdckit.streams.requests import with_requested

Policy = Literal["keep", "reject"]

RESPONSE_SCHEMA = spark_columns(pa.schema([*ARRIVAL, *PARTIAL_RESPONSES.columns()]))
"""One row is the response to one patch, of an entity or of a schema."""

REQUEST_SCHEMA = T.StructType([*RESPONSE_SCHEMA.fields, *spark_columns(PART).fields[:3]])
"""One row is one partial response, and whether all of its request are there."""

_COMMON_FIELDS = ("parts", "user")
_WRONG_PARTS = "{} are not what `response_parts` returned"


@takes()
def partial_responses(*answers: DataFrame) -> DataFrame:
    """
    The responses to all patches, applied or not.

    Args:
        answers: What `apply_patches` and `apply_schema_patches` returned, one or more.

    Returns:
        One row per patch that was answered (`RESPONSE_SCHEMA`); repeats get no second response; `before` and
        `after` where the patch asked for them.  `timestamp`, `topic`, `partition` and `offset` are those
        of the patch.

    Raises:
        InvalidArgument: No answers at all.
        MissingColumns: These are not answers.

    Cost: a filter of each, no shuffle.

    Source:
        Debezium streams, "partial-responses".

    >>> from cdckit import streams
    >>> nothing = streams.apply_patches(streams.decode(records_of(b"?"), streams.ENTITY_PATCHES))
    >>> partial_responses(nothing).count()
    0
    """
    if not answers:
        raise InvalidArgument(None, "answers", "one or more tables of answers", answers)
    return reduce(DataFrame.unionByName, map(response_rows, answers))


def response_rows(answers: DataFrame, *more: str) -> DataFrame:
    """The responses to patches, with *more* columns of the answers."""
    require_columns(answers, ["is_repeat", "include_before", "include_after"])
    answered = with_requested(answers.where(~F.col("is_repeat")))
    columns = [
        F.col(field.name)
        if field.name in answers.columns
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in RESPONSE_SCHEMA
    ]
    return answered.select(*columns, *more)


@takes(
    responses=[rows_of(RESPONSE_SCHEMA, "{} are no responses"), FOR_EACH_BATCH],
    completed=rows_with(*REQUEST).or_none(),
)
def response_parts(responses: DataFrame, *, completed: DataFrame | None = None) -> DataFrame:
    """
    The partial responses, and whether all those of a request are there.

    What becomes of one depends on the set of responses alone, not on the order in which they came.

    Args:
        responses: What `partial_responses` returned, or `decode` of `PARTIAL_RESPONSES` (rows in error are
            passed over): all there are, also those that waited before.
        completed: The requests that were complete in earlier calls: what `complete_responses` returned then
            (`client_id` and `request` are enough).  A late response to one of them is a duplicate; without
            *completed* it would begin anew, and complete a request of one part a second time.

    Returns:
        One row per response (`REQUEST_SCHEMA`) and

        - `part_is`: `complete`, all parts of the request are there; `waiting`, some are missing;
          `duplicate`, the same part was there before, by record time, topic, partition and offset (nulls
          come first), or the request was complete before; `contradicting`, the parts differ in how many
          they are, or in user: then none can be believed, and each has the error code CONTRADICTING.
        - `waiting_since`: when the first response to the request came, and `waiting_for`: how many are
          missing, and the first of them; null unless it waits.

        and `error_code` and `error_description`.

    Cost: one shuffle by request, and a sort; with *completed*, one of it.

    Source:
        Debezium streams, "complete-responses".

    >>> from cdckit import streams
    >>> response = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "ended": 8,
    ...     "part": %d, "parts": 3, "status": 1, "ops": []}'''
    >>> came = streams.decode(records_of(*(response % n for n in (3, 1, 3))), streams.PARTIAL_RESPONSES)
    >>> shown = response_parts(came).select("offset", "part", "part_is", "waiting_for")
    >>> shown.orderBy("offset").show(truncate=False)
    +------+----+---------+--------------------------------------+
    |offset|part|part_is  |waiting_for                           |
    +------+----+---------+--------------------------------------+
    |0     |3   |waiting  |1 of 3 parts, the first of them part 2|
    |1     |1   |waiting  |1 of 3 parts, the first of them part 2|
    |2     |3   |duplicate|NULL                                  |
    +------+----+---------+--------------------------------------+
    <BLANKLINE>
    """
    over = None
    if completed is not None:
        over = completed.select(*REQUEST).distinct()
    parts = fold_rows(
        without_rejects(responses), RESPONSE_PLAN, keeps=RESPONSE_SCHEMA.fieldNames(), states=over
    )
    return parts.select(*REQUEST_SCHEMA.fieldNames(), ERROR_CODE, ERROR_DESCRIPTION)


@takes(parts=[rows_of(REQUEST_SCHEMA, _WRONG_PARTS), no_stream("hand its batches to a function")])
def complete_responses(parts: DataFrame) -> DataFrame:
    """
    One response per request whose patches are all answered.

    Args:
        parts: What `response_parts` returned.

    Returns:
        One row per complete request: `client_id`, `request`, `user`, `parts`; `begun`, the earliest that a
        part says, and `ended`, when the last part was; `responses`, the messages of its parts in their order;
        and `message`, what `to_records` writes: the partial response itself where there is one part, else the
        aggregate of all.

    Cost: grouped as they lie after `response_parts`, which shuffled them.

    Source:
        Debezium streams, "complete-responses".

    >>> from cdckit import streams
    >>> response = b'''{"db": "shop", "clientid": "c", "request": 2, "user": "ann", "begun": 7, "ended": %d,
    ...     "part": %d, "parts": 2, "status": 1, "ops": []}'''
    >>> came = streams.decode(records_of(response % (9, 2), response % (8, 1)), streams.PARTIAL_RESPONSES)
    >>> whole = complete_responses(response_parts(came))
    >>> second = F.get_json_object("message", "$.responses[1].part").alias("second")
    >>> whole.select("request", "parts", "ended", second).show()
    +-------+-----+-----+------+
    |request|parts|ended|second|
    +-------+-----+-----+------+
    |      2|    2|    9|     2|
    +-------+-----+-----+------+
    <BLANKLINE>
    """
    complete = with_text(parts.where(F.col("part_is") == COMPLETE), PARTIAL_RESPONSES, "text")
    whole = complete.groupBy(*REQUEST).agg(
        *(F.first(name).alias(name) for name in _COMMON_FIELDS),
        F.min("begun").alias("begun"),
        F.max("ended").alias("ended"),
        F.array_sort(F.collect_list(F.struct("part", "text")))["text"].alias("responses"),
    )
    return with_message(whole.select(*COMPLETE_RESPONSES.columns().names))


def with_message(whole: DataFrame) -> DataFrame:
    """Complete responses with the text of each as `message`: of one part that of its response."""
    aggregate = with_text(whole, COMPLETE_RESPONSES, "message")
    alone = F.when(F.col("parts") == 1, F.element_at("responses", 1))
    return aggregate.withColumn("message", F.coalesce(alone, "message"))


@takes(
    parts=rows_of(T.StructType([*REQUEST_SCHEMA.fields, *ERROR_FIELDS]), _WRONG_PARTS),
    now=INSTANT,
    wait=DURATION,
    overdue=one_of("keep", "reject"),
)
def waiting(
    parts: DataFrame, *, now: datetime, wait: timedelta = timedelta(hours=1), overdue: Policy = "keep"
) -> DataFrame:
    """
    The responses that wait for others to their request, and how long they have.

    Save them, and give them to `response_parts` together with what has come since.

    Args:
        parts: What `response_parts` returned.
        now: The instant at which waiting is measured, aware.
        wait: How long a request may be incomplete, from the record time of its first response on.  Of one
            without a time nobody can tell, so it is overdue.
        overdue: `keep` those waiting that have waited longer, or `reject` them, with the code MISSING_PART.

    Returns:
        One row per waiting response, in the columns of *parts* and two more: `waited` (interval) and
        `is_overdue`; the error columns are null but for the rejected.

    Cost: one filter, no shuffle.

    Source:
        Debezium streams, "complete-responses": only after all parts have been completed.

    >>> from datetime import UTC
    >>> from cdckit import streams
    >>> parts = response_parts(streams.decode(records_of(b"?"), streams.PARTIAL_RESPONSES))
    >>> waiting(parts, now=datetime(2024, 1, 1, tzinfo=UTC)).count()
    0
    """
    late = parts.where(F.col("part_is") == WAITING)
    measured = with_waited(late, F.col("waiting_since"), now, wait)
    refused = F.col("is_overdue") & F.lit(overdue == "reject")
    return measured.withColumns({name: F.when(refused, text) for name, text in overdue_error().items()})


def overdue_error() -> dict[str, Column]:
    """Say what is wrong with a response that has waited for too long."""
    fault = StreamFault.MISSING_PART
    description = F.concat(F.lit(fault.describe("It lacks") + " "), F.col("waiting_for"), F.lit("."))
    return {ERROR_CODE: F.lit(fault.value), ERROR_DESCRIPTION: description}
