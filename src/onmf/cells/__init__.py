"""Cells: from counts of molecules to clusters of cells, their marker genes and a map."""

from typing import Any

from onmf import old_names

from .counts import CountCheck, check_counts, whole_layers_of
from .embed import map_of_cells
from .files import Cells, read
from .genes import Markers, deviant_genes, markers
from .kind import CellClusters, cluster, predict
from .matrix import OnDisk

__all__ = [
    "CellClusters",
    "Cells",
    "CountCheck",
    "Markers",
    "OnDisk",
    "check_counts",
    "cluster",
    "deviant_genes",
    "map_of_cells",
    "markers",
    "predict",
    "read",
    "whole_layers_of",
]


def __getattr__(name: str) -> Any:
    return old_names.lookup(__name__, name)
