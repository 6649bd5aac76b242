"""Data sets: the paper's, labelled cells, a real corpus that needs no download, and data drawn from the model."""

from __future__ import annotations

from .catalogue import DatasetInfo, data_home, list_datasets
from .cells import CellSet
from .count import count_shards
from .docstrings import docstring_texts, load_docstrings
from .documents import Documents
from .download import DownloadError, fetch
from .generate import make_counts, make_scene
from .lazy import open_h5ad, open_zarr
from .load import load_cells, load_documents, load_hyperspectral
from .pieces import Shards, open_shards, write_shards
from .readers import read_documents, read_scene
from .scene import Scene

__all__ = [
    "CellSet",
    "DatasetInfo",
    "Documents",
    "DownloadError",
    "Scene",
    "Shards",
    "count_shards",
    "data_home",
    "docstring_texts",
    "fetch",
    "list_datasets",
    "load_cells",
    "load_docstrings",
    "load_documents",
    "load_hyperspectral",
    "make_counts",
    "make_scene",
    "open_h5ad",
    "open_shards",
    "open_zarr",
    "read_documents",
    "read_scene",
    "write_shards",
]
