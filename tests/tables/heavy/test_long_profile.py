"""
A profile that undoes what pandas did.

In `make test`:
tests/tables/test_profile.py::test_keys_of_two_columns_several_and_none.
"""

from __future__ import annotations

import pandas as pd
import pytest

from cdckit.tables import profile
from support.profiles import count_changes

# Frames of pandas become Spark's: without a session nothing is read.
pytestmark = pytest.mark.usefixtures("spark")


def test_what_pandas_has_made_a_float_of_is_a_key_and_a_time_after_all() -> None:
    """One empty cell makes 7 of a CSV 7.0; without one a float is what it is."""
    rows = {"sku_id": [*range(20), None], "city": ["x", "y", "z"] * 7, "price": [1.0] * 21}
    found = profile(pd.DataFrame(rows))
    assert found.calls == ("changes_from(frame, keys=['sku_id'])",)
    assert count_changes(found, pd.DataFrame(rows)) == [20]
    days = {"sku_id": range(21), "at": [*range(20240101, 20240121), None]}
    timed = profile(pd.DataFrame(days))
    assert timed.notes[0] == (
        "at: whole numbers of which empty cells make floats; frame.convert_dtypes() mends it."
    )
    assert timed.calls[0].startswith("changes_from(frame.convert_dtypes(), keys=['sku_id'], effective=")
    assert count_changes(timed, pd.DataFrame(days))[0] == 20
    assert "Each row has its own key: if this is a full list, `Ledger.apply_list` takes it." in timed.notes
