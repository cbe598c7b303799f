"""Whether built pages stand by themselves: no link leads nowhere, nothing is fetched from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    ("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"),
    ("source", "src"), ("video", "src"), ("object", "data"),
}  # fmt: skip
"""Attributes whose address a browser asks for by itself, before anybody clicks."""

IN_STYLES = re.compile(r"""url\(\s*["']?(?!data:)([^"')]+)|@import\s+["']([^"']+)""")


class _Page(HTMLParser):
    """What one page links to, what it fetches, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        self.places |= {said[name] for name in ("id", "name") if name in said}
        for name, value in said.items():
            if (tag, name) in FETCHED:
                self.fetched.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def find_wrong(folder: Path) -> list[str]:
    """A sentence for each link that leads nowhere, and each thing that would be fetched from elsewhere."""

    @cache
    def page(path: Path) -> _Page:
        return _Page(path.read_text())

    wrong = []
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder)
        wrong += [f"{name}: fetches {each}" for each in page(path).fetched if _is_elsewhere(each)]
        for link in [*page(path).links, *page(path).fetched]:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.is_file():
                wrong.append(f"{name}: nothing is at {link}")
            elif not _has_place(
                page(target) if target.suffix == ".html" else None, unquote(address.fragment)
            ):
                wrong.append(f"{name}: no such place as {link}")
    for path in sorted(folder.rglob("*.css")):
        asked = [first or second for first, second in IN_STYLES.findall(path.read_text())]
        wrong += [f"{path.relative_to(folder)}: fetches {each}" for each in asked if _is_elsewhere(each)]
    return wrong


def find_unsearchable(folder: Path, words_by_page: Mapping[str, Iterable[str]]) -> list[str]:
    """A sentence for each word for which the search of a built site does not show its page first."""
    index = json.loads(
        (folder / "searchindex.js").read_text().removeprefix("Search.setIndex(").removesuffix(")")
    )
    main_entries = {
        (index["docnames"][page], word)
        for word, entries in index["indexentries"].items()
        for page, _, is_main in entries
        if is_main
    }
    return [
        f"{page}: the search does not find {word}"
        for page, words in words_by_page.items()
        for word in words
        if (page, word.lower()) not in main_entries
    ]


def _has_place(page: _Page | None, place: str) -> bool:
    """Whether a page has a place of this name; of what is no page, nobody can tell."""
    return not place or page is None or place in page.places


def _is_elsewhere(address: str) -> bool:
    return address.startswith(("http://", "https://", "//"))
