"""The built-in corpus: the docstrings of SciPy."""

from __future__ import annotations

import inspect
from importlib import import_module

import numpy as np
import scipy
from scipy.sparse import csr_array

from .documents import Documents

MODULES = {
    "cluster": ("scipy.cluster.vq", "scipy.cluster.hierarchy"),
    "fft": ("scipy.fft",),
    "integrate": ("scipy.integrate",),
    "interpolate": ("scipy.interpolate",),
    "io": ("scipy.io",),
    "linalg": ("scipy.linalg",),
    "ndimage": ("scipy.ndimage",),
    "optimize": ("scipy.optimize",),
    "signal": ("scipy.signal",),
    "sparse": ("scipy.sparse",),
    "spatial": ("scipy.spatial",),
    "special": ("scipy.special",),
    "stats": ("scipy.stats",),
}
"""Modules with the public functions of each subpackage."""


def docstring_texts() -> list[tuple[str, str, str]]:
    """Return the docstrings of SciPy's public functions and classes as texts.

    Returns
    -------
    list of tuple (name, text, subpackage)

    Examples
    --------
    >>> from onmf.datasets import docstring_texts
    >>> subpackages = {name: subpackage for name, text, subpackage in docstring_texts()}
    >>> subpackages["scipy.cluster.vq.whiten"]
    'cluster'
    """
    texts: dict[tuple[str, str], str] = {}  # a function in two modules is one document
    for subpackage, modules in MODULES.items():
        for module in map(import_module, modules):
            for name in module.__all__:
                member = getattr(module, name, None)
                if callable(member) and (text := inspect.getdoc(member)):
                    texts.setdefault((subpackage, text), f"{module.__name__}.{name}")
    if not texts:
        raise RuntimeError("SciPy's docstrings are missing: run Python without -OO.")
    return [(name, text, subpackage) for (subpackage, text), name in texts.items()]


def load_docstrings() -> Documents:
    """Count the words of the docstrings of SciPy's public functions and classes, labelled by subpackage.

    These are about 1,300 real documents in 13 classes, and need no download. Words have at least three letters, are
    not English stop words and occur in at least three documents. The result depends only on the version of SciPy.

    Returns
    -------
    Documents

    Examples
    --------
    >>> from onmf.datasets import load_docstrings
    >>> docs = load_docstrings()
    >>> len(docs.classes)
    13
    """
    from sklearn.feature_extraction.text import CountVectorizer

    ids, texts, subpackages = zip(*docstring_texts(), strict=True)
    vectorizer = CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=3)
    X = vectorizer.fit_transform(texts)
    classes, y = np.unique(subpackages, return_inverse=True)
    return Documents(
        X=csr_array(X),
        y=y,
        name="docstrings",
        source=f"SciPy {scipy.__version__}, as installed",
        words=vectorizer.get_feature_names_out(),
        classes=classes,
        ids=np.array(ids),
    )
