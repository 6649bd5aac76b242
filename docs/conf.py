"""Sphinx configuration."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import live

from onmf import __version__

project = "onmf"
author = "The onmf developers"
release = version = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "formulas",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_extensions",
    "_templates",
    # Tables that benchmarks write and pages include.
    *(f"{name}/*.md" for name in ("paper", "performance", "optima", "number", "cells", "scale", "gpu", "divergence")),
]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_validation_checks = {"GL08"}  # a public name without a docstring fails the build
numpydoc_validation_exclude = {
    r"\.__\w+__$",
    r"set_\w+_request$",
    r"backend\.(Cpu|Gpu|Reference)Backend\.",  # the methods of a backend are documented once, in Backend
    r"data\.(Memory|Blocks|Dask)\.",  # those of an engine in Engine
    r"divergence\.(?!Divergence)\w+\.",  # the methods of a divergence are documented once, in Divergence
}

html_theme = "pydata_sphinx_theme"
html_title = "onmf"
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "show_prev_next": False}
html_show_sourcelink = False
html_math_renderer = "formulas"
html_static_path = ["_static"]
html_css_files = ["onmf.css"]
html_sidebars = {"index": []}

# Every build creates the live examples of the guides.
html_extra_path = ["_build/live"]
live.write_reports()
