"""Whatever can be read below a folder: of a Parquet file every value, bound and note; of others the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def find_remains(folder: Path, subjects: Mapping[str, Iterable[str | int | float]]) -> dict[str, set[str]]:
    """
    The files below *folder* in which something of a subject is, by path; which subjects they are.

    Args:
        folder: Where to look, at any depth.
        subjects: By a name, what may be nowhere: texts and numbers.
    """
    found: dict[str, set[str]] = {}
    for path in (each for each in folder.rglob("*") if each.is_file()):
        raw, numbers, texts = path.read_bytes(), set[int | float](), list[str]()
        if path.suffix == ".parquet":
            for value in _parquet_values(path):
                if isinstance(value, str):
                    texts.append(value)
                else:
                    numbers.add(value)
        else:
            texts.append(raw.decode(errors="replace").replace("\\", ""))
        text = "\n".join(texts)
        for name, values in subjects.items():
            if any(_is_in(each, raw, text, numbers) for each in values):
                found.setdefault(str(path.relative_to(folder)), set()).add(name)
    return found


def _is_in(value: str | float, raw: bytes, text: str, numbers: set[int | float]) -> bool:
    if isinstance(value, str):
        return value in text or value.encode() in raw
    if value in numbers or str(value) in text or str(value).encode() in raw:
        return True
    return isinstance(value, int) and value.to_bytes(8, "little") in raw


def _parquet_values(path: Path) -> Iterator[str | int | float]:
    """All that a Parquet file says: its notes, the bounds of each column, and each value, at any depth."""
    file = pq.ParquetFile(path)
    for key, note in (file.metadata.metadata or {}).items():
        yield f"{key.decode(errors='replace')} {note.decode(errors='replace')}"
    for group in range(file.num_row_groups):
        for column in range(file.metadata.num_columns):
            bounds = file.metadata.row_group(group).column(column).statistics
            if bounds is not None and bounds.has_min_max:
                yield from _plain_values([bounds.min, bounds.max])
    for row in file.read().to_pylist():
        yield from _plain_values(row)


def _plain_values(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, Mapping):
        yield from _plain_values([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _plain_values(each)
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, bool | int | float):
        yield value
    elif value is not None:
        text = str(value)
        yield text
        if text.startswith(("{", "[")):
            # A plan, a receipt, or the bounds of a file: JSON within a column.
            try:
                yield from _plain_values(json.loads(text))
            except ValueError:
                yield text.replace("\\", "")
