"""Clusters the docstrings of SciPy's public functions, prints the clusters, and writes their report.

Run with ``make demo``, or ``python examples/docstrings.py [folder]``. The README and the guide show this report.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer

import onmf.text
from onmf import ONMF
from onmf.datasets import docstring_texts
from onmf.metrics import compare

K = 13  # as many as subpackages


def cluster_docstrings() -> onmf.text.DocumentClusters:
    """One run of KL-ONMF, on the counts of :func:`onmf.datasets.load_docstrings`."""
    texts = [onmf.text.Text(*triple) for triple in docstring_texts()]
    vectorizer = CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=3)
    return onmf.text.cluster(texts, K, vectorizer=vectorizer, quick=True)


def main(folder: Path) -> None:
    """Cluster, print, compare, and write the report."""
    found = cluster_docstrings()
    table, comparison = found.table, found.comparison
    print(f"{found.kind.headline(found)}: the docstrings of SciPy, of {len(comparison.classes)} subpackages\n")
    print("The clusters: number, size, most frequent subpackage, distinctive words\n")
    tops, shares = found.distinctive(8), comparison.table / found.sizes
    for c, size in enumerate(found.sizes):
        mostly = shares[:, c].argmax()
        print(f"  {c + 1:2}  {size:4}  {comparison.classes[mostly]:12}{shares[mostly, c]:4.0%}  {', '.join(tops[c])}")

    other = ONMF(K, beta_loss="frobenius").fit(table.X)
    print("\nAccuracy, if each cluster stands for a subpackage (the clustering does not see them):\n")
    print(f"  KL-ONMF   {comparison.accuracy:.1%}")
    print(f"  Fro-ONMF  {compare(table.classes, other.labels_).accuracy:.1%}")

    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.html"
    found.report(report, title="SciPy's docstrings")
    print(f"\nThe report, for any browser: {report.resolve().as_uri()}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
