"""Hyperspectral images: reads a cube from a file and maps its materials."""

from __future__ import annotations

from .cluster import cluster_image, predict_image
from .cube import Cube
from .read import read_cube
from .result import ImageClustering
from .truth import Comparison, Truth, read_truth

__all__ = [
    "Comparison",
    "Cube",
    "ImageClustering",
    "Truth",
    "cluster_image",
    "predict_image",
    "read_cube",
    "read_truth",
]
