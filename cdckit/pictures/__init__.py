"""Pictures of changes and histories; import it yourself, since it needs matplotlib (extra `notebooks`).

Every function runs one job, collects a bounded number of rows and returns a figure.  The title says what
was found, the line under it what the bound leaves out.  Instants are on the clocks of one zone, `zone=` or
`options.zone`.  In all pictures a dark colour is an operation, a light one a source, a shade of grey-blue a
value; what is deleted is hatched, and red is a delete's alone; a marker at the beginning says the same
without colour.  Nothing is registered with pyplot: a notebook shows the figure, a program saves it.
"""

from cdckit.pictures.arriving import arrivals
from cdckit.pictures.bars import validity_bars
from cdckit.pictures.look import PALETTE, SIZE, Look
from cdckit.pictures.plane import bitemporal_plane
from cdckit.pictures.provenance import provenance_map

__all__ = ["PALETTE", "SIZE", "Look", "arrivals", "bitemporal_plane", "provenance_map", "validity_bars"]
