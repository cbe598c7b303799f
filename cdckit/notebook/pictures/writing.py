"""What texts of any language are written with: the reader's own fonts, and those that have other signs."""

from __future__ import annotations

import warnings
from functools import cache

from matplotlib import rcParams
from matplotlib.font_manager import fontManager

# What systems bring for signs that matplotlib's own font lacks: those of East Asia first of all.
_OTHERS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC", "Noto Sans KR"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Yu Gothic", "Microsoft YaHei", "Malgun Gothic"),
    *("WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji"),
)

# A sign that no font here has is an empty box.  The reader sees that; a red warning for each tells no more.
warnings.filterwarnings(
    "ignore", message=r"Glyph \d+ .* missing from font", module=r"cdckit\.notebook\.pictures"
)


def families() -> list[str]:
    """The families of fonts to write with: a sign is taken from the first that has it."""
    return [*rcParams["font.family"], *_installed()]


@cache
def _installed() -> tuple[str, ...]:
    found = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _OTHERS if name in found)
