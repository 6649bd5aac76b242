"""Cluster documents by their words, and assign new documents to the clusters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from onmf.confidence import Calibration, calibration_of
from onmf.data import in_blocks
from onmf.datasets import Shards
from onmf.datasets.vocabulary import make_vectorizer
from onmf.divergence import Array, FloatArray
from onmf.estimator import ONMF, fit_model
from onmf.naming import CANDIDATES, names_from_features, names_of_model, number_by_size
from onmf.parameters import check_for_parts, check_parameters
from onmf.select import CRITERIA, Range, Selection

from .choose import choose_n_clusters
from .compare import Comparison, compare_documents
from .dates import parse_dates
from .effort import choose_effort
from .kind import DOCUMENTS, KIND
from .read import Text, Texts
from .restore import vectorizer_of
from .shards import ShardedCounts, count_in_shards
from .source import describe, so_many, some, source_notes
from .sure import measure_documents, sure_of
from .views import NOBODY, ViewsMixin
from .words import Counts, count_known_words, count_words, vectorizer_options


@dataclass(frozen=True, repr=False)
class DocumentClusters(ViewsMixin):
    """The clusters of a collection of documents.

    Attributes
    ----------
    model : ONMF
        The fitted model; its rows are the documents that are not set aside.
    words : (words,) array of str
        The words that are counted.
    ids : sequence of str
        Names of the documents.
    clusters : (documents,) array of int
        Cluster of each document; -1 for documents without any of the words, which are set aside.
    scales, margins : (documents,) arrays
        Scale of each document, and how much worse the best other cluster is, per word. 0 for documents that are set
        aside.
    confidence : (documents,) array
        How sure the cluster is: a document at 0.8 is with the documents of its cluster in about 80 % of independent
        fits. NaN for documents that are set aside.
    runners_up : (documents,) array of int
        The best other cluster of each document; -1 if there is none.
    lengths : (documents,) array of int
        Number of counted words in each document.
    excerpts : sequence of str
        Beginnings of the documents.
    classes : list of str or None
        Known class of each document.
    vectorizer : CountVectorizer
        The vectorizer that counted the words.
    source : dict
        Where the documents came from, and what was repaired or left out.
    selection : Selection or None
        How the number of clusters was chosen; None if it was given.
    calibration : Calibration or None
        How ``confidence`` follows from losses; None for a model of an earlier version.
    names : list of str
        A short name of each cluster; by default made of the words that tell it from the others.
    counts : csr_array, Shards or None
        Counts of the words in the documents that are not set aside, in their order.
    dates : (documents,) array of datetime64[D] or None
        Date of each document, NaT where it is not known; None if there are no dates.
    """

    model: ONMF
    words: Array
    ids: Sequence[str]
    clusters: Array
    scales: FloatArray
    margins: FloatArray
    confidence: FloatArray
    runners_up: Array
    lengths: Array
    excerpts: Sequence[str]
    classes: list[str | None]
    vectorizer: CountVectorizer
    source: dict[str, Any] = field(default_factory=dict)
    selection: Selection | None = None
    calibration: Calibration | None = None
    names: list[str] = field(default_factory=list)
    counts: csr_array | Shards | None = None
    dates: Array | None = None

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", names_from_features(self.distinctive(CANDIDATES), first=DOCUMENTS.first))

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.model.cluster_centers_)

    @property
    def set_aside(self) -> list[str]:
        """Names of the documents that have none of the words."""
        return [self.ids[int(i)] for i in np.flatnonzero(self.clusters == NOBODY)]

    @cached_property
    def sizes(self) -> Array:
        """Documents in each cluster. → (clusters,)"""
        return np.bincount(self.clusters[self.clusters != NOBODY], minlength=self.n_clusters)

    def distinctive(self, n: int = 10) -> list[dict[str, float]]:
        """The words that set each cluster apart from the whole collection, with their weights."""
        return self.model.top_features(n, self.words)

    def frequent(self, n: int = 10) -> list[list[str]]:
        """The most frequent words of each cluster."""
        C = self.model.cluster_centers_
        tops = np.argsort(-C, axis=1, kind="stable")[:, :n]
        return [[str(self.words[j]) for j in top if C[k, j] > 0] for k, top in enumerate(tops)]

    def typical(self, cluster: int, n: int = 5) -> Array:
        """The documents of a cluster with the largest margins; the shorter half, decided by few words, is left out."""
        return self._ends(cluster, 0.5)[::-1][:n]

    def doubtful(self, cluster: int, n: int = 5) -> Array:
        """The documents of a cluster with the smallest margins; the shortest quarter is left out."""
        return self._ends(cluster, 0.25)[:n]

    def _ends(self, cluster: int, shorter: float) -> Array:
        inside = np.flatnonzero(self.clusters == cluster)
        if len(inside) == 0:
            return inside
        inside = inside[self.lengths[inside] >= np.quantile(self.lengths[inside], shorter)]
        return inside[np.argsort(self.margins[inside], kind="stable")]

    @cached_property
    def comparison(self) -> Comparison | None:
        """The clusters compared with the known classes; None if there are none."""
        return compare_documents(self.classes, self.clusters, self.n_clusters)

    def notes(self) -> list[str]:
        """What a reader should know before trusting the clusters, as sentences."""
        notes = []
        if aside := self.set_aside:
            notes.append(f"{so_many(len(aside), 'document')} without a word that counts, set aside: {some(aside)}.")
        notes += source_notes(self.source)
        if self.selection is not None:
            notes += self.selection.notes("documents")
        if self.model.stop_reason_ == "max_iter":
            notes.append("The fit was stopped before it converged.")
        return notes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model with its vocabulary. Load it with :func:`onmf.load` for :func:`assign_documents`."""
        extra = {
            "kind": KIND,
            "vocabulary": [str(word) for word in self.words],
            "vectorizer": vectorizer_options(self.vectorizer),
            "source": self.source,
            "names": self.names,
            **({} if self.calibration is None else self.calibration.parts()),
        }
        self.model.save(path, extra=extra)


