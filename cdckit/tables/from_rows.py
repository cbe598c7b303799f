"""Changes from a log of rows: each row is one statement about one entity."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from inspect import signature
from operator import and_
from types import SimpleNamespace
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.model.changes import UNTIL, note_empty
from cdckit.model.faults import ERROR_CODE, ERROR_DESCRIPTION
from cdckit.model.history import is_never, open_end
from cdckit.model.list_comparison import CORRUPT
from cdckit.parts.argument_forms import one_of, takes
from cdckit.parts.arguments import quoted, require_batch, require_instant, require_int, with_number
from cdckit.parts.job_descriptions import describe_step
from cdckit.parts.public_calls import called_function
from cdckit.parts.tables import AnyTable
from cdckit.parts.values import as_text, comparable, has_times, is_outside_years, within_years
from cdckit.tables.statements import (
    Words,
    change_columns,
    error_columns,
    record_columns,
    row_reject,
    with_digest,
)
from cdckit.tables.table_arguments import (
    GivenTable,
    TableArguments,
    as_table,
    column_name,
    expression_text,
    first_of,
)
from cdckit.tables.times import (
    TEXTS,
    TypedColumn,
    as_instant,
    is_text_of_never,
    is_time,
    order_text,
    other_day,
)
from cdckit.tables.truncates import IS_TRUNCATE, with_absences

_LOG = logging.getLogger(__name__)


@takes()
def changes_from(
    frame: AnyTable,
    *,
    keys: Sequence[str | Column],
    sequence_by: str | Column | Sequence[str | Column] | None = None,
    source: str | Column = "table",
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    ignore_null_updates: bool | Sequence[str | Column] = True,
    empty_texts: str = "value",
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    effective: str | Column | datetime | None = None,
    valid_from: str | Column | datetime | None = None,
    valid_to: str | Column | datetime | None = None,
    message: str | Column | None = None,
    priority: int = 0,
) -> DataFrame:
    """
    Changes from any table in which a row says what one entity is like: an export, a CSV, a log of rows.

    A row without a key or a time, with a time outside the years 1 to 9999, or one that could not be read, is
    a reject: no change, and no error.  It is among the changes all the same: `rejects(changes)` shows it,
    `merge` passes over it, a `Ledger` counts and keeps it.  Of a table that is not Spark's a warning is
    logged that says how many there are, and why, and how many rows lack the time in *sequence_by*.  Spark's
    nobody reads before it is asked for: look at `rejects(changes)` before you believe the history.

    The words are those of Spark's `create_auto_cdc_flow`.  A text is the name of a column or, where there is
    none of that name, an SQL expression over the columns; a number is the name of a column of pandas.

    Args:
        frame: A DataFrame of Spark, or one of pandas: its rows have the order in which they stand, its
            missing values (NaN, NaT, NA, None) are null, its index is left out, and its datetimes without
            a zone are instants of UTC.  Or one that speaks Arrow's stream, by the same rules, but that NaN
            is a value: of polars, DuckDB (`duckdb.sql(…)`), ibis, pyarrow.  The page "Types" lists
            the types.
        keys: The columns that say which entity a row is about.  One of several may be null; a row
            with none but nulls is a reject.  Of pandas, floats that are whole numbers, which an empty cell
            makes of them, are these numbers again, where they have lost no digits (below 2**53).
        sequence_by: What the rows of one entity are in order by: numbers, times, texts, or several of these
            as a list or a struct.  ISO 8601 texts with a clock, and `Z`, a zone as `+02:00` or `+02` or none,
            are in the order of their instants, with all digits of a second, as nanoseconds are; other texts
            by their bytes ("10" stands before "9", so cast numbers that were read as text); a row with a day
            in a form that does not sort, such as 5.1.2024, is a reject.  Null stands first.  Times that an
            expression makes have microseconds, as Spark's have: name a column of nanoseconds as it is.
            Without it the rows of pandas are in the order in which they stand, those of Spark in none (see
            Returns).
        source: Who says so: a name, or a Column.
        apply_as_deletes: The condition under which a row deletes its entity.  Null is no.
        apply_as_truncates: The condition under which a row says that nothing of what its source said
            before it is so any more; its key does not matter.  Entities that the source last said to be there
            are absent from then on, unless a later row says them again.  Of rows at one place
            the truncate comes first; a row that is both is a truncate.
        ignore_null_updates: Whether a null says nothing (True), or is a value like any other (False); or
            the columns of which a null says nothing.  Spark's default is False.  Here it is True, because
            many tables leave out what they do not know, and False would silently erase with it what was
            known before; what True does wrong, a value that should have been cleared, still stands there.
        empty_texts: What an empty text says, in a key or another field: "value", it is a value like any
            other; "null", it is null as a value, which clears the field; "unsent", it says nothing.  The
            last two hold whatever *ignore_null_updates* says of null, so that a table can tell the two apart.
        column_list: The columns that become fields, beside the keys.  Without it all, as in Spark: also
            those that say the order or the operation.  One in which nothing stands says no type: it is text,
            or what a ledger or `union_changes` knows of it.
        except_column_list: Those that do not become fields.
        effective: When it is true: a timestamp, a date (from its beginning) or an ISO 8601 text, all
            of UTC where they say no zone; or one instant for the whole table, an aware datetime.  A row with
            null there, or a text that is no instant, is a reject.  Texts of another form are read by an
            expression, those of several forms by a `coalesce` of such:
            `"coalesce(try_to_timestamp(at, 'd.M.yyyy'), try_to_timestamp(at, 'M/d/yyyy'))"`.  (`to_timestamp`
            would end the job at the first other text.)  Without it, when it was
            sequenced, if the first (or only) part of *sequence_by* is a time by its type or, of a table that
            is not Spark's, by ISO 8601 texts in it (a row with another text is a reject).  A table
            with neither an order nor a time says what is so: it is true since 1970-01-01, which stands
            for a time that nobody said, and of several rows of one entity the last counts.
        valid_from: Of a table that brings both times, such as one of type 2: from when on a row is true, said
            as *effective* is, and instead of it.
        valid_to: And until when, exclusive (`effective_until`).  Null, an empty text, `infinity`, an end in
            the year 9999 or later, or another that `scd_type_2` has put there (`valid_to_current`) and the
            metadata of the column still name, is open: until something else is said.  A row that ends before
            it begins, or as it does, is a reject; so is one whose texts, of one column or of several, an
            expression cannot read, such as "x" by `try_to_timestamp(until)`, unless it names null as a value,
            as for a text that means an open end: `if(until = 'x', null, try_to_timestamp(until))`.  Columns
            that these two name are no fields, unless *column_list* has them.  The end is a part of the
            message: a row that has got one since the table was applied to a ledger is another message, beside
            which the open one still stands.  Where that would be seen beside what follows, the ledger refuses
            the table (`OpenInLedger`): `Ledger.revoke` its open rows before it is applied again.
        message: What identifies the message: provenance will name it.  Null is as none.  Rows of one message
            that differ are several statements, equal ones are one.
        priority: How much it counts (see `with_priorities`).

    Returns:
        One row per row of the table, and for each truncate one for each entity that it ends
        (`cdckit.model.CHANGE_SCHEMA`); `reject` is null but in rejects.  Without *message*, `message_id` is
        the source and a digest of the row, its place, its time and how it was read (as a delete, or with
        which of the columns), so that equal rows are one message and a table that is read again, and not
        otherwise, says nothing new: also one that says again what another one has replaced since, at the
        same time, unless *message* tells the two apart.  The place of a row is a part of it only where that
        is its order: in pandas, without *sequence_by*.  Of rows with one entity, time and sequence the later
        one counts in pandas, also if it says once more what another one has replaced; in Spark one that is
        the same in every run, but arbitrary.  `arrival.timestamp`, which `as_known` goes by, is when a row
        was sequenced if that is a time, by its type or as ISO 8601 text; else its effective time, as if it
        had been known from the beginning.

        Of two tables of one source that speak of an entity at one instant, the one that a `Ledger` took later
        counts, or that `union_changes` was given later.  Sequences of two forms are a tie, which is decided
        arbitrarily.  Say whose word counts: *priority*, or `with_priorities` (see `union_changes`).

    Raises:
        UnfitTable: Columns that the call names are missing, or of types that cannot mean that; all of it at
            once, with the names that are near and the columns that there are.  Or the sequence is no time,
            and *effective* does not say one.
        InvalidArgument: *frame* is no table, or has columns of types that a history cannot have; *source* is
            no name, *priority* no whole number, *effective* a datetime without a zone, *empty_texts* another
            word; *frame* is a stream and there are truncates.

    Cost: a projection, no shuffle; of a table that is not Spark's also one pass that counts the rejects,
    a look whether a sequence of texts has times in it, and with *sequence_by* one shuffle by entity.
    With truncates, the table is read three times and its keys are shuffled once; truncates are few, and are
    broadcast.  A truncate knows the entities of this table alone.

    >>> log = session().createDataFrame(
    ...     [
    ...         (1, "kettle", 20, "2024-01-01"),
    ...         (1, "kettle", None, "2024-02-01"),
    ...         (1, "teapot", 25, "2024-03-01"),
    ...         (2, "mug", 5, "2024-01-01"),
    ...     ],
    ...     "id int, name string, price int, day string",
    ... )
    >>> changes = changes_from(
    ...     log,
    ...     keys=["id"],
    ...     sequence_by="cast(day as date)",
    ...     apply_as_deletes="name = 'mug' and day > '2024-01-01'",
    ...     except_column_list=["day"],
    ... )
    >>> changes.orderBy("data.id", "sequence").select("effective_timestamp", "data", "carried").show()
    +-------------------+-----------------+-------------------+
    |effective_timestamp|             data|            carried|
    +-------------------+-----------------+-------------------+
    |2024-01-01 00:00:00|  {1, kettle, 20}| {true, true, true}|
    |2024-02-01 00:00:00|{1, kettle, NULL}|{true, true, false}|
    |2024-03-01 00:00:00|  {1, teapot, 25}| {true, true, true}|
    |2024-01-01 00:00:00|      {2, mug, 5}| {true, true, true}|
    +-------------------+-----------------+-------------------+
    <BLANKLINE>
    >>> from cdckit import merge
    >>> merge(changes, entity="product", keys=["id"]).where("id = 1").orderBy("valid_from_timestamp").select(
    ...     "id", "name", "price", "valid_from_timestamp", "valid_to_timestamp"
    ... ).show()
    +---+------+-----+--------------------+-------------------+
    | id|  name|price|valid_from_timestamp| valid_to_timestamp|
    +---+------+-----+--------------------+-------------------+
    |  1|kettle|   20| 2024-01-01 00:00:00|2024-03-01 00:00:00|
    |  1|teapot|   25| 2024-03-01 00:00:00|               NULL|
    +---+------+-----+--------------------+-------------------+
    <BLANKLINE>
    >>> changes_from(log, keys=["Id"], sequence_by="day_of_change")
    Traceback (most recent call last):
    ...
    cdckit.tables.table_arguments.UnfitTable: changes_from() cannot read the table: keys names Id, ...
    """
    # Before any other name is bound here: these are the parameters.
    read = _read(**locals())
    if read.is_local:
        read.warn()
    changes = read.changes()
    if apply_as_truncates is None:
        return changes.drop(IS_TRUNCATE)
    require_batch(read.frame, "frame", "leave the truncates out")
    return with_absences(changes, read.words.keys, read.frame.schema)


@takes()
def table_rows(frame: AnyTable, **arguments: Any) -> DataFrame:
    """
    The rows of a table, each as a change or as a reject.

    `changes_from` has no records but of its rejects; ask for these to see the others, too.

    Args:
        frame: The table.
        arguments: Those of `changes_from`.

    Returns:
        One row per row of the table: the columns of a change, with `is_truncate`; the row as a record, whose
        `value` is its JSON, or what could not be read, and whose `offset` is its number in pandas and 0 in
        Spark; and, for a reject, `error_code` (see `TableFault`) and `error_description`.

        A row that could not be read is known by its column `_corrupt_record`, of text or bytes, which is no
        field: `spark.read.schema("id int, price int, _corrupt_record string").csv(…, header=True)`.  Without
        that column in the schema Spark makes nulls of what it cannot read, and nobody can tell any more.
        Whoever reads messages puts there what has an operation that nobody knows, too.

    Raises:
        As `changes_from`.

    Cost: a projection, no shuffle.

    >>> from cdckit import rejects
    >>> log = session().createDataFrame(
    ...     [(1, "2024-01-01"), (2, "03/04/2024"), (None, "2024-01-01")], "id int, at string"
    ... )
    >>> how = {"keys": ["id"], "effective": "at", "source": "shop"}
    >>> refused = rejects(table_rows(log, **how)).orderBy("error_code")
    >>> refused.select(F.col("value").cast("string").alias("value"), "error_code").show(truncate=False)
    +--------------------------+---------------+
    |value                     |error_code     |
    +--------------------------+---------------+
    |{"at":"2024-01-01"}       |KEY_MISSING    |
    |{"id":2,"at":"03/04/2024"}|TIME_UNREADABLE|
    +--------------------------+---------------+
    <BLANKLINE>
    """
    call = signature(changes_from).bind(frame, **arguments)
    call.apply_defaults()
    return _read(**call.arguments).rows()


class _Read(NamedTuple):
    """What the rows of a table say, what is wrong with them, and the table."""

    statements: DataFrame
    words: Words
    frame: DataFrame
    is_local: bool
    empty: dict[str, T.DataType]
    """The fields in which, or in parts of which, nothing stands: see `note_empty`."""

    def warn(self) -> None:
        """Log a warning where rows are rejects, and where nobody can tell when they came."""
        with describe_step(self.frame.sparkSession, "changes_from: count the rejects"):
            code = error_columns(self.words)[ERROR_CODE]
            by_fate = self.statements.groupBy(code.alias("code"), "lacks_arrival").count().collect()
            unknown = sum(many for code, lacks, many in by_fate if lacks and code is None)
            rejected = sum(many for code, _, many in by_fate if code is not None)
            if rejected:
                refused = self.rows().where(F.col(ERROR_CODE).isNotNull()).groupBy(ERROR_CODE)
                faults = refused.agg(F.count("*"), F.min(ERROR_DESCRIPTION)).orderBy(ERROR_CODE).collect()
                sentence = "%s() cannot use %s; cdckit.rejects(…) of the changes shows them: %s"
                why = "".join(f"\n{many:,} {code}: {description}" for code, many, description in faults)
                _LOG.warning(sentence, called_function(), with_number(rejected, "row"), why)
        if unknown:
            sentence = "%s(): %s without a time in sequence_by, known as if from the beginning"
            _LOG.warning(sentence, called_function(), with_number(unknown, "row"))

    def changes(self) -> DataFrame:
        """The rows as changes, rejects among them."""
        return self._as_changes(row_reject(self.words))

    def rows(self) -> DataFrame:
        """All rows as changes and as records, with what is wrong with them."""
        return self._as_changes(*record_columns(self.words))

    def _as_changes(self, *more: Column) -> DataFrame:
        changes = with_digest(self.statements).select(*change_columns(self.words), *more)
        return changes.withMetadata("data", note_empty(self.empty)) if self.empty else changes


def _read(frame: AnyTable, *, priority: int, **options: Any) -> _Read:
    """The rows of a table, read as the arguments of `changes_from` say."""
    require_int(priority, "priority")
    given = SimpleNamespace(**options)
    _EMPTY_TEXTS.check(given.empty_texts, "empty_texts")
    table = as_table(frame, keys=given.keys).typed()
    given = SimpleNamespace(**{name: column_name(value, table.columns) for name, value in options.items()})
    corrupt = _corrupt_rows(table)
    if corrupt is not None:
        table = table._replace(columns=[name for name in table.columns if name != CORRUPT])
    arguments = TableArguments(table)
    key_names = arguments.keys(given.keys)
    fields = arguments.fields(key_names, given.column_list, given.except_column_list)
    begin, end, effective = given.valid_from, given.valid_to, given.effective
    if given.column_list is None:
        times = {expression_text(time) for time in (begin, end) if isinstance(time, str | Column)}
        fields = [name for name in fields if name in key_names or name not in times]
    if begin is None and end is not None:
        arguments.refuse("valid_to is said, and valid_from is not: an end needs a beginning")
    if begin is not None and effective is not None:
        arguments.refuse("effective and valid_from are both given: one says it")
    ignored = _ignored(arguments, given.ignore_null_updates, fields)
    sequence, message = given.sequence_by, given.message
    parts = arguments.parts(sequence, "sequence_by")
    if begin is None and effective is None:
        parts = arguments.with_times(parts)
    argument, begin = ("effective", effective) if begin is None else ("valid_from", begin)
    says_time = isinstance(begin, str | Column)
    time, time_argument = (begin, argument) if says_time else (first_of(sequence), "sequence_by")
    listed = sequence if isinstance(sequence, list | tuple) else [sequence]
    # A day in a form that does not sort may stand in a part of the sequence that is a text.
    places = [
        (place, part) for place, part in zip(listed, parts, strict=False) if isinstance(part.kind, TEXTS)
    ]
    sequenced_at, arrival = _sequence_times(parts)
    if begin is not None:
        effective_at = _instant(arguments, begin, argument)
    elif sequenced_at is not None:
        effective_at = sequenced_at
    else:
        effective_at = F.timestamp_seconds(F.lit(0))
        if parts:
            arguments.lacks_time(sequence, parts[0].kind)
    until, end_said = _until(arguments, end)
    sequence_text = order_text(parts)
    if not parts and sequence is None:  # a time that alone says the order says it with all of its digits
        sequence_text = arguments.digits(begin)
    none, row = F.lit(None).cast("string"), F.lit(0).cast("bigint") if table.row is None else table.row
    columns = {
        "effective_timestamp": effective_at,
        "time_said": arguments.time_text(time, arguments.text_column(time)),
        "places_said": F.array(*(other_day(part) for _, part in places)).cast("array<string>"),
        UNTIL: until,
        "end_said": end_said,
        "known": effective_at if arrival is None else F.coalesce(arrival, effective_at),
        "lacks_arrival": F.lit(False) if begin is None or sequenced_at is None else sequenced_at.isNull(),
        "row": row,
        "place": (row if sequence is None else F.lit(0)).cast("string"),
        "returns": none,
        "message": none if message is None else arguments.text(message, "message"),
        "source": arguments.source(given.source),
        "deletes": arguments.condition(given.apply_as_deletes, "apply_as_deletes"),
        IS_TRUNCATE: arguments.condition(given.apply_as_truncates, "apply_as_truncates"),
        "corrupt": none.cast("binary") if corrupt is None else corrupt,
    }
    arguments.require_all()
    assert sequence_text is not None
    cells = _cells(table, fields, key_names, ignored, given.empty_texts)
    kinds = T.StructType([table.frame.schema[name] for name in table.columns])
    columns |= {
        "sequence": sequence_text,
        "reading": _reading(arguments, given),
        "outside_years": _outside_years(table, fields, parts),
        "content": as_text(F.struct(*(F.col(quoted(name)) for name in table.columns)), kinds),
        "lacks_key": reduce(and_, (cells[name].value.isNull() for name in key_names)),
        "data": F.struct(*(cell.value.alias(name) for name, cell in cells.items())),
        "carried": F.struct(*(cell.is_said.alias(name) for name, cell in cells.items())),
    }
    # Under names that no column of the table can meet any more.
    statements = table.frame.select(*(value.alias(name) for name, value in columns.items()))
    if table.row is not None and sequence is not None and message is None:
        statements = _with_returns(statements, {name: kinds[name].dataType for name in key_names})
    words = Words(
        tuple(key_names),
        arguments.unreadable(time, time_argument, within=True),
        tuple(arguments.unreadable(place, "sequence_by") for place, _ in places),
        None if end is None else arguments.unreadable(end, "valid_to", within=True),
        priority,
        # When a row is true is not when it came.
        arrival is not None and not _is_first(begin, sequence),
    )
    empty = {name: table.empty[name] for name in fields if name in table.empty}
    return _Read(statements, words, table.frame, table.row is not None, empty)


_EMPTY_TEXTS = one_of("value", "null", "unsent")


def _corrupt_rows(table: GivenTable) -> Column | None:
    """The bytes of the rows that could not be read; None if no column has them."""
    kind = table.frame.schema[CORRUPT].dataType if CORRUPT in table.columns else None
    if isinstance(kind, T.StringType):
        return F.encode(CORRUPT, "UTF-8")
    return F.col(CORRUPT) if isinstance(kind, T.BinaryType) else None


class _Cell(NamedTuple):
    """The value of a field, and whether the row says it."""

    value: Column
    is_said: Column


def _cells(
    table: GivenTable, fields: Sequence[str], keys: Sequence[str], ignored: Sequence[str], empty_texts: str
) -> dict[str, _Cell]:
    """Read by field what a row says in it; `changes_from` tells what null and an empty text say."""
    cells = {}
    for name in fields:
        value = within_years(F.col(quoted(name)), table.frame.schema[name].dataType)
        is_said = value.isNotNull() if name in ignored and name not in keys else F.lit(True)
        if empty_texts != "value" and isinstance(table.frame.schema[name].dataType, TEXTS):
            is_empty = F.coalesce(value == "", F.lit(False))
            if empty_texts == "unsent" and name not in keys:
                is_said &= ~is_empty
            value = F.when(~is_empty, value)
        cells[name] = _Cell(value, is_said)
    return cells


def _reading(arguments: TableArguments, given: SimpleNamespace) -> Column:
    """
    What the call says of which values of a row count; null where it says nothing.

    Names of the call, not the fields that it makes: a column that the table gets is no other reading.
    """
    said = [] if given.empty_texts == "value" else [given.empty_texts]
    for argument in ("column_list", "except_column_list", "ignore_null_updates"):
        columns = getattr(given, argument)
        if columns is not None and columns is not False:
            names = "all" if columns is True else " ".join(sorted(arguments.listed(columns, argument)))
            said.append(f"{argument} {names}")
    return F.lit("\n".join(said) or None).cast("string")


def _ignored(
    arguments: TableArguments, columns: bool | Sequence[str | Column], fields: Sequence[str]
) -> list[str]:
    if isinstance(columns, bool):
        return list(fields) if columns else []
    return arguments.listed(columns, "ignore_null_updates")


def _sequence_times(parts: Sequence[TypedColumn]) -> tuple[Column | None, Column | None]:
    """
    Find when a row was sequenced, if the first part of that is a time by its type; and the same of texts.

    A CSV has no types, and who is not told of an arrival knows all too early.
    """
    first = parts[0] if parts else None
    while first is not None and isinstance(first.kind, T.StructType):
        inner = first.kind.fields[0]
        first = TypedColumn(first.value.getField(inner.name), inner.dataType)
    if first is None:
        return None, None
    instant = as_instant(first.value, first.kind, first.words)
    return instant if is_time(first.kind) else None, instant


def _is_first(begin: object, sequence: object) -> bool:
    """Tell whether what says since when a row is true is what it is sequenced by."""
    first = first_of(sequence)
    return isinstance(begin, str) and isinstance(first, str) and begin == first


def _instant(arguments: TableArguments, expression: str | Column | datetime, argument: str) -> Column:
    if isinstance(expression, datetime):
        return require_instant(expression, argument)
    return arguments.instant(expression, argument)


def _outside_years(table: GivenTable, fields: Sequence[str], parts: Sequence[TypedColumn]) -> Column:
    """The fields of a row, and parts of its sequence, that are not in the years 1 to 9999, as texts."""
    kinds = {name: table.frame.schema[name].dataType for name in fields}
    named = [(name, F.col(quoted(name)), kind) for name, kind in kinds.items()]
    named += [("sequence_by", part.value, part.kind) for part in parts]
    texts = (
        F.when(is_outside_years(value, kind), F.concat(F.lit(f"{name} is "), as_text(value, kind)))
        for name, value, kind in named
        if has_times(kind)
    )
    return F.array_compact(F.array(*texts).cast("array<string>"))


def _until(arguments: TableArguments, expression: str | Column | datetime | None) -> tuple[Column, Column]:
    """Until when a row is true, and what stands there, as text; null for both where the end is open."""
    if expression is None:
        return F.lit(None).cast("timestamp_ltz"), F.lit(None).cast("string")
    end = _instant(arguments, expression, "valid_to")
    # Null is what `nullif(until, 'open')` means to say, and what `try_to_timestamp(until)` could not read.
    text = arguments.time_text(expression, arguments.columns_to_read(expression))
    is_open = is_never(end) | is_text_of_never(text)
    if isinstance(expression, str) and expression in arguments.columns:
        stands_for_open = open_end(arguments.frame, expression)
        if stands_for_open is not None:
            is_open |= F.unix_micros(end) == F.lit(stands_for_open)
    # What cannot be read is neither open nor an end.
    return F.when(is_open, None).otherwise(end), F.when(is_open, None).otherwise(text)


def _with_returns(statements: DataFrame, keys: Mapping[str, T.DataType]) -> DataFrame:
    """Count how often a row that comes back after another of its entity, time and sequence was there."""
    entity = [comparable(F.col("data").getField(name), kind) for name, kind in keys.items()]
    place = [*entity, F.col("effective_timestamp"), F.col("sequence")]
    before = F.lag("content").over(Window.partitionBy(*place).orderBy("row"))
    comes = F.when(before == F.col("content"), 0).otherwise(1)
    times = F.sum("comes").over(Window.partitionBy(*place, "content").orderBy("row"))
    returns = F.nullif(times, F.lit(1)).cast("string")
    return statements.withColumn("comes", comes).withColumn("returns", returns).drop("comes")
