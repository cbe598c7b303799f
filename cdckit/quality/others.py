"""Expectations of the sorts that only Great Expectations can run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from cdckit.errors import InvalidArgument
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
    from great_expectations.exceptions.exceptions import GreatExpectationsError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    asset = context.data_sources.add_spark("frames", persist=False).add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    for each in sentences:
        try:
            stated = ExpectationConfiguration(type=each.type, kwargs=dict(each.kwargs)).to_domain_obj()
        except (GreatExpectationsError, ValueError, TypeError) as error:
            raise _cannot_be_run(each, str(error)) from error
        result = batch.validate(stated, result_format="BASIC")
        message = _raised(result.exception_info or {})
        if message is not None:
            raise _cannot_be_run(each, message)
        yield 0 if result.success else int(result.result.get("unexpected_count") or 1)


def _raised(told: Mapping[str, Any]) -> str | None:
    """What went wrong: it is told once, or for each number that Great Expectations wanted."""
    infos = [told, *(each for each in told.values() if isinstance(each, Mapping))]
    return next((str(each.get("exception_message")) for each in infos if each.get("raised_exception")), None)


def _cannot_be_run(sentence: Sentence, message: str) -> InvalidArgument:
    said = " ".join(message.split())[:500]
    return InvalidArgument(
        "check",
        "suite",
        "of expectations that Great Expectations can run",
        sentence.type,
        remedy=f"Great Expectations says: {said}",
    )
