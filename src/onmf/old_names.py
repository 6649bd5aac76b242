"""Names of version 0.1.0 that have other names now. They work, and warn once where they are used.

This is the only place that knows them.
"""

from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from onmf.warn import warn

MODULES: dict[str, dict[str, str]] = {
    "onmf.text": {
        "read_texts": "read",
        "count_words": "count",
        "Counts": "Documents",
        "cluster_documents": "cluster",
        "assign_documents": "predict",
        "Comparison": "onmf.metrics.Comparison",
        "write_tables": "DocumentClusters.save",
    },
    "onmf.image": {
        "read_cube": "read",
        "cluster_image": "cluster",
        "predict_image": "predict",
        "ImageClustering": "ImageClusters",
    },
    "onmf.cells": {
        "read_cells": "read",
        "cluster_cells": "cluster",
        "predict_cells": "predict",
        "CellClustering": "CellClusters",
        "CellAssignment": "CellClusters",
        "CellComparison": "onmf.metrics.Comparison",
    },
    "onmf.report": {
        "documents_report": "rows_page",
        "cells_report": "onmf.cells.page.cells_page",
        "image_report": "onmf.image.page.image_page",
        "write_documents_report": "DocumentClusters.report",
        "write_cells_report": "CellClusters.report",
        "write_image_report": "ImageClusters.report",
    },
}
"""Old names of functions and classes, by module, and the new ones."""

ATTRIBUTES = {
    "clusters": "labels",
    "words": "features",
    "plot_words": "plot_features",
    "plot_markers": "plot_features",
    "ids": "table.rows",
    "gene_names": "table.genes",
    **{
        name: f"table.{name}"
        for name in ("classes", "dates", "lengths", "excerpts", "vectorizer", "barcodes", "X", "source")
    },
}
"""Old attributes of results, and the new ones."""

TABLE_ATTRIBUTES = {"ids": "rows", "words": "features", "labels": "classes"}  # The same for counts of documents
COMPARISON_ATTRIBUTES = {"counts": "table", "n_documents": "n_rows"}  # The same for comparisons with known classes


def deprecated(old: str, new: str) -> None:
    """Warn that a name has changed."""
    warn(f"{old} is now {new}. The old name will go with version 1.0.", DeprecationWarning)


def lookup(module: str, name: str) -> Any:
    """The object that an old name of a module stands for; AttributeError if it was never a name."""
    new = MODULES.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new = new if new.startswith("onmf.") else f"{module}.{new}"
    deprecated(f"{module}.{name}", new)
    owner, _, last = new.rpartition(".")
    if last == "save":  # functions of a result that became its methods
        tables = import_module("onmf.door.write").write_tables
        return lambda path, result, *arguments, **options: tables(result, Path(path), *arguments, **options)
    if last == "report":
        return lambda path, result, *_, **options: result.report(path, **options)
    return getattr(import_module(owner), last)


def attribute(owner: Any, name: str, names: Mapping[str, str] = ATTRIBUTES) -> Any:
    """What an old name of an attribute stands for; AttributeError if it was never a name."""
    new = names.get(name)
    if names is ATTRIBUTES and name.endswith("_") and not name.startswith("_"):
        new = f"model.{name}"  # onmf.cells.cluster returned the model
    if new is None:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    value = reduce(getattr, new.split("."), owner)
    deprecated(f"{type(owner).__name__}.{name}", new)
    return value


def save_model(result: Any, path: Path) -> Path:
    """What ``save`` did for documents: write the model alone."""
    deprecated("save('….onmf')", "save(folder), and model.save(path) for the model alone")
    result.model.save(path, extra=result.entries())
    return path


class Notes(list[str]):
    """Notes of a result. They were a method of documents."""

    def __call__(self) -> list[str]:
        """The notes."""
        deprecated("notes()", "notes")
        return list(self)
