"""How many materials has an image? As many as describe its spectra much better than one fewer."""

from __future__ import annotations

import warnings

import numpy as np

from onmf.divergence import Array
from onmf.estimator import ONMF

LARGEST = 12
"""Numbers of clusters that are tried."""

WORTH = 0.1
"""Share of what is left of the objective that another cluster must take away."""


def choose_n_clusters(rows: Array, model: ONMF) -> int:
    """The number of clusters after which neither of the next two lowers the objective by a tenth.

    Pixels vary within a material in more ways than photon noise, so that a likelihood would always want more clusters;
    the objective itself falls by large steps as long as a cluster stands for a material, and by small ones after.

    Parameters
    ----------
    rows : (n, bands) array
        Pixels, a sample of them.
    model : ONMF
        Whose divergence, smoothing and random state are used.

    Returns
    -------
    int
    """
    last, chosen = np.inf, 1
    for k in range(1, min(LARGEST, len(rows)) + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # runs that end early still tell how far down it goes
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
        if objective <= (1 - WORTH) * last:
            chosen = k
        last = min(last, objective)
        if last <= 0 or k >= chosen + 2:
            break
    return chosen
