"""The rows of one table, typed and exact, and which of their columns were sent."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple
from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.debezium.column_types import Columns, encoding, find_keys, is_event_of, is_schema
from cdckit.debezium.column_types import columns as columns_of
from cdckit.debezium.encodings import (
    UNTYPED,
    Encoding,
    digits,
    read_marked,
    with_points,
    without_point,
)
from cdckit.debezium.events import (
    DELETE,
    OF_ROWS,
    READ,
    TEXTS,
    TRUNCATE,
    UPDATE,
    EventFault,
    Kind,
    error_columns,
    explode_made,
    require_events,
    without_schema,
)
from cdckit.debezium.json_events import MONGODB
from cdckit.errors import InvalidArgument
from cdckit.model.changes import UNTYPED as UNTYPED_FIELDS
from cdckit.model.records import ERROR_CODE, ERROR_DESCRIPTION, RECORD_COLUMNS
from cdckit.parts.arguments import quoted, require_distinct_names, require_keys, require_name
from cdckit.parts.columns import built_once
from cdckit.parts.widening import as_type, common_spark_type, is_number_beside_time

_IMAGES = ("before", "after")
_ENVELOPE = T.StructType([T.StructField(name, TEXTS) for name in _IMAGES])
_VALUE = T.StructType([*_ENVELOPE, T.StructField("payload", _ENVELOPE)])
_MAYBE_BASE64 = r"^(?:true|(?:\d{4})+|\d+[eE]\+?\d+)$"
"""A number or a word, or Base64."""


def told_from_base64(coded: Sequence[str]) -> dict[str, Column]:
    """
    An event's `before`, `after` and `row_key` in which no number can be taken for Base64.

    A whole number, or `true`, of a column whose texts are Base64 has a point behind it.  Few values may be
    either; the events of these are read once more.
    """
    if not coded:
        # Spark Connect adds no columns where none are named.
        return {"row_key": F.col("row_key")}
    unclear = [F.col(image)[name].rlike(_MAYBE_BASE64) for image in _IMAGES for name in coded]
    again = F.when(reduce(or_, unclear), _images(coded))
    # What both need Spark works out once; in a step of its own it would have to be carried there.
    return {"row_key": _key(coded), **{name: F.coalesce(again[name], F.col(name)) for name in _IMAGES}}


def coded_names(encodings: Mapping[str, Sequence[Encoding]]) -> list[str]:
    """The columns of which a text is Base64."""
    return [name for name, each in encodings.items() if any(kind.coded for kind in each)]


def exact_key(text: Column, coded: Sequence[str]) -> Column:
    """The columns of a key that is JSON text, as `told_from_base64` has those of a row."""
    return _exact_image(read_marked(text, TEXTS, chosen=without_schema), coded)


def _images(coded: Sequence[str]) -> Column:
    fields = F.transform(
        F.array(read_marked(_given_text("value"), _VALUE)),
        lambda value: F.struct(
            *(
                _exact_image(F.coalesce(value["payload"][name], value[name]), coded).alias(name)
                for name in _IMAGES
            )
        ),
    )
    return F.element_at(fields, 1)


def _key(coded: Sequence[str]) -> Column:
    """The key of a delete; of any other event the row itself says it."""
    exact = F.when(~F.col("connector").eqNullSafe(F.lit(MONGODB)), exact_key(_given_text("key"), coded))
    return F.when(F.col("operation") == DELETE, F.coalesce(exact, F.col("row_key")))


def _given_text(name: str) -> Column:
    return F.try_validate_utf8(F.col(name).cast("string"))


def _exact_image(image: Column, coded: Sequence[str]) -> Column:
    def own(name: Column, value: Column) -> Column:
        return (
            F.when(name.isin(*coded), with_points(value)).otherwise(digits(value)) if coded else digits(value)
        )

    return F.transform_values(image, own)


PLACEHOLDER = "__debezium_unavailable_value"
"""What Debezium writes, unless told otherwise, for a large value that did not change."""

UNREADABLE = ("reject", "null")
"""What a value that its column's type cannot hold costs: its row, or itself alone."""

