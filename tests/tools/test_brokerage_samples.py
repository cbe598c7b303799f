"""A broker's three loads: what must come of them, by hand, and what is in them."""

from __future__ import annotations

from datetime import date

from tools.samples import brokerage
from tools.samples.brokerage import CUSTOMER, END_OF_TIME, Statement, Version

JUNE = [date(2013, 6, day) for day in range(1, 31)]
JULY_1 = date(2013, 7, 1)


def said(load: int, key: int, since: date, **fields: object) -> Statement:
    return Statement(load, key, since, fields)


def test_a_day_has_its_last_word_and_neighbours_that_say_the_same_are_one() -> None:
    statements = [
        said(1, 7, JUNE[0], tier=1, city="Boston"),
        said(1, 7, JUNE[4], tier=2),
        said(1, 7, JUNE[4], tier=3),
        said(2, 7, JULY_1, tier=3, city="Boston"),
        said(3, 7, JUNE[2], city="Miami"),
    ]
    assert brokerage.versions(statements) == [
        Version(7, JUNE[0], JUNE[2], {"tier": 1, "city": "Boston"}),
        Version(7, JUNE[2], JUNE[4], {"tier": 1, "city": "Miami"}),
        Version(7, JUNE[4], JULY_1, {"tier": 3, "city": "Miami"}),
        Version(7, JULY_1, END_OF_TIME, {"tier": 3, "city": "Boston"}),
    ]
    assert len(brokerage.versions([*statements[:1], said(1, 7, JUNE[3], tier=1)])) == 1


def test_an_account_has_a_row_for_each_row_of_its_customer_and_is_inactive_with_it() -> None:
    account = Version(700, JUNE[1], END_OF_TIME, {"CA_C_ID": 7, "CA_ST_ID": "ACTV"})
    customers = [
        Version(7, JUNE[0], JUNE[4], {"C_ST_ID": "ACTV"}),
        Version(7, JUNE[4], END_OF_TIME, {"C_ST_ID": "INAC"}),
        Version(8, JUNE[0], END_OF_TIME, {"C_ST_ID": "ACTV"}),
    ]
    rows = [
        {"CA_C_ID": 7, "CA_ST_ID": "ACTV", "CUSTOMER_SINCE": JUNE[0]},
        {"CA_C_ID": 7, "CA_ST_ID": "INAC", "CUSTOMER_SINCE": JUNE[4]},
    ]
    assert brokerage.accounts_of_customers([account], customers) == [
        Version(700, JUNE[1], JUNE[4], rows[0]),
        Version(700, JUNE[4], END_OF_TIME, rows[1]),
    ]


def test_a_trade_has_the_row_of_its_account_on_the_day_on_which_it_was_made() -> None:
    accounts = [Version(700, JUNE[0], JUNE[4], {}), Version(700, JUNE[4], END_OF_TIME, {})]
    steps = [
        said(1, 1, JUNE[day - 1], T_CA_ID=700, T_ST_ID=status) for day, status in ((5, "SBMT"), (6, "CMPT"))
    ]
    made = {"T_ID": 1, "CREATED": JUNE[4], "ACCOUNT_SINCE": JUNE[4]}
    assert list(brokerage.trades(steps, accounts)) == [{**made, "CLOSED": JUNE[5], "T_ST_ID": "CMPT"}]
    assert list(brokerage.trades(steps[:1], accounts)) == [{**made, "CLOSED": None, "T_ST_ID": "SBMT"}]


def test_the_third_load_comes_late_and_corrects_the_second() -> None:
    days = {1: date(2013, 6, 30), 2: JULY_1, 3: date(2013, 7, 2)}
    told = list(brokerage.statements("Customer", CUSTOMER))
    late = [each for each in told if each.load > 1 and each.since < days[each.load]]
    assert {each.load for each in late} == {3}
    assert any(each.since < JULY_1 for each in late)
    assert any(each.since == JULY_1 for each in late)
