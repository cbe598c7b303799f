"""The examples of the site's pages print what stands below them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tools.site import examples

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
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


@pytest.fixture(
    scope="module",
    params=[page for page in PAGES if examples.EXAMPLE.search(page.read_text())],
    ids=lambda page: page.stem,
)
def ran(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[examples.Example]:
    """The examples of a page, all in one set of names; a page may ask as much of Spark as it explains."""
    page: Path = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp(page.stem)))
        return list(examples.run(page.read_text(), page.name))


def test_the_examples_print_what_stands_below_them(ran: list[examples.Example]) -> None:
    """What prints nothing has nothing below it."""
    assert [(example.line, example.printed) for example in ran] == [
        (example.line, example.shown) for example in ran
    ]
    assert any(example.printed for example in ran)


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
