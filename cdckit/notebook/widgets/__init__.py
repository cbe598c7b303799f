"""Widgets: a history to ask with the mouse, in Jupyter.

Import the module itself, `from cdckit.notebook import widgets`; the extra `notebooks` brings ipywidgets.
Without it, or where no kernel runs, each widget is the table that it would begin with.

A widget asks again at every move and caches nothing: memory is the caller's to give.  What is the result
of much work, a merged history or changes decoded from records, is best cached before it is handed over.
"""

from cdckit.notebook.widgets.explorer import as_of_slider, entity_explorer
from cdckit.notebook.widgets.panel import Page, Panel
from cdckit.notebook.widgets.what_if import correction_form, priority_board

__all__ = ["Page", "Panel", "as_of_slider", "correction_form", "entity_explorer", "priority_board"]
