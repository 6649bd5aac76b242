"""Cells: from counts of molecules to clusters of cells, their marker genes and a map."""

from __future__ import annotations

from .cluster import cluster
from .read import Cells, read_cells
from .result import CellClustering, Markers

__all__ = ["CellClustering", "Cells", "Markers", "cluster", "read_cells"]
