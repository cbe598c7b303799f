"""
Pictures of tables: the board and `why` in the README, as the tour shows them, and one of each notebook.

    python -m tools.pictures        writes images/board.png and images/why.png

The tables are outputs of `notebooks/01_tour.ipynb`, which tests compare, so run it after `make notebooks`.
Needs a browser, Chromium or Chrome; no network and no Spark.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from tools.notebooks import FOLDER, ROOT, read

IMAGES = ROOT / "images"
SHOWN_BY = {"board": "as_of(", "why": "why("}
"""By picture of the README, what the first cell of the tour calls that shows its table."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Wide and high enough for any of them: what stays white is cut off.
WINDOW = (1600, 1200)
MARGIN = 16
WIDTH, HEIGHT = 280, 140
"""Of the picture of a notebook, as its page shows it."""

PAGE = (
    '<meta charset="utf-8"><style>body {{margin: 0; background: white; font: 14px sans-serif}} '
    "table {{border-collapse: collapse}} th {{border-bottom: 1px solid #888}} "
    "tbody tr:nth-child(odd) {{background: #f5f5f5}}</style>{table}"
)


def readme_tables() -> dict[str, str]:
    """By picture of the README, the HTML of its table."""
    shown = [(cell.source, _data(cell, "text/html")) for cell in read(FOLDER / "01_tour.ipynb").cells]
    return {
        name: next(html[0] for source, html in shown if called in source and html)
        for name, called in SHOWN_BY.items()
    }


def _data(cell: Any, kind: str) -> list[str]:
    return [output.data[kind] for output in cell.get("outputs", []) if kind in output.get("data", {})]


def draw(html: str) -> Image.Image:
    """Have a browser draw the HTML, and keep what is not white of it, with a margin."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"The pictures need a browser: one of {', '.join(BROWSERS)} on the PATH.")
    with tempfile.TemporaryDirectory() as folder:
        page, drawn = Path(folder) / "page.html", Path(folder) / "drawn.png"
        page.write_text(PAGE.format(table=html), encoding="utf-8")
        size = f"--window-size={WINDOW[0]},{WINDOW[1]}"
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size)
        command = [browser, *options, f"--user-data-dir={folder}", f"--screenshot={drawn}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        image = Image.open(drawn).convert("RGB")
    white = Image.new("RGB", image.size, "white")
    content = image.crop(ImageChops.difference(image, white).getbbox())
    whole = Image.new("RGB", (content.width + 2 * MARGIN, content.height + 2 * MARGIN), "white")
    whole.paste(content, (MARGIN, MARGIN))
    return whole


def of_notebook(path: Path) -> Image.Image:
    """The last figure of a notebook, or else its largest table, or else what it printed most of; small."""
    cells = read(path).cells
    if figures := [each for cell in cells for each in _data(cell, "image/png")]:
        return small(Image.open(BytesIO(base64.b64decode(figures[-1]))))
    printed = [output.text for cell in cells for output in cell.get("outputs", []) if "text" in output]
    tables = [each for cell in cells for each in _data(cell, "text/html")]
    drawn = draw(max(tables or [f"<pre>{escape(each)}</pre>" for each in printed], key=len))
    return small(drawn.crop((0, 0, min(drawn.width, 3 * WIDTH), drawn.height)))


def small(image: Image.Image) -> Image.Image:
    """As wide as the column of the page, cut below where it is high, in few colours."""
    size = 2 * WIDTH, round(2 * WIDTH * image.height / image.width)
    # A figure has no ground of its own, a page of an index is read on white and on black: white is sure.
    ground = Image.new("RGBA", image.size, "white")
    scaled = (
        Image.alpha_composite(ground, image.convert("RGBA"))
        .convert("RGB")
        .resize(size, Image.Resampling.LANCZOS)
    )
    return scaled.crop((0, 0, scaled.width, min(scaled.height, 2 * HEIGHT))).quantize(48)


def main() -> None:
    """Run the program."""
    IMAGES.mkdir(exist_ok=True)
    for name, table in readme_tables().items():
        draw(table).quantize(32).save(IMAGES / f"{name}.png", optimize=True)
        print(f"images/{name}.png")


if __name__ == "__main__":
    main()
