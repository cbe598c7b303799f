"""The folder that Sphinx reads: the pages of `docs/`, and beside them what is made of the rest."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterable
from functools import cache
from os.path import relpath
from pathlib import Path

from tools.site import assistants, reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NOTEBOOKS = ROOT / "notebooks"
PACKAGE = ROOT / "cdckit"
SEARCHED: dict[str, list[str]] = tomllib.loads((DOCS / "search.toml").read_text())
"""By page the words for which the search shows it first."""
FENCED = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", flags=re.DOTALL | re.MULTILINE)
NAME = re.compile(r"(?<![`\w}\[])`([A-Za-z_][\w.]*)`(?![`\]])")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


def stage(folder: Path) -> None:
    """Write everything that the site is made of into an empty *folder*."""
    shutil.copytree(DOCS, folder)
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS)
        text = with_names(within_site(path.read_text(), path.parent))
        (folder / name).write_text(with_index(text, SEARCHED.get(str(name.with_suffix("")), [])))
    shutil.copytree(ROOT / "images", folder / "images")
    _stage_notebooks(folder / "notebooks")
    listed = reference.pages()
    (folder / "reference").mkdir()
    for page in listed:
        (folder / "reference" / f"{page.name}.md").write_text(reference.written(page))
    (folder / "reference" / "index.md").write_text(reference.index(listed))
    (folder / "llms.txt").write_text(assistants.contents(DOCS))
    (folder / assistants.REFERENCE).write_text(assistants.every_name(listed))


def with_index(text: str, words: Iterable[str]) -> str:
    """A page with index entries below its title, which the search shows before all else."""
    title, _, body = text.partition("\n")
    return "\n".join([title, "", *(f"```{{index}} ! {word}\n```\n" for word in words), body])


def _stage_notebooks(folder: Path) -> None:
    """The notebooks, their names linked, and the page that they open with, which says their order."""
    shutil.copytree(NOTEBOOKS / "pictures", folder / "pictures")
    titles = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = json.loads(path.read_text())
        question = "".join(notebook["cells"][0]["source"]).split("\n")[0].lstrip("# ")
        titles.append(f"{path.name[:2]}: {question} <{path.stem}>")
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = with_names(within_site("".join(cell["source"])))
        (folder / path.name).write_text(json.dumps(notebook))
    text = within_site((NOTEBOOKS / "README.md").read_text())
    (folder / "index.md").write_text(reference.with_contents(text, titles))


@cache
def described() -> dict[str, str]:
    """By what a text may call it, where an exported name is described: `as_of`, `cdckit.as_of`."""
    return {
        said: home
        for name, home in reference.homes().items()
        for said in (name, name.removeprefix("cdckit."))
    }


def with_names(text: str) -> str:
    """Markdown in which a name of ours between backticks is a link to where it is described."""

    def place(found: re.Match[str]) -> str:
        home = described().get(found[1])
        return found[0] if home is None else f"{{py:obj}}`{found[1]} <{home}>`"

    pieces, end = [], 0
    for fenced in FENCED.finditer(text):
        pieces += [NAME.sub(place, text[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join([*pieces, NAME.sub(place, text[end:])])


def within_site(text: str, folder: Path = NOTEBOOKS) -> str:
    """
    Markdown of a page in *folder*, with the links that the site can follow.

    Links lead to files of the repository, where they can be followed too.  What the site has of them, it has
    at another place; of any other file the path stands where the link was.
    """
    here = "notebooks" if folder == NOTEBOOKS else str(folder.relative_to(DOCS))

    def place(found: re.Match[str]) -> str:
        is_picture, words, target = found.groups()
        path, sign, anchor = target.partition("#")
        file = (folder / path).resolve()
        inside = place_in_site(file)
        if inside is not None:
            return f"{is_picture}[{words}]({Path(relpath(inside, here)).as_posix()}{sign}{anchor})"
        named = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else target
        return f"{words} (`{named}`)"

    return LINK.sub(place, text)


def place_in_site(file: Path) -> str | None:
    """Where the site has a file of the repository, or the page that is made of a folder; none if nowhere."""
    if file == NOTEBOOKS / "README.md":
        return "notebooks/index.md"
    if file.is_relative_to(NOTEBOOKS) and file.suffix in (".ipynb", ".png"):
        return str(file.relative_to(ROOT))
    if file.is_relative_to(ROOT / "images"):
        return str(file.relative_to(ROOT))
    if file.is_relative_to(DOCS):
        return str(file.relative_to(DOCS))
    if file == PACKAGE:
        return "reference/index.md"
    is_described = file.parent == PACKAGE and file.name in {page.name for page in reference.pages()}
    return f"reference/{file.name}.md" if is_described else None
