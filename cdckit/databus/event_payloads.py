"""The values of events: the Avro datum of each, checked against the schema of its id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdckit.databus.event_sources import Source
from cdckit.databus.event_text import Parsed
from cdckit.databus.faults import DatabusFault
from cdckit.databus.plain_values import from_base64, plain_datum
from cdckit.parts import avro
from cdckit.parts.running import Bools

_BASE64, _PLAIN = ("JSON",), ("JSON_PLAIN_VALUE", "JSON_PLAIN")


def payloads_of(parsed: Parsed, is_data: Bools, is_delete: Bools, sources: dict[int, Source]) -> pa.Array:
    """The Avro datum of each value, each checked against the schema of its id."""
    field, findings = parsed.fields, parsed.findings
    encodings, ids = field["valueEnc"].to_pylist(), field["schemaId"].to_pylist()
    numbers, texts = field["srcId"].to_pylist(), field["value"].to_pylist()
    datums: list[bytes | None] = [None] * len(texts)
    of_schema: dict[tuple[int, str], list[int]] = {}
    schemas = {number: each.texts for number, each in sources.items()}
    for row in np.flatnonzero(is_data).tolist():
        if row in findings or (is_delete[row] and not texts[row]):
            continue
        text, encoding = texts[row], encodings[row]
        missing = [
            name
            for name, said in (("value", text), ("schemaId", ids[row]), ("valueEnc", encoding))
            if said is None
        ]
        if missing:
            findings[row] = (DatabusFault.FIELD_MISSING, f"It has no {missing[0]}.")
            continue
        schema = schemas[numbers[row]].get(ids[row])
        if schema is None:
            findings[row] = (DatabusFault.SCHEMA_UNKNOWN, f"It is {ids[row]!r:.60}.")
        elif encoding in _BASE64:
            datums[row] = from_base64(text)
            if datums[row] is None:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, "It is not base64.")
            else:
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
        elif encoding in _PLAIN:
            try:
                datums[row] = plain_datum(text, schema)
                of_schema.setdefault((numbers[row], ids[row]), []).append(row)
            except ValueError as error:
                findings[row] = (DatabusFault.VALUE_UNREADABLE, f"As plain JSON: {error}.")
        else:
            findings[row] = (DatabusFault.ENCODING_UNKNOWN, f"It is {encoding!r:.60}.")
    payloads = pa.array(datums, pa.binary())
    for (number, schema_id), rows in of_schema.items():
        of_id = avro.parse_schema(schemas[number][schema_id])
        start = 0
        for decoded in avro.decode_parts(payloads.take(pa.array(rows)), of_id):
            for place in np.flatnonzero(decoded.errors.is_valid()).tolist():
                findings[rows[start + place]] = (DatabusFault.VALUE_UNREADABLE, decoded.errors[place].as_py())
            start += len(decoded.errors)
    return payloads
