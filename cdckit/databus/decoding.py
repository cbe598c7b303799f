"""Decoding: one row for each record of a Databus stream, checked down to its value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from cdckit.databus.events import DATA, EVENT, event_columns
from cdckit.databus.sources import Source, sources_by_id
from cdckit.model.forms import RECORDS
from cdckit.model.records import RECORD_COLUMNS, decoded_columns
from cdckit.model.rejected_records import ERROR_FIELDS
from cdckit.parts.argument_forms import takes
from cdckit.parts.workers import WorkerPlan

EVENT_SCHEMA = decoded_columns(EVENT, *ERROR_FIELDS)
"""One row is one record, and the event that it holds; or why it holds none."""


@takes(records=RECORDS)
def decode(records: DataFrame, sources: Iterable[Source], *, skip_sources: Iterable[int] = ()) -> DataFrame:
    """
    Read the event of every record, and check it down to its value.

    Args:
        records: One row per transported event in JSON form (`cdckit.model.RECORD_SCHEMA`), a batch or a
            stream.
        sources: What the srcIds of data events stand for, with the schemas of their values.
        skip_sources: The srcIds of sources that nobody needs here: their data events are left out, as a
            relay leaves out what a consumer did not subscribe to.

    Returns:
        One row per record, in no order (`EVENT_SCHEMA`):

        - the record's columns;
        - `kind`: `data`, `end` (of a period), `rollback`, `checkpoint`, `error` or `system`;
        - `opcode`: UPSERT or DELETE, null on what is no data;
        - `scn` (sequence), `physical_partition`, `logical_partition`, `source_id`, `source` (its name);
        - `long_key` or `string_key`, a text in UTF-8: of other keyBytes the event is in error;
          `event_timestamp`, to the microsecond;
        - `schema_id`, `value_encoding` as they came; `payload`: the Avro datum of the value, in whichever
          form it came, null for a delete without one (`rows` makes typed columns of it).  A plain value
          that is not of its field's type, such as the text "false", is in error, as is one, or an event, in
          which a name comes twice;
        - `is_replicated`;
        - `error_code`, `error_description`: null where all is well.  It never fails on data: where an error
          stands, the columns hold what could be read.

    Raises:
        InvalidArgument: Two sources have one id or one name.

    Cost: one pass through Python in Arrow batches, no shuffle.  A value in plain form costs about ten times
    one in base64, since it is read one by one.

    Source:
        Databus, "Data Change Events"; the JSON form of events that relays write and read.

    >>> text = '{"type": "record", "name": "Plane", "fields": [{"name": "tail", "type": "string"}]}'
    >>> event = (
    ...     b'{"opcode": "UPSERT", "key": 7, "sequence": 5, "physicalPartitionId": 1, '
    ...     b'"timestampInNanos": 1000, "srcId": 3, "schemaId": "S6KYUtsRb0m2xD9AWj3IzA==", '
    ...     b'"valueEnc": "JSON_PLAIN_VALUE", "value": "{\\\\"tail\\\\": \\\\"N12\\\\"}"}'
    ... )
    >>> end = b'{"sequence": 5, "physicalPartitionId": 1, "timestampInNanos": 1000, "endOfPeriod": true}'
    >>> decode(records_of(event, end, b"?"), [Source(3, "planes", [text])]).select(
    ...     "kind", "scn", "source", "payload", "error_code"
    ... ).show()
    +----+----+------+-------------+------------+
    |kind| scn|source|      payload|  error_code|
    +----+----+------+-------------+------------+
    |data|   5|planes|[06 4E 31 32]|        NULL|
    | end|   5|  NULL|         NULL|        NULL|
    |NULL|NULL|  NULL|         NULL|NOT_AN_EVENT|
    +----+----+------+-------------+------------+
    <BLANKLINE>
    """
    by_id = sources_by_id(sources)
    decode_batches = partial(_decode_batches, sources=by_id, skipped=frozenset(skip_sources))
    return WorkerPlan(records.select(*RECORD_COLUMNS), decode_batches, EVENT_SCHEMA).rows()


def _decode_batches(
    batches: Iterable[pa.RecordBatch], *, sources: Mapping[int, Source], skipped: Collection[int]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = event_columns(batch.column("value"), sources)
        decoded = pa.RecordBatch.from_arrays([*batch.columns, *columns], names=EVENT_SCHEMA.fieldNames())
        is_skipped = pc.and_(
            pc.equal(decoded.column("kind"), DATA),
            pc.is_in(decoded.column("source_id"), pa.array(sorted(skipped), pa.int32())),
        )
        yield decoded.filter(pc.invert(pc.fill_null(is_skipped, False))) if skipped else decoded
