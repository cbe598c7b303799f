"""Changes and histories for the tests of the merge: random ones, hand-written ones, and their DataFrames.

Random histories are small on purpose: two keys, four instants, three values, three priorities.  Only then
do ties, re-deletes, recreations and redeliveries really meet.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from support.fold import fold, guid_of, identity

Row = dict[str, Any]
Pick = Callable[[Sequence[Any]], Any]

CASES = Path(__file__).parents[1] / "cases" / "merge"
NAN = float("nan")


class Kind(NamedTuple):
    """A type of business field: in Spark, in Arrow, and the few values that random histories use."""

    spark: T.DataType
    arrow: pa.DataType
    values: tuple[Any, ...]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_POINT = T.StructType([T.StructField("x", T.DoubleType()), T.StructField("y", T.StringType())])

KINDS = {
    "string": Kind(T.StringType(), pa.string(), ("", "a", "\u00e9\u4e2d", None)),
    "int": Kind(T.IntegerType(), pa.int32(), (0, 1, None)),
    "bigint": Kind(T.LongType(), pa.int64(), (2**62 + 1, 2**62, None)),
    "double": Kind(T.DoubleType(), pa.float64(), (1.5, NAN, None)),
    "float": Kind(T.FloatType(), pa.float32(), (0.5, NAN, None)),
    "boolean": Kind(T.BooleanType(), pa.bool_(), (True, False, None)),
    "decimal(12,2)": Kind(
        T.DecimalType(12, 2), pa.decimal128(12, 2), (Decimal("1.00"), Decimal("-2.50"), None)
    ),
    "date": Kind(T.DateType(), pa.date32(), (date(2013, 1, 1), date(1960, 2, 29), None)),
    "timestamp": Kind(
        T.TimestampType(),
        pa.timestamp("us", tz="UTC"),
        (_moment("2013-01-01T05:15:00.000001"), _moment("1969-12-31T23:59:59.999999"), None),
    ),
    "binary": Kind(T.BinaryType(), pa.binary(), (b"", b"\x00\xff", None)),
    "array<int>": Kind(T.ArrayType(T.IntegerType()), pa.list_(pa.int32()), ([], [1, None], None)),
    "array<double>": Kind(T.ArrayType(T.DoubleType()), pa.list_(pa.float64()), ([NAN], [NAN, 1.0], None)),
    "struct<x:double,y:string>": Kind(
        _POINT,
        pa.struct([("x", pa.float64()), ("y", pa.string())]),
        ({"x": NAN, "y": None}, {"x": NAN, "y": "a"}, None),
    ),
}

ARRIVAL = T.StructType(
    [
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("record_number", T.IntegerType()),
    ]
)
ENTRY = T.StructType([T.StructField("m", T.StringType()), T.StructField("p", T.IntegerType())])


# DataFrames ---------------------------------------------------------------------------------------------


def change_schema(
    fields: dict[str, str], *, field_priorities: bool = True, guid: bool = False, ends: bool = False
) -> T.StructType:
    """The columns of a change DataFrame with these business fields."""
    columns = [
        T.StructField("operation", T.StringType()),
        T.StructField("effective_timestamp", T.TimestampType()),
        T.StructField("sequence", T.StringType()),
        T.StructField("arrival", ARRIVAL),
        T.StructField("message_id", T.StringType()),
        T.StructField("source", T.StringType()),
        T.StructField("priority", T.IntegerType()),
        T.StructField("data", T.StructType([T.StructField(f, KINDS[t].spark) for f, t in fields.items()])),
        T.StructField("carried", T.StructType([T.StructField(f, T.BooleanType()) for f in fields])),
    ]
    if field_priorities:
        priorities = T.StructType([T.StructField(f, T.IntegerType()) for f in fields])
        columns.append(T.StructField("field_priorities", priorities))
    if guid:
        columns.append(T.StructField("guid", T.StringType()))
    if ends:
        columns.append(T.StructField("effective_until", T.TimestampType()))
    return T.StructType(columns)


def history_schema(fields: dict[str, str]) -> T.StructType:
    """The columns of the history of these business fields."""
    return T.StructType(
        [
            T.StructField("guid", T.StringType()),
            T.StructField("valid_from_timestamp", T.TimestampType()),
            T.StructField("valid_to_timestamp", T.TimestampType()),
            T.StructField("deleted_indicator", T.BooleanType()),
            *[T.StructField(f, KINDS[t].spark) for f, t in fields.items()],
            T.StructField("source_message", T.StringType()),
            T.StructField(
                "field_provenance", T.StructType([T.StructField(f, ENTRY) for f in ["guid", *fields]])
            ),
        ]
    )


def to_dataframe(spark: SparkSession, changes: Sequence[Row], fields: dict[str, str]) -> DataFrame:
    """The changes as a DataFrame; optional columns are there when any change has them."""
    schema = change_schema(
        fields,
        field_priorities=any("field_priorities" in change for change in changes),
        guid=any("guid" in change for change in changes),
        ends=any("effective_until" in change for change in changes),
    )
    return rows_to_dataframe(spark, changes, schema)


def rows_to_dataframe(spark: SparkSession, rows: Sequence[Row], schema: T.StructType) -> DataFrame:
    table = pa.Table.from_pylist(list(rows), schema=pa.schema([(f.name, _arrow(f.dataType)) for f in schema]))
    return spark.createDataFrame(table, schema=schema)


def _arrow(kind: T.DataType) -> pa.DataType:
    if isinstance(kind, T.StructType):
        return pa.struct([(field.name, _arrow(field.dataType)) for field in kind])
    return next(known.arrow for known in KINDS.values() if known.spark == kind)


def to_rows(history: DataFrame) -> list[Row]:
    """The rows of a history, by guid and time."""
    rows: list[Row] = history.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["guid"], row["valid_from_timestamp"]))


def at(hour: int, minute: int = 0, microsecond: int = 0) -> datetime:
    """A time of the day on which most versions begin."""
    return datetime(2024, 3, 10, hour, minute, 0, microsecond, tzinfo=UTC)


def holds(version: Row, instant: datetime) -> bool:
    """Whether a version is in force at an instant."""
    ends = version["valid_to_timestamp"]
    return bool(version["valid_from_timestamp"] <= instant and (ends is None or ends > instant))


def as_text(value: Any) -> str | None:
    """A value as a list of changes or differences shows it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return "NaN" if value != value else str(value)


