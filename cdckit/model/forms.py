"""The tables of the model as forms of arguments, for `cdckit.parts.argument_forms.takes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cdckit.model.changes import require_changes
from cdckit.model.history import require_bitemporal, require_free, require_history
from cdckit.model.records import require_records
from cdckit.parts.argument_forms import Form


def history_with(*columns: str, free: Sequence[str] = ()) -> Form:
    """A history of one moment that has these of the standard columns, and none of the names in *free*."""

    def check(history: Any, argument: str) -> Any:
        history = require_history(history, *columns)
        for name in free:
            require_free(history, name)
        return history

    lacks = (
        f"MissingColumns, WrongColumnType: {{}} lacks one of {_listed(columns)}, or has it in another type"
    )
    return Form(
        check, f"{lacks}; or has a column {_listed(free)} already (InvalidArgument)" if free else lacks
    )


def beliefs_with(*columns: str) -> Form:
    """A table that `bitemporal` returned, with these of the standard columns."""

    return Form(
        lambda table, _: require_bitemporal(table, *columns),
        "MissingColumns, WrongColumnType: {} is not what `bitemporal` returns",
    )


RECORDS = Form(
    lambda records, _: require_records(records), "MissingColumns, WrongColumnType: {} are no records"
)
CHANGES = Form(
    lambda changes, _: require_changes(changes), "MissingColumns, WrongColumnType: {} is no table of changes"
)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