KEPT = (
    "source", "operation", "snapshot", "event_timestamp", "time_taken_from", "position", "transaction_id",
    "new_key", "old_key",
)  # fmt: skip

_MADE = ("data", "carried", "old", "moved", "faults", ERROR_CODE, ERROR_DESCRIPTION)
"""What is made of the texts of an event."""


def table_rows(
    decoded: DataFrame,
    table: str,
    *,
    keys: Sequence[str] | None = None,
    columns: Columns | None = None,
    placeholder: str = PLACEHOLDER,
    unreadable: str = "reject",
) -> DataFrame:
    """
    The rows of one table, typed; what cannot be a change of it is in error.

    `changes` is made of these; ask for them yourself to see the rejects: `rejects(table_rows(…))`.

    Args:
        decoded, table, keys, columns, placeholder, unreadable: As for `changes`.

    Returns:
        One row per record that is about a row of the table, in no order: the columns of the record; of the
        event (`cdckit.debezium.EVENT_SCHEMA`) `source`, `operation`, `snapshot`, `event_timestamp`,
        `time_taken_from`, `position`, `transaction_id`, `new_key` and `old_key`; `data`, the row, of a
        delete the row that was; `carried`, whether each column was sent; `old`, the key columns as they
        were; `moved`, whether this event gave the row another key; `faults`, with `unreadable="null"` the
        values that their columns' types cannot hold, each behind the name of its column, null without one;
        `error_code` and `error_description`.

    Raises:
        As `changes`.

    Cost: a projection, no shuffle; with `decode` three to four times the processor time that `from_json` of
        the same text takes (seen with 1,000,000 events of ten columns).

    >>> from cdckit import debezium
    >>> rows = debezium.table_rows(decoded, "products", keys=["id"])
    >>> rows.orderBy("offset").select("operation", "data", "carried.name", "error_code").show(truncate=False)
    +---------+------------------+-----+----------+
    |operation|data              |name |error_code|
    +---------+------------------+-----+----------+
    |c        |{1, kettle, 19.90}|true |NULL      |
    |u        |{1, NULL, 17.50}  |false|NULL      |
    |d        |{1, NULL, NULL}   |false|NULL      |
    +---------+------------------+-----+----------+
    <BLANKLINE>
    """
    rows = typed_rows(decoded, table, keys, columns, placeholder, unreadable, OF_ROWS)
    return explode_made(rows.drop("apart", "other"), _MADE)


def typed_rows(
    decoded: DataFrame,
    table: str,
    keys: Sequence[str] | None,
    columns: Columns | None,
    placeholder: str,
    unreadable: str,
    operations: Sequence[str],
) -> DataFrame:
    """
    The rows of `table_rows`, what tells them `apart` at one position, and the `other` key of their headers.

    Of truncates all of the row is null.
    """
    require_events(decoded, function="changes")
    require_name(table, "table", function="changes")
    if unreadable not in UNREADABLE:
        raise InvalidArgument("changes", "unreadable", f"one of {', '.join(UNREADABLE)}", unreadable)
    column_types = _columns(decoded, table, columns)
    named = require_keys(
        find_keys(decoded, table) if keys is None else keys, list(column_types), function="changes"
    )
    steps = _steps(
        table, tuple(column_types.items()), tuple(named), placeholder, unreadable, tuple(operations)
    )
    sent = decoded.where(steps.is_change).withColumns(steps.exact).select(*steps.sent)
    return sent.withColumns(steps.texts).withColumns(steps.values).select(*steps.rows)


class _Steps(NamedTuple):
    """The columns of each step from the events of a table to its rows."""

    is_change: Column
    exact: dict[str, Column]
    sent: list[Column]
    texts: dict[str, Column]
    values: dict[str, Column]
    rows: list[Column]


