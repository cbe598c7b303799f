"""What an event's fields can have wrong, its value apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdckit.databus.event_sources import Source
from cdckit.databus.event_text import Parsed
from cdckit.databus.faults import DatabusFault, Findings
from cdckit.databus.plain_values import from_base64
from cdckit.parts.running import Bools

UPSERT, DELETE = "UPSERT", "DELETE"


def find_faults(parsed: Parsed, kind: pa.Array, is_data: Bools, sources: dict[int, Source]) -> None:
    """Look for everything that the fields of an event can have wrong, but for its value."""
    field, findings = parsed.fields, parsed.findings

    def find(found: Bools, fault: DatabusFault, sentence: Callable[[int], str]) -> None:
        for row in np.flatnonzero(found).tolist():
            findings.setdefault(row, (fault, sentence(row)))

    for name in ("sequence", "physicalPartitionId", "timestampInNanos"):
        find(flags(field[name].is_null()), DatabusFault.FIELD_MISSING, _saying(f"It has no {name}."))
    no_kind = flags(kind.is_null())
    find(no_kind, DatabusFault.FIELD_MISSING, _saying("It has no srcId and is no end of a period."))
    find(flags(pc.less(field["sequence"], 0)), DatabusFault.SCN_NEGATIVE, _shown("It is", field["sequence"]))
    opcode = field["opcode"]
    unknown = is_data & ~flags(pc.is_in(pc.fill_null(opcode, UPSERT), pa.array([UPSERT, DELETE])))
    find(unknown, DatabusFault.OPCODE_UNKNOWN, _shown("It is", opcode))
    by_number, by_text = flags(field["key"].is_valid()), flags(field["keyBytes"].is_valid())
    find(is_data & ~(by_number | by_text), DatabusFault.KEY_INVALID, _saying("It has none."))
    find(is_data & by_number & by_text, DatabusFault.KEY_INVALID, _saying("It has both."))
    unknown = is_data & ~flags(pc.is_in(field["srcId"], ints(sources)))
    find(unknown, DatabusFault.SOURCE_UNKNOWN, _shown("srcId is", field["srcId"]))


def _saying(sentence: str) -> Callable[[int], str]:
    return lambda _: sentence


def _shown(before: str, column: pa.Array) -> Callable[[int], str]:
    return lambda row: f"{before} {column[row].as_py()!r:.60}."


def string_keys(texts: pa.Array, is_data: Bools, findings: Findings) -> pa.Array:
    """The keys that came as the base64 of their UTF-8 bytes."""
    if texts.null_count == len(texts):
        return texts
    keys: list[str | None] = []
    for row, text in enumerate(texts.to_pylist()):
        key = None
        if text is not None and is_data[row]:
            found = from_base64(text)
            with suppress(UnicodeDecodeError):
                key = None if found is None else found.decode()
            if key is None:
                finding = f"keyBytes is not the base64 of UTF-8 text: {text!r:.60}."
                findings.setdefault(row, (DatabusFault.KEY_INVALID, finding))
        keys.append(key)
    return pa.array(keys, pa.string())


def ints(numbers: Iterable[int]) -> pa.Array:
    """Numbers of sources."""
    return pa.array(list(numbers), pa.int32())


def flags(array: pa.Array) -> Bools:
    """Which are true; null is not."""
    found: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found
