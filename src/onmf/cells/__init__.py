"""Cells: from counts of molecules to clusters of cells, their marker genes and a map."""

from __future__ import annotations

from .cluster import cluster
from .counts import CountCheck, check_counts, whole_layers_of
from .matrix import OnDisk
from .read import Cells, read_cells
from .result import CellClustering, Markers

__all__ = [
    "CellClustering",
    "Cells",
    "CountCheck",
    "Markers",
    "OnDisk",
    "check_counts",
    "cluster",
    "read_cells",
    "whole_layers_of",
]
