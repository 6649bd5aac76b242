"""What two clusterings of the same rows have in common, less what they do not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import entropy
from sklearn.metrics import adjusted_mutual_info_score

from onmf.divergence import Array


class Reproduced(NamedTuple):
    """How well one clustering reproduces another.

    Attributes
    ----------
    information : float
        Bits that the two share, less bits that only one of them has; both are corrected for chance.
    stability : float
        The shared part of their information: the adjusted mutual information.
    """

    information: float
    stability: float


def reproduced(one: Array, other: Array) -> Reproduced:
    """Compare two clusterings of the same rows.

    With H the mean of their entropies and A their adjusted mutual information, they share A · H bits, and (1 − A) · H
    bits depend on which of the two one asks. The difference is the information. A finer clustering raises it only if
    more than half of what it adds is reproduced.

    Parameters
    ----------
    one, other : (n,) arrays of int
        The clusters of the rows, in any numbering.

    Returns
    -------
    Reproduced

    Examples
    --------
    >>> from onmf.select import reproduced
    >>> reproduced([0, 0, 1, 1], [1, 1, 0, 0])
    Reproduced(information=1.0, stability=1.0)
    """
    bits = float(np.mean([entropy(np.unique(labels, return_counts=True)[1], base=2) for labels in (one, other)]))
    stability = float(adjusted_mutual_info_score(one, other))
    return Reproduced(bits * (2 * stability - 1), stability)
