"""
How the pages are made: `make docs` copies this folder, adds the reference and the notebooks, and builds.

Why Sphinx, MyST-NB and Furo (November 2026): all three are maintained, docstrings and executed notebooks
become pages of one site, every warning can be an error, and search works from a folder.
The other choice, Material with mkdocstrings and mkdocs-jupyter, stands on MkDocs 1, whose last release is of
August 2024, and MkDocs 2 will know no plugins.
Zensical, by the authors of Material, is at 0.1: ask again when it reads notebooks.
"""

from tools.site.docstrings import as_rst
from tools.site.reference import value_docstring

project = "cdckit"
author = "the authors of cdckit"
html_title = "cdckit"
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"
html_static_path = ["_static"]
html_extra_path = ["llms.txt", "llms-reference.txt"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

# Notebooks are shown as they were executed; where one has a widget, its table stands for it.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [
    ("html", "text/html", 0),
    ("html", "application/vnd.jupyter.widget-view+json", None),
]
myst_enable_extensions = ["html_image"]
myst_heading_anchors = 3

# Docstrings: a word between backticks is a name, and a link where it is one of ours.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Config"]


def prepared(app, what, name, obj, options, lines):
    """A docstring before napoleon reads it."""
    text = value_docstring(name) if what == "data" else "\n".join(lines)
    lines[:] = as_rst(text).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", prepared, priority=400)
