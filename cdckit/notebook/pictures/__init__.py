"""Pictures of changes and histories; import it yourself, since it needs matplotlib (extra `notebooks`).

Every function runs one job, collects a bounded number of rows and returns a figure.  The title says what
was found, the line under it what the bound leaves out.  Instants are on the clocks of one zone, `zone=` or
`options.zone`.  In all pictures a dark colour is an operation, a light one a source, a shade of grey-blue a
value; what is deleted is hatched, and red is a delete's alone; a marker at the beginning says the same
without colour.  A picture has no ground of its own and is read on a white page and on a black one.  Nothing
is registered with pyplot: a notebook shows the figure, a program saves it.
"""

# ruff: noqa: E402 - what is not installed is said before it is needed
from cdckit.parts.installation import require_package

require_package("matplotlib", extra="notebooks", part="cdckit.notebook.pictures")

from cdckit.notebook.pictures.bars import provenance_map, validity_bars
from cdckit.notebook.pictures.plane import bitemporal_plane
from cdckit.notebook.pictures.streams import callbacks, event_windows
from cdckit.notebook.pictures.style import PALETTE, SIZE, STYLE, Look
from cdckit.notebook.pictures.time_shares import arrivals, duration_shares
from cdckit.notebook.pictures.waterfall_plot import waterfall

__all__ = [
    "PALETTE",
    "SIZE",
    "STYLE",
    "Look",
    "arrivals",
    "bitemporal_plane",
    "callbacks",
    "duration_shares",
    "event_windows",
    "provenance_map",
    "validity_bars",
    "waterfall",
]
