"""A divergence of your own class: Kullback–Leibler with a weight for each feature.

    D(x, y) = Σ_j v_j (x_j log(x_j / y_j) − x_j + y_j)

Use it as ``ONMF(beta_loss=WeightedKullbackLeibler((1.0, 0.5, …)))``. Models can be saved, because it is registered.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from onmf.divergence import Divergence, divide, register


@register
@dataclass(frozen=True)
class WeightedKullbackLeibler(Divergence):
    """Kullback–Leibler with a weight v for each feature. Centroids c have the size Σ_j v_j c_j = 1."""

    feature_weights: tuple[float, ...]
    smoothing: float = 1e-3

    name = "weighted kullback-leibler"
    domain = "nonnegative"

    def weights_like(self, array):
        """The weights, in the memory of an array: with CuPy arrays it runs on the GPU, too. → (p,)"""
        return np.asarray(self.feature_weights, like=array)

    @property
    def row_terms(self):
        def weighted(x, j):
            return self.weights_like(x)[j] * x

        return {"sum": weighted, "x log x": lambda x, j: self.weights_like(x)[j] * xlogy(x, x)}

    def row_size(self, terms):
        return terms["sum"]

    def size(self, vectors):
        return (self.weights_like(vectors) * vectors).sum(axis=1)

    def smooth(self, centroids, at_least=0.0):
        return self.normalise(self.normalise(centroids) + max(self.smoothing, at_least))

    def templates(self, centroids):
        with np.errstate(divide="ignore"):  # without smoothing, a zero costs infinity
            return self.weights_like(centroids) * np.log(self.smooth(centroids))

    def scale(self, best, terms):
        return terms["sum"]

    def weight(self, scale, terms):
        return np.ones_like(scale)

    def constant(self, terms):
        return terms["x log x"] - xlogy(terms["sum"], terms["sum"])

    def gain(self, best, scale, terms):
        return best

    def objective(self, sums, mass, loss, constant):
        v, shares = self.weights_like(sums), divide(sums, mass[:, None])
        return constant - float((v * xlogy(sums, np.where(shares > 0, shares, 1.0))).sum())
