"""
The examples of all pages of the site print what stands below them.

In `make test`: tests/tools/test_site_examples.py::test_the_examples_print_what_stands_below_them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.site_examples import PAGES, require_printed, run_page
from tools.site import examples


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples.EXAMPLE.search(page.read_text())], ids=lambda page: page.stem
)
def test_every_page_prints_what_stands_below_its_examples(
    spark: SparkSession, page: Path, tmp_path: Path
) -> None:
    """A page may ask as much of Spark as it explains."""
    require_printed(run_page(page, tmp_path))