@built_once
def _steps(
    table: str,
    types_of_columns: tuple[tuple[str, tuple[str, ...]], ...],
    keys: tuple[str, ...],
    placeholder: str,
    unreadable: str,
    operations: tuple[str, ...],
) -> _Steps:
    column_types = dict(types_of_columns)
    encodings = {name: _encodings(name, types) for name, types in column_types.items()}
    coded = coded_names(encodings)
    varied = [name for name, types in column_types.items() if len(types) > 1]
    is_row = F.col("operation").isin(*operations) & F.col("kind").isin(Kind.ROW, Kind.TRUNCATE)
    is_sound = is_row & F.col(ERROR_CODE).isNull()
    kept = [F.col(name) for name in (*RECORD_COLUMNS, *KEPT)]
    sent = [
        *kept,
        *map(F.col, ("before", "after", "row_key", *(["types"] if varied else []))),
        _apart().alias("apart"),
        F.col("connector").eqNullSafe(F.lit(MONGODB)).alias("is_whole"),
        _other_key(coded).alias("other_key"),
    ]
    rows = [
        *kept,
        F.col("apart"),
        F.col("data").alias("data", metadata={UNTYPED_FIELDS: _untyped(column_types)}),
        F.col("carried"),
        F.col("old"),
        _is_moved(keys).alias("moved"),
        F.when(_all_there("other", keys), F.col("other")).alias("other"),
        *_errors(list(column_types), keys, unreadable, coded),
    ]
    return _Steps(
        is_change=is_event_of(table, function="changes") & is_sound,
        exact=told_from_base64(coded),
        sent=sent,
        texts=_texts(list(column_types), keys, varied, placeholders(placeholder)),
        # Where all that is wrong is asked of them, the values are columns already: each is in the plan once.
        values=_make_row(column_types, encodings, keys),
        rows=rows,
    )


def _encodings(name: str, types: Sequence[str]) -> list[Encoding]:
    found = [encoding(type_text, function="changes") for type_text in types]
    has_parts = any(isinstance(each.type, T.ArrayType | T.MapType | T.StructType) for each in found)
    if has_parts and len(types) > 1 and not all(map(is_schema, types)):
        needed = "of several types with parts as columns names them: by the schemas, which tell them apart"
        raise InvalidArgument("changes", f"columns[{name!r}]", needed, list(types))
    return found


def _other_key(coded: Sequence[str]) -> Column:
    """The columns of the key to which a row went, or from which it came, as a header says."""
    text = F.when(F.col("operation") == DELETE, F.col("new_key")).otherwise(F.col("old_key"))
    return exact_key(text, coded)


def _apart() -> Column:
    """
    What tells events at one position apart.

    Of MySQL a hash of both rows: events of a compressed transaction may share one.  Of what a snapshot read
    the table: it has one for all its tables, and two of them may be of one entity.
    """
    images = [F.map_entries(name) for name in ("before", "after")]
    content = F.when(F.col("connector").isin("mysql", "mariadb"), F.hex(F.xxhash64(*images)))
    table = F.when(F.col("operation") == READ, F.concat_ws(".", "db", "schema", "table"))
    return F.coalesce(content, table)


def _texts(
    names: Sequence[str], keys: Sequence[str], varied: Sequence[str], absent: Sequence[str]
) -> dict[str, Column]:
    """All that is taken from the maps of an event, under the names that `_text_column` knows."""
    said = {name: _said(name, name in keys, absent) for name in names}
    return {
        **{f"text of {name}": text for name, (text, _) in said.items()},
        **{f"carried {name}": carried for name, (_, carried) in said.items()},
        **{f"old text of {name}": _old_text(name) for name in keys},
        **{f"other text of {name}": F.col("other_key")[name] for name in keys},
        **{f"type of {name}": F.try_element_at("types", F.lit(name)) for name in varied},
    }


