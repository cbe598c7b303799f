"""Texts of any language in a picture: drawn, and no red warning for a sign that no font has."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = r"""
from matplotlib.transforms import Bbox
from cdckit.notebook.pictures.axes import Labels
from cdckit.notebook.pictures.style import Picture, in_style

figure = in_style(Picture)("\u682a\u5f0f\u4f1a\u793e \U0001f984: two values", "")
axes = figure.chart
axes.set_yticks([0], ["\u30c6\u30b9\u30c8"])
assert Labels(axes).write_in(["\u682a\u5f0f"], Bbox([[0, 0], [1, 1]]))
assert figure._repr_png_()
"""


def test_a_sign_that_no_font_has_is_a_box_and_no_warning() -> None:
    """In a process of its own, since pytest has its own filters; there every warning but ours is an error."""
    said = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", PROGRAM], capture_output=True, check=False
    )
    assert (said.returncode, said.stderr.decode()) == (0, "")
