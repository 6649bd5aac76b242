"""
Cells and their marker genes
============================

Cluster cells by their counts of molecules, and find the genes that mark each cluster. The cells are generated: five
kinds, each with a profile of its own over 600 genes. Counts need no normalisation, since each cell has a scale.
"""

import matplotlib.pyplot as plt
import numpy as np

from onmf.cells import Cells, cluster
from onmf.datasets import make_counts

made = make_counts(1000, 600, 5, length=400, overlap=0.7, random_state=0)
barcodes, names = [f"cell {i}" for i in range(1000)], [f"gene {j}" for j in range(600)]
cells = Cells(made.X, barcodes, names, classes=[f"kind {c}" for c in made.y])
found = cluster(cells, 5)
print(f"adjusted Rand index: {found.comparison.ari:.3f}")
for k, name in enumerate(found.names):
    sure = found.confidence[found.labels == k].mean()
    print(f"cluster {k}: {found.sizes[k]} cells, mean confidence {sure:.2f}, best markers {name}")

# %%
# A marker is frequent in its own cluster and rare in the others. The colour is the share of a gene in the counts of a
# cluster, relative to its share in the cluster where it is highest.

genes = found.markers.genes[:, :5].ravel()  # the five best of each cluster
shares = found.profiles[:, genes] / found.profiles[:, genes].max(axis=0)
figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
image = ax.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set_xticks(np.arange(len(genes)), [names[j] for j in genes], rotation=90)
ax.set_yticks(np.arange(5), [f"cluster {k}" for k in range(5)])
ax.tick_params(length=0)
figure.colorbar(image, label="relative share")
