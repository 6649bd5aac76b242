"""From documents to clusters that a person can read, and from new documents to those clusters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from onmf.data import in_blocks
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF, fit_model
from onmf.io.schema import check_parts
from onmf.metrics import clustering_accuracy, match_clusters
from onmf.parameters import check_for_parts, check_parameters
from onmf.select import Selection, select_n_clusters

from .kind import is_documents
from .read import STRIP, Text, Texts
from .shards import ShardedCounts, count_in_shards
from .words import Counts, count_known_words, count_words, make_vectorizer, restore_vectorizer, vectorizer_options

KIND = "documents"
NUMBERS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30)
"""Numbers of clusters that ``n_clusters="auto"`` tries."""

NOBODY = -1
"""Cluster of a document that has none of the words."""


@dataclass(frozen=True)
class Comparison:
    """Clusters beside known classes, over the documents that have both.

    Attributes
    ----------
    classes : list of str
        The classes.
    counts : (classes, clusters) array of int
        Documents of each class in each cluster.
    accuracy : float
        Share of the documents in the cluster that is matched with their class, one to one.
    nmi : float
        Normalized mutual information.
    matched : dict of int to str
        Class of each cluster in that matching.
    """

    classes: list[str]
    counts: Array
    accuracy: float
    nmi: float
    matched: dict[int, str]

    @property
    def n_documents(self) -> int:
        """Documents that were compared."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class DocumentClusters:
    """Documents in clusters.

    Attributes
    ----------
    model : ONMF
        The fitted model; its rows are the documents that are not set aside.
    words : (words,) array of str
        The words that count.
    ids : sequence of str
        What the documents are called.
    clusters : (documents,) array of int
        Cluster of each document; -1 where it is set aside, since it has none of the words.
    scales, margins : (documents,) arrays
        How much of the cluster's profile a document takes, and how much worse the best other cluster is, per word. 0
        for documents that are set aside.
    lengths : (documents,) array of int
        Words of each document that count.
    excerpts : sequence of str
        How the documents begin.
    classes : list of str or None
        Known class of each document.
    vectorizer : CountVectorizer
        What counted the words.
    source : dict
        Where the documents came from, and what was repaired or left out.
    selection : Selection or None
        How the number of clusters was chosen, where it was.
    """

    model: ONMF
    words: Array
    ids: Sequence[str]
    clusters: Array
    scales: FloatArray
    margins: FloatArray
    lengths: Array
    excerpts: Sequence[str]
    classes: list[str | None]
    vectorizer: CountVectorizer
    source: dict[str, Any] = field(default_factory=dict)
    selection: Selection | None = None

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.model.cluster_centers_)

    @property
    def set_aside(self) -> list[str]:
        """What the documents are called that have none of the words."""
        return [self.ids[int(i)] for i in np.flatnonzero(self.clusters == NOBODY)]

    @cached_property
    def sizes(self) -> Array:
        """Documents in each cluster. → (clusters,)"""
        return np.bincount(self.clusters[self.clusters != NOBODY], minlength=self.n_clusters)

    def distinctive(self, n: int = 10) -> list[dict[str, float]]:
        """The words that lift the likelihood of each cluster over that of the whole most, with their weights."""
        return self.model.top_features(n, self.words)

    def frequent(self, n: int = 10) -> list[list[str]]:
        """The most frequent words of each cluster."""
        C = self.model.cluster_centers_
        tops = np.argsort(-C, axis=1, kind="stable")[:, :n]
        return [[str(self.words[j]) for j in top if C[k, j] > 0] for k, top in enumerate(tops)]

    def typical(self, cluster: int, n: int = 5) -> Array:
        """The documents that a cluster is surest of, among its longer half: in a short one a single word decides."""
        return self._ends(cluster, 0.5)[::-1][:n]

    def doubtful(self, cluster: int, n: int = 5) -> Array:
        """The documents that would nearly be in another cluster, the shortest quarter left out."""
        return self._ends(cluster, 0.25)[:n]

    def _ends(self, cluster: int, shorter: float) -> Array:
        inside = np.flatnonzero(self.clusters == cluster)
        if len(inside) == 0:
            return inside
        inside = inside[self.lengths[inside] >= np.quantile(self.lengths[inside], shorter)]
        return inside[np.argsort(self.margins[inside], kind="stable")]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The clusters beside the known classes, where there are any."""
        both = [i for i, label in enumerate(self.classes) if label is not None and self.clusters[i] != NOBODY]
        if not both:
            return None
        y = np.array([self.classes[i] for i in both])
        found = self.clusters[both]
        counts = np.zeros((len(np.unique(y)), self.n_clusters), dtype=np.int64)
        counts[:, np.unique(found)] = contingency_matrix(y, found)
        return Comparison(
            classes=[str(name) for name in np.unique(y)],
            counts=counts,
            accuracy=float(clustering_accuracy(y, found)),
            nmi=float(normalized_mutual_info_score(y, found)),
            matched={int(cluster): str(name) for cluster, name in match_clusters(y, found).items()},
        )

    def notes(self) -> list[str]:
        """What a reader should know before trusting the clusters, as sentences."""
        notes = []
        source = self.source
        if aside := self.set_aside:
            notes.append(f"{so_many(len(aside), 'document')} without a word that counts, set aside: {_some(aside)}.")
        if repaired := source.get("repaired"):
            n = so_many(sum(repaired.values()), "document")
            notes.append(f"{n} not in UTF-8, read as {', '.join(repaired)}.")
        if encoded := source.get("encoded"):
            notes.append(f"Encoded attachments dropped from {so_many(encoded, 'document')}.")
        if skipped := source.get("skipped"):
            names = [f"{name} ({why})" for name, why in skipped]
            notes.append(f"{so_many(len(skipped), 'file')} left out: {_some(names)}.")
        if self.selection is not None:
            chosen = ", ".join(f"{name} {k}" for name, k in self.selection.chosen.items())
            notes.append(f"The number of clusters was chosen by held-out likelihood. Choices by criterion: {chosen}.")
        if self.model.stop_reason_ == "max_iter":
            notes.append("The fit was stopped before it converged.")
        return notes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with its vocabulary; :func:`assign_documents` takes what :func:`onmf.load` reads from it."""
        extra = {
            "kind": KIND,
            "vocabulary": [str(word) for word in self.words],
            "vectorizer": vectorizer_options(self.vectorizer),
            "source": self.source,
        }
        self.model.save(path, extra=extra)


