"""onmf: orthogonal nonnegative matrix factorization for counts.

Cluster documents by their words, pixels by their spectra, cells by their molecules, and rows of any table of counts.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from onmf._version import __version__

if TYPE_CHECKING:
    from onmf import divergence, metrics
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

# Names and modules are imported when they are first used: scikit-learn and pandas take a second.
LATE = {
    **dict.fromkeys(("ONMF", "load"), "onmf.estimator"),
    **dict.fromkeys(("Agreement", "Assigned", "Clustering", "snpa"), "onmf.fit"),
    **dict.fromkeys(("fro_onmf", "kl_onmf"), "onmf.paper"),
    **dict.fromkeys(("Selection", "select_n_clusters"), "onmf.select"),
}
MODULES = (
    *("backend", "cells", "data", "datasets", "divergence", "door", "estimator", "fit", "image", "metrics", "paper"),
    *("plot", "report", "reproduce", "select", "table", "text"),
)


def __getattr__(name: str) -> object:
    if name in MODULES:
        return import_module(f"onmf.{name}")
    if name not in LATE:
        raise AttributeError(f"module 'onmf' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *MODULES})


def show_versions() -> None:
    """Print the versions of onmf, Python and the dependencies, for bug reports."""
    import platform
    import sys
    from importlib import metadata

    from onmf.backend import available_cores

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
