"""Levels: the numbers of clusters at which halves of the rows share most, for so many clusters.

At each number of clusters two halves share some bits about the rows, at most log₂ k. The worth of k clusters is what
they share, less half of log₂ k: twice as many are worth more only if halves share another half bit. At the coarse level
all of log₂ k is taken off, so that its clusters are those which halves share nearly all of.
"""

import numpy as np

from onmf.divergence import Array, FloatArray

PRICES = {"coarse": 1.0, "medium": 0.5, "fine": 0.5}  # of a doubling of the clusters, in bits
NEXT = (2, 4)  # A coarse level has 2 to 4 times fewer clusters than the medium one, a fine level so many times more
SHARED = 0.5  # of their bits, that halves have in common at least at a coarse level


def find_levels(numbers: list[int], agreement: FloatArray, bits: FloatArray) -> dict[str, int]:
    """The numbers of clusters of the levels: medium, and coarse and fine ones where there are such.

    The medium level is worth most. The coarse and the fine one are worth most among the numbers next to it. Numbers
    within one standard error of the best, over the splits, are level with it, and the smallest of them is taken. Halves
    must share more at a fine level than at the medium one, by more than its standard error.

    Parameters
    ----------
    numbers : list of int
        Numbers of clusters, in rising order.
    agreement, bits : (numbers, splits) arrays
        Agreement of two halves on each number, as a share of the bits that they have; and these.

    Examples
    --------
    Halves agree on three groups and on all twelve clusters in them, and on nothing else.

    >>> import numpy as np
    >>> from onmf.select.levels import find_levels
    >>> agreement = np.array([0.6, 1, 0.9, 0.9, 0.9, 0.95, 1, 0.95])[:, None]
    >>> find_levels([2, 3, 4, 6, 8, 10, 12, 14], agreement, np.log2([[2], [3], [4], [6], [8], [10], [12], [14]]))
    {'coarse': 3, 'medium': 12}
    """
    k = np.array(numbers)
    shared = agreement * bits
    splits = shared.shape[1]

    def error(values: FloatArray) -> FloatArray:
        """The standard error of a mean over the splits; 0 for a single one, which tells none."""
        return values.std(axis=-1, ddof=1) / np.sqrt(splits) if splits > 1 else np.zeros(values.shape[:-1])

    def best(level: str, among: Array) -> int:
        values = shared[among] - PRICES[level] * np.log2(k[among])[:, None]
        highest = int(np.argmax(values.mean(axis=1)))
        behind = values[highest] - values
        noise = np.sqrt(np.square(error(behind)).sum() / max(len(among) - 1, 1))
        return int(among[np.flatnonzero(behind.mean(axis=1) <= noise)[0]])

    medium = best("medium", np.arange(len(k)))
    found, (least, most) = {"medium": numbers[medium]}, NEXT
    fewer = np.flatnonzero((least * k <= k[medium]) & (most * k >= k[medium]))
    more = np.flatnonzero((k >= least * k[medium]) & (k <= most * k[medium]))
    if len(fewer) and agreement[coarse := best("coarse", fewer)].mean() >= SHARED:
        found = {"coarse": numbers[coarse]} | found
    if len(more):
        gain = shared[fine := best("fine", more)] - shared[medium]
        if gain.mean() > error(gain):
            found["fine"] = numbers[fine]
    return found
