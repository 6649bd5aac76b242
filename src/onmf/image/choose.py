"""The number of clusters of an image, chosen by how fast the objective falls."""

from __future__ import annotations

import warnings

import numpy as np

from onmf.divergence import Array
from onmf.estimator import ONMF

LARGEST = 12
"""Largest number of clusters to try."""

MIN_GAIN = 0.1
"""Fraction of the objective that one more cluster must remove."""


def choose_n_clusters(rows: Array, model: ONMF) -> int:
    """Return the number of clusters after which neither of the next two lowers the objective by a tenth.

    Pixels of one material differ by more than photon noise, so a likelihood criterion would always prefer more
    clusters. The objective itself falls in large steps while each new cluster is a material, and in small steps after
    that.

    Parameters
    ----------
    rows : (n, bands) array
        A sample of the pixels.
    model : ONMF
        Supplies the divergence, the smoothing, the random state and the number of threads.

    Returns
    -------
    int
    """
    last, chosen = np.inf, 1
    for k in range(1, min(LARGEST, len(rows)) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # runs that did not converge still show how far the objective falls
            fit = ONMF(
                k,
                beta_loss=model.beta_loss,
                smoothing=model.smoothing,
                init="++",
                n_init=5,
                random_state=0 if model.random_state is None else model.random_state,
                n_threads=model.n_threads,
            ).fit(rows)
        objective = fit.reconstruction_err_
        if objective <= (1 - MIN_GAIN) * last:
            chosen = k
        last = min(last, objective)
        if last <= 0 or k >= chosen + 2:
            break
    return chosen
