"""Clusters the docstrings of SciPy's public functions, and prints and draws the result.

Run with ``make demo``, or ``python examples/docstrings.py [folder for the figures]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics.cluster import contingency_matrix

from onmf import ONMF
from onmf.datasets import load_docstrings
from onmf.estimator import fit_model
from onmf.metrics import clustering_accuracy
from onmf.naming import names_from_features, number_by_size
from onmf.plot import distinct_colours, plot_confusion, plot_top_features

matplotlib.use("Agg")


def main(folder: Path) -> None:
    """Fit, compare, print and draw."""
    docs = load_docstrings()
    k = len(docs.classes)
    n, p = docs.X.shape
    print(f"{n} documents, {p} words, {docs.X.nnz} nonzero counts: the docstrings of {docs.source}, {k} subpackages\n")

    contenders = {
        "KL-ONMF": ONMF(k),
        "Fro-ONMF": ONMF(k, beta_loss="frobenius"),
        "k-means (best of 10)": KMeans(k, n_init=10, random_state=0),
    }
    ONMF(2).fit(docs.X[:50])  # compile the kernels, so that the times below do not include it
    seconds = {}
    for name, model in contenders.items():
        began = perf_counter()
        model.fit(docs.X)
        seconds[name] = perf_counter() - began
    model = contenders["KL-ONMF"]
    number_by_size(model, lambda centroids: fit_model(model, docs.X, init=centroids))

    sizes = np.bincount(model.labels_, minlength=k)
    counts = contingency_matrix(docs.y, model.labels_)  # subpackages × clusters
    majority = docs.classes[counts.argmax(axis=0)]
    share = counts.max(axis=0) / sizes
    print("Clusters of KL-ONMF, the largest first: number, size, most frequent subpackage, characteristic words\n")
    tops = model.top_features(8, docs.words)
    for c in range(k):
        print(f"  {c + 1:2}  {sizes[c]:4}  {majority[c]:12}{share[c]:4.0%}  {', '.join(tops[c])}")

    print("\nThree methods on the same counts (none of them sees the subpackages):\n")
    print("                         accuracy   seconds")
    for name, contender in contenders.items():
        print(f"  {name:22} {clustering_accuracy(docs.y, contender.labels_):8.1%} {seconds[name]:9.2f}")

    print()
    folder.mkdir(parents=True, exist_ok=True)
    # Both figures show a cluster under the same name and in the same colour.
    names = [f"{c + 1}: {name.split(', ')[0]}" for c, name in enumerate(names_from_features(tops))]
    colours = distinct_colours(k)
    titles = [f"{names[c]} ({sizes[c]})" for c in range(k)]
    words = plot_top_features(model, 8, feature_names=docs.words, titles=titles, colours=colours)
    classes = plot_confusion(docs.y, model.labels_, classes=docs.classes, names=names, colours=colours)
    save(words[0].figure, folder / "clusters.png")
    save(classes.figure, folder / "confusion.png")


def save(figure: matplotlib.figure.Figure, path: Path) -> None:
    """Write the figure under a temporary name, then rename it."""
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, dpi=150, format="png")
    partial.replace(path)
    print(f"Written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
