"""Sphinx configuration."""

from onmf import __version__

project = "onmf"
author = "The onmf developers"
release = version = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "paper/*.md", "performance/*.md", "optima/*.md"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_validation_checks = {"GL08"}  # a public name without a docstring fails the build
numpydoc_validation_exclude = {
    r"\.__\w+__$",
    r"set_\w+_request$",
    r"engine\.(?!Engine)\w+\.",  # and those of an engine in Engine
    r"divergence\.(?!Divergence)\w+\.",  # the methods of a divergence are documented once, in Divergence
}

html_theme = "pydata_sphinx_theme"
html_title = "onmf"
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "show_prev_next": False}
html_show_sourcelink = False
PAGES = ("index", "start", "method", "optima", "clusters", "reproduce", "performance", "large", "scale", "decisions")
html_sidebars = {page: [] for page in PAGES}