def _make_row(
    column_types: Mapping[str, Sequence[str]],
    encodings: Mapping[str, Sequence[Encoding]],
    keys: Sequence[str],
) -> dict[str, Column]:
    """The row of the table, which of its columns were sent, its key before, and the key that headers name."""

    def typed(texts: str, names: Iterable[str]) -> Column:
        values = {name: _typed_value(texts, name, column_types[name], encodings[name]) for name in names}
        return F.struct(*(value.alias(name) for name, value in values.items()))

    return {
        "data": typed("text of", column_types),
        "carried": F.struct(*(_text_column("carried", name).alias(name) for name in column_types)),
        "old": typed("old text of", keys),
        "other": typed("other text of", keys),
    }


def _is_moved(keys: Sequence[str]) -> Column:
    changed = (~_text_column("old text of", name).eqNullSafe(_text_column("text of", name)) for name in keys)
    return (F.col("operation") == UPDATE) & reduce(or_, changed)


def _all_there(row: str, names: Sequence[str]) -> Column:
    return reduce(and_, (F.col(row)[name].isNotNull() for name in names))


def _text_column(what: str, name: str) -> Column:
    return F.col(quoted(f"{what} {name}"))


def placeholders(placeholder: str) -> list[str]:
    """
    The texts by which Debezium says that a value is not available, by the type of its column.

    Text and JSON; bytes, in Base64; lists of these; a list of numbers, which are its bytes; an hstore; and a
    list of UUIDs, made of its bytes.

    >>> placeholders("p")
    ['p', 'cA==', '["p"]', '["cA=="]', '[112]', '{"p":"p"}', '["83878c91-1713-3890-ae0f-e0fb97a8c47a"]']
    """
    raw = placeholder.encode()
    coded = base64.b64encode(raw).decode()
    by_name = UUID(bytes=hashlib.md5(raw, usedforsecurity=False).digest(), version=3)
    lists = [[placeholder], [coded], list(raw), {placeholder: placeholder}, [str(by_name)]]
    return [
        placeholder,
        coded,
        *(json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in lists),
    ]


def _columns(decoded: DataFrame, table: str, given: Columns | None) -> dict[str, tuple[str, ...]]:
    if given is None:
        found = columns_of(decoded, table)
        require_distinct_names(found, "columns", function="changes")
        return _require_one_writing(found)
    if not isinstance(given, Mapping) or not given:
        needed = 'a mapping of column to type, such as {"id": "int64"}'
        raise InvalidArgument("changes", "columns", needed, given)
    require_distinct_names(given, "columns", function="changes")
    listed = {name: (types,) if isinstance(types, str) else tuple(types) for name, types in given.items()}
    return _require_one_writing(listed)


def _untyped(column_types: Mapping[str, Sequence[str]]) -> list[str]:
    return [name for name, types in column_types.items() if UNTYPED in types]


