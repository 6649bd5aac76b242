"""Data sets of the benchmark."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.datasets import list_datasets, load_documents, load_hyperspectral, make_counts, make_scene

TINY = "zipf-300"
"""The corpus that ``--quick`` uses."""


@functools.cache
def corpus(name: str) -> csr_array | None:
    """Return a documents × words matrix in float64; None if its data are not available.

    ``"NG20"`` is the paper's; ``"zipf-N"`` is generated: N documents of about 110 different words out of 30,000 (50,000
    for the largest, 1,000 below 2,000 documents), with frequencies that follow Zipf's law.
    """
    if name == "NG20":
        available = any(info.name == name and info.available for info in list_datasets())
        return load_documents(name).X.astype(np.float64) if available else None
    n = int(name.removeprefix("zipf-"))
    words, length = (50_000, 148) if n >= 200_000 else (30_000, 152) if n >= 2000 else (1000, 40)
    overlap = 0.3 if n >= 5000 else 0.85  # a small corpus must be harder to need as many iterations
    return make_counts(n, words, 20, length=length, overlap=overlap, random_state=0).X.astype(np.float64)


@functools.cache
def image(name: str) -> Any:
    """Return a pixels × bands matrix; None if its data are not available.

    ``"made-H×W"`` is generated: 200 bands, float32. Its pixels are mixtures, so that no method converges in two steps.
    """
    if name == "jasper":
        available = any(info.name == name and info.available for info in list_datasets())
        return load_hyperspectral(name).X if available else None
    height, width = map(int, name.removeprefix("made-").split("×"))
    rng = np.random.default_rng(0)
    spectra = make_scene(10, 10, 200, 6, random_state=0).endmembers
    mixtures = rng.dirichlet(np.ones(6), min(height, 250) * min(width, 250)) @ spectra
    small = rng.poisson(mixtures).astype(np.float32)
    return np.tile(small, (height * width // len(small), 1))
