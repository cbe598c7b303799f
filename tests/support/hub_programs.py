"""What the tests of the data hub share: the hand-written cases, their runner, and random programs.

A *world* is anything that takes messages and has tables: the interpreter, or the hub itself.  Cases and
programs are run through both and compared in one plain form (`plain_row`).
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import permutations, product
from pathlib import Path
from typing import Any, Protocol

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession

from cdckit import datahub
from cdckit.model.records import RECORD_SCHEMA

Row = dict[str, Any]
CASES = Path(__file__).parents[1] / "cases" / "datahub"
LOG_COLUMNS = ("message_identifier", "record", "target", "outcome", "error_code", "guid")


class World(Protocol):
    """What cases and programs need of a hub."""

    def receive(self, messages: Sequence[Row]) -> list[Row]: ...
    def process(self, now: datetime) -> None: ...
    def reprocess(self, identifiers: Iterable[str], now: datetime) -> None: ...
    def history(self, target: str) -> list[Row]: ...
    def exports(self, target: str) -> list[Row]: ...
    def log(self) -> list[Row]: ...

    @property
    def statuses(self) -> dict[str, int]: ...


# JSON in which numbers stay as they were written ---------------------------------------------------------


def from_json(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


def to_json(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {to_json(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# Filters and readers that the cases name -----------------------------------------------------------------


def drop_tests(record: Row, *_: Any) -> Row | None:
    return None if record.get("test") else record


def drop_upper_tests(record: Row, *_: Any) -> Row | None:
    return None if record.get("name") == "TEST" else record


def upper_names(record: Row, *_: Any) -> Row:
    return record | ({"name": record["name"].upper()} if record.get("name") else {})


def fail_on_bombs(record: Row, *_: Any) -> Row:
    if "bomb" in record:
        raise RuntimeError("a bomb")
    return record


def raises(data: Any, context: Any) -> Iterable[Any]:
    raise RuntimeError(f"cannot read {type(data).__name__}")


FILTERS = {each.__name__: each for each in (drop_tests, drop_upper_tests, upper_names, fail_on_bombs)}
READERS = {"raises": raises}

# Spark's workers cannot import a module of the tests: what they are to run travels by value.
register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


# Plain rows ----------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON would have it: instants and dates as text, decimals as text with all their digits."""
    if isinstance(value, datetime):
        text = value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00")
        return text.rstrip("0").removesuffix(".") + "Z" if "." in text else text + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value


def plain_version(row: Row) -> Row:
    """One row of a history, in the words of a case."""
    standard = ("guid", "valid_from_timestamp", "valid_to_timestamp", "deleted_indicator", "source_message")
    names = [name for name in row if name not in standard and name != "field_provenance"]
    return {
        "guid": row["guid"],
        "from": plain(row["valid_from_timestamp"]),
        "to": plain(row["valid_to_timestamp"]),
        "deleted": row["deleted_indicator"],
        "values": {name: plain(row[name]) for name in names},
        "message": row["source_message"],
        "provenance": {
            name: [entry["m"], entry["p"]]
            for name, entry in row["field_provenance"].items()
            if entry is not None
        },
    }


# Cases ---------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """Something that happens to the hub: messages, then a run."""

    receive: list[Row]
    reprocess: list[str]
    process: datetime
    expect: Row


@dataclass
class Case:
    """One hand-written case of `cases/datahub`, see the README there."""

    file: str
    name: str
    source: str
    date: str
    steps: list[Step]

    def identifiers(self) -> set[str]:
        documents = [received["document"] for step in self.steps for received in step.receive]
        return {each["guid"] for each in documents if isinstance(each, dict) and "guid" in each}


@dataclass
class CaseFile:
    name: str
    schema: list[Row]
    together: bool
    cases: list[Case]

    def runs(self) -> list[list[Case]]:
        """The cases that may share a hub."""
        return [self.cases] if self.together else [[case] for case in self.cases]


def case_files() -> list[CaseFile]:
    return [read_case_file(path) for path in sorted(CASES.glob("*.json"))]


def read_case_file(path: Path) -> CaseFile:
    document = from_json(path.read_text(encoding="utf-8"))
    offsets = iter(range(1_000_000))
    return CaseFile(
        name=path.stem,
        schema=document["schema"],
        together=document["together"],
        cases=[read_case(path.stem, each, document["date"], offsets) for each in document["cases"]],
    )