# Comparison ---------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value in a form in which equal means identical: NaN is NaN, and 0.0 is not -0.0."""
    if isinstance(value, float):
        return f"float {value!r}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value


def assert_same(
    actual: Sequence[Row], expected: Sequence[Row], changes: Sequence[Row], guid: Callable[[Row], str]
) -> None:
    """The two histories are one; if not, show the entity with the fewest changes that they differ in."""
    found, wanted = by_guid(actual), by_guid(expected)
    differing = {g for g in found.keys() | wanted.keys() if found.get(g) != wanted.get(g)}
    if not differing:
        return
    told: dict[str, list[Row]] = {g: [] for g in differing}
    for change in changes:
        if guid(change) in told:
            told[guid(change)].append(change)
    smallest = min(differing, key=lambda g: (len(told[g]), g))
    lines = [f"{len(differing)} of {len(wanted)} entities differ; the smallest:", "changes, in no order:"]
    lines += [f"  {plain(change)}" for change in told[smallest]]
    lines += ["expected:", *[f"  {row}" for row in wanted.get(smallest, [])]]
    lines += ["found:", *[f"  {row}" for row in found.get(smallest, [])]]
    raise AssertionError("\n".join(lines))


def by_guid(rows: Iterable[Row]) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row["guid"], []).append(plain(row))
    return grouped


def assert_folds_to(history: DataFrame, changes: Sequence[Row], *, entity: str, keys: Sequence[str]) -> None:
    """*history* is what the fold makes of *changes*, to the last bit."""
    fields = list(changes[0]["data"])
    expected = fold(changes, entity=entity, keys=keys, fields=fields)
    assert_same(to_rows(history), expected, changes, lambda change: identity(change, entity, keys))


# Random histories ---------------------------------------------------------------------------------------

INSTANTS = (
    _moment("2024-01-01T00:00:00"),
    _moment("2024-01-01T00:00:00.000001"),
    _moment("1969-12-31T23:59:59.999999"),
    _moment("2024-06-01T12:00:00"),
)
LAST = _moment("2024-06-30T00:00:00")
ARRIVAL_TIMES = (_moment("2024-07-01T00:00:00"), _moment("2024-07-01T00:00:01"))
PRIORITIES = (0, -1, 2)
SOURCES = ("one", "two", None)
MIXTURE = (
    *("new", "new", "new", "new", "new", "record", "echo"),
    *("redelivery", "redelivery elsewhen", "namesake", "namesake in its place"),
)
OPERATIONS = (*("upsert",) * 6, *("delete",) * 3, "absent")
EXTREME_PRIORITIES = (0, -(2**31), 2**31 - 1)


