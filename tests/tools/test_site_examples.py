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


@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples.EXAMPLE.search(page.read_text())], ids=lambda page: page.stem
)
def test_the_examples_print_what_stands_below_them(
    spark: SparkSession, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a page in one set of names; what prints nothing has nothing below it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ran = list(examples.run(page.read_text(), page.name))
    assert [(each.line, each.printed) for each in ran] == [(each.line, each.shown) for each in ran]
    assert any(each.printed for each in ran)


def test_every_page_of_a_task_has_examples() -> None:
    """And no block of Python is written in a way that this would pass over."""
    for page in PAGES:
        text = page.read_text()
        assert len(examples.EXAMPLE.findall(text)) == text.count("```python")
    assert {"keep-a-table-up", "join-facts-in-time", "who-said-so", "replay", "bring-a-feed"} <= {
        page.stem for page in PAGES if examples.EXAMPLE.search(page.read_text())
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
