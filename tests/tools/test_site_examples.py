"""The examples of the site's pages print what stands below them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from support.site_examples import PAGES, require_printed, run_page
from tools.site import examples

SHOWN = """
```python
a = 1
print(a, " ")
```

```text
2
```

Between.

```python
b = a + 1
```

```python
print(b)
```
"""


# What is read first; all pages: tests/tools/heavy/test_all_site_examples.py.
STANDING_FOR_ALL = ("change-events", "index", "own-envelope", "two-times")


@pytest.fixture(scope="module", params=STANDING_FOR_ALL)
def ran(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[examples.Example]:
    """The examples of a page, all in one set of names; a page may ask as much of Spark as it explains."""
    [page] = [page for page in PAGES if page.stem == request.param]
    return run_page(page, tmp_path_factory.mktemp(page.stem))


def test_the_examples_print_what_stands_below_them(ran: list[examples.Example]) -> None:
    """What prints nothing has nothing below it."""
    require_printed(ran)


def test_every_page_of_a_task_has_examples() -> None:
    """And no block of Python is written in a way that this would pass over."""
    for page in PAGES:
        text = page.read_text()
        assert len(examples.EXAMPLE.findall(text)) == text.count("```python")
    assert {page for page in PAGES if page.parent.name == "tasks"} <= {
        page for page in PAGES if examples.EXAMPLE.search(page.read_text())
    }


def test_an_example_that_prints_something_else_is_found_and_mended() -> None:
    ran = list(examples.run(SHOWN, "page"))
    assert [(each.shown, each.printed) for each in ran] == [("2\n", "1\n"), ("", ""), ("", "2\n")]
    mended = examples.written(SHOWN, ran)
    assert [(each.shown, each.printed) for each in examples.run(mended, "page")] == [
        ("1\n", "1\n"), ("", ""), ("2\n", "2\n"),
    ]  # fmt: skip


def test_an_error_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        list(examples.run("# Page\n\n```python\na = 0\n1 / a\n```\n", "page"))
    assert raised.tb.tb_next.tb_next.tb_lineno == 5 if raised.tb.tb_next else False
