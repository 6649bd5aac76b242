"""Sphinx configuration."""

import sys
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

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
    "sphinx_gallery.gen_gallery",
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
    *(
        f"{name}/*.md"
        for name in (
            *(
                "paper",
                "performance",
                "optima",
                "number",
                "surprise",
                "cells",
                "groups",
                "scale",
                "gpu",
                "divergence",
                "compare",
            ),
        )
    ),
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
    r"\.(Clustering|Cube|Kind|Option|StepSums)\.",  # numpydoc does not see the comments (#:) on their attributes
    r"data\.(Memory|Blocks|Dask)\.",  # those of an engine in Engine
    r"divergence\.(?!Divergence)\w+\.",  # the methods of a divergence are documented once, in Divergence
}

# The build runs the examples, and fails if one fails or warns that it did not converge. That is their test: the suite
# does not run them again. To build without them: sphinx-build -D plot_gallery=0.
warnings.filterwarnings("error", category=ConvergenceWarning)
EXAMPLES = [
    "plot_documents.py",
    "plot_dark_material.py",
    "plot_cells.py",
    "plot_number_of_clusters.py",
    "plot_margins.py",
    "plot_pipeline.py",
    "plot_own_divergence.py",
    "plot_out_of_core.py",
    "plot_streaming.py",
    "plot_methods.py",
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "ignore_pattern": r"^(?!plot_)",  # the other files are commands of their own
    "within_subsection_order": EXAMPLES.index,  # in the order above
    "capture_repr": (),  # an example prints what it wants to show
    "notebook_extensions": set(),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 3600,
    "image_srcset": ["2x"],
    "abort_on_example_error": True,
    "run_stale_examples": True,  # an example can fail although only the library has changed
}

html_theme = "pydata_sphinx_theme"
html_title = "onmf"
html_theme_options = {"navigation_with_keys": False, "show_toc_level": 2, "show_prev_next": False}
html_show_sourcelink = False
html_math_renderer = "formulas"
html_static_path = ["_static"]
html_css_files = ["onmf.css", "gallery.css"]
html_sidebars = {"index": []}

# Every build creates the live examples of the guides.
html_extra_path = ["_build/live"]
live.write_reports()
