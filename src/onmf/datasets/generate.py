"""Data drawn from the model, with the ground truth."""

from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array
from sklearn.utils import check_random_state

from onmf.io.rules import require

from .readers import Documents, Scene

SPREAD = 0.8  # of the logarithm of the length of a document


def make_counts(
    n_samples: int = 1000,
    n_features: int = 2000,
    n_clusters: int = 5,
    *,
    length: float = 100.0,
    overlap: float = 0.5,
    zipf: float = 1.0,
    random_state: Any = None,
) -> Documents:
    """Draw word counts from the model that KL-ONMF fits: a multinomial for each cluster.

    Word frequencies follow Zipf's law. The profile of each cluster is a mixture of two such distributions: one that
    all clusters share, and a random permutation of it.

    Parameters
    ----------
    n_samples : int, default=1000
        Number of documents.
    n_features : int, default=2000
        Number of words.
    n_clusters : int, default=5
        Number of clusters; they are drawn with equal probability.
    length : float, default=100
        Mean number of words in a document; lengths are log-normal, as in real corpora, and at least 1.
    overlap : float, default=0.5
        Weight of the shared distribution in the mixture, between 0 and 1.
    zipf : float, default=1.0
        Exponent of Zipf's law; 0 makes all words equally frequent.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Documents
        With the clusters as ``y`` and their word probabilities as ``profiles``.

    Examples
    --------
    >>> from onmf.datasets import make_counts
    >>> documents = make_counts(100, 50, 3, random_state=0)
    >>> documents.X.shape, documents.profiles.shape
    ((100, 50), (3, 50))
    """
    require(0 <= overlap <= 1, f"overlap={overlap} is not allowed: it must be between 0 and 1.")
    sizes = (n_samples, n_features, n_clusters, length)
    require(min(sizes) >= 1, "n_samples, n_features, n_clusters and length must be at least 1.")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    common = 1 / np.arange(1, n_features + 1) ** zipf
    common /= common.sum()
    profiles = np.stack([overlap * common + (1 - overlap) * rng.permutation(common) for _ in range(n_clusters)])
    y = rng.integers(n_clusters, size=n_samples)
    lengths = np.maximum(rng.lognormal(np.log(length) - SPREAD**2 / 2, SPREAD, n_samples).astype(np.int64), 1)
    documents = np.repeat(np.arange(n_samples, dtype=np.int32), lengths)
    words, clusters = np.empty(len(documents), dtype=np.int32), y[documents]
    for k in range(n_clusters):
        in_cluster = clusters == k
        cumulative = np.cumsum(profiles[k])
        words[in_cluster] = np.searchsorted(cumulative, rng.random(in_cluster.sum()) * cumulative[-1], side="right")
    X = csr_array((np.ones(len(words), dtype=np.int32), (documents, words)), shape=(n_samples, n_features))
    X.sum_duplicates()
    X.indices, X.indptr = X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)
    return Documents(X=X, y=y, name="made", source="onmf.datasets.make_counts", profiles=profiles)


def make_scene(
    height: int = 80,
    width: int = 100,
    bands: int = 120,
    n_materials: int = 4,
    *,
    photons: float = 300.0,
    darkness: float = 0.04,
    random_state: Any = None,
) -> Scene:
    """Draw a hyperspectral scene with photon noise, smooth spectra, regions, uneven light and one dark material.

    Parameters
    ----------
    height, width : int, default=80, 100
        Size of the image.
    bands : int, default=120
        Number of spectral bands, from 400 to 2,500 nm.
    n_materials : int, default=4
        Number of materials; the last one is dark.
    photons : float, default=300
        Mean number of photons of a bright pixel in a band. Counts are Poisson.
    darkness : float, default=0.04
        Brightness of the dark material, relative to the others.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    Scene
        With counts as ``X`` and the truth: ``endmembers``, ``abundances`` (one material per pixel) and ``names``.

    Examples
    --------
    >>> from onmf.datasets import make_scene
    >>> make_scene(20, 30, 50, 3, random_state=0).X.shape
    (600, 50)
    """
    require(min((height, width, bands, n_materials)) >= 1, "height, width, bands and n_materials must be at least 1.")
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    # Spectra: a few broad bumps on a constant, with mean 1; the mean of the dark material is ``darkness``.
    centres, widths, heights = (
        rng.uniform(low, high, (n_materials, 4, 1)) for low, high in ((0, 1), (0.05, 0.25), (0, 1))
    )
    spectra = 0.1 + (heights * np.exp(-0.5 * ((np.linspace(0, 1, bands) - centres) / widths) ** 2)).sum(axis=1)
    spectra /= spectra.mean(axis=1, keepdims=True)
    if n_materials > 1:
        spectra[-1] *= darkness
    # Regions: the material whose smooth random field is highest. Light: another smooth field around 1.
    smooth = min(height, width) / 10
    fields = np.stack([gaussian_filter(rng.standard_normal((height, width)), smooth) for _ in range(n_materials)])
    labels = fields.argmax(axis=0).ravel()
    light = gaussian_filter(rng.standard_normal((height, width)), smooth)
    light = np.exp(0.3 * light / max(light.std(), 1e-12)).ravel()
    names = [f"material {k + 1}" for k in range(max(n_materials - 1, 1))]
    return Scene(
        X=rng.poisson(photons * light[:, None] * spectra[labels]).astype(np.float64),
        height=height,
        width=width,
        order="C",
        name="made",
        source="onmf.datasets.make_scene",
        endmembers=photons * spectra,
        abundances=(labels == np.arange(n_materials)[:, None]).astype(np.float64),
        names=np.array([*names, "dark"][:n_materials]),
        wavelengths=np.linspace(400, 2500, bands),
    )
