"""The site: pages of `docs/`, the reference and the notebooks, built into a folder that needs no server."""
