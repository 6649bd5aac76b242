"""Fits whose labels, centroids and scales must have the same bits on every processor.

``python -m tests.same_bits`` compares their checksums with those of the list, ``same_bits.json``, and prints one line
that says on what machine they were computed. ``--write`` writes the list. The data are made of integers and uniform
random numbers alone, which every version of NumPy draws alike; or they are real ones, if ``ONMF_DATA`` is set.
"""

import json
import os
import platform
import sys
import warnings
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import numpy as np
import scipy
from scipy.sparse import csr_array

from onmf import ONMF, select_n_clusters
from onmf.backend import cpu
from onmf.divergence import NegativeBinomial

LIST = Path(__file__).with_suffix(".json")
DATA = os.environ.get("ONMF_DATA")


def made_counts(n, p, k, seed=0, length=60):
    """Counts of k clusters of n rows: each draws p features by the shares of its cluster, which fall like 1 / rank."""
    rng = np.random.default_rng(seed)
    shares = np.cumsum([1 / (1 + (np.arange(p) * (7 + 4 * c) + 13 * c) % p) for c in range(k)], axis=1)
    X = np.zeros((n, p), dtype=np.int64)
    for i in range(n):
        own = shares[i % k]
        drawn = np.searchsorted(own, rng.random(length // 2 + i % length) * own[-1])
        np.add.at(X[i], drawn, 1)
    return X


def made_scene():
    """Spectra of four materials in 40 bands, lit differently, with noise: 5,000 pixels, enough for sketches."""
    rng = np.random.default_rng(1)
    spectra = 1 + np.abs((np.arange(40) * np.array([[1], [3], [7], [11]])) % 40 - 20) / 4
    pixels = spectra[np.arange(5000) % 4] * (0.5 + rng.random((5000, 1))) + rng.random((5000, 40))
    return pixels.astype(np.float32)


def blocks(X):
    """Rows in three blocks."""

    def parts():
        return iter(np.split(X, [100, 450]))

    return parts


COUNTS, SCENE = made_counts(600, 200, 6), made_scene()
SPARSE = csr_array(COUNTS)


def fitted(X, k=6, **parameters):
    """Labels, centroids and scales of a fit. Sums over all rows, such as the objective, depend on NumPy's version."""
    model = ONMF(k, **{"random_state": 0} | parameters).fit(X)
    return model.labels_, model.cluster_centers_, model.scales_


def screened(X, **parameters):
    """The same with templates in 16 bits, as for many more rows."""
    with patch.object(cpu, "FEW_PRODUCTS", 0):
        return fitted(X, **parameters)


def grouped(X):
    """What a fit with groups finds, in memory or in blocks."""
    model = ONMF(6, random_state=0, n_init=3).fit(X, groups=np.arange(600) % 3)
    return model.labels_, model.cluster_centers_, model.scales_, model.group_effects_


def found(clusters):
    """What a door found."""
    return clusters.labels, clusters.confidence, clusters.runners_up, clusters.model.cluster_centers_


def cells(X, k, **options):
    from onmf.cells import Cells, cluster

    names = [[f"{noun}{i}" for i in range(m)] for noun, m in zip(("cell", "gene"), X.shape, strict=True)]
    return found(cluster(Cells(csr_array(X), *names), k, **options))


def table(X, k, **options):
    from onmf.door import Table
    from onmf.table import cluster

    names = [[f"{noun}{i}" for i in range(m)] for noun, m in zip(("row", "column"), X.shape, strict=True)]
    return found(cluster(Table(csr_array(X), *names), k, **options))


def image(X, shape, k, **options):
    from onmf.image import cluster

    return found(cluster(np.asarray(X).reshape(*shape, -1), k, **options))


def views(X, k, **options):
    from onmf.text import consensus_of_views

    model = consensus_of_views(X, k, random_state=0, **options)
    return model.labels_, model.cluster_centers_


def selected(X, **options):
    chosen = select_n_clusters(X, random_state=0, **options)
    return chosen.n_clusters, chosen.agreement, chosen.chance, *(level.labels for level in chosen.levels)


def stream(X):
    model = ONMF(6)
    for batch in np.split(X, 4):
        model.partial_fit(batch)
    return model.predict(X), model.cluster_centers_


def real(name):
    """A real set: counts of documents, spectra or cells."""
    place = next(Path(DATA).glob(f"*/{name}.npz"))
    with np.load(place) as file:
        if "X" in file:
            return file["X"] * (file["scale_num"] / file["scale_den"])
        return csr_array(tuple(file[part] for part in ("data", "indices", "indptr")), shape=tuple(file["shape"]))


MADE = {
    "Kullback-Leibler": lambda: fitted(SPARSE),
    "Kullback-Leibler, array": lambda: fitted(SCENE, 4),
    "Kullback-Leibler, smoothing=0": lambda: fitted(COUNTS + 1, smoothing=0),
    "Frobenius": lambda: fitted(SPARSE, beta_loss="frobenius"),
    "Frobenius, array": lambda: fitted(SCENE, 4, beta_loss="frobenius"),
    "templates in 16 bits": lambda: [screened(SPARSE), screened(SPARSE, beta_loss="frobenius")],
    "cosine": lambda: fitted(SPARSE, beta_loss="cosine", refine="local-search"),
    "beta=1.7": lambda: fitted(SPARSE, beta_loss=1.7),
    "beta=0.3": lambda: fitted(SPARSE, beta_loss=0.3),
    "beta=-0.5": lambda: fitted(SCENE, 4, beta_loss=-0.5),
    "Itakura-Saito": lambda: fitted(SCENE, 4, beta_loss="itakura-saito"),
    "negative binomial, theta='auto'": lambda: fitted(SPARSE, beta_loss=NegativeBinomial("auto")),
    "negative binomial, scale='fit'": lambda: fitted(SPARSE, beta_loss=NegativeBinomial(2.0, scale="fit")),
    "Bernoulli": lambda: fitted((COUNTS > 0).astype(float), beta_loss="bernoulli", init="++"),
    "exponential": lambda: fitted(SCENE / 8, 4, beta_loss="exponential", init="random"),
    "starts": lambda: [fitted(SPARSE, init=init, n_init=3) for init in ("++", "random", "random-partition")],
    "bisection and local search": lambda: fitted(SPARSE, init="bisection", refine="local-search", n_init=2),
    "local search, not counts": lambda: fitted(SPARSE * 0.3, init="random-partition", refine="local-search", n_init=2),
    "consensus": lambda: fitted(SPARSE, init="consensus", n_consensus=6),
    "views": lambda: views(SPARSE, 6, n_runs=6),
    "blocks": lambda: fitted(blocks(SCENE), 4),
    "batches": lambda: stream(COUNTS),
    "groups": lambda: [grouped(SPARSE), grouped(COUNTS), grouped(blocks(COUNTS))],
    "number of clusters": lambda: selected(made_counts(200, 60, 3), n_splits=2),
    "cells": lambda: cells(made_counts(300, 120, 4, seed=2), "auto", k_max=6),
    "table": lambda: table(COUNTS, 6),
    "image": lambda: image(SCENE, (50, 100), "auto"),
}
REAL = {
    "tr11, views": lambda: views(real("tr11"), 9, n_runs=9),
    "tr23, local search": lambda: fitted(real("tr23"), init="bisection", refine="local-search"),
    "tr45, negative binomial": lambda: fitted(real("tr45"), 10, beta_loss=NegativeBinomial(5.0)),
    "k1b": lambda: fitted(real("k1b")),
    "Samson": lambda: image(real("samson"), (95, 95), "auto"),
    "Jasper Ridge, Frobenius": lambda: fitted(real("jasper"), 4, beta_loss="frobenius"),
    "sc_celseq2": lambda: cells(real("sc_celseq2"), 3),
    "worm_neuron": lambda: cells(real("worm_neuron"), 8, quick=True),
}
FITS = MADE | (REAL if DATA else {})


def checksum(name):
    """The checksum of what a fit found."""
    digest = sha256()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = FITS[name]()
    for result in results if isinstance(results, list) else [results]:
        for values in result:
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


def machine(checksums):
    """One line that says where checksums were computed, and whether they are those of the list."""
    expected = json.loads(LIST.read_text())
    differ = [name for name, value in checksums.items() if value != expected.get(name)]
    agree = f"{len(checksums) - len(differ)} of {len(checksums)} fits have the same bits"
    which = f" (others: {', '.join(differ)})" if differ else ""
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    return f"{agree}{which}: {platform.system()} {platform.machine()}, {versions}"


def main():
    """Print or write the checksums."""
    found = {name: checksum(name) for name in FITS}
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    if "--write" in sys.argv:
        known = json.loads(LIST.read_text()) if LIST.exists() else {}
        LIST.write_text(json.dumps(known | found, indent=1) + "\n")
    print(machine(found))


if __name__ == "__main__":
    main()
