"""Version information for bug reports."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from onmf._version import __version__
from onmf.backend import available_cores

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite", "matplotlib", "pandas", "polars", "dask", "cupy")


def show_versions() -> None:
    """Print the versions of onmf, Python and the dependencies."""
    print(f"onmf          {__version__}")
    print(f"python        {sys.version.split()[0]} ({sys.executable})")
    print(f"machine       {platform.platform()}, {available_cores()} cores")
    for package in PACKAGES:
        try:
            installed = version(package)
        except PackageNotFoundError:
            installed = "not installed"
        print(f"{package:13} {installed}")
