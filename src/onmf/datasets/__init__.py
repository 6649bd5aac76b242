"""Data sets: the paper's, labelled cells, a real corpus that needs no download, and data drawn from the model."""

from .count import count_shards
from .generate import make_counts, make_scene
from .load import (
    DatasetInfo,
    DownloadError,
    data_home,
    docstring_texts,
    fetch,
    list_datasets,
    load_cells,
    load_docstrings,
    load_documents,
    load_hyperspectral,
)
from .pieces import Shards, open_h5ad, open_shards, open_zarr, write_shards
from .readers import CellSet, Documents, Scene, read_documents, read_scene

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
