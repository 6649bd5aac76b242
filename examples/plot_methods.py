"""
onmf and other methods
======================

Seven methods on the same counts: SciPy's docstrings, whose 13 subpackages no method sees. This is one small collection.
:doc:`/guide/compare` has fourteen, and says when each method is the better choice.
"""

from time import process_time

import matplotlib.pyplot as plt
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import NMF, LatentDirichletAllocation
from sklearn.feature_extraction.text import TfidfTransformer

from onmf import ONMF
from onmf.datasets import load_docstrings
from onmf.metrics import clustering_accuracy
from onmf.text import consensus_of_views


def topics(model, values):
    """Return the largest topic of each document."""
    return model.fit_transform(values).argmax(axis=1)


docs = load_docstrings()
X, tfidf, k = docs.X, TfidfTransformer().fit_transform(docs.X), len(docs.classes)
spherical = ONMF(k, beta_loss="cosine", init="++", n_init=10, random_state=0)
methods = {
    "LDA": lambda: topics(LatentDirichletAllocation(k, max_iter=5, random_state=0), X),
    "NMF": lambda: topics(NMF(k, random_state=0), tfidf),
    "MiniBatchKMeans": lambda: MiniBatchKMeans(k, n_init=10, random_state=0).fit_predict(tfidf),
    "KMeans": lambda: KMeans(k, n_init=10, random_state=0).fit_predict(tfidf),
    "spherical k-means": lambda: spherical.fit_predict(tfidf),
    "onmf, quick": lambda: ONMF(k).fit_predict(X),
    "onmf, best": lambda: consensus_of_views(X, k, random_state=0).labels_,
}
for loss in ("kullback-leibler", "cosine"):
    ONMF(2, beta_loss=loss).fit(X[:50])  # compiles, so that the times below do not include it
accuracies, seconds = [], []
for cluster in methods.values():
    began = process_time()
    labels = cluster()
    seconds.append(process_time() - began)
    accuracies.append(100 * clustering_accuracy(docs.y, labels))

# %%
# Left, how many documents are in the cluster that matches their subpackage; right, the time of the processor on a
# logarithmic scale. No method is the best on every collection.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
panels = ((accuracies, "accuracy, %", "{:.0f}"), (seconds, "seconds", "{:.2f}"))
for ax, (values, title, form) in zip(axes, panels, strict=True):
    ours = ["#d55e00" if name.startswith("onmf") else "#8d99ae" for name in methods]
    ax.bar_label(ax.barh(list(methods), values, color=ours), fmt=form, padding=3, fontsize=8)
    ax.set_xlabel(title)
    ax.spines[["top", "right"]].set_visible(False)
axes[1].set_xscale("log")