def read_case(file: str, document: Row, day: str, offsets: Iterator[int]) -> Case:
    steps = []
    for number, step in enumerate(document["steps"]):
        received = [
            read_received(each, moment(f"{12 + number}:00:{second:02}", day), day, next(offsets))
            for second, each in enumerate(step.get("receive", []))
        ]
        now = moment(step.get("process", f"{12 + number}:30:00"), day)
        steps.append(Step(received, step.get("reprocess", []), now, step.get("expect", {})))
    steps[-1].expect = steps[-1].expect | document["expect"]
    return Case(file, document["name"], document["source"], day, steps)


def read_received(document: Row, default: datetime, day: str, offset: int) -> Row:
    """A message as it is received; `text` is what is no JSON document that could be written as one."""
    text = document["text"] if "text" in document else to_json(document["document"])
    try:
        parsed = from_json(text)
    except ValueError:
        parsed = None
    return {
        "value": text,
        "document": parsed,
        "message_timestamp": moment(document["at"], day) if "at" in document else default,
        "topic": "t",
        "partition": 0,
        "offset": offset,
    }


def moment(text: str, day: str) -> datetime:
    whole = text if "T" in text else f"{day}T{text}"
    return datetime.fromisoformat(whole.removesuffix("Z")).replace(tzinfo=UTC)


@dataclass
class Snapshot:
    """The tables of a world after a step, in plain form."""

    histories: dict[str, list[Row]]
    statuses: dict[str, int]
    log: list[Row]
    exports: dict[str, list[Row]]
    receipts: list[Row]


