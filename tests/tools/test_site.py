"""The site leaves nothing out, and finds what leads nowhere; whether it can be built, `make docs` says."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

import cdckit
from tools.site import costs, reference, staging
from tools.site.docstrings import as_rst
from tools.site.pages import find_unsearchable, find_wrong

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "pages"
    staging.stage(folder)
    return folder


def test_every_exported_name_is_described_on_one_page(staged: Path) -> None:
    """Described, or listed with the name under which it is; so a new function cannot be left out."""
    pages = [(staged / "reference" / f"{page.name}.md").read_text() for page in reference.pages()]
    described = re.findall(r"^\.\. auto\w+:: (\S+)$", "\n".join(pages), flags=re.MULTILINE)
    elsewhere = re.findall(r"^- `(\S+)` is \{py:obj\}`(\S+)`$", "\n".join(pages), flags=re.MULTILINE)
    assert len(described) == len(set(described))
    assert {home for _, home in elsewhere} <= set(described)
    moved = {name for name, _ in elsewhere}
    by_cdckit = {name for name, home in reference.homes().items() if home.count(".") == 1 and name != home}
    assert set(described) | moved | by_cdckit == set(reference.exported())
    assert {f"cdckit.{name}" for name in cdckit.__all__ if name.islower()} <= {
        *described, "cdckit.databus", "cdckit.datahub", "cdckit.debezium", "cdckit.rdss", "cdckit.replicate",
        "cdckit.streams",
        *reference.packages(),
    }  # fmt: skip


def test_a_value_is_described_by_the_text_below_its_name() -> None:
    """Not by what its class says of itself, unless the class is ours and has no page."""
    assert reference.value_docstring("cdckit.streams.CONNECTIONS") == "A `Stream`."
    assert reference.value_docstring("cdckit.notebook.NULL") == ""
    assert reference.value_docstring("cdckit.streams.KEYS").startswith("The key fields")
    assert reference.value_docstring("cdckit.options").startswith("How tables, pictures, widgets and texts")


def test_packages_are_found_by_what_they_hand_on() -> None:
    """Those for the inside are not: nobody imports names from `cdckit.parts`."""
    found = reference.packages()
    assert {"cdckit", "cdckit.replicate", "cdckit.streams", "cdckit.rdss.gateway"} <= set(found)
    assert not [name for name in found if name.startswith(("cdckit.parts", "cdckit.merging"))]


def test_the_index_of_the_reference_names_every_page(staged: Path) -> None:
    index = (staged / "reference/index.md").read_text()
    assert [page.name for page in reference.pages() if f"]({page.name}.md)" not in index] == []
    assert (
        "{py:obj}`as_of <cdckit.as_of>` | Keep the version of each entity that was in force at *valid_at* |"
        in index
    )


def test_every_notebook_is_a_page_with_its_outputs(staged: Path) -> None:
    names = {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (staged / "notebooks").glob("*.ipynb")} == names
    index = (staged / "notebooks/index.md").read_text()
    assert [name for name in names if f"<{name.removesuffix('.ipynb')}>" not in index] == []
    tour = json.loads((staged / "notebooks/01_tour.ipynb").read_text())
    assert any(cell.get("outputs") for cell in tour["cells"])


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[the tour](01_tour.ipynb)", "[the tour](01_tour.ipynb)"),
        ("[here](10_as_of.ipynb#noon)", "[here](10_as_of.ipynb#noon)"),
        ("[samples](../data/samples/README.md)", "samples (`data/samples/README.md`)"),
        ("![small](pictures/01_tour.png)", "![small](pictures/01_tour.png)"),
        ("![a board](../images/board.png)", "![a board](../images/board.png)"),
        ("[limits](../docs/limits.md#memory)", "[limits](../limits.md#memory)"),
        ("[elsewhere](https://example.org/a)", "[elsewhere](https://example.org/a)"),
        ("[below](#below)", "[below](#below)"),
    ],
)
def test_links_of_a_notebook_lead_to_what_the_site_has(written: str, shown: str) -> None:
    assert staging.within_site(f"See {written}.") == f"See {shown}."


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[replay](replay.md)", "[replay](replay.md)"),
        ("[limits](../limits.md#memory)", "[limits](../limits.md#memory)"),
        ("[as_of](../../notebooks/10_as_of.ipynb)", "[as_of](../notebooks/10_as_of.ipynb)"),
        ("[all](../../notebooks/README.md)", "[all](../notebooks/index.md)"),
        ("![a board](../../images/board.png)", "![a board](../images/board.png)"),
        ("[reference](../../cdckit)", "[reference](../reference/index.md)"),
        ("[questions](../../cdckit/query)", "[questions](../reference/query.md)"),
        ("[parts](../../cdckit/parts)", "parts (`cdckit/parts`)"),
    ],
)
def test_links_of_a_task_lead_to_what_the_site_has(written: str, shown: str) -> None:
    assert staging.within_site(f"See {written}.", staging.DOCS / "tasks") == f"See {shown}."


def test_pages_can_be_read_in_the_repository_too() -> None:
    """Every link of a page leads to a file or a folder that is there before the site is built."""
    links = [
        (path, found[3].partition("#")[0])
        for path in staging.DOCS.rglob("*.md")
        for found in staging.LINK.finditer(path.read_text())
    ]
    assert len(links) > 10
    assert [(path.name, link) for path, link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("what `as_of` says", "what {py:obj}`as_of <cdckit.as_of>` says"),
        ("`replicate.decode`", "{py:obj}`replicate.decode <cdckit.replicate.decode>`"),
        ("`cdckit.ledger.Ledger`", "{py:obj}`cdckit.ledger.Ledger <cdckit.Ledger>`"),
        ("`price`, `as_of(history)`, ``as_of``", "`price`, `as_of(history)`, ``as_of``"),
        ("[`as_of`](a.md)", "[`as_of`](a.md)"),
        ("```python\n`as_of`\n```\n`as_of`", "```python\n`as_of`\n```\n{py:obj}`as_of <cdckit.as_of>`"),
    ],
)
def test_a_name_of_ours_leads_to_where_it_is_described(written: str, shown: str) -> None:
    assert staging.with_names(written) == shown


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Keep it.\n\nReturns:\n    One row: `a`.\n    And b.\n\n>>> 1\n",
         "Keep it.\n\n:returns: One row: `a`.\n    And b.\n\n>>> 1\n"),
        ("Cost: one pass\n    of 2 KB.\n\nSource:\n    RDSS.\n",
         ":cost: One pass\n    of 2 KB.\n\n:source: RDSS."),
        ("| a | b |\n|---|---|\n| `x` | y |\n\nThen.\n",
         ".. list-table::\n   :header-rows: 1\n\n   * - a\n     - b\n   * - `x`\n     - y\n\n\nThen.\n"),
        (">>> show()\n+-+\n|a|\n+-+\n|b|\n+-+\n", ">>> show()\n+-+\n|a|\n+-+\n|b|\n+-+\n"),
    ],
)  # fmt: skip
def test_a_docstring_is_read_with_its_sections_and_tables(written: str, read: str) -> None:
    """How many empty lines there are in a row means nothing."""
    assert re.sub(r"\n{2,}", "\n\n", as_rst(written)).strip() == re.sub(r"\n{2,}", "\n\n", read).strip()


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ('<p id="a"><a href="b.html#there">b</a> <a href="#a">a</a> <a href="https://example.org">e</a>', []),
        ('<a href="c.html">', ["a.html: nothing is at c.html"]),
        ('<a href="b.html#here">', ["a.html: no such place as b.html#here"]),
        ('<img src="a.png">', ["a.html: nothing is at a.png"]),
        ('<script src="https://example.org/a.js">', ["a.html: fetches https://example.org/a.js"]),
        ('<link rel="stylesheet" href="//example.org/a.css">', ["a.html: fetches //example.org/a.css"]),
    ],
)
def test_what_leads_nowhere_or_is_fetched_from_elsewhere_is_found(
    tmp_path: Path, said: str, wrong: list[str]
) -> None:
    (tmp_path / "a.html").write_text(said)
    (tmp_path / "b.html").write_text('<h1 id="there">')
    assert find_wrong(tmp_path) == wrong


def test_a_word_that_the_search_does_not_show_first_is_found(tmp_path: Path) -> None:
    entries = {"kafka": [[0, "index-0", True]], "type 2": [[0, "index-1", False]]}
    index = json.dumps({"docnames": ["tasks/a"], "indexentries": entries})
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({index})")
    assert find_unsearchable(tmp_path, {"tasks/a": ["Kafka", "type 2"], "b": ["Kafka"]}) == [
        "tasks/a: the search does not find type 2",
        "b: the search does not find Kafka",
    ]


def test_words_for_the_search_are_those_of_pages() -> None:
    """Those that a reader will type first are among them."""
    assert [page for page in staging.SEARCHED if not (ROOT / "docs" / f"{page}.md").is_file()] == []
    typed = {"nightly dump", "CDC", "slowly changing", "type 2", "point in time", "Kafka", "Debezium"}
    assert typed <= {word for words in staging.SEARCHED.values() for word in words}


def test_a_font_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@font-face { src: url('https://example.org/a.woff') } b { c: url(d.png) }"
    )
    assert find_wrong(tmp_path) == ["a.css: fetches https://example.org/a.woff"]


def test_assistants_find_every_page_and_every_name(staged: Path) -> None:
    """Each page by a link, each name that is described with its arguments and what it does."""
    links = re.findall(r"\]\((\S+)\.html\)", (staged / "llms.txt").read_text())
    assert links == sorted(
        str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")
    )
    text = (staged / "llms-reference.txt").read_text()
    assert re.findall(r"^- `([\w.]+)", text, flags=re.MULTILINE) == [
        name for page in reference.pages() for name in page.members
    ]
    assert "\n- `cdckit.tables.profile(frame)`: Say what stands in a table, and how" in text


def test_the_page_of_costs_has_the_figures_of_the_last_run() -> None:
    page = costs.PAGE.read_text()
    assert page == costs.with_tables(page), "run python -m tools.site.costs"
    assert page.count("`why` among 2,000,000 changes") == page.count("Bytes of one RDSS message") == 1


def test_what_the_page_of_costs_tells_was_measured() -> None:
    """Each name in docs/costs.toml is a result; what is missed is said to be, in both directions."""
    measured = {result["name"] for result in json.loads(costs.RESULTS.read_text())}
    told = [name for names in tomllib.loads(costs.TOLD.read_text()).values() for name in names]
    assert [name for name in told if name not in measured] == []
    assert [name for name in measured if name not in told and f"`{name}`" not in costs.costs()] == []


@pytest.mark.parametrize(
    ("ratio", "bar", "better", "shown"),
    [
        (1.754, 2.0, "lower", "1.75 times | at most 2"),
        (2.1, 2.0, "lower", "2.10 times | at most 2, **missed**"),
        (5.1, 5.0, "higher", "5.10 times | at least 5"),
        (4.9, 5.0, "higher", "4.90 times | at least 5, **missed**"),
        (22192.1, None, "higher", "22,192 | "),
    ],
)
def test_a_figure_says_whether_what_was_aimed_at_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float, bar: float | None, better: str, shown: str
) -> None:
    result = {"name": "a", "ratio": ratio, "bar": bar, "better": better}
    result |= {"seconds": 18.2, "peak_memory_mb": 3398}
    for place, text in {"RESULTS": json.dumps([result]), "TOLD": "[Merge]\na = 'merging'"}.items():
        (tmp_path / place).write_text(text)
        monkeypatch.setattr(costs, place, tmp_path / place)
    assert f"| merging | {shown} | 18.20 | 3.4 |" in costs.costs()