def draw_history(
    pick: Pick,
    fields: dict[str, str],
    *,
    number: int,
    keys_carried: bool = True,
    guids: bool = False,
    priorities: Sequence[int] = PRIORITIES,
    longest: int = 10,
    exactly: int | None = None,
    ends: Sequence[bool] = (),
    instants: Sequence[datetime] = INSTANTS,
    operations: Sequence[str] = OPERATIONS,
    mixture: Sequence[str] = MIXTURE,
) -> list[Row]:
    """
    The changes of one small world, in which `h` is *number* and `k` one of two keys.

    *pick* chooses one of several options, so that a seeded generator and hypothesis can both drive it.
    A change may be a new message, another record of an earlier one, an earlier one that says the same
    again in another record (the only way to undo something, provenance included), a redelivery, or the
    namesake of an earlier one: a message of another source with the same id.  Where *ends* are given, one of
    them says of each change whether it may end.
    """
    changes: list[Row] = []
    for position in range(exactly or pick(range(1, longest + 1))):
        kind = pick(mixture)
        if kind == "echo" and changes:
            change = dict(pick(changes))
            change["arrival"] = draw_arrival(pick, record_number=position)
            change["effective_timestamp"] = pick(instants)
            changes.append(change)
            continue
        if kind.startswith("redelivery") and changes:
            change = dict(pick(changes))
            change["arrival"] = draw_arrival(pick, change["arrival"]["record_number"])
            if kind == "redelivery elsewhen":
                change["effective_timestamp"] = pick(instants)
                change["sequence"] = pick(("", "1", "2"))
            changes.append(change)
            continue
        namesake = pick(changes) if kind.startswith("namesake") and changes else None
        others = [] if namesake is None else _other_sources(changes, namesake)
        another_record = kind == "record" and changes
        message = pick(changes)["message_id"] if another_record else f"h{number}m{position}"
        key = {"h": number, "k": pick(("x", "x", "y"))}
        data = {name: key[name] if name in key else pick(KINDS[t].values) for name, t in fields.items()}
        change = {
            "operation": pick(operations),
            "effective_timestamp": pick(instants),
            "sequence": pick(("", "1", "2")),
            # Messages begin with record 0, so that arrivals tie and only the message id tells them apart.
            "arrival": draw_arrival(pick, record_number=position if another_record else 0),
            "message_id": message,
            "source": pick(SOURCES),
            "priority": pick(priorities),
            "field_priorities": draw_field_priorities(pick, fields, priorities),
            "data": data,
            "carried": {name: (name in key and keys_carried) or pick((True, True, False)) for name in fields},
        }
        if namesake is not None and others:
            change["message_id"] = namesake["message_id"]
            change["source"] = pick(others)
            change["arrival"] = draw_arrival(pick, namesake["arrival"]["record_number"])
            if kind == "namesake in its place":
                same = ("arrival", "effective_timestamp", "sequence")
                change.update((name, namesake[name]) for name in same)
        if guids:
            change["guid"] = f"h{number}-{pick(('one', 'one', 'two'))}"
        changes.append(change)
    known: dict[str, datetime | None] = {}
    for change in changes if ends else ():
        begin, record = change["effective_timestamp"], change["arrival"]["record_number"]
        later = [each for each in (*instants, LAST) if each > begin]
        # What is delivered again at its place says the same.
        word = repr((change["source"], change["message_id"], record, begin, change.get("guid")))
        change["effective_until"] = known.setdefault(word, pick(later) if pick(ends) else None)
    return changes


def _other_sources(changes: Sequence[Row], change: Row) -> list[str | None]:
    """The sources that have not used this message id and record number: none may say two things with it."""
    message, record = change["message_id"], change["arrival"]["record_number"]
    same = (
        each
        for each in changes
        if each["message_id"] == message and each["arrival"]["record_number"] == record
    )
    used = {each["source"] for each in same}
    return [each for each in SOURCES if each not in used]


