"""onmf: orthogonal nonnegative matrix factorization for counts.

Cluster documents by their words, pixels by their spectra, cells by their molecules, and rows of any table of counts.
"""

import platform
import sys
from importlib import import_module, metadata

from onmf import divergence, metrics
from onmf._version import __version__
from onmf.backend import available_cores
from onmf.estimator import ONMF, load
from onmf.fit import Agreement, Assigned, Clustering, snpa
from onmf.paper import fro_onmf, kl_onmf
from onmf.select import Selection, select_n_clusters

__all__ = [
    "ONMF",
    "Agreement",
    "Assigned",
    "Clustering",
    "Selection",
    "__version__",
    "divergence",
    "fro_onmf",
    "kl_onmf",
    "load",
    "metrics",
    "select_n_clusters",
    "show_versions",
    "snpa",
]


def __getattr__(name: str) -> object:
    """Import ``onmf.datasets`` and other optional modules on first access."""
    if name in ("cells", "datasets", "door", "image", "plot", "report", "reproduce", "table", "text"):
        return import_module(f"onmf.{name}")
    raise AttributeError(f"module 'onmf' has no attribute {name!r}")


def show_versions() -> None:
    """Print the versions of onmf, Python and the dependencies, for bug reports."""
    print(
        f"onmf          {__version__}\npython        {sys.version.split()[0]} ({sys.executable})\n"
        f"machine       {platform.platform()}, {available_cores()} cores"
    )
    packages = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite", "matplotlib", "pandas", "polars", "dask", "cupy")
    for package in packages:
        try:
            installed = metadata.version(package)
        except metadata.PackageNotFoundError:
            installed = "not installed"
        print(f"{package:13} {installed}")
