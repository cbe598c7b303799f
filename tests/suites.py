"""The suites of expectations/, ready to be asked which of their sentences a table breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

SUITES = Path(__file__).parents[1] / "expectations"

Broken = Callable[[pd.DataFrame], list[int]]


@cache
def _context() -> Any:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GX_ANALYTICS_ENABLED", "false")
        import great_expectations as gx

        return gx.get_context(mode="ephemeral")


@cache
def suite(name: str) -> Broken:
    """Gives the places of the expectations of a suite that a table breaks."""
    import great_expectations as gx

    context = _context()
    stated = json.loads((SUITES / f"{name}.json").read_text())
    found = context.suites.add(gx.ExpectationSuite(**stated))
    source = context.data_sources.add_pandas(name)
    batch = source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
    order = [(each.expectation_type, each.configuration.kwargs.get("column")) for each in found.expectations]

    def broken(frame: pd.DataFrame) -> list[int]:
        done = batch.get_batch({"dataframe": frame}).validate(found)
        failed = [each.expectation_config for each in done.results if not each.success]
        return [order.index((each.type, each.kwargs.get("column"))) for each in failed]

    return broken
