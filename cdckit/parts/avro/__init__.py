"""Avro at speed: many datums of one schema to Arrow, one error for each that is wrong.

What an Avro type becomes, in Arrow and so in Spark (all of it may be null in Arrow's eyes):

| Avro | Arrow |
|---|---|
| null, boolean, int, long | null, bool, int32, int64 |
| float, double, bytes, string | float, double, binary, string |
| fixed | binary |
| enum | string |
| array, map, record | list, map<string, ...>, struct |
| union of null and one type in any order, or of one type alone | that type |
| union of several types | string: Avro's JSON encoding, `{"name of the branch": value}` |
| decimal of a precision up to 38 | decimal128 |
| date | date32 |
| timestamp-millis, -micros, -nanos | timestamp[us, UTC]; nanoseconds are cut off, towards the past |
| local-timestamp-millis, -micros, -nanos | timestamp[us] |
| time-millis, time-micros | int64, microseconds since midnight |
| uuid, of string or of fixed 16 | string |
| a logical type that is none of these, or does not fit its type | as if there were none |

Inside the JSON text, values are written as if there were no logical types.

A value that its type cannot mean is an error of its datum: a date or time outside the years 1 to
9999 (Python could not show it), a time of day outside the day, a decimal with more digits than its
precision, an enum or a union with a number that its schema lacks, a map with a key twice.
A timestamp of 0001-01-01 is a value all the same, though `collect` raises on it wherever it came
from: to show it, Python looks at the day before. Spark itself computes with it and stores it.

`parse_schema` takes the schema's text with suspicion. `decode_parts` takes datums and never raises on
one, nor makes more of one than is allowed; `decode` is the same for as many as one Arrow array holds.
"""

from cdckit.parts.installation import require_package

require_package("datafusion", extra="avro", part="Avro")

from cdckit.parts.avro.decoding import DecodedDatums, decode, decode_parts  # noqa: E402  what is missing is said before
from cdckit.parts.avro.schema import AvroSchema, SchemaRefused, parse_schema  # noqa: E402

__all__ = ["AvroSchema", "DecodedDatums", "SchemaRefused", "decode", "decode_parts", "parse_schema"]
