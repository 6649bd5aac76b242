"""
A divergence of your own
========================

Any convex function makes a divergence. These data have noise with a long tail to the left, as logarithms of
gamma-distributed values have. The convex function exp(x) fits that noise: it forgives values that are too low, and
punishes values that are too high.
"""

from math import exp

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from onmf import ONMF
from onmf.divergence import Bregman
from onmf.metrics import clustering_accuracy, match_clusters
from onmf.plot import distinct_colours

rng = np.random.default_rng(0)
y = rng.integers(3, size=600)
X = np.log(rng.gamma(np.array([[0.7, 4.0], [4.0, 0.7], [4.0, 4.0]])[y]))

# %%
# A divergence is its convex function with the first two derivatives. numba compiles them.

square = Bregman(lambda x: x * x / 2, lambda x: x, lambda x: 1.0, domain="real")
own = Bregman(lambda x: exp(x), lambda x: exp(x), lambda x: exp(x), domain="real")

side = np.linspace(-8, 3, 200)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
colours = ListedColormap(distinct_colours(3))
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for ax, name, divergence in zip(axes, ("x²/2", "exp(x)"), (square, own), strict=True):
    model = ONMF(3, beta_loss=divergence, init="++", n_init=5, random_state=0).fit(X)
    matched = match_clusters(y, model.labels_)
    regions = np.array([matched[label] for label in model.predict(grid)]).reshape(200, 200)
    ax.pcolormesh(side, side, regions, cmap=colours, alpha=0.25, vmin=0, vmax=2)
    ax.scatter(*X.T, c=y, cmap=colours, s=6)
    ax.set(xlim=(-8, 3), ylim=(-8, 3), xlabel="logarithm of the first value")
    ax.set_title(f"{name}: {clustering_accuracy(y, model.labels_):.0%} right", fontsize=10)
axes[0].set_ylabel("logarithm of the second value")
