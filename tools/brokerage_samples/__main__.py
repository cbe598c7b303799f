"""Write what a broker's systems said in three loads, and what must come of it."""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from tools.brokerage_samples import truth
from tools.brokerage_samples.lives import LAST_DAYS, Brokerage, Said, brokerage, replayed

CUSTOMER = ("C_ID", "C_ST_ID", "C_L_NAME", "C_TIER", "C_CITY")
ACCOUNT = ("CA_ID", "CA_C_ID", "CA_B_ID", "CA_NAME", "CA_TAX_ST", "CA_ST_ID")
TRADE = ("T_ID", "T_DTS", "T_ST_ID", "T_S_SYMB", "T_QTY", "T_CA_ID")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.brokerage_samples", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write to")
    parser.add_argument("--customers", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.out, brokerage(options.customers, options.seed))


def write(folder: Path, told: Brokerage) -> None:
    """A folder a load, an audit of what was put in, and what must come of it."""
    for load, last in LAST_DAYS.items():
        batch = folder / f"batch{load}"
        batch.mkdir(parents=True, exist_ok=True)
        (batch / "BatchDate.txt").write_text(f"{last}\n", encoding="utf-8")
        _write_rows(batch / "Trade.txt", TRADE, told.trades, load)
        if load > 1:
            _write_rows(batch / "Customer.txt", CUSTOMER, told.customers, load)
            _write_rows(batch / "Account.txt", ACCOUNT, told.accounts, load)
    _write_actions(folder / "batch1" / "CustomerMgmt.xml", told)
    _write_table(folder / "audit.csv", ("DATA_SET", "BATCH_ID", "ATTRIBUTE", "VALUE"), _audit(told))
    _write_truth(folder, told)


def _audit(told: Brokerage) -> Iterator[tuple[object, ...]]:
    """How often each thing was said in each load, as the benchmark's own generator tells it."""
    kinds = {"DimCustomer": told.customers, "DimAccount": told.accounts, "DimTrade": told.trades}
    counted = Counter((name, said.load, said.action) for name, kind in kinds.items() for said in kind)
    return ((*what, count) for what, count in sorted(counted.items()))


def _write_truth(folder: Path, told: Brokerage) -> None:
    """The dimensions after the last load, and the customers as they were believed to be after the second."""
    customers = truth.versions(told.customers)
    accounts = truth.accounts_of_customers(truth.versions(told.accounts), customers)
    trades = list(truth.trades(told.trades, accounts))
    before = truth.versions(said for said in told.customers if said.load < 3)
    _write_versions(folder / "truth_customers.csv", CUSTOMER, customers)
    _write_versions(folder / "truth_customers_after_2.csv", CUSTOMER, before)
    _write_versions(folder / "truth_accounts.csv", (*ACCOUNT, "CUSTOMER_SINCE"), accounts)
    _write_table(folder / "truth_trades.csv", trades[0], (row.values() for row in trades))


def _write_actions(path: Path, told: Brokerage) -> None:
    """The first load: each action with what it changed, and nothing else."""
    root = ElementTree.Element("Actions")
    kinds = (("Customer", "C_ID", told.customers), ("Account", "CA_ID", told.accounts))
    first = [(said, tag, key) for tag, key, kind in kinds for said in kind if said.load == 1]
    for said, tag, key in sorted(first, key=lambda each: (each[0].at, each[0].key)):
        action = ElementTree.SubElement(root, "Action", ActionType=said.action, ActionTS=said.at.isoformat())
        element = ElementTree.SubElement(action, tag)
        for name, value in {key: said.key, **said.changed}.items():
            ElementTree.SubElement(element, name).text = str(value)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _write_rows(path: Path, header: tuple[str, ...], said: list[Said], load: int) -> None:
    """Whole rows, as the log of a database has them: inserted or updated, and in which order."""
    whole = {id(each): row for each, row in replayed(said)}
    known: set[int] = set()
    rows = []
    for number, each in enumerate(said, 1):
        row = {header[0]: each.key, "T_DTS": each.at.isoformat(), **whole[id(each)]}
        flag = "U" if each.key in known else "I"
        if each.load == load:
            rows.append((flag, number, each.since, *(row[name] for name in header)))
        known.add(each.key)
    _write_table(path, ("CDC_FLAG", "CDC_DSN", "TRUE_SINCE", *header), rows, delimiter="|")


def _write_versions(path: Path, header: tuple[str, ...], found: list[truth.Version]) -> None:
    rows = ({"FIRST_DAY": each.first, "END_DAY": each.end, header[0]: each.key, **each.row} for each in found)
    names = ("FIRST_DAY", "END_DAY", *header)
    _write_table(path, names, ([row[name] for name in names] for row in rows))


def _write_table(
    path: Path, header: Iterable[str], rows: Iterable[Iterable[object]], delimiter: str = ","
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n", delimiter=delimiter)
        lines.writerow(header)
        lines.writerows(rows)


if __name__ == "__main__":
    main()
