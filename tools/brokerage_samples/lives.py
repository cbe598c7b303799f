"""What a broker's systems said of customers, accounts and trades, and in which load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import groupby
from random import Random

FIRST_DAY, LAST_DAYS = date(2013, 1, 1), {1: date(2013, 6, 30), 2: date(2013, 7, 1), 3: date(2013, 7, 2)}
NAMES = ("Abel", "Brandt", "Cruz", "Diaz", "Evers", "Fox", "Grant", "Holm", "Ito", "Jones", "Kim", "Lund")
CITIES = ("Boston", "Chicago", "Denver", "Houston", "Miami", "Seattle")
SYMBOLS = ("AAL", "BA", "DAL", "GE", "LUV", "UAL")
PRODUCTS = ("Savings", "Growth", "Pension")

Row = dict[str, object]


@dataclass(frozen=True)
class Said:
    """One statement: in which load it came, when it was made, since when it is true, and what it changed."""

    load: int
    at: datetime
    action: str
    key: int
    changed: Row
    since: date


@dataclass
class Brokerage:
    """All that was said, by the kind of thing of which it was said."""

    customers: list[Said] = field(default_factory=list)
    accounts: list[Said] = field(default_factory=list)
    trades: list[Said] = field(default_factory=list)


def brokerage(customers: int, seed: int) -> Brokerage:
    """The lives of so many customers, of their accounts, and of the trades of these."""
    random, told = Random(seed), Brokerage()
    for customer in range(1, customers + 1):
        _live(told, customer, random)
    told.customers += list(_corrections(told.customers, random))
    for kind in (told.customers, told.accounts, told.trades):
        kind.sort(key=lambda said: (said.load, said.at, said.key))
    return told


def replayed(said: Iterable[Said]) -> Iterator[tuple[Said, Row]]:
    """Each statement with the row that is true from then on: by the day it holds from, then as they came."""
    in_order = sorted(said, key=lambda each: (each.key, each.since, each.at))
    for _, of_one in groupby(in_order, lambda each: each.key):
        row: Row = {}
        for each in of_one:
            row = row | each.changed
            yield each, row


def _live(told: Brokerage, customer: int, random: Random) -> None:
    """A customer comes, changes, opens, changes and closes accounts, and may become inactive."""
    at = _moment(random, random.choices((1, 2, 3), (14, 3, 3))[0])
    told.customers.append(_said(at, "NEW", customer, {"C_ST_ID": "ACTV", **_customer(random)}))
    opened = {_open(told, customer, at, "NEW", random): at}
    while (at := _later(at, random)).date() <= LAST_DAYS[3]:
        actions = ("UPDCUST", "ADDACCT", "UPDACCT", "CLOSEACCT", "INACT")
        action = random.choices(actions, (8, 3, 5, 1, 1))[0]
        if action == "INACT":
            told.customers.append(_said(at, action, customer, {"C_ST_ID": "INAC"}))
            break
        if action == "UPDCUST":
            told.customers.append(_said(at, action, customer, _some(_customer(random), 2, random)))
        elif action == "ADDACCT":
            opened[_open(told, customer, at, action, random)] = at
        elif opened:
            account = random.choice(sorted(opened))
            changed = _some(_account(random), 1, random)
            if action == "CLOSEACCT":
                changed = {"CA_ST_ID": "INAC"}
                _trade(told, account, opened.pop(account), at, random)
            told.accounts.append(_said(at, action, account, changed))
    end = min(at, datetime.combine(LAST_DAYS[3], datetime.max.time()))
    for account, since in opened.items():
        _trade(told, account, since, end, random)


def _open(told: Brokerage, customer: int, at: datetime, action: str, random: Random) -> int:
    """The number of a new account: that of its customer, and behind it how many there were."""
    number = 100 * customer + len({said.key for said in told.accounts if said.key // 100 == customer})
    opened = {"CA_C_ID": customer, "CA_NAME": random.choice(PRODUCTS), "CA_ST_ID": "ACTV"}
    told.accounts.append(_said(at, action, number, {**opened, **_account(random)}))
    return number


def _customer(random: Random) -> Row:
    return {
        "C_L_NAME": random.choice(NAMES),
        "C_TIER": random.randint(1, 3),
        "C_CITY": random.choice(CITIES),
    }


def _account(random: Random) -> Row:
    return {"CA_B_ID": random.randint(1, 5), "CA_TAX_ST": random.randint(0, 2)}


def _some(row: Row, most: int, random: Random) -> Row:
    return {name: row[name] for name in random.sample(sorted(row), random.randint(1, most))}


def _trade(told: Brokerage, account: int, since: datetime, until: datetime, random: Random) -> None:
    """Trades of an account while it is open: submitted, perhaps pending before, completed or cancelled."""
    for _ in range(random.randint(0, 4)):
        at = (since + (until - since) * random.random()).replace(microsecond=0)
        row = {"T_S_SYMB": random.choice(SYMBOLS), "T_QTY": 10 * random.randint(1, 90), "T_CA_ID": account}
        steps = ["PNDG"] * (random.random() < 0.3) + ["SBMT", random.choice(("CMPT", "CMPT", "CNCL"))]
        number = told.trades[-1].key + 1 if told.trades else 1
        for status in steps:
            if at.date() > LAST_DAYS[3]:
                break
            told.trades.append(_said(at, status, number, {**row, "T_ST_ID": status}))
            at += timedelta(minutes=random.choice((1, 5, 600, 2000)))


def _corrections(customers: list[Said], random: Random) -> Iterator[Said]:
    """
    What the third load says of days before it: tiers that the second load had wrong, and moves told late.

    They are said only of customers of whom nothing was said for a later day: the rows of a load are whole,
    and a later one would take the correction back.
    """
    last = {said.key: (said, row) for said, row in replayed(customers)}
    for key, (said, row) in last.items():
        if said.action == "INACT":
            continue
        if said.load == 2:
            tiers = [tier for tier in (1, 2, 3) if tier != row["C_TIER"]]
            yield Said(3, _moment(random, 3), "UPDCUST", key, {"C_TIER": random.choice(tiers)}, said.since)
        elif said.load == 1 and random.random() < 0.1:
            cities = [city for city in CITIES if city != row["C_CITY"]]
            since = said.since + (LAST_DAYS[2] - said.since) // 2
            yield Said(3, _moment(random, 3), "UPDCUST", key, {"C_CITY": random.choice(cities)}, since)


def _said(at: datetime, action: str, key: int, changed: Row) -> Said:
    load = next(load for load, last in LAST_DAYS.items() if at.date() <= last)
    return Said(load, at, action, key, changed, since=at.date())


def _moment(random: Random, load: int) -> datetime:
    """A second of a load's days: of half a year for the first, of one day for the others."""
    first = FIRST_DAY if load == 1 else LAST_DAYS[load]
    seconds = random.randrange(86_400 * ((LAST_DAYS[load] - first).days + 1))
    return datetime.combine(first, datetime.min.time()) + timedelta(seconds=seconds)


def _later(at: datetime, random: Random) -> datetime:
    """Often weeks later, but of five changes one comes within the hour: a day may have several."""
    hours = random.random() if random.random() < 0.2 else 24 * random.randint(1, 60)
    return (at + timedelta(hours=hours)).replace(microsecond=0)
