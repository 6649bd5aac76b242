"""
Choose the number of clusters
=============================

How many clusters are in the data? The rows are halved at random, and each half is clustered by itself. Clusters that
both halves find are real. Clusters that depend on the half are not.
"""

import matplotlib.pyplot as plt

from onmf import select_n_clusters
from onmf.datasets import make_counts

documents = make_counts(300, 500, 6, overlap=0.3, random_state=0)  # drawn from six clusters
selection = select_n_clusters(documents.X, k_max=10, random_state=0)
print(selection)

# %%
# The information that the two halves share decides. It rises while new clusters are found again in the other half, and
# falls when they are not.

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.errorbar(selection.candidates, selection.information, selection.information_error, marker="o")
ax.axvline(selection.n_clusters, color="#d55e00", ls=":", label=f"chosen: {selection.n_clusters}")
ax.set(xlabel="clusters", ylabel="information in both halves, bits")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False)

# %%
# ``selection.plot()`` draws all criteria, with the choice of each in its title. If they differ, look at the clusters.

axes = selection.plot()