def cluster_documents(
    texts: Iterable[Text | str],
    n_clusters: int | str = 8,
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    criterion: str | None = None,
    vectorizer: CountVectorizer | None = None,
    automatic: bool | None = None,
    shards: str | os.PathLike[str] | None = None,
    force: bool = False,
    quick: bool = False,
    announce: Callable[[str], None] | None = None,
    progress: Callable[[str, float | None], None] | None = None,
    **options: Any,
) -> DocumentClusters:
    """Cluster documents by their words.

    Parameters
    ----------
    texts : iterable of Text or str
        Documents, for instance from :func:`read_texts`. They are read once and not kept.
    n_clusters : int or "auto", default=8
        Number of clusters; ``"auto"`` chooses it with :func:`onmf.select_n_clusters`, which takes many fits.
    k_min, k_max, criterion
        As in :func:`onmf.select_n_clusters`, for ``n_clusters="auto"``.
    vectorizer, automatic
        As in :func:`count_words`.
    shards : path, optional
        Folder for the counts, if they do not fit in memory; it must be empty or not exist yet. The documents are
        counted in shards of 10,000, and the fit reads one shard at a time. The clusters are the same.
        ``n_clusters="auto"``, ``refine`` and ``init="consensus"`` need all counts in memory.
    force : bool, default=False
        Whether to replace a folder of shards that an earlier call wrote.
    quick : bool, default=False
        Whether to run once, from the paper's start. By default, the size of the corpus decides: 24 runs in three views
        of the words vote on the clusters (see :func:`consensus_of_views`), fewer for a large corpus, and one run with a
        local search for a very large one. Divergences without a local search and counts in shards get one run from the
        paper's start. ``init``, ``n_init`` or ``refine`` replaces all this, ``n_consensus`` the number of runs.
    announce : callable, optional
        Called before the fit with a sentence that says what it does.
    progress : callable, optional
        Called with the name of each step (``"counting"``, ``"choosing"``, ``"fitting"``, ``"measuring"``; with shards
        also ``"writing"`` and the passes of the fit) and the share of the step that is done, None if that is not known.
    **options
        Parameters of :class:`onmf.ONMF`. ``random_state`` is 0 by default if runs vote.

    Returns
    -------
    DocumentClusters

    Examples
    --------
    >>> from onmf.text import cluster_documents
    >>> texts = ["red tea green tea", "tea tea", "cow milk", "milk of a cow", "black tea", "fresh milk"]
    >>> result = cluster_documents(texts, 2)
    >>> result.clusters.tolist()
    [0, 0, 1, 1, 0, 1]
    >>> [list(words) for words in result.distinctive(1)]
    [['tea'], ['milk']]
    """
    if force and shards is None:
        raise ValueError("force=True replaces a folder of shards, and none is named: name it with shards=.")
    span = Range(k_min, k_max, criterion)
    span.check(n_clusters, CRITERIA)
    step = progress or (lambda name, share: None)
    step("counting", None)
    counts: Counts | ShardedCounts
    if shards is None:
        counts = count_words(texts, vectorizer, automatic=automatic)
    else:
        if n_clusters == "auto":
            raise ValueError("n_clusters='auto' needs all counts in memory: give a number, or leave out shards.")
        model = ONMF(n_clusters, **options)  # type: ignore[arg-type]
        check_parameters(model)
        check_for_parts(model.refine, model.init)
        in_blocks(model.engine, model.n_threads)  # refuse an unsuitable engine before counting starts
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
        step("choosing", 0.0)
        assert isinstance(counts, Counts), "refused above"
        selection = choose_n_clusters(csr_array(counts.X[filled]), span, options, lambda share: step("choosing", share))
        n_clusters = selection.n_clusters
    elif isinstance(n_clusters, int) and len(filled) < n_clusters:
        aside = len(counts.ids) - len(filled)
        others = f" ({aside} more have none of the words)" if aside else ""
        raise ValueError(
            f"{n_clusters} clusters of {len(filled)} documents{others} are not possible: ask for at most {len(filled)}."
        )
    step("fitting", None)
    effort = None
    if isinstance(counts, Counts):
        X, engine = csr_array(counts.X[filled]), None
        effort = choose_effort(X, n_clusters, options, quick=quick)  # type: ignore[arg-type]
        if announce is not None and effort.sentence:
            announce(effort.sentence)
        model = effort.fit(X, n_clusters, lambda share: step("fitting", share))  # type: ignore[arg-type]
    else:
        model = ONMF(n_clusters, **options)  # type: ignore[arg-type]
        X, engine = replace(counts.X, names=None), in_blocks(model.engine, model.n_threads, progress)
        fit_model(model, X, engine=engine)
    number_by_size(model, lambda centroids: fit_model(model, X, engine=engine, init=centroids))
    assert model.margins_ is not None, "a fit computes them"
    step("measuring", None)
    calibration = measure_documents(model, X, of_views=effort is not None and effort.n_runs > 0)
    sure = sure_of(model, X, model.labels_, calibration)
    source: dict[str, Any] = {"n_documents": len(counts.ids), "n_words": len(counts.words)}
    if effort is not None and effort.sentence:
        source |= {"fit": effort.sentence, "vote": effort.vote}
    if isinstance(texts, Texts):
        source |= describe(texts)
    assigned = (model.labels_, model.scales_, model.margins_, *sure)
    return _described(model, counts, filled, assigned, source, selection, calibration)


