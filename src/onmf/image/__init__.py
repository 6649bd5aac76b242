"""Hyperspectral images: reads a cube from a file and maps its materials."""

from typing import Any

from onmf import old_names

from .cube import Cube
from .files import read
from .kind import ImageClusters, cluster, predict
from .materials import Comparison, Truth, read_truth

__all__ = ["Comparison", "Cube", "ImageClusters", "Truth", "cluster", "predict", "read", "read_truth"]


def __getattr__(name: str) -> Any:
    return old_names.lookup(__name__, name)
