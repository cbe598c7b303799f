"""What must come of a broker's three loads, worked out from their files by plain loops."""

import csv
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tools.samples.records import SAMPLES

LOADS = SAMPLES / "brokerage"
CUSTOMER = ("C_ID", "C_ST_ID", "C_L_NAME", "C_TIER", "C_CITY")
ACCOUNT = ("CA_ID", "CA_C_ID", "CA_B_ID", "CA_NAME", "CA_TAX_ST", "CA_ST_ID")
TRADE = ("T_ID", "T_ST_ID", "T_CA_ID")
END_OF_TIME = date(9999, 12, 31)

Row = dict[str, object]


class Statement(NamedTuple):
    """What one load says of one thing: since when it is true, and the fields that it names."""

    load: int
    key: int
    since: date
    fields: Row


class Version(NamedTuple):
    """What was so of one thing from a day on, up to another day, which is not a part of it."""

    key: int
    first: date
    end: date
    row: Row


def write(folder: Path) -> None:
    """Write the dimensions after the last load, and the customers as they were believed after the second."""
    said = list(statements("Customer", CUSTOMER))
    customers = versions(said)
    accounts = accounts_of_customers(versions(statements("Account", ACCOUNT)), customers)
    before = versions(each for each in said if each.load < 3)
    tables: dict[str, list[Row]] = {
        "customers": [_as_row(each, CUSTOMER) for each in customers],
        "customers_after_2": [_as_row(each, CUSTOMER) for each in before],
        "accounts": [_as_row(each, (*ACCOUNT, "CUSTOMER_SINCE")) for each in accounts],
        "trades": list(trades(statements("Trade", TRADE), accounts)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        with (folder / f"truth_{name}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, rows[0], lineterminator="\n")
            lines.writeheader()
            lines.writerows(rows)


def _as_row(version: Version, header: tuple[str, ...]) -> Row:
    row = {header[0]: version.key, **version.row}
    return {"FIRST_DAY": version.first, "END_DAY": version.end, **{name: row[name] for name in header}}


def statements(table: str, header: tuple[str, ...]) -> Iterator[Statement]:
    """Give what the loads say of a table, as they came: actions first, then whole rows."""
    for action in ElementTree.parse(LOADS / "batch1" / "CustomerMgmt.xml").iterfind(f"Action/{table}/.."):
        said: Row = {field.tag: field.text for field in action[0]}
        since = datetime.fromisoformat(action.attrib["ActionTS"]).date()
        yield Statement(1, int(str(said.pop(header[0]))), since, said)
    for path in sorted(LOADS.glob(f"batch*/{table}.txt")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file, delimiter="|"):
                fields: Row = {name: row[name] for name in header[1:]}
                since = date.fromisoformat(row["TRUE_SINCE"])
                yield Statement(int(path.parent.name[-1]), int(row[header[0]]), since, fields)


def versions(said: Iterable[Statement]) -> list[Version]:
    """Return the last word of each day, from that day to the next that says something else."""
    of_days: dict[int, dict[date, Row]] = {}
    for each in sorted(said, key=lambda each: (each.key, each.since)):
        days = of_days.setdefault(each.key, {})
        days[each.since] = (list(days.values())[-1] if days else {}) | each.fields
    return _folded(
        Version(key, day, end, days[day])
        for key, days in of_days.items()
        for day, end in zip(days, [*list(days)[1:], END_OF_TIME], strict=True)
    )


def _folded(found: Iterable[Version]) -> list[Version]:
    """Make one version of neighbours of one key that say the same."""
    kept: list[Version] = []
    for each in found:
        if kept and (kept[-1].key, kept[-1].end, kept[-1].row) == (each.key, each.first, each.row):
            kept[-1] = kept[-1]._replace(end=each.end)
        else:
            kept.append(each)
    return kept


def accounts_of_customers(accounts: list[Version], customers: list[Version]) -> list[Version]:
    """Return accounts as the dimension has them: a row for each row of their customer, inactive with it."""
    found = []
    for account in accounts:
        for customer in customers:
            first, end = max(account.first, customer.first), min(account.end, customer.end)
            if str(customer.key) == str(account.row["CA_C_ID"]) and first < end:
                status = "INAC" if customer.row["C_ST_ID"] == "INAC" else account.row["CA_ST_ID"]
                row = {**account.row, "CA_ST_ID": status, "CUSTOMER_SINCE": customer.first}
                found.append(Version(account.key, first, end, row))
    return _folded(found)


def trades(said: Iterable[Statement], accounts: list[Version]) -> Iterator[Row]:
    """Give trades as the dimension has them: first and last day, the account's row of then."""
    for key, steps in groupby(sorted(said, key=lambda each: each.key), lambda each: each.key):
        first, *others = steps
        last = others[-1] if others else first
        of_account = [each for each in accounts if str(each.key) == str(first.fields["T_CA_ID"])]
        [account] = [each for each in of_account if each.first <= first.since < each.end]
        status = last.fields["T_ST_ID"]
        yield {
            "T_ID": key,
            "CREATED": first.since,
            "CLOSED": last.since if status in ("CMPT", "CNCL") else None,
            "T_ST_ID": status,
            "ACCOUNT_SINCE": account.first,
        }
