"""What must come of the three loads, worked out by plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from tools.brokerage_samples.lives import Row, Said, replayed

END_OF_TIME = date(9999, 12, 31)


@dataclass(frozen=True)
class Version:
    """What was so of one thing from a day on, up to another day, which is not a part of it."""

    key: int
    first: date
    end: date
    row: Row


def versions(said: Iterable[Said]) -> list[Version]:
    """The last word of each day, from that day to the next that says something else."""
    of_days = {(each.key, each.since): row for each, row in replayed(said)}
    found: list[Version] = []
    for key, of_one in groupby(sorted(of_days), lambda key_and_day: key_and_day[0]):
        days = [day for _, day in of_one]
        for day, end in zip(days, [*days[1:], END_OF_TIME], strict=True):
            found.append(Version(key, day, end, of_days[key, day]))
    return _folded(found)


def _folded(found: Iterable[Version]) -> list[Version]:
    """Neighbours of one key that say the same are one version."""
    kept: list[Version] = []
    for each in found:
        before = kept[-1] if kept else None
        if before and (before.key, before.end, before.row) == (each.key, each.first, each.row):
            kept[-1] = replace(before, end=each.end)
        else:
            kept.append(each)
    return kept


def accounts_of_customers(accounts: list[Version], customers: list[Version]) -> list[Version]:
    """Accounts as the dimension has them: inactive with their customer, a row for each row of that one."""
    found = []
    for account in accounts:
        for customer in customers:
            first, end = max(account.first, customer.first), min(account.end, customer.end)
            if customer.key == account.row["CA_C_ID"] and first < end:
                status = "INAC" if customer.row["C_ST_ID"] == "INAC" else account.row["CA_ST_ID"]
                row = {**account.row, "CA_ST_ID": status, "CUSTOMER_SINCE": customer.first}
                found.append(Version(account.key, first, end, row))
    return _folded(found)


def trades(said: list[Said], accounts: list[Version]) -> Iterator[Row]:
    """Trades as the dimension has them: the days of the first and last step, the account's row of then."""
    for key, steps in groupby(sorted(said, key=lambda each: (each.key, each.at)), lambda each: each.key):
        of_one = list(steps)
        first, last = of_one[0], of_one[-1]
        of_account = [each for each in accounts if each.key == first.changed["T_CA_ID"]]
        [account] = [each for each in of_account if each.first <= first.since < each.end]
        yield {
            "T_ID": key,
            "CREATED": first.since,
            "CLOSED": last.since if last.action in ("CMPT", "CNCL") else None,
            "T_ST_ID": last.action,
            "ACCOUNT_SINCE": account.first,
        }