def cluster_documents(
    texts: Iterable[Text | str],
    n_clusters: int | str = 8,
    *,
    vectorizer: CountVectorizer | None = None,
    automatic: bool | None = None,
    shards: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Callable[[str, float | None], None] | None = None,
    **options: Any,
) -> DocumentClusters:
    """Cluster documents by their words.

    Parameters
    ----------
    texts : iterable of Text or str
        Documents, for instance from :func:`read_texts`; they are gone through once and not kept.
    n_clusters : int or "auto", default=8
        Number of clusters; ``"auto"`` chooses it with :func:`onmf.select_n_clusters`, which takes its time.
    vectorizer, automatic
        As in :func:`count_words`.
    shards : path, optional
        A folder for the counts of documents that do not fit in memory; it must not exist, or be empty. They are
        counted in pieces of 10,000 documents and fitted from there, a piece at a time, with the same clusters.
        ``n_clusters="auto"``, ``refine`` and ``init="consensus"`` need all counts in memory.
    force : bool, default=False
        Whether to replace a folder of shards that an earlier call wrote.
    progress : callable, optional
        Called with the name of each step (``"counting"``, ``"choosing"``, ``"fitting"``; with shards ``"writing"`` and
        the passes of the fit, too) and the share of it that is done, None where that is not known.
    **options
        Parameters of :class:`onmf.ONMF`.

    Returns
    -------
    DocumentClusters

    Examples
    --------
    >>> from onmf.text import cluster_documents
    >>> texts = ["red tea green tea", "tea tea", "cow milk", "milk of a cow", "black tea", "fresh milk"]
    >>> found = cluster_documents(texts, 2)
    >>> found.clusters.tolist()
    [0, 0, 1, 1, 0, 1]
    >>> [list(words) for words in found.distinctive(1)]
    [['tea'], ['milk']]
    """
    if force and shards is None:
        raise ValueError("force=True replaces a folder of shards, and none is named: name it with shards=.")
    step = progress or (lambda name, share: None)
    step("counting", None)
    counts: Counts | ShardedCounts
    if shards is None:
        counts = count_words(texts, vectorizer, automatic=automatic)
    else:
        if n_clusters == "auto":
            raise ValueError("n_clusters='auto' needs all counts in memory: say a number of clusters, or no shards.")
        model = ONMF(n_clusters, **options)  # type: ignore[arg-type]
        check_parameters(model)
        check_for_parts(model.refine, model.init)
        in_blocks(model.engine, model.n_threads)  # refuse an engine before the work, not after it
        counts = count_in_shards(
            texts,
            shards,
            vectorizer or make_vectorizer(),
            automatic=vectorizer is None if automatic is None else automatic,
            force=force,
            progress=lambda share: step("writing", share),
        )
    filled = np.flatnonzero(counts.lengths)
    selection = None
    if n_clusters == "auto":
        step("choosing", None)
        assert isinstance(counts, Counts), "refused above"
        X = csr_array(counts.X[filled])
        most = len(filled) - -(-len(filled) // 3)
        numbers = [k for k in NUMBERS if k <= most]
        if not numbers:
            raise ValueError(f"{len(filled)} documents with words are too few to choose a number of clusters: say one.")
        seed = options.get("random_state")
        selection = select_n_clusters(X, numbers, n_init=3, random_state=seed, n_threads=options.get("n_threads"))
        n_clusters = selection.n_clusters
    elif isinstance(n_clusters, int) and len(filled) < n_clusters:
        aside = len(counts.ids) - len(filled)
        others = f" ({aside} more have none of the words)" if aside else ""
        raise ValueError(
            f"{n_clusters} clusters of {len(filled)} documents{others} are not possible: ask for at most {len(filled)}."
        )
    step("fitting", None)
    model = ONMF(n_clusters, **options)  # type: ignore[arg-type]
    if isinstance(counts, Counts):
        model.fit(csr_array(counts.X[filled]))
    else:
        fit_model(model, replace(counts.X, names=None), engine=in_blocks(model.engine, model.n_threads, progress))
    assert model.margins_ is not None, "a fit finds them"
    source = {"n_documents": len(counts.ids), "n_words": len(counts.words)}
    if isinstance(texts, Texts):
        source |= describe(texts)
    return _described(model, counts, filled, (model.labels_, model.scales_, model.margins_), source, selection)


def assign_documents(model: ONMF, texts: Iterable[Text | str], *, token_pattern: str | None = None) -> DocumentClusters:
    """Assign documents to the clusters of a model of documents.

    Parameters
    ----------
    model : ONMF
        A model that :meth:`DocumentClusters.save` wrote, as :func:`onmf.load` reads it.
    texts : iterable of Text or str
        Documents. Headers and the like must be dropped as they were for the model: see :func:`options_of`.
    token_pattern : str, optional
        The pattern of the model's words. It has to be given where it is more than a run of one kind of character: such
        a pattern can take forever on some texts, and one from a file is not used unasked.

    Returns
    -------
    DocumentClusters
        Documents that have none of the model's words are set aside.
    """
    counts = count_known_words(texts, vectorizer_of(model, token_pattern))
    filled = np.flatnonzero(counts.lengths)
    if len(filled):
        found: tuple[Array, ...] = model.assign(csr_array(counts.X[filled]))
    else:
        found = (np.empty(0, np.int32), np.empty(0), np.empty(0))
    source = {"n_documents": len(counts.ids), "n_words": len(counts.words)}
    if isinstance(texts, Texts):
        source |= describe(texts)
    return _described(model, counts, filled, found, source, None)


def vectorizer_of(model: ONMF, token_pattern: str | None = None) -> CountVectorizer:
    """The vectorizer of a model of documents; for ``token_pattern`` see :func:`assign_documents`."""
    extra = getattr(model, "extra_", {"kind": "matrix"})
    if not is_documents(extra):
        raise ValueError(f"This is a model of kind {extra['kind']!r}: documents need one that was made from documents.")
    try:
        check_parts(KIND, extra, *model.cluster_centers_.shape)
    except ValueError as error:
        raise ValueError(f"The model's vocabulary is damaged: {error}.") from error
    vectorizer = restore_vectorizer(extra["vectorizer"], extra["vocabulary"], token_pattern)
    try:
        vectorizer.build_analyzer()
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"The model's vocabulary is damaged: {error}.") from error
    return vectorizer


