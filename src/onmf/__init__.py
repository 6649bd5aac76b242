"""onmf: orthogonal nonnegative matrix factorization for counts.

Cluster documents by their words, pixels by their spectra, cells by their molecules.
"""

from __future__ import annotations

from onmf import divergence, metrics
from onmf._version import __version__
from onmf.estimator import ONMF, load
from onmf.fit import Agreement, Assigned, Clustering, snpa
from onmf.paper import fro_onmf, kl_onmf
from onmf.select import Selection, select_n_clusters
from onmf.versions import show_versions

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
    if name in ("cells", "datasets", "image", "plot", "report", "reproduce", "text"):
        from importlib import import_module

        return import_module(f"onmf.{name}")
    raise AttributeError(f"module 'onmf' has no attribute {name!r}")