def draw_arrival(pick: Pick, record_number: int) -> Row:
    return {
        "timestamp": pick(ARRIVAL_TIMES),
        "topic": pick(("t", "s")),
        "partition": pick((2, 10)),
        "offset": pick((2, 10)),
        "record_number": record_number,
    }


def draw_field_priorities(pick: Pick, fields: dict[str, str], priorities: Sequence[int]) -> Row | None:
    if pick((True, False)):
        return None
    return {name: pick((None, *priorities)) for name in fields}


def random_changes(seed: int, histories: int, fields: dict[str, str], **options: Any) -> list[Row]:
    """The changes of many independent histories, shuffled; the same for the same seed."""
    generator = random.Random(seed)
    changes = [
        change
        for number in range(histories)
        for change in draw_history(generator.choice, fields, number=number, **options)
    ]
    generator.shuffle(changes)
    return changes


def two_tables(chance: random.Random, changes: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Two tables of changes: in the second some are gone, some have come, and some have another priority."""
    mine, theirs = [], []
    for change in changes:
        fate = chance.choice(("both", "both", "both", "gone", "come", "other"))
        if fate != "come":
            mine.append(change)
        if fate != "gone":
            theirs.append({**change, "priority": change["priority"] + 1} if fate == "other" else change)
    return mine, theirs


@st.composite
def change_lists(draw: st.DrawFn, /, fields: dict[str, str], histories: int = 1, **options: Any) -> list[Row]:
    """The same histories as hypothesis draws and shrinks them."""

    def pick(options: Sequence[Any]) -> Any:
        return draw(st.sampled_from(options))

    return [
        change
        for number in range(histories)
        for change in draw_history(pick, fields, number=number, **options)
    ]


# Cases --------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One hand-written case of `cases/merge`, see the README there."""

    file: str
    name: str
    entity: str
    keys: list[str]
    fields: dict[str, str]
    changes: list[Row]
    history: list[Row]


def cases() -> list[Case]:
    """All cases, in the order of their files."""
    return [case for path in sorted(CASES.glob("*.json")) for case in read_cases(path)]


def read_cases(path: Path) -> list[Case]:
    document = json.loads(path.read_text(encoding="utf-8"))
    return [
        Case(
            file=path.stem,
            name=case["name"],
            entity=document["entity"],
            keys=document["keys"],
            fields=document["fields"],
            changes=[_change(row, place, document) for place, row in enumerate(case["changes"])],
            history=[_version(row, document) for row in case["history"]],
        )
        for case in document["cases"]
    ]


def _change(row: Row, place: int, document: Row) -> Row:
    arrival = row.get("arrival", {"timestamp": "00:00", "topic": "t", "partition": 0, "offset": place})
    priorities, sent, unsent = row.get("field_priorities"), row["data"], row.get("unsent", {})
    until = {"effective_until": row["until"] and _time(row["until"], document)} if "until" in row else {}
    change = {
        **until,
        "operation": row["op"],
        "effective_timestamp": _time(row["at"], document),
        "sequence": row.get("sequence", ""),
        "arrival": {
            **arrival,
            "timestamp": _time(arrival["timestamp"], document),
            "record_number": row.get("record", 0),
        },
        "message_id": row["message"],
        "source": row.get("source", ""),
        "priority": row.get("priority", 0),
        "field_priorities": priorities and {name: priorities.get(name) for name in document["fields"]},
        "data": {name: sent.get(name, unsent.get(name)) for name in document["fields"]},
        "carried": {name: name in sent for name in document["fields"]},
    }
    return change | ({"guid": row["guid"]} if "guid" in row else {})


def _version(row: Row, document: Row) -> Row:
    provenance = {name: row["provenance"].get(name) for name in ["guid", *document["fields"]]}
    return {
        "guid": row["guid"] if "guid" in row else guid_of(document["entity"], row["key"]),
        "valid_from_timestamp": _time(row["from"], document),
        "valid_to_timestamp": row["to"] and _time(row["to"], document),
        "deleted_indicator": row["deleted"],
        **{name: row["values"].get(name) for name in document["fields"]},
        "source_message": row["message"],
        "field_provenance": {
            name: entry and {"m": entry[0], "p": entry[1]} for name, entry in provenance.items()
        },
    }


def _time(text: str, document: Row) -> datetime:
    return _moment(f"{document['date']}T{text}")
