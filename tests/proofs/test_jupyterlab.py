"""The notebooks for newcomers in JupyterLab, in a browser: run, seen, and moved with the mouse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from programs import ROOT, environment, free_port, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.jvm]
MINUTES = 60_000  # milliseconds, as Playwright counts
QUIET = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
SENT = """() => {
    const cells = jupyterapp.shell.currentWidget.content.model.cells
    return [...Array(cells.length).keys()].map(i => cells.get(i)).filter(cell => cell.type === 'code')
        .map(cell => cell.outputs.toJSON())
}"""

LIVE = """() => {
    const cells = jupyterapp.shell.currentWidget.content.model.cells
    return [...Array(cells.length).keys()].map(i => cells.get(i))
        .filter(cell => cell.type === 'code' && cell.sharedModel.getSource().includes('display_id=True'))
        .flatMap(cell => cell.outputs.toJSON())
        .map(each => [].concat(each.data?.['text/plain'] ?? '').join(''))
        .filter(text => text.startsWith('board at'))
}"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """JupyterLab on copies of the notebooks, on loopback: its address."""
    for notebook in ("01_tour", "00_your_own_data", "60_five_feeds_one_history"):
        shutil.copy(ROOT / "notebooks" / f"{notebook}.ipynb", tmp_path)
    shutil.copy(ROOT / "notebooks" / "README.md", tmp_path)
    shutil.copytree(ROOT / "notebooks" / "pictures", tmp_path / "pictures")
    port = free_port()
    command = [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"),
        *(
            f"--port={port}",
            f"--notebook-dir={tmp_path}",
            "--IdentityProvider.token=",
            "--expose-app-in-browser",
        ),
    ]
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / "jupyter") for name in ("CONFIG", "DATA", "RUNTIME")}
    environ = {**environment(), **folders, "IPYTHONDIR": str(tmp_path / "ipython")}
    environ["JUPYTER_CONFIG_PATH"] = str(ROOT / "tools" / "jupyter")  # as the Makefile has it
    # What tests tell their JVM is not what a user's is told.
    environ.pop("SPARK_SUBMIT_OPTS", None)
    with (tmp_path / "lab.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}/lab"
            wait_until(lambda: _answers(address), 60, "JupyterLab answers")
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5):
            return True
    except (URLError, OSError):
        return False


@pytest.fixture
def page() -> Iterator[Any]:
    """A page of a browser that is there already."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="a browser is driven by playwright: pip install playwright"
    )
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium on the PATH")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser, args=QUIET)
        found = chromium.new_page(viewport={"width": 1300, "height": 1000})
        found.set_default_timeout(MINUTES)
        yield found
        chromium.close()


def opened(page: Any, address: str, notebook: str) -> None:
    """Open a notebook, and wait for its kernel."""
    page.goto(f"{address}/tree/{notebook}.ipynb")
    page.wait_for_function("window.jupyterapp && jupyterapp.shell.currentWidget?.sessionContext?.isReady")


def run_all(page: Any, address: str, notebook: str) -> list[list[dict[str, Any]]]:
    """Open a notebook and run all of it; the outputs of each cell with code."""
    opened(page, address, notebook)
    page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
    sent: list[list[dict[str, Any]]] = page.evaluate(SENT)
    return sent


def see(page: Any, name: str) -> None:
    """Keep a picture where CDCKIT_SCREENSHOTS says, for whoever wants to look."""
    folder = os.environ.get("CDCKIT_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}.png")


def find_red(sent: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What a reader sees in red: errors, and whatever came on stderr."""
    return [
        each
        for outputs in sent
        for each in outputs
        if each["output_type"] == "error" or each.get("name") == "stderr"
    ]


def test_the_index_is_a_page_with_pictures_and_leads_to_the_tour(lab: str, page: Any) -> None:
    """Where `make lab` begins: the page as it is meant, not its source."""
    page.goto(f"{lab}/tree/README.md")
    index = page.locator(".jp-MarkdownViewer")
    index.get_by_role("heading", name="The notebooks").wait_for()
    drawn = "image => image.complete && image.naturalWidth > 0"
    page.wait_for_function(f"[...document.querySelectorAll('.jp-MarkdownViewer img')].every({drawn})")
    assert index.locator("img").count() == len(list((ROOT / "notebooks" / "pictures").iterdir()))
    see(page, "index")
    index.get_by_role("link", name="01_tour").first.click()
    page.get_by_role("heading", name="The board as it stood").first.wait_for()


def test_the_tour_runs_and_its_slider_moves(lab: str, page: Any) -> None:
    sent = run_all(page, lab, "01_tour")
    assert find_red(sent) == []
    slider = page.locator(".jp-OutputArea-output .noUi-handle").first
    slider.scroll_into_view_if_needed()
    page.get_by_text("as of 2013-02-08 06:00 America/New_York").first.wait_for()
    see(page, "slider_before")
    slider.focus()
    slider.press("ArrowRight")
    page.get_by_text("as of 2013-02-08 06:30 America/New_York; since").first.wait_for()
    see(page, "slider_after")


def test_a_priority_is_changed_in_ones_own_data(lab: str, page: Any) -> None:
    sent = run_all(page, lab, "00_your_own_data")
    assert find_red(sent) == []
    number = page.locator(".jp-OutputArea-output input[type=number]").first
    number.scroll_into_view_if_needed()
    see(page, "board_before")
    number.fill("1")
    number.press("Enter")
    page.get_by_text("with the priorities operations 1, timetable 0").first.wait_for()
    page.get_by_text("Values that this changed").first.wait_for()
    see(page, "board_after")


def test_a_board_is_drawn_in_its_place_while_a_stream_runs(lab: str, page: Any) -> None:
    """One board at any time, above what Spark is doing; it goes with the stream, until three o'clock."""
    opened(page, lab, "60_five_feeds_one_history")
    page.evaluate("jupyterapp.commands.execute('editmenu:clear-all')")
    page.wait_for_function(f"({LIVE})().length === 0")
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    seen: list[str] = []
    until = time.monotonic() + 300
    while seen[-1:] != ["15:00"] and time.monotonic() < until:
        boards = page.evaluate(LIVE)
        assert len(boards) <= 1
        for moment in re.findall(r"^(\d\d:\d\d) ", "".join(boards), flags=re.MULTILINE)[:1]:
            if seen[-1:] != [moment]:
                seen.append(moment)
                see(page, f"live_{len(seen)}")
        time.sleep(0.2)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == "15:00"