def _require_one_writing(found: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The same columns; raises where events with types and events without any are about one of them."""
    mixed = {name: found[name] for name in _untyped(found) if len(found[name]) > 1}
    if mixed:
        needed = "given: some events do not say how they write a column of which others say it"
        said = {
            name: tuple(each for each in types if each != UNTYPED) or types for name, types in found.items()
        }
        given = {name: types[0] if len(types) == 1 else types for name, types in said.items()}
        example = f"changes(…, columns={given}), if all of them write so"
        raise InvalidArgument("changes", "columns", needed, mixed, example)
    return found


def _said(name: str, is_key: bool, absent: Sequence[str]) -> tuple[Column, Column]:
    """
    The text of a column's value, and whether it is what the event says, null or not.

    Of a delete, which says no more than its key, that alone.  What was not sent because it did not change is
    what it was before, if that was sent.  A null there is no value: Debezium fills up with them what `before`
    does not hold.  A document of MongoDB is sent whole: of a field that it lacks nothing is left.
    """
    now, before = F.col("after")[name], F.col("before")[name]
    is_delete = F.col("operation") == DELETE
    of_delete = F.coalesce(before, F.col("row_key")[name]) if is_key else F.lit(None).cast("string")
    # Asked first, of both: what is needed twice in any case, Spark looks up once.
    is_sent = F.coalesce(~_is_any_of(now, absent), F.lit(False)) & ~is_delete
    is_null = now.isNull() & (F.col("is_whole") | F.coalesce(F.map_contains_key("after", name), F.lit(False)))
    was_sent = ~_is_any_of(before, absent)
    text = F.when(is_sent, now).when(is_delete, of_delete).when(~is_null & was_sent, before)
    carried = F.when(is_sent, True).when(is_delete, F.lit(is_key)).when(is_null, True)
    return text, carried.otherwise(F.coalesce(was_sent, F.lit(False)))


def _is_any_of(text: Column, absent: Sequence[str]) -> Column:
    """Whether a text is one of these; by its length nearly none is looked at."""
    lengths = sorted({len(each.encode()) for each in absent})
    return F.octet_length(text).isin(*lengths) & text.isin(*absent)


def _old_text(name: str) -> Column:
    """
    The text of a key column before the event, which may have sent only what changed.

    Where another index than the primary key is a table's replica identity, `before` has null for the key.
    """
    return F.coalesce(F.col("before")[name], F.col("after")[name])


def _typed_value(texts: str, name: str, types: Sequence[str], encodings: Sequence[Encoding]) -> Column:
    """The value of a column, read as the event's own type of it where there are several; without one null."""
    common = _common_type(name, encodings)
    *others, value = [
        as_type(each.read(_text_column(texts, name)), each.type, common, name) for each in encodings
    ]
    if others:
        value = F.when(_text_column("type of", name).isNotNull(), value)
    for type_text, other in zip(types, others, strict=False):
        value = F.when(_text_column("type of", name) == type_text, other).otherwise(value)
    return value


def _common_type(name: str, encodings: Sequence[Encoding]) -> T.DataType:
    common = encodings[0].type
    for each in encodings[1:]:
        wider = common_spark_type(common, each.type)
        if wider is None or is_number_beside_time(common, each.type):
            needed = (
                f"of types that have one in common: {common.simpleString()} is none of a value of that kind"
            )
            raise InvalidArgument("changes", f"columns[{name!r}]", needed, each.type.simpleString())
        common = wider
    return common


def _errors(names: Sequence[str], keys: Sequence[str], unreadable: str, coded: Sequence[str]) -> list[Column]:
    """What is wrong with a row; a key that cannot be read, now or before, always costs it."""
    missing = {key: F.col("data")[key].isNull() for key in keys}
    unread = {name: _is_unread("text of", name, F.col("data")[name]) for name in names}
    says = {name: _unread_finding("text of", name, coded) for name in names}
    invalid = {name: each for name, each in unread.items() if unreadable == "reject" or name in keys}
    for key in keys:
        says[key] = F.when(unread[key], says[key]).otherwise(_unread_finding("old text of", key, coded))
        invalid[key] |= _is_unread("old text of", key, F.col("old")[key])
    faults = F.lit(None).cast("array<string>")
    if unreadable == "null":
        named = F.array_compact(F.array(*(F.when(each, says[name]) for name, each in unread.items())))
        faults = F.when(reduce(or_, unread.values()), named)
    found = error_columns(
        [
            (EventFault.VALUE_INVALID, reduce(or_, invalid.values()), _first_finding(invalid, says)),
            (
                EventFault.KEY_MISSING,
                (F.col("operation") != TRUNCATE) & reduce(or_, missing.values()),
                _first_finding(missing, {key: F.lit(key) for key in keys}),
            ),
        ]
    )
    found = {"faults": faults, **found}
    return [column.alias(name) for name, column in found.items()]


def _is_unread(texts: str, name: str, value: Column) -> Column:
    return _text_column(texts, name).isNotNull() & value.isNull()


def _unread_finding(texts: str, name: str, coded: Sequence[str]) -> Column:
    text = F.substring(_text_column(texts, name), 1, 200)
    return F.concat(F.lit(f"{name}: "), without_point(text) if name in coded else text)


def _first_finding(conditions: Mapping[str, Column], says: Mapping[str, Column]) -> Column:
    """What is said of the first name whose condition holds."""
    return F.coalesce(*(F.when(condition, says[name]) for name, condition in conditions.items()))
