"""
What things cost, from `benchmarks/results.json`; and limits, from the constants that set them.

    python -m tools.site.costs        writes both into the page of limits and costs
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from cdckit.notebook.options import MOST_ROWS
from cdckit.parts.avro import decoding, schema
from cdckit.rdss.reading import RULES

ROOT = Path(__file__).parents[2]

RESULTS = ROOT / "benchmarks/results.json"

PAGE = ROOT / "docs/limits.md"

_TABLES = re.compile(r"(<!-- (limits|costs): [^\n]*-->\n\n).*?\n\n(<!-- end -->)", flags=re.DOTALL)

TOLD = ROOT / "docs/costs.toml"
"""By subject, the results that the page tells, and what was measured; all others stand below by name."""

LIMITS: dict[str, int] = {
    "Rows that a table to look at may have": MOST_ROWS,
    "Bytes of one RDSS message, before it must be sent in parts": RULES.max_bytes,
    "Characters of an Avro schema that came with a message": schema.MAX_TEXT,
    "Levels to which its types may be nested": schema.MAX_DEPTH,
    "Types that it may have, once its names are replaced by what they stand for": schema.MAX_NODES,
    "Bytes that one Avro message may become beyond its own": decoding.MAX_MADE_OF_ONE,
}


def with_tables(text: str) -> str:
    """The page, with its tables as they are now."""
    made = {"limits": limits, "costs": costs}
    return _TABLES.sub(lambda found: f"{found[1]}{made[found[2]]()}\n\n{found[3]}", text)


def write_page() -> None:
    """Write the tables into the page of limits and costs."""
    PAGE.write_text(with_tables(PAGE.read_text()))


def costs() -> str:
    """The tables of results, in Markdown."""
    return _tables({result["name"]: result for result in json.loads(RESULTS.read_text())})


def _tables(results: dict[str, dict[str, Any]]) -> str:
    subjects_told: dict[str, dict[str, str]] = tomllib.loads(TOLD.read_text())
    told = {name: text for texts in subjects_told.values() for name, text in texts.items()}
    subjects = {subject: {name: results[name] for name in names} for subject, names in subjects_told.items()}
    subjects["Others, by their names in benchmarks"] = {
        name: result for name, result in results.items() if name not in told
    }
    lines = []
    for subject, listed in subjects.items():
        lines += [f"### {subject}", "", "| what | figure | aim | seconds | GB |", "|---|---:|---|---:|---:|"]
        for name, result in listed.items():
            cells = (_figure(result), _aim(result), _seconds(result), _memory(result))
            lines.append(f"| {told.get(name, f'`{name}`')} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines[:-1])


def limits() -> str:
    """The table of limits, in Markdown."""
    return "\n".join(
        ["| limit | |", "|---|---:|", *(f"| {what} | {most:,} |" for what, most in LIMITS.items())]
    )


def _figure(result: dict[str, Any]) -> str:
    return _number(result["ratio"]) + (" times" if result["ratio"] < 1000 else "")


def _aim(result: dict[str, Any]) -> str:
    """What was aimed at, and whether it was reached."""
    if result["bar"] is None:
        return ""
    higher = result["better"] == "higher"
    reached = result["ratio"] >= result["bar"] if higher else result["ratio"] <= result["bar"]
    return f"at {'least' if higher else 'most'} {_number(result['bar'])}" + (
        "" if reached else ", **missed**"
    )


def _seconds(result: dict[str, Any]) -> str:
    return _number(result["seconds"]) if result["seconds"] else ""


def _memory(result: dict[str, Any]) -> str:
    megabytes = result["peak_memory_mb"]
    return f"{megabytes / 1000:.1f}" if megabytes else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:,.2f}"


if __name__ == "__main__":
    write_page()
