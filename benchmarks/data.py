"""The data sets of the benchmarks, by name."""

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.datasets import list_datasets, load_cells, load_docstrings, load_documents, make_counts

MADE = "made-"
"""Generated sets are named after their number of clusters: made-3."""

DOCSTRINGS = "docstrings"
"""SciPy's docstrings."""


def available(*kinds: str) -> list[str]:
    """Return the names of the sets of some kinds that are on this machine."""
    return [info.name for info in list_datasets() if info.kind in kinds and info.available]


def members_of(labels: Any, k: int) -> csr_array:
    """Return which row is in which cluster, as a matrix of ones. → (n, k)"""
    return csr_array((np.ones(len(labels)), labels, np.arange(len(labels) + 1)), shape=(len(labels), k))


def load(name: str) -> tuple[csr_array, Any]:
    """Return counts and classes of documents, in float64, or of cells."""
    if name in available("cells"):
        return load_cells(name, return_X_y=True)
    if name.startswith(MADE):
        documents = make_counts(120, 200, int(name.removeprefix(MADE)), length=80, overlap=0.2, random_state=0)
    else:
        documents = load_docstrings() if name == DOCSTRINGS else load_documents(name)
    return csr_array(documents.X.astype(np.float64)), documents.y
