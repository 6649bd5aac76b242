"""
Which rows are doubtful?
========================

Each row has a margin: how much worse the second-best cluster is, per word. Rows with a small margin lie between two
clusters. Look at them first, or leave them out.
"""

import matplotlib.pyplot as plt
import numpy as np

from onmf import ONMF
from onmf.datasets import make_counts
from onmf.metrics import match_clusters

documents = make_counts(3000, 500, 5, length=25, overlap=0.6, random_state=0)  # short and similar
model = ONMF(5, init="random-partition", n_init=10, refine="local-search", random_state=0)
model.fit(documents.X)
matched = match_clusters(documents.y, model.labels_)
right = np.array([matched[label] for label in model.labels_]) == documents.y

# %%
# The rows in ten groups of equal size, by their margin. Almost all errors are in the groups with the smallest margins.

groups = np.array_split(model.margins_.argsort(), 10)
shares = [right[group].mean() for group in groups]
print(f"all rows: {right.mean():.0%} right; the half with larger margins: {np.mean(shares[5:]):.0%}")

figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
bars = ax.bar(range(10), shares, color=plt.get_cmap("Blues")(np.linspace(0.3, 0.9, 10)))
ax.bar_label(bars, fmt="{:.0%}", fontsize=8)
ax.set_xticks(range(10), [f"{model.margins_[group].mean():.2f}" for group in groups])
ax.set(xlabel="mean margin of the group", ylabel="share in the right cluster", ylim=(0, 1.1))
ax.spines[["top", "right"]].set_visible(False)