def options_of(model: ONMF) -> dict[str, Any]:
    """What :func:`read_texts` has to be told so that new documents are read as those of the model were."""
    dropped = getattr(model, "extra_", {}).get("source", {}).get("strip", [])
    return {"strip": [name for name in dropped if name in STRIP]}


def describe(texts: Texts) -> dict[str, Any]:
    """What was met while reading, for people and files."""
    return {
        "name": texts.name,
        "kind": texts.kind,
        "strip": list(texts.strip),
        "repaired": dict(texts.repaired),
        "encoded": texts.n_encoded,
        "skipped": [list(skipped) for skipped in texts.skipped],
    }


def so_many(n: int, name: str) -> str:
    """A number of things, in words that agree with it."""
    return f"{n:,} {name}{'' if n == 1 else 's'}"


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _described(
    model: ONMF,
    counts: Counts | ShardedCounts,
    filled: Array,
    found: Sequence[Array],
    source: dict[str, Any],
    selection: Selection | None,
) -> DocumentClusters:
    n = len(counts.ids)
    labels, scales, margins = np.full(n, NOBODY, dtype=np.int32), np.zeros(n), np.zeros(n)
    labels[filled], scales[filled], margins[filled] = found
    return DocumentClusters(
        model=model,
        words=counts.words,
        ids=counts.ids,
        clusters=labels,
        scales=scales,
        margins=margins,
        lengths=counts.lengths,
        excerpts=counts.excerpts,
        classes=counts.labels,
        vectorizer=counts.vectorizer,
        source=source,
        selection=selection,
    )
