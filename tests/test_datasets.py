"""The embedded corpus."""

import numpy as np

from onmf import ONMF
from onmf.datasets import load_docstrings
from onmf.metrics import clustering_accuracy


def test_docstrings():
    docs = load_docstrings()
    n, p = docs.X.shape
    assert 1000 < n < 1700
    assert len(docs.words) == p
    assert docs.y.shape == docs.ids.shape == (n,)
    assert docs.classes.tolist() == sorted(docs.classes)
    assert len(docs.classes) == 13 == len(np.unique(docs.y))
    assert (docs.X.sum(axis=1) > 0).all()
    assert docs.classes[docs.y[docs.ids.tolist().index("scipy.fft.fft")]] == "fft"
    assert docs.source.startswith("SciPy ")


def test_docstrings_are_always_the_same():
    one, other = load_docstrings(), load_docstrings()
    assert (one.X != other.X).nnz == 0
    assert np.array_equal(one.ids, other.ids)


def test_kl_beats_frobenius_on_the_docstrings():
    docs = load_docstrings()
    kl, fro = (
        clustering_accuracy(docs.y, ONMF(13, beta_loss=loss).fit(docs.X).labels_) for loss in ("kullback-leibler", 2)
    )
    assert kl > fro + 0.1