def run_together(world: World, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Run these cases in one world, step by step; what differs from the expectations, by case."""
    found: dict[str, list[str]] = {case.name: [] for case in cases}
    receipts: list[Row] = []
    for number in range(max(len(case.steps) for case in cases)):
        active = [case for case in cases if number < len(case.steps)]
        steps = [case.steps[number] for case in active]
        received = [message for step in steps for message in step.receive]
        now = max(step.process for step in steps)
        receipts += world.receive(received) if received else []
        again = [identifier for step in steps for identifier in step.reprocess]
        if again:
            world.reprocess(again, now)
        world.process(now)
        expecting = [(case, step.expect) for case, step in zip(active, steps, strict=True) if step.expect]
        if not expecting:
            continue
        snapshot = take_snapshot(world, [expect for _, expect in expecting], receipts)
        for case, expect in expecting:
            found[case.name] += [
                f"after step {number + 1}: {text}" for text in differences(case, expect, snapshot)
            ]
    return found


def take_snapshot(world: World, expectations: Sequence[Row], receipts: list[Row]) -> Snapshot:
    targets = {name for expect in expectations for name in expect if name not in NO_TARGETS}
    exported = {name for expect in expectations for name in expect.get("exports", {})}
    logged = world.log() if any("log" in expect for expect in expectations) else []
    return Snapshot(
        histories={name: list(map(plain_version, world.history(name))) for name in targets},
        statuses=dict(world.statuses),
        log=[{name: row[name] for name in LOG_COLUMNS} for row in logged],
        exports={name: [plain(row) for row in world.exports(name)] for name in exported},
        receipts=receipts,
    )


NO_TARGETS = ("statuses", "log", "receipts", "exports")


def differences(case: Case, expect: Row, snapshot: Snapshot) -> list[str]:
    """What of the expectation is not so, in sentences; guids are matched as a whole."""
    mine = case.identifiers()
    histories = {
        name: [row for row in snapshot.histories[name] if row["message"] in mine]
        for name in expect
        if name not in NO_TARGETS
    }
    log = [row for row in snapshot.log if row["message_identifier"] in mine]
    exports = {
        name: [row for row in snapshot.exports[name] if row["message_identifier"] in mine]
        for name in expect.get("exports", {})
    }
    found = []
    for identifier, status in expect.get("statuses", {}).items():
        if snapshot.statuses.get(identifier) != status:
            found.append(f"status of {identifier} is {snapshot.statuses.get(identifier)}, not {status}")
    if "receipts" in expect:
        found += receipt_differences(expect["receipts"], snapshot.receipts, mine)
    versions = {name: expected_versions(expect[name], case.date) for name in histories}
    errors: list[str] = []
    for binding in bindings(versions, histories):
        errors = table_differences(versions, histories, binding)
        errors += log_differences(expect.get("log", []), log, binding)
        errors += export_differences(expect.get("exports", {}), exports, binding)
        if not errors:
            return found
    return found + (errors or ["no guids fit"])


def expected_versions(rows: Sequence[Row], day: str) -> list[Row]:
    times = {"from", "to"}
    return [
        {
            name: plain(moment(value, day)) if name in times and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]


def bindings(versions: dict[str, list[Row]], histories: dict[str, list[Row]]) -> Iterator[dict[str, str]]:
    """
    Every way in which the symbols of the expectation may stand for the guids that were found.

    A symbol stands for a guid whose versions look alike but for guids; if there is none, for any guid of the
    target, so that there is something to report.
    """
    symbols = {row["guid"] for rows in versions.values() for row in rows}
    choices: list[list[dict[str, str]]] = []
    for name, rows in versions.items():
        wanted = list(dict.fromkeys(row["guid"] for row in rows))
        guids = sorted({row["guid"] for row in histories[name]})
        alike = {
            symbol: [guid for guid in guids if look_alike(symbol, rows, guid, histories[name], symbols)]
            for symbol in wanted
        }
        ways = [
            dict(zip(wanted, way, strict=True))
            for way in product(*(alike[symbol] for symbol in wanted))
            if len(set(way)) == len(way)
        ]
        some = permutations([*guids, *wanted], len(wanted))
        choices.append(ways or [dict(zip(wanted, next(some), strict=True))])
    for chosen in product(*choices):
        yield {symbol: guid for part in chosen for symbol, guid in part.items()}


def look_alike(symbol: str, rows: list[Row], guid: str, found: list[Row], symbols: set[str]) -> bool:
    wanted = [row for row in rows if row["guid"] == symbol]
    actual = [row for row in found if row["guid"] == guid]
    return len(wanted) == len(actual) and all(
        name == "guid" or similar(value, row[name], symbols)
        for expected, row in zip(by_time(wanted), by_time(actual), strict=True)
        for name, value in expected.items()
    )


def similar(expected: Any, actual: Any, symbols: set[str]) -> bool:
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(
            name in actual and similar(value, actual[name], symbols) for name, value in expected.items()
        )
    return expected == actual or (expected in symbols if isinstance(expected, str) else False)


def by_time(rows: Iterable[Row]) -> list[Row]:
    """In the order of time; the order of the list where no time is written."""
    return sorted(rows, key=lambda row: row.get("from") or "")


def table_differences(
    versions: dict[str, list[Row]], histories: dict[str, list[Row]], binding: dict[str, str]
) -> list[str]:
    found = []
    for name, rows in versions.items():
        remaining = list(histories[name])
        for expected in rows:
            fits = [row for row in remaining if same_version(expected, row, binding)]
            if fits:
                remaining.remove(fits[0])
            else:
                found.append(f"{name} has no {expected}")
        found += [f"{name} has {row}" for row in remaining]
    return found


def same_version(expected: Row, row: Row, binding: dict[str, str]) -> bool:
    for name, value in expected.items():
        if name == "values":
            for each, wanted in value.items():
                if not same(wanted, row["values"].get(each, "no such column"), binding):
                    return False
        elif not same(value, row[name], binding):
            return False
    return True


def same(expected: Any, actual: Any, binding: dict[str, str]) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Decimal) or isinstance(actual, float):
        return isinstance(actual, float) and float(expected) == actual
    return bool(expected == actual) or (
        isinstance(expected, str) and expected in binding and binding[expected] == actual
    )


def log_differences(rows: Sequence[Row], log: Sequence[Row], binding: dict[str, str]) -> list[str]:
    """Of the messages that the expectation names, every row of the log is named."""
    named = {row["message_identifier"] for row in rows}
    remaining = [row for row in log if row["message_identifier"] in named]
    found = []
    for expected in rows:
        fits = [
            row
            for row in remaining
            if all(same(value, row[name], binding) for name, value in expected.items())
        ]
        if fits:
            remaining.remove(fits[0])
        else:
            found.append(f"the log has no {expected}")
    return found + [f"the log has {row}" for row in remaining]


def export_differences(
    expected: dict[str, list[Row]], exports: dict[str, list[Row]], binding: dict[str, str]
) -> list[str]:
    found = []
    for name, rows in expected.items():
        remaining = list(exports[name])
        for row in rows:
            fits = [
                each
                for each in remaining
                if each["operation"] == row["operation"]
                and all(same(value, each.get(n), binding) for n, value in row["values"].items())
            ]
            if fits:
                remaining.remove(fits[0])
            else:
                found.append(f"the exports {name} have no {row}")
        found += [f"the exports {name} have {row}" for row in remaining]
    return found


def receipt_differences(expected: Sequence[Row], receipts: Sequence[Row], mine: set[str]) -> list[str]:
    """An invalid message has no identifier of its own: one case of a file at most expects such receipts."""
    invalid = any(row["message_identifier"] is None for row in expected)
    actual = [
        (row["message_identifier"] if row["status"] != 22 else None, row["status"])
        for row in receipts
        if (row["status"] == 22 if invalid else row["message_identifier"] in mine)
    ]
    wanted = [(row["message_identifier"], row["status"]) for row in expected]
    if sorted(actual, key=repr) == sorted(wanted, key=repr):
        return []
    return [f"receipts are {actual}, not {wanted}"]


# The hub itself as a world -------------------------------------------------------------------------------


def receipts_of(hub: datahub.Hub, *given: Any, **named: Any) -> list[Row]:
    """Receive what is given, and tell how each record was received."""
    return rows_of(hub.receipts(hub.receive(*given, **named).version))


class SparkHub:
    """The hub behind the words of `World`, with its tables as plain rows."""

    def __init__(self, spark: SparkSession, documents: Sequence[Row], folder: Path) -> None:
        self.spark = spark
        schema = datahub.schema(*documents)
        self.hub = datahub.Hub(spark, schema, str(folder), readers=READERS, filters=FILTERS)

    def receive(self, messages: Sequence[Row]) -> list[Row]:
        receipts = receipts_of(self.hub, records_of(self.spark, messages))
        return [
            {"message_identifier": row["message_identifier"], "status": row["status"]} for row in receipts
        ]

    def process(self, now: datetime) -> None:
        self.hub.run(now=now)

    def reprocess(self, identifiers: Iterable[str], now: datetime) -> None:
        self.hub.reprocess(list(identifiers), now=now)

    def rebuild(self, now: datetime) -> None:
        self.hub.rebuild(now=now)

    def history(self, target: str) -> list[Row]:
        return rows_of(self.hub.history(target))

    def exports(self, target: str) -> list[Row]:
        rows = rows_of(self.hub.exports(target))
        return [
            {**row["document"], "operation": row["operation"], "message_identifier": row["message_id"]}
            for row in rows
        ]

    def log(self) -> list[Row]:
        return [{**row, "target": row["entity"]} for row in rows_of(self.hub.log())]

    @property
    def statuses(self) -> dict[str, int]:
        return {row["message_identifier"]: row["status"] for row in rows_of(self.hub.messages())}


def rows_of(table: DataFrame) -> list[Row]:
    rows: list[Row] = table.toArrow().to_pylist()
    return rows


def statuses(hub: datahub.Hub) -> dict[str, int]:
    return {row["message_identifier"]: row["status"] for row in rows_of(hub.messages())}


def records_of(spark: SparkSession, messages: Sequence[Row]) -> DataFrame:
    """The messages as transported records."""
    rows = [
        (
            None,
            bytearray(message["value"].encode()),
            message["topic"],
            message["partition"],
            message["offset"],
            message["message_timestamp"],
            0,
            None,
        )
        for message in messages
    ]
    return spark.createDataFrame(rows, RECORD_SCHEMA)


# Random programs -----------------------------------------------------------------------------------------


@dataclass
class Program:
    """A schema and what happens to a hub that has it; `messages` are in order of arrival."""

    schema: list[Row]
    messages: list[Row]
    targets: list[str]
    exports: list[str]

    def pieces(self, number: int) -> list[list[Row]]:
        """The messages in that many pieces of about one size, in order of arrival."""
        size = -(-len(self.messages) // number)
        return [self.messages[start : start + size] for start in range(0, len(self.messages), size)]

    def without_repeats(self) -> Program:
        """The program without messages that were received before: which one counts is what came first."""
        first: dict[str, Row] = {}
        for message in self.messages:
            first.setdefault(message["document"]["guid"], message)
        return replace(self, messages=list(first.values()))

    def without(self, *targets: str) -> Program:
        """The program without what is said of these targets."""
        left_out = {Names(system)(target) for system in SYSTEMS for target in targets}
        return replace(
            self,
            messages=[each for each in self.messages if each["document"]["entity"] not in left_out],
            targets=[each for each in self.targets if each not in targets],
            exports=[each for each in self.exports if each not in targets],
        )

    def without_lookups(self) -> Program:
        """The program of those targets alone that are found by whole keys, and without links to others."""
        left_out = ("person", "desk", "site", "visit")
        schema = []
        for system in self.schema:
            names = [Names(system["reference"])(each) for each in left_out]
            mappings = {
                entity: [
                    mapping
                    | {"fields": [one for one in mapping["fields"] if one.get("linkEntity") not in names]}
                    for mapping in some
                ]
                for entity, some in system["mappings"].items()
                if entity not in names
            }
            schema.append(system | {"mappings": mappings})
        return replace(self.without(*left_out), schema=schema)

    def shuffled(self, chance: random.Random) -> Program:
        """The same messages, received in another order than that in which they say that they arrived."""
        return replace(self, messages=chance.sample(self.messages, len(self.messages)))

    def at_times_of_their_own(self) -> Program:
        """The program with no two messages of one effective time."""
        messages = []
        for number, message in enumerate(self.messages):
            said = convert_moment(message["document"].get("timestamp")) or BEGIN
            at = (said + timedelta(milliseconds=number)).isoformat()
            document = message["document"] | {"timestamp": at}
            messages.append(message | {"document": document, "value": to_json(document)})
        return replace(self, messages=messages)

    def arriving_otherwise(self, chance: random.Random) -> Program:
        """The same messages with each other's times and places of arrival."""
        places = [{name: message[name] for name in PLACE} for message in self.messages]
        chance.shuffle(places)
        messages = [message | place for message, place in zip(self.messages, places, strict=True)]
        return replace(self, messages=messages)


PLACE = ("message_timestamp", "topic", "partition", "offset")


def convert_moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


SYSTEMS = ("*", "erp", "web")
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
# Few instants, so that they meet; some before 1970, some a microsecond apart, with and without a zone.
TIMES = (
    "2024-01-01", "2024-01-01T00:00:00.000001", "2024-01-02T01:00+01:00", "2024-01-02T00:00:00Z",
    "2024-01-03", "2024-01-03T12:30", "2024-01-04", "2024-01-05T00:00:00", "2024-01-06",
    "2024-01-07 09:00:00.5", "1969-12-31",
)  # fmt: skip
PRIORITIES = (-1, 0, 0, 0, 1, 2)


class Names:
    """How a system calls things: the web calls everything otherwise."""

    def __init__(self, system: str) -> None:
        self.prefix = "w_" if system == "web" else ""

    def __call__(self, *names: str) -> str:
        return ",".join(self.prefix + name for name in names)

    def field(self, name: str, kind: str = "text", **more: Any) -> Row:
        renamed = {"sourceReference": self(name)} if self.prefix else {}
        return {"reference": name, "type": kind, **renamed, **more}

    def link(self, name: str, to: str, keys: Sequence[str], sources: Sequence[str] = (), **more: Any) -> Row:
        return {
            "reference": name,
            "type": "link",
            "linkEntity": self(to),
            "linkKey": self(*keys),
            "sourceLinkKey": self(*(sources or keys)),
            **more,
        }

    def children(self, name: str, of: str, parent: str, sequence: str | None = None) -> Row:
        numbered = {"childSequence": sequence, "sourceChildSequence": self(sequence)} if sequence else {}
        return {
            "reference": name,
            "type": "children",
            "sourceReference": self(name),
            "childEntity": self(of),
            "parentIdentifier": parent,
            **numbered,
        }


def entities(system: str, with_children: bool) -> dict[str, Row]:
    """The entity mappings that a system has, without priorities, by target."""
    n = Names(system)
    region = n.link("region", "region", ["region"], autocreate=True)
    home = n.link("home", "region", ["region"], ["home"], autocreate=True)
    lines = [n.children("order_lines", "order_line", "order", "line_no")] if with_children else []
    serials = [n.children("serials", "serial", "line")] if with_children else []
    every: dict[str, list[Row]] = {
        "region": [n.field("region", key=True), n.field("title")],
        "customer": [
            n.field("customer_no", key=True),
            n.field("name", length=3),
            n.field("tier", "integer"),
            n.link("referrer", "customer", ["customer_no"], ["referrer_no"]),
            region,
        ],
        "order": [
            n.field("order_no", "integer", key=True),
            n.link("buyer", "customer", ["customer_no"]),
            n.field("total", "decimal", scale=5, precision=2),
            n.field("note"),
            n.link("sent_from", "site", ["site_no"], ["from_site"]),
            *lines,
        ],
        "order_line": [
            n.link("order", "order", ["order_no"], key=True),
            n.field("line_no", "integer", key=True),
            n.field("product"),
            n.field("quantity", "smallint"),
            n.link("kept_at", "site", ["site_no"], ["at_site"]),
            *serials,
        ],
        "serial": [
            n.link("line", "order_line", ["order_no", "line_no"], key=True),
            n.field("serial_no", key=True),
            n.field("state"),
        ],
        "person": {
            "*": [
                n.field("emp", "integer", key="emp"),
                n.field("nino", key="nino"),
                n.field("family", key="born"),
                n.field("born", "date", key="born"),
            ],
            "erp": [n.field("nino", key=True), n.field("emp", "integer"), n.field("family")],
            "web": [n.field("emp", "integer", key=True), n.field("nino"), n.field("born", "date")],
        }[system]
        + [n.field("phone"), n.field("grade", "bigint"), home],
        "desk": [
            n.field("desk", key=True),
            n.link("sitter", "person", ["nino"]),
            n.link("kept_for", "person", ["family"]),
            n.field("floor", "number"),
        ],
        "site": [n.field("country", key=True), n.field("site_no", "integer", key=True), n.field("city")],
        "visit": [
            n.field("visit_no", "integer", key=True),
            n.link("at_site", "site", ["site_no"]),
            n.field("on_day", "date"),
            n.field("paid", "boolean"),
        ],
        "fact": [
            n.field("batch", key=True),
            n.field("position", "integer", key=True),
            n.field("reading", "double"),
            n.link("of_customer", "customer", ["customer_no"]),
            n.field("seen_at", "timestamp"),
        ],
        "report": [n.field("subject"), n.link("about", "customer", ["customer_no"])],
    }
    known = {
        "*": set(every),
        "erp": set(every) - {"region"} - (set() if with_children else {"order_line", "serial"}),
        "web": {"customer", "region", "order", "order_line", "person", "site", "fact"},
    }[system]
    mappings: dict[str, Row] = {
        name: {"reference": name, "fields": fields} for name, fields in every.items() if name in known
    }
    if "region" not in known:
        # No mapping that would give the made entity its priority.
        del region["autocreate"], home["autocreate"]
    if "fact" in mappings:
        unique = {"unique": True, "uniqueIdentifier": "batch", "uniqueSequence": "position"}
        source = {"sourceUniqueIdentifier": n("batch"), "sourceUniqueSequence": n("position")}
        mappings["fact"] |= unique | source
    if "report" in mappings:
        mappings["report"]["export"] = True
    return mappings


def draw_schema(chance: random.Random) -> list[Row]:
    documents = []
    for system in SYSTEMS:
        with_children = system == "*" or (system == "erp" and chance.random() < 0.7)
        mappings = entities(system, with_children)
        for mapping in mappings.values():
            if chance.random() < 0.7:
                mapping["priority"] = chance.choice(PRIORITIES)
            for each in mapping["fields"]:
                if chance.random() < 0.15 and each["type"] != "children":
                    each["priority"] = chance.choice(PRIORITIES)
            if chance.random() < 0.3:
                mapping["messageFilters"] = ["drop_tests"]
        names = Names(system)
        documents.append(
            {"reference": system, "mappings": {names(name): [mapping] for name, mapping in mappings.items()}}
        )
    return documents


class Values:
    """Records from domains so small that everybody meets everybody."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, *options: Any) -> Any:
        return self.chance.choice(options)

    def happens(self, probability: float) -> bool:
        return self.chance.random() < probability

    def record(self, target: str, *, as_child: bool = False) -> Any:
        """A record of that entity under its own names; a delete says only who, and perhaps one thing more."""
        if self.happens(0.01):
            return self.pick("no object", 7, None, [])
        key = {} if self.happens(0.01) else getattr(self, f"{target}_key")(as_child)
        rest = getattr(self, target)()
        if self.happens(0.15):
            return {**key, "deleted_indicator": self.pick(True, "yes", 1)}
        carried = {name: value for name, value in rest.items() if self.happens(0.7)}
        if self.happens(0.05):
            carried["deleted_indicator"] = self.pick(False, None, "no")
        if self.happens(0.03):
            carried["test"] = True
        return {**key, **carried}

    def customer_no(self) -> Any:
        return self.pick("c1", "c1", "c2", "c2", "c3", "c4", "c5", "c6", "c7", "c8")

    def order_no(self) -> Any:
        return self.pick(1, 1, 2, 2, 3, "4", 5, 6)

    def region_key(self, _: bool) -> Row:
        return {"region": self.pick("north", "south")}

    def region(self) -> Row:
        return {"title": self.pick("N", "S", None)}

    def customer_key(self, _: bool) -> Row:
        return {"customer_no": self.pick("c1", "c1", "c2", "c2", "c3", "c4", "c5", "c6")}

    def customer(self) -> Row:
        return {
            "name": self.pick("ann", "anna", "bob", "", None, 12, Decimal("1.50"), True),
            "tier": self.pick(1, "2", Decimal("2.5"), Decimal("1.5"), None, *self.rarely("bad")),
            "referrer_no": self.pick(None, None, self.customer_no()),
            "region": self.pick("north", "south", "east", "west", None),
        }

    def order_key(self, _: bool) -> Row:
        return {"order_no": self.order_no()}

    def order(self) -> Row:
        return {
            "customer_no": self.pick(None, self.customer_no(), self.customer_no()),
            "total": self.pick(1, Decimal("19.999"), "2.345", None, *self.rarely(123456)),
            "note": self.pick("x", "y", None, False),
            "from_site": self.site_no(0.2),
            "order_lines": self.lines(),
        }

    def lines(self) -> Any:
        if self.happens(0.1):
            return self.pick([], [], *self.rarely("bad", None))
        return [self.record("order_line", as_child=True) for _ in range(self.pick(0, 1, 2, 3))]

    def order_line_key(self, as_child: bool) -> Row:
        return {} if as_child else {"order_no": self.order_no(), "line_no": self.pick(1, 1, 2, 3, 4)}

    def order_line(self) -> Row:
        return {
            "product": self.pick("p", "q", None),
            "quantity": self.pick(1, 2, Decimal("2.5"), *self.rarely(40000)),
            "at_site": self.site_no(0.1),
            "serials": self.pick(*self.rarely(None), self.serials(), self.serials()),
        }

    def serials(self) -> Any:
        return [self.record("serial", as_child=True) for _ in range(self.pick(0, 1, 2))]

    def serial_key(self, as_child: bool) -> Row:
        own = {"serial_no": self.pick("s1", "s2", "s3")}
        return own if as_child else {"order_no": self.order_no(), "line_no": self.pick(1, 2, 3), **own}

    def serial(self) -> Row:
        return {"state": self.pick("new", "old", None, *self.rarely({"a": 1}))}

    def person_key(self, _: bool) -> Row:
        emp, nino = {"emp": self.pick(1, 2, 3, 4, 5)}, {"nino": self.pick("A", "B", "C", "D", "E")}
        born = {"family": self.pick("f", "g"), "born": self.pick("1960-01-01", "1970-01-01")}
        key: Row = self.pick(emp, nino, nino, emp | nino, emp | nino, emp | {"nino": None}, born)
        return key

    def person(self) -> Row:
        return {
            "phone": self.pick("5", "6", None),
            "grade": self.pick(1, 2**53 + 1, *self.rarely("x")),
            "home": self.pick("east", "west", "up", "down", None),
            **({"family": self.pick("f", "g", "h")} if self.happens(0.1) else {}),
            **({"born": self.pick("1960-01-01", "1970-01-01", None)} if self.happens(0.1) else {}),
        }

    def desk_key(self, _: bool) -> Row:
        return {"desk": self.pick("d1", "d2", "d3")}

    def desk(self) -> Row:
        return {
            "nino": self.pick("A", "B", "C", "D", "E", "Z", None),
            **({"family": self.pick("f", "g", "h", None)} if self.happens(0.3) else {}),
            "floor": self.pick(1, Decimal("1.5"), "-2e1", None),
        }

    def site_key(self, _: bool) -> Row:
        return {"country": self.pick("ch", "de", None), "site_no": self.pick(1, 2, 3, 4, 5)}

    def site(self) -> Row:
        return {"city": self.pick("Bern", "Bonn", None)}

    def site_no(self, probability: float) -> int | None:
        """By half of a key: soon there are several of most numbers."""
        return self.pick(1, 2, 3, 4, 5, 6) if self.happens(probability) else None

    def visit_key(self, _: bool) -> Row:
        return {"visit_no": self.pick(1, 2, 3, 4, 5, 6)}

    def visit(self) -> Row:
        return {
            "site_no": self.pick(1, 2, 3, 4, 5, 6, None),
            "on_day": self.pick("2024-02-29", "1960-01-01", None, *self.rarely("2023-02-29")),
            "paid": self.pick(True, "n", 0, None, *self.rarely("maybe")),
        }

    def fact_key(self, _: bool) -> Row:
        return {}

    def fact(self) -> Row:
        return {
            "reading": self.pick(1, Decimal("0.1"), "1e3", None, *self.rarely("NaN")),
            "customer_no": self.pick(None, self.customer_no()),
            "seen_at": self.pick("2024-01-01T10:00+02:00", "1969-12-31 23:59:59.9999999", None),
        }

    def report_key(self, _: bool) -> Row:
        return {}

    def report(self) -> Row:
        return {"subject": self.pick("a", "b", None), "customer_no": self.pick(None, self.customer_no())}

    def rarely(self, *options: Any) -> tuple[Any, ...]:
        return options if self.happens(0.2) else ()


WEIGHTS = {
    "customer": 6, "region": 2, "order": 6, "order_line": 3, "serial": 2, "person": 5, "desk": 2, "site": 2,
    "visit": 2, "fact": 2, "report": 1,
}  # fmt: skip


def draw_program(seed: int, *, messages: int = 250) -> Program:
    """A program; the same for the same seed."""
    chance = random.Random(seed)
    schema = draw_schema(chance)
    values = Values(chance)
    received: list[Row] = []
    when = BEGIN
    for offset in range(messages):
        when += timedelta(seconds=values.pick(0, 1, 1, 60))
        document = draw_document(values, schema, f"m{offset}")
        if received and values.happens(0.03):
            document["guid"] = values.pick(*received)["document"]["guid"]
        text = to_json(document)
        place = {"topic": values.pick("t", "s"), "partition": values.pick(0, 1), "offset": offset}
        received.append({"value": text, "document": from_json(text), "message_timestamp": when, **place})
    received.sort(
        key=lambda each: (each["message_timestamp"], each["topic"], each["partition"], each["offset"])
    )
    targets = {mapping["reference"] for mapping in all_mappings(schema)}
    exports = {mapping["reference"] for mapping in all_mappings(schema) if mapping.get("export")}
    return Program(schema, received, sorted(targets - exports), sorted(exports))


def all_mappings(schema: Sequence[Row]) -> list[Row]:
    return [
        mapping for document in schema for mappings in document["mappings"].values() for mapping in mappings
    ]


def draw_document(values: Values, schema: Sequence[Row], guid: str) -> Row:
    system = values.pick("*", "*", "erp", "web")
    known = [
        mapping["reference"] for mapping in all_mappings([s for s in schema if s["reference"] == system])
    ]
    target = values.pick(*[name for name in known for _ in range(WEIGHTS[name])])
    document: Row = {"guid": guid, "entity": Names(system)(target)}
    if system != "*":
        document["system"] = system
    if values.happens(0.9):
        document["timestamp"] = values.pick(*TIMES)
    if values.happens(0.08):
        document["refresh"] = True
    records = [values.record(target) for _ in range(values.pick(0, 1, 1, 2, 2, 3, 4))]
    document["data"] = [renamed(record, Names(system)) for record in records]
    if values.happens(0.02):
        document |= values.pick({"system": "nobody"}, {"entity": "nothing"}, {"data": "no records"})
    return document


def renamed(record: Any, names: Names) -> Any:
    """The record under the names of the system, its children too."""
    if not isinstance(record, dict):
        return record
    plain_names = ("deleted_indicator", "test")
    return {
        name if name in plain_names else names(name): (
            [renamed(each, names) for each in value] if isinstance(value, list) else value
        )
        for name, value in record.items()
    }


def program_differences(program: Program, expected: World, actual: World) -> list[str]:
    """Where two worlds differ after the program: an entity, a status, a row of the log or of an export."""
    found = []
    for target in program.targets:
        wanted, got = versions_by_guid(expected, target), versions_by_guid(actual, target)
        differing = [guid for guid in wanted.keys() | got.keys() if wanted.get(guid) != got.get(guid)]
        if differing:
            guid = min(differing, key=lambda each: (len(wanted.get(each, [])), each))
            lines = [f"{len(differing)} of {len(wanted)} entities of {target} differ, one of them:"]
            lines += [f"  expected {row}" for row in wanted.get(guid, [])]
            lines += [f"  found    {row}" for row in got.get(guid, [])]
            found.append("\n".join(lines))
    found += unlike("status", list(expected.statuses.items()), list(actual.statuses.items()))
    found += unlike("log", log_of(expected), log_of(actual))
    for name in program.exports:
        fields = export_fields(program, name)
        rows = [export_rows(world.exports(name), fields) for world in (expected, actual)]
        found += unlike(f"export {name}", *rows)
    return found


def versions_by_guid(world: World, target: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in sorted(world.history(target), key=lambda each: each["valid_from_timestamp"]):
        found.setdefault(row["guid"], []).append(plain_version(row))
    return found


def log_of(world: World) -> list[Row]:
    """The log; whom a record in error, or one that was dropped, speaks of is left open."""
    rows = [{name: row[name] for name in LOG_COLUMNS} for row in world.log()]
    for row in rows:
        if row["outcome"] in ("error", "dropped"):
            row["guid"] = None
        if row["record"] is None:
            row["error_code"] = None  # the status of the message says it
    return rows


def export_fields(program: Program, name: str) -> list[str]:
    mappings = [each for each in all_mappings(program.schema) if each["reference"] == name]
    return [each["reference"] for each in mappings[0]["fields"]]


def export_rows(rows: Sequence[Row], fields: Sequence[str]) -> list[Row]:
    names = ("message_identifier", "operation", *fields)
    return [{name: plain(row.get(name)) for name in names} for row in rows]


def unlike(what: str, expected: Sequence[Any], actual: Sequence[Any]) -> list[str]:
    """What one list has and the other has not, whatever their order."""
    wanted, got = Counter(map(repr, expected)), Counter(map(repr, actual))
    missing, surplus = sorted((wanted - got).elements()), sorted((got - wanted).elements())
    if not missing and not surplus:
        return []
    return [f"{what}: {len(missing)} missing, as {missing[:3]}; {len(surplus)} too many, as {surplus[:3]}"]
