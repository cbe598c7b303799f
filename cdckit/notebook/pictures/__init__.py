"""Pictures of changes and histories; import it yourself, since it needs matplotlib (extra `notebooks`).

Every function runs one job, collects a bounded number of rows and returns a figure.  The title says what
was found, the line under it what the bound leaves out.  Instants are on the clocks of one zone, `zone=` or
`options.zone`.  In all pictures a dark colour is an operation, a light one a source, a shade of grey-blue a
value; what is deleted is hatched, and red is a delete's alone; a marker at the beginning says the same
without colour.  Nothing is registered with pyplot: a notebook shows the figure, a program saves it.
"""

from cdckit.parts.installed import require_package

require_package("matplotlib", extra="notebooks", part="cdckit.notebook.pictures")

from cdckit.notebook.pictures.arrival_plot import arrivals  # noqa: E402  what is missing is said before it is needed
from cdckit.notebook.pictures.bars import validity_bars  # noqa: E402
from cdckit.notebook.pictures.callback_rows import callbacks  # noqa: E402
from cdckit.notebook.pictures.look import PALETTE, SIZE, Look  # noqa: E402
from cdckit.notebook.pictures.plane import bitemporal_plane  # noqa: E402
from cdckit.notebook.pictures.provenance import provenance_map  # noqa: E402
from cdckit.notebook.pictures.shares import duration_shares  # noqa: E402
from cdckit.notebook.pictures.stream_windows import event_windows  # noqa: E402

__all__ = [
    "PALETTE",
    "SIZE",
    "Look",
    "arrivals",
    "bitemporal_plane",
    "callbacks",
    "duration_shares",
    "event_windows",
    "provenance_map",
    "validity_bars",
]
