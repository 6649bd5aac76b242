"""Cells: from counts of molecules to clusters of cells, their marker genes and a map."""

from __future__ import annotations

from .cluster import cluster, cluster_cells
from .counts import CountCheck, check_counts, whole_layers_of
from .embed import map_of_cells
from .genes import deviant_genes
from .markers import markers
from .matrix import OnDisk
from .predict import CellAssignment, predict_cells
from .read import Cells, read_cells
from .result import CellClustering, CellComparison, Markers

__all__ = [
    "CellAssignment",
    "CellClustering",
    "CellComparison",
    "Cells",
    "CountCheck",
    "Markers",
    "OnDisk",
    "check_counts",
    "cluster",
    "cluster_cells",
    "deviant_genes",
    "map_of_cells",
    "markers",
    "predict_cells",
    "read_cells",
    "whole_layers_of",
]
