"""
The pictures of the README: the board and `why`, as the tour shows them.

    python -m tools.readme_pictures        writes images/board.png and images/why.png

The tables are outputs of `notebooks/00_tour.ipynb`, which tests compare, so run it after `make notebooks`.
Needs a browser, Chromium or Chrome; no network and no Spark.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "images"
TOUR = ROOT / "notebooks" / "00_tour.ipynb"
SHOWN_BY = {"board": "as_of(", "why": "why("}
"""By picture, what the first cell calls that shows its table."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Wide and high enough for any of them: what stays white is cut off.
WINDOW = (1600, 1200)
MARGIN = 16
PAGE = (
    '<meta charset="utf-8"><style>body {{margin: 0; background: white; font: 14px sans-serif}} '
    "table {{border-collapse: collapse}} th {{border-bottom: 1px solid #888}} "
    "tbody tr:nth-child(odd) {{background: #f5f5f5}}</style>{table}"
)


def tables() -> dict[str, str]:
    """By picture, the HTML of its table."""
    cells = [cell for cell in json.loads(TOUR.read_text(encoding="utf-8"))["cells"] if cell.get("outputs")]
    return {
        name: next(html for cell in cells if called in "".join(cell["source"]) for html in _html_of(cell))
        for name, called in SHOWN_BY.items()
    }


def _html_of(cell: dict[str, Any]) -> list[str]:
    found = ["".join(output.get("data", {}).get("text/html", [])) for output in cell["outputs"]]
    return [html for html in found if html]


def draw(table: str, target: Path) -> None:
    """Have a browser draw the HTML, and keep what is not white of it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"The pictures need a browser: one of {', '.join(BROWSERS)} on the PATH.")
    with tempfile.TemporaryDirectory() as folder:
        page, drawn = Path(folder) / "page.html", Path(folder) / "drawn.png"
        page.write_text(PAGE.format(table=table), encoding="utf-8")
        size = f"--window-size={WINDOW[0]},{WINDOW[1]}"
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size)
        command = [browser, *options, f"--user-data-dir={folder}", f"--screenshot={drawn}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        cut(Image.open(drawn).convert("RGB")).save(target, optimize=True)


def cut(image: Image.Image) -> Image.Image:
    """The part that is not white, with a margin, in few colours: it is text."""
    white = Image.new("RGB", image.size, "white")
    box = ImageChops.difference(image, white).getbbox() or (0, 0, *image.size)
    content = image.crop(box)
    whole = Image.new("RGB", (content.width + 2 * MARGIN, content.height + 2 * MARGIN), "white")
    whole.paste(content, (MARGIN, MARGIN))
    return whole.quantize(32)


def main() -> int:
    """Run the program and return its exit code."""
    IMAGES.mkdir(exist_ok=True)
    for name, table in tables().items():
        draw(table, IMAGES / f"{name}.png")
        print(f"images/{name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
