"""Expectations of the sorts that only Great Expectations can run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame

from cdckit.parts.installed import require_package
from cdckit.quality.suites import Sentence


def ephemeral_context(part: str) -> Any:
    """A context of Great Expectations that writes no file, sends nothing and shows no progress."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    require_package("great_expectations", extra="quality", part=part)
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    return context


def counted_by_great_expectations(frame: DataFrame, sentences: Sequence[Sentence]) -> Iterator[int]:
    """How many rows break each of the sentences; of a sentence about the whole table 1, if it is broken."""
    if not sentences:
        return
    context = ephemeral_context("check")
    import great_expectations as gx

    stated = [{"type": each.type, "kwargs": dict(each.kwargs)} for each in sentences]
    asset = context.data_sources.add_spark("frames", persist=False).add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    for one in stated:
        suite = gx.ExpectationSuite(name="one", expectations=[one])
        result = batch.validate(suite, result_format="BASIC").results[0]
        yield 0 if result.success else int(result.result.get("unexpected_count") or 1)
