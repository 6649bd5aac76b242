"""
Find a dark material in an image
================================

Kullback–Leibler finds dark materials that the Frobenius norm can miss. The generated image has four materials, uneven
light and photon noise. One material is 25 times darker than the others, like water in a picture from the air.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from onmf import ONMF
from onmf.datasets import make_scene
from onmf.metrics import clustering_accuracy, match_clusters
from onmf.plot import distinct_colours

scene = make_scene(60, 80, 60, 4, photons=100, random_state=0)  # 4,800 pixels, 60 bands
truth = scene.abundances.argmax(axis=0)

# %%
# An error in a dark pixel is small in photons. Squared, it hardly counts, so the Frobenius norm spends its clusters on
# the noise of the bright materials. Kullback–Leibler measures an error relative to the brightness, like photon noise.
# Not every scene shows this: this one is dim, and in a brighter one the Frobenius norm often finds all four, too.

maps = {"true materials (pink: dark)": truth}
for loss in ("frobenius", "kullback-leibler"):
    model = ONMF(4, beta_loss=loss, init="random-partition", n_init=10, random_state=0).fit(scene.X)
    matched = match_clusters(truth, model.labels_)
    title = f"{loss}: {clustering_accuracy(truth, model.labels_):.0%} right"
    maps[title] = np.array([matched[label] for label in model.labels_])

colours = ListedColormap(distinct_colours(4))
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
for ax, (title, values) in zip(axes, maps.items(), strict=True):
    ax.imshow(scene.to_image(values), cmap=colours, vmin=0, vmax=3, interpolation="nearest")
    ax.set_title(title, fontsize=10)
    ax.set_axis_off()
