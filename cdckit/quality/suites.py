"""
Suites: what a table promises, one sentence each, and the SQL that finds broken ones.

A file may be put into the folder `gx/expectations` of a project of Great Expectations, and runs there: it has
the ids that are wanted of a suite that was saved, and each `description` is the sentence, which the pages
show beside a failure.  An expectation whose `meta` names the `engine` Spark is a query in Spark's SQL; the
tables beside the one that is checked are there views such as `cdckit_merged`.

Great Expectations runs on Spark a job or two for each query of rows, each with its own sort of the table.
Here conditions on the same rows are counted together: a query of the suites of cdckit is
`SELECT * FROM rows WHERE condition`, and its `meta` has the condition once more, as `breaks`.  Another one
is asked as it stands.  Where `meta` says `keeps_rows`, these rows are those of the table, each once, with
more columns: sentences about the rows of the table are asked of them too.  What a query means is what Great
Expectations says it means; the tests run both on the same rows.

A suite is written for tables of any fields, so it turns rows into arrays or JSON, and goes through these
element by element.  Spark compiles what names columns; lambdas and JSON it interprets, at many times
the cost.  Where the `meta` of a sentence has the condition `by_field`, it is that one which is asked here: in
it, names in braces stand for what `field_conditions` writes field by field for the table that is checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from cdckit.errors import MissingColumns
from cdckit.merging.arrow_changes import GUID, KEYS
from cdckit.merging.merge import merge_changes
from cdckit.model.changes import MADE_OF, UNTIL, require_changes
from cdckit.model.history import FIELD_PROVENANCE, STANDARD_COLUMNS, provenance_type
from cdckit.parts.arguments import quoted, require_columns, require_struct, text_literal, wrong_argument
from cdckit.parts.files import expectations
from cdckit.parts.near_names import nearest_name
from cdckit.parts.public_calls import called_function
from cdckit.parts.values import as_text, comparable
from cdckit.parts.widening import as_type

SEVERITIES = ("info", "warning", "critical")
"""How much it matters that a sentence is broken, as Great Expectations has it: the last most."""


@dataclass(frozen=True)
class Sentence:
    """
    One expectation of a suite: which sort, about what, in words, and why.

    *breaks* is what a query asks of the rows that it looks at, which are what stands before it; *by_field* is
    the same with names of `field_conditions` in braces.
    """

    type: str
    kwargs: Mapping[str, Any]
    says: str
    source: str
    severity: str
    breaks: str = ""
    by_field: str = ""
    keeps_rows: bool = False
    """Whether these are all rows of the table, each once, with more columns."""
    unless: str = ""
    """What the metadata of a column may say, so that the table does not promise it."""


@dataclass(frozen=True)
class Suite:
    """
    What one kind of table promises.

    Args:
        name: What it is called.
        columns: Those that its sentences read.
        tables: The other tables that they read, by the names that SQL calls them.
        order_by: By which columns the rows that break a sentence are shown.
        sentences: In their order.
        stated: The JSON that it was read from.
    """

    name: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    order_by: tuple[str, ...]
    sentences: tuple[Sentence, ...]
    stated: Mapping[str, Any]


def suite_names() -> list[str]:
    """
    The suites that come with cdckit.

    >>> [name for name in suite_names() if name.startswith("re")]
    ['records', 'rejects']
    """
    return sorted(path.stem for path in Path(expectations()).glob("*.json"))


def read_suite(given: str | Mapping[str, Any]) -> Suite:
    """
    A suite by its name, or of the JSON that Great Expectations writes, as Python has it.

    Raises:
        InvalidArgument: There is none of that name, or it has no expectations.
    """
    if isinstance(given, str):
        names = suite_names()
        if given not in names:
            close = nearest_name(given, names)
            remedy = None if close is None else f"Probably {close!r} was meant."
            raise wrong_argument("suite", f"one of {', '.join(names)}", given, remedy=remedy)
        given = json.loads(Path(expectations(f"{given}.json")).read_text())
    if not isinstance(given, Mapping) or not given.get("expectations") or "name" not in given:
        needed = "the name of a suite, or a suite of Great Expectations as a mapping, name and expectations"
        raise wrong_argument("suite", needed, given)
    meta = given.get("meta") or {}
    columns, tables, order = (tuple(meta.get(name, ())) for name in ("columns", "tables", "order_by"))
    return Suite(given["name"], columns, tables, order, tuple(map(_sentence, given["expectations"])), given)


def keep_promised(suite: Suite, frame: DataFrame) -> Suite:
    """The suite without what this table does not promise, such as no gaps where changes may end."""
    marks = {mark for column in frame.schema for mark, is_so in column.metadata.items() if is_so}
    kept = [place for place, sentence in enumerate(suite.sentences) if sentence.unless not in marks]
    stated = {**suite.stated, "expectations": [suite.stated["expectations"][place] for place in kept]}
    return replace(suite, sentences=tuple(suite.sentences[place] for place in kept), stated=stated)


def _sentence(stated: Mapping[str, Any]) -> Sentence:
    text = stated.get("description") or stated.get("notes") or _default_notes(stated)
    says = text if isinstance(text, str) else " ".join(text)
    meta, severity = stated.get("meta") or {}, stated.get("severity", "critical")
    asked = {name: meta.get(name, "") for name in ("breaks", "by_field", "unless")}
    asked["keeps_rows"] = meta.get("keeps_rows") is True
    return Sentence(stated["type"], stated["kwargs"], says, meta.get("source", ""), severity, **asked)


def _default_notes(stated: Mapping[str, Any]) -> str:
    """Words for an expectation that has none: its sort and its arguments, so that no two are alike."""
    arguments = ", ".join(f"{name} {value}" for name, value in stated["kwargs"].items() if value is not None)
    sort = stated["type"].replace("_", " ")
    return f"{sort}: {arguments}" if arguments else str(sort)


BATCH = "{batch}"
"""What stands for the table in a query, here as there."""

BREAKS, ALIKE = "cdckit_breaks", "cdckit_alike"
"""The columns that a table gets here, so it cannot have them."""
_BITS = 62
"""So many sentences fit into a number; those beyond are asked of the wider rows."""


class SqlSentence(NamedTuple):
    """A sentence as SQL: of which rows it speaks, and which of them break it."""

    rows: str
    breaks: str
    keeps_rows: bool = False


def to_sql(sentence: Sentence, schema: T.StructType) -> SqlSentence | None:
    """
    A sentence as a condition on a table of these columns.

    None for what Great Expectations has to run: other sorts of expectations, and columns within a column.

    Raises:
        MissingColumns: It is about a column that is not there.
        InvalidArgument: Its query has something else than `batch` in braces.
    """
    kwargs = {name: value for name, value in sentence.kwargs.items() if value is not None}
    if kwargs.get("mostly") == 1:
        del kwargs["mostly"]  # all, which is what is meant where it does not stand
    if sentence.type == "unexpected_rows_expectation":
        query = _parse_query(kwargs["unexpected_rows_query"], sentence)
        conditions, wanted = field_conditions(schema), names_in_braces(sentence.by_field)
        if not wanted or wanted - conditions.keys():
            return query
        return query._replace(breaks=_fill(sentence.by_field, **conditions))
    if sentence.type not in _KNOWN or kwargs.keys() - _KNOWN[sentence.type]:
        return None
    named = [kwargs[name] for name in ("column", "column_A", "column_B") if name in kwargs]
    named += kwargs.get("column_list", [])
    columns = {name.lower() for name in schema.names}
    missing = [name for name in named if name.lower() not in columns]
    if not named or any(name.split(".")[0].lower() in columns for name in missing):
        return None
    if missing:
        raise MissingColumns(None, missing, schema.names)
    if sentence.type.endswith("_to_be_unique"):
        return _unique(named)
    breaks = _condition(sentence.type, kwargs, schema)
    return None if breaks is None else SqlSentence(BATCH, breaks)


_KNOWN = {
    "expect_column_values_to_not_be_null": {"column"},
    "expect_column_values_to_be_null": {"column"},
    "expect_column_values_to_be_in_set": {"column", "value_set"},
    "expect_column_values_to_be_unique": {"column"},
    "expect_compound_columns_to_be_unique": {"column_list"},
    "expect_column_values_to_match_regex": {"column", "regex"},
    "expect_column_values_to_be_between": {"column", "min_value", "max_value", "strict_min", "strict_max"},
    "expect_column_pair_values_a_to_be_greater_than_b": {"column_A", "column_B", "or_equal", "ignore_row_if"},
}
"""By the sort of an expectation, the arguments that are known here."""


def _condition(sort: str, of: Mapping[str, Any], schema: T.StructType) -> str | None:
    """
    Write what breaks an expectation, for which null is no break.

    None for what Great Expectations has a word of its own: a set with null or without values, no bounds.
    """
    column, left, other = (_name(str(of.get(argument))) for argument in ("column", "column_A", "column_B"))
    match sort.removeprefix("expect_column_"):
        case "values_to_not_be_null":
            return _is_null(str(of["column"]), schema)
        case "values_to_be_null":
            return f"{column} IS NOT NULL"
        case "values_to_match_regex":
            return f"NOT {column} RLIKE {_literal(of['regex'])}"
        case "pair_values_a_to_be_greater_than_b":
            return f"{left} {'<' if of.get('or_equal') else '<='} {other}"
        case "values_to_be_in_set":
            values = of.get("value_set") or [None]
            return None if None in values else f"{column} NOT IN ({', '.join(map(_literal, values))})"
        case "values_to_be_between":
            bounds = (("min_value", "<", "strict_min"), ("max_value", ">", "strict_max"))
            outside = [
                f"{column} {sign}{'=' if of.get(strict) else ''} {_literal(of[bound])}"
                for bound, sign, strict in bounds
                if bound in of
            ]
            return " OR ".join(outside) or None
    return None


def group_by_rows(sentences: Sequence[SqlSentence]) -> list[tuple[str, list[int]]]:
    """
    Group sentences by the rows of which they speak, so that few passes do.

    The sentences about the rows of the table are asked of wider ones, where there are such.
    """
    groups: dict[str, list[int]] = {}
    for place, sentence in enumerate(sentences):
        groups.setdefault(sentence.rows, []).append(place)
    wider = [rows for rows in groups if rows in table_rows(sentences) - {BATCH}]
    if wider and BATCH in groups:
        groups[wider[0]] += groups.pop(BATCH)
    return list(groups.items())


def with_breaks(rows: str, sentences: Mapping[int, SqlSentence]) -> tuple[str, list[str]]:
    """
    The rows with a column more, which has the answers of the sentences about the rows of the table itself.

    It is made of the table before rows are compared with others, so that the columns which only these
    sentences read are not carried through a shuffle.  Returns these rows, and the condition of each sentence.
    """
    places = [place for place, sentence in sentences.items() if sentence.rows == BATCH][:_BITS]
    # One number for all: a row stays narrow.
    bits = {place: 1 << number for number, place in enumerate(places)}
    flags = " | ".join(f"IF({sentences[place].breaks}, {bit}L, 0L)" for place, bit in bits.items())
    wider = _fill(rows, batch=f"(SELECT *, {flags} AS {BREAKS} FROM {BATCH})") if bits else rows
    conditions = {place: f"{BREAKS} & {bit}L <> 0" for place, bit in bits.items()}
    return wider, [conditions.get(place, sentence.breaks) for place, sentence in sentences.items()]


def table_rows(sentences: Iterable[SqlSentence]) -> set[str]:
    """The rows that are those of the table, each once, perhaps with more columns."""
    return {BATCH, *(sentence.rows for sentence in sentences if sentence.keeps_rows)}


def _parse_query(query: str, of: Sentence) -> SqlSentence:
    """In parts where the suite says what *breaks* it; else all rows of its answer break the sentence."""
    try:
        others = names_in_braces(query) - {"batch"}
    except ValueError:  # a brace without its other half
        others = {query}
    if others:
        needed = "of queries with {batch} in braces and nothing else: others are doubled, as in {{8}}"
        raise wrong_argument("suite", needed, query)
    begin, end = "SELECT * FROM ", f" WHERE {of.breaks}"
    if of.breaks and query.startswith(begin) and query.endswith(end):
        return SqlSentence(query.removeprefix(begin).removesuffix(end), of.breaks, of.keeps_rows)
    whole = query.strip().rstrip("; \n")
    return SqlSentence(f"(\n{whole}\n)", "true")  # a comment at its end ends with the line


def _escape_braces(sql: str) -> str:
    """The text of a query is a format, so its braces are doubled."""
    return sql.replace("{", "{{").replace("}", "}}")


def names_in_braces(query: str) -> set[str]:
    """The names that a query leaves open: of tables, or of conditions."""
    return {name for _, name, _, _ in Formatter().parse(query) if name is not None}


def _fill(query: str, **texts: str) -> str:
    """The query with these texts for their names in braces; it stays one in which others are open."""
    return "".join(
        _escape_braces(text) + ("" if name is None else texts.get(name, f"{{{name}}}"))
        for text, name, _, _ in Formatter().parse(query)
    )


def _literal(value: object) -> str:
    if isinstance(value, str):
        return _escape_braces(text_literal(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unique(columns: Sequence[str]) -> SqlSentence:
    """Count as Great Expectations: all rows that are alike, but for those in which every column is null."""
    names = list(map(_name, columns))
    alike = f"(SELECT *, count(*) OVER (PARTITION BY {', '.join(names)}) AS {ALIKE} FROM {BATCH})"
    some = " OR ".join(f"{name} IS NOT NULL" for name in names)
    return SqlSentence(alike, f"{ALIKE} > 1 AND ({some})", keeps_rows=True)


def field_conditions(schema: T.StructType) -> dict[str, str]:
    """
    Write by name what suites ask of each field of a table of these columns.

    - `nameless`: a field has a value and no message;
    - `half`: provenance names a message and no priority, or the other way round;
    - `falls`, `ends`: a priority of a field is lower than before, or gone;
    - `never_true`: a change ends no later than it begins;
    - `unsaid`, `empty`: a flag of `carried` is null; none is true.
    """
    kinds = {field.name: field.dataType for field in schema}
    entries, carried = (kinds.get(name, T.NullType()) for name in (FIELD_PROVENANCE, "carried"))
    provenance = list(map(_name, entries.names)) if isinstance(entries, T.StructType) else []
    fields = [_name(name) for name in schema.names if name not in STANDARD_COLUMNS]
    lacks = {name: [f"{FIELD_PROVENANCE}.{name}.{part} IS NULL" for part in "mp"] for name in provenance}
    no_message = {name: f"{message} AND " for name, (message, _) in lacks.items()}
    now_and_before = [
        (f"get(cdckit_priorities, {place})", f"get(cdckit_priorities_before, {place})")
        for place in range(len(provenance))
    ]
    conditions = {
        "nameless": _any_of(f"({no_message.get(name, '')}{name} IS NOT NULL)" for name in fields),
        "half": _any_of(f"({message}) <> ({priority})" for message, priority in lacks.values()),
        "falls": _any_of(f"{now} < {was}" for now, was in now_and_before),
        "ends": _any_of(f"({was} IS NOT NULL AND {now} IS NULL)" for now, was in now_and_before),
        "never_true": f"{UNTIL} <= effective_timestamp" if UNTIL in kinds else "false",
    }
    # Where a flag is no boolean, or has no name in SQL, the suite's own condition stands.
    if (
        isinstance(carried, T.StructType)
        and {flag.dataType for flag in carried} <= {T.BooleanType()}
        and len(_distinct_fields(carried)) == len(carried)
    ):
        flags = [f"carried.{_name(name)}" for name in carried.names]
        conditions["unsaid"] = _any_of(f"{flag} IS NULL" for flag in flags)
        conditions["empty"] = f"NOT {_any_of(f'coalesce({flag}, true)' for flag in flags)}"
    return conditions


def _name(field: str) -> str:
    return _escape_braces(quoted(field))


def _any_of(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions) or 'false'})"


def _distinct_fields(kind: T.StructType) -> Sequence[T.StructField]:
    """The fields whose names do not differ in case alone: of others SQL cannot tell which is meant."""
    count = Counter(name.lower() for name in kind.fieldNames())
    return [field for field in kind if count[field.name.lower()] == 1]


def _is_null(column: str, schema: T.StructType) -> str:
    """That a column is null, and of a struct a small field too: for it alone Spark would read all fields."""
    condition = f"{_name(column)} IS NULL"
    kind = schema[column].dataType if column in schema.names else None
    if not isinstance(kind, T.StructType):
        return condition
    leaves = [field for field in _distinct_fields(kind) if type(field.dataType) in _SIZES]
    small = min(leaves, key=lambda field: _SIZES[type(field.dataType)], default=None)
    return condition if small is None else f"{condition} AND {_name(column)}.{_name(small.name)} IS NULL"


_SIZES: Mapping[type[T.DataType], int] = {
    T.BooleanType: 1, T.IntegerType: 4, T.LongType: 8, T.DoubleType: 9, T.StringType: 16, T.TimestampType: 17,
}  # fmt: skip


SIDES, FIELDS = ("has", "due"), "fields"
"""How the suite calls a version of the table, that of the log, and the fields in either."""

_NEEDED = [GUID, "operation", "effective_timestamp", "message_id", "priority", "data", "carried"]


def compare_with_log(
    history: DataFrame, log: DataFrame, keys: Sequence[str] | None = None
) -> tuple[DataFrame, DataFrame]:
    """
    The history, and the one that its log gives, in the same columns and in forms that Spark can compare.

    A field that only one of them has is null in the other.  Changes that say too little to be merged are left
    out: the suite `changes` tells of them.  Where the log says its keys, *keys* may be left out.
    """
    require_changes(log)
    require_columns(log, [GUID])
    require_struct(history, FIELD_PROVENANCE)
    metadata = log.schema[GUID].metadata
    keys = keys or metadata.get(MADE_OF) or metadata.get(KEYS)
    if not keys:
        needed = "the key fields, which only the log of a ledger or a hub says itself"
        example = f'{called_function()}(history, "ledger", tables={{"changes": log}}, keys=["number"])'
        raise wrong_argument("keys", needed, None, example)
    whole = log.dropna(subset=_NEEDED).where("arrival.record_number IS NOT NULL")
    if UNTIL in log.columns:
        whole = whole.where(f"{UNTIL} IS NULL OR {UNTIL} > effective_timestamp")
    due = merge_changes(whole, entity=GUID, keys=keys)
    names = [*due.columns, *(name for name in history.columns if name not in due.columns)]
    columns = [_common_form(name, history, due) for name in names]
    return history.select(*(ours for ours, _ in columns)), due.select(*(other for _, other in columns))


def with_differences(rows: DataFrame) -> DataFrame:
    """
    Put what differs between a row's structs `has` and `due` in their place, as texts.

    A text says, by name, what the fields have that the other side has not so; other tables stay as they are.
    """
    kinds = [rows.schema[side].dataType for side in SIDES if side in rows.columns]
    if len(kinds) < 2 or not all(isinstance(kind, T.StructType) for kind in kinds):
        return rows
    texts = [_texts(F.col(side), kind) for side, kind in zip(SIDES, kinds, strict=True)]
    names = [name for name in texts[0] if name in texts[1]]
    same = {name: texts[0][name].eqNullSafe(texts[1][name]) for name in names}
    shown = {}
    for side, by_name in zip(SIDES, texts, strict=True):
        parts = [
            F.when(~same[name], F.concat(F.lit(f"{name}: "), F.coalesce(by_name[name], F.lit("NULL"))))
            for name in names
        ]
        shown[side] = F.when(F.col(side).isNotNull(), F.concat_ws(", ", *parts))
    return rows.withColumns(shown)


def _texts(side: Column, kind: T.DataType) -> dict[str, Column]:
    """Write by name the texts of a struct's parts; of a version's fields the values, which come first."""
    assert isinstance(kind, T.StructType)
    texts: dict[str, Column] = {}
    for part in sorted(kind, key=lambda part: part.name != FIELDS):
        value = side[part.name]
        if isinstance(part.dataType, T.StructType):
            inner = {entry.name: as_text(value[entry.name], entry.dataType) for entry in part.dataType}
            prefix = "" if part.name == FIELDS else f"{part.name}."
            texts |= {prefix + name: text for name, text in inner.items()}
        else:
            texts[part.name] = as_text(value, part.dataType)
    return texts


def _common_form(name: str, table: DataFrame, other: DataFrame) -> tuple[Column, Column]:
    """A column of two tables in one type: text, unless they have it in the same."""
    kinds = [frame.schema[name].dataType if name in frame.columns else None for frame in (table, other)]
    if name == FIELD_PROVENANCE:
        fields = {field: None for kind in kinds if isinstance(kind, T.StructType) for field in kind.names}
        forms = [_provenance(kind, [*fields]) for kind in kinds]
    elif kinds[0] and kinds[1] and kinds[0].simpleString() == kinds[1].simpleString():
        forms = [comparable(F.col(quoted(name)), kind) for kind in kinds if kind]
    else:
        forms = [_text(name, kind) for kind in kinds]
    return forms[0].alias(name), forms[1].alias(name)


def _text(name: str, kind: T.DataType | None) -> Column:
    if kind is None:
        return F.lit(None).cast("string")
    return as_type(F.col(quoted(name)), kind, T.StringType(), name)


def _provenance(kind: T.DataType | None, fields: Sequence[str]) -> Column:
    assert isinstance(kind, T.StructType)
    entry, column = provenance_type(), F.col(FIELD_PROVENANCE)
    if kind.names == fields and all(field.dataType == entry for field in kind):
        return column
    entries = (
        column[field].cast(entry) if field in kind.names else F.lit(None).cast(entry) for field in fields
    )
    return F.struct(*(made.alias(field) for made, field in zip(entries, fields, strict=True)))
