"""A broker's three loads: that the committed files are what the program makes, and its truth by hand."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

from tools.brokerage_samples import lives, truth
from tools.brokerage_samples.__main__ import write

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "brokerage"
JUNE = [date(2013, 6, day) for day in range(1, 31)]


def said(load: int, key: int, since: date, hour: int = 9, **changed: object) -> lives.Said:
    day = lives.LAST_DAYS[load] if load > 1 else since
    return lives.Said(load, datetime(day.year, day.month, day.day, hour), "UPD", key, changed, since)


def test_the_files_are_what_the_program_makes(tmp_path: Path) -> None:
    write(tmp_path, lives.brokerage(customers=80, seed=1))
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert made == {path.relative_to(SAMPLE): path.read_bytes() for path in SAMPLE.rglob("*.*")}


def test_a_day_has_its_last_word_and_neighbours_that_say_the_same_are_one() -> None:
    statements = [
        said(1, 7, JUNE[0], tier=1, city="Boston"),
        said(1, 7, JUNE[4], hour=10, tier=2),
        said(1, 7, JUNE[4], hour=11, tier=3),
        said(2, 7, date(2013, 7, 1), tier=3, city="Boston"),
        said(3, 7, JUNE[2], city="Miami"),
    ]
    assert truth.versions(statements) == [
        truth.Version(7, JUNE[0], JUNE[2], {"tier": 1, "city": "Boston"}),
        truth.Version(7, JUNE[2], JUNE[4], {"tier": 1, "city": "Miami"}),
        truth.Version(7, JUNE[4], date(2013, 7, 1), {"tier": 3, "city": "Miami"}),
        truth.Version(7, date(2013, 7, 1), truth.END_OF_TIME, {"tier": 3, "city": "Boston"}),
    ]
    assert len(truth.versions([*statements[:1], said(1, 7, JUNE[3], tier=1)])) == 1


def test_an_account_has_a_row_for_each_row_of_its_customer_and_is_inactive_with_it() -> None:
    account = truth.Version(700, JUNE[1], truth.END_OF_TIME, {"CA_C_ID": 7, "CA_ST_ID": "ACTV"})
    customers = [
        truth.Version(7, JUNE[0], JUNE[4], {"C_ST_ID": "ACTV"}),
        truth.Version(7, JUNE[4], truth.END_OF_TIME, {"C_ST_ID": "INAC"}),
        truth.Version(8, JUNE[0], truth.END_OF_TIME, {"C_ST_ID": "ACTV"}),
    ]
    rows = [
        {"CA_C_ID": 7, "CA_ST_ID": "ACTV", "CUSTOMER_SINCE": JUNE[0]},
        {"CA_C_ID": 7, "CA_ST_ID": "INAC", "CUSTOMER_SINCE": JUNE[4]},
    ]
    assert truth.accounts_of_customers([account], customers) == [
        truth.Version(700, JUNE[1], JUNE[4], rows[0]),
        truth.Version(700, JUNE[4], truth.END_OF_TIME, rows[1]),
    ]


def test_a_trade_has_the_row_of_its_account_on_the_day_on_which_it_was_made() -> None:
    accounts = [
        truth.Version(700, JUNE[0], JUNE[4], {}),
        truth.Version(700, JUNE[4], truth.END_OF_TIME, {}),
    ]
    steps = [
        lives.Said(1, datetime(2013, 6, day, 12), status, 1, {"T_CA_ID": 700}, JUNE[day - 1])
        for day, status in ((5, "SBMT"), (6, "CMPT"))
    ]
    made = {"T_ID": 1, "CREATED": JUNE[4], "ACCOUNT_SINCE": JUNE[4]}
    assert list(truth.trades(steps, accounts)) == [{**made, "CLOSED": JUNE[5], "T_ST_ID": "CMPT"}]
    assert list(truth.trades(steps[:1], accounts)) == [{**made, "CLOSED": None, "T_ST_ID": "SBMT"}]


def test_the_third_load_comes_late_and_corrects_the_second() -> None:
    told = lives.brokerage(customers=80, seed=1)
    late = [each for each in told.customers if each.since < each.at.date()]
    assert {each.load for each in late} == {3}
    assert any(each.since < lives.LAST_DAYS[2] for each in late)
    assert any(each.since == lives.LAST_DAYS[2] for each in late)