def assign_documents(model: ONMF, texts: Iterable[Text | str], *, token_pattern: str | None = None) -> DocumentClusters:
    """Assign documents to the clusters of a document model.

    Parameters
    ----------
    model : ONMF
        A model that :meth:`DocumentClusters.save` wrote, as :func:`onmf.load` reads it.
    texts : iterable of Text or str
        Documents. Headers and the like must be dropped as they were for the model: see
        :func:`onmf.text.restore.options_of`.
    token_pattern : str, optional
        The token pattern of the model. It is required if the pattern is more than a run of one kind of character. Such
        a pattern can take exponential time on some texts, so one from a file is not used without your consent.

    Returns
    -------
    DocumentClusters
        Documents that have none of the model's words are set aside.
    """
    counts = count_known_words(texts, vectorizer_of(model, token_pattern))
    filled = np.flatnonzero(counts.lengths)
    calibration = calibration_of(model.extra_, len(model.cluster_centers_))
    X = csr_array(counts.X[filled])
    assigned: tuple[Array, ...] = (np.empty(0, np.int32), np.empty(0), np.empty(0))
    if len(filled):
        assigned = model.assign(X)
    assigned = (*assigned, *sure_of(model, X, assigned[0], calibration))
    source = {"n_documents": len(counts.ids), "n_words": len(counts.words)}
    if isinstance(texts, Texts):
        source |= describe(texts)
    found = _described(model, counts, filled, assigned, source, None, calibration)
    return replace(found, names=names_of_model(model))


def _described(
    model: ONMF,
    counts: Counts | ShardedCounts,
    filled: Array,
    assigned: Sequence[Array],
    source: dict[str, Any],
    selection: Selection | None,
    calibration: Calibration | None,
) -> DocumentClusters:
    n = len(counts.ids)
    labels, scales, margins = np.full(n, NOBODY, dtype=np.int32), np.zeros(n), np.zeros(n)
    sure, following = np.full(n, np.nan), np.full(n, NOBODY, dtype=np.int32)
    labels[filled], scales[filled], margins[filled], sure[filled], following[filled] = assigned
    dates, found = parse_dates(counts.dates, counts.ids)
    if found:
        source["dates"] = found
    return DocumentClusters(
        model=model,
        words=counts.words,
        ids=counts.ids,
        clusters=labels,
        scales=scales,
        margins=margins,
        confidence=sure,
        runners_up=following,
        lengths=counts.lengths,
        excerpts=counts.excerpts,
        classes=counts.labels,
        vectorizer=counts.vectorizer,
        source=source,
        selection=selection,
        calibration=calibration,
        counts=csr_array(counts.X[filled]) if isinstance(counts, Counts) else counts.X,
        dates=dates,
    )
