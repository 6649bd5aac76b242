"""ONMF as a scikit-learn estimator: parameters, input and output; no mathematics."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onmf import interrupt
from onmf.alternate import objective
from onmf.by_row import (
    assigned,
    best_labels,
    labels_and_scales,
    last_labels,
    margins_of,
    probabilities,
    total_loss,
)
from onmf.callbacks import CallbackSupportMixin, FitReporter, with_callbacks
from onmf.consensus import consensus_start
from onmf.divergence import Array, Divergence, FloatArray, get_divergence, number
from onmf.engine import BlocksEngine, DaskEngine, Engine, Held, Rows, get_engine, on_gpu, to_host
from onmf.initialize import RANDOM, STARTS, Start, tie_parallel
from onmf.intake import hold, in_parts
from onmf.io.container import damaged
from onmf.io.model_file import SavedModel, provenance, read_model, write_model
from onmf.refine import check_refine
from onmf.result import Agreement, Assigned, Clustering, membership, telling
from onmf.solve import Plan, solve, warn_about
from onmf.stream import Stream, learn
from onmf.validate import check_centroids, read_only, sound
from onmf.warn import warn

NOTHING = 1e-12
"""Weight of a feature that rounding can make."""

UNSEEN = 1e-10
"""The least smoothing of :meth:`ONMF.score`, also for models that were fitted without."""


class ONMF(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, BaseEstimator):
    """Cluster nonnegative data by orthogonal nonnegative matrix factorization.

    Row i of X is approximated by ``scales_[i] * cluster_centers_[labels_[i]]``: one cluster each, times a scale of
    its own. With the defaults this is KL-ONMF as in the paper [1]_, the maximum-likelihood choice for counts.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    beta_loss : str, float or Divergence, default="kullback-leibler"
        The divergence to minimise: ``"kullback-leibler"`` for counts, ``"frobenius"`` for Gaussian noise,
        ``"itakura-saito"``, or ``"cosine"``, which is exact spherical k-means. A number is the β of a β-divergence.
    init : str, array or callable, default="snpa"
        Where to start. ``"snpa"``: the rows that the successive nonnegative projection algorithm chooses,
        deterministic. ``"++"``: rows drawn with probability proportional to their loss under those drawn before.
        ``"random"``: rows drawn with equal probability. ``"random-partition"``: the sums of a random partition.
        ``"consensus"``: what ``n_consensus`` runs from random partitions agree on; it takes their time and finds the
        best clusters, with ``refine="local-search"`` above all. An array gives the centroids, one row each, in any
        scale. A callable is called as ``init(X, n_clusters, random_state=...)`` and returns such an array.
    n_init : int, default=1
        Number of runs from different random starts; the one with the lowest objective is kept.
    max_iter : int, default=100
        Most iterations of a run.
    tol : float, default=1e-6
        Stop when the matrix of scales changes by less than this in the Frobenius norm, and no larger share of the rows
        changes its cluster; 0 runs to a fixed point.
    refine : None or "local-search", default=None
        What follows the loop. None is the paper. ``"local-search"`` moves single rows to other clusters while the
        objective falls, which finds better optima; for Kullback–Leibler and cosine.
    n_consensus : int, default=30
        Runs that vote if ``init="consensus"``.
    smoothing : float, default=1e-3
        The ε that keeps a zero in a centroid from costing infinity (0 < β ≤ 1; the others need none). It is added to
        centroids of sum 1.
    engine : str or Engine, default="auto"
        What runs the passes over the data: ``"cpu"``, ``"gpu"`` (needs CuPy) or ``"reference"``, plain NumPy; for data
        in parts ``"blocks"`` or ``"dask"``. ``"auto"`` takes the one that the data need: the GPU for CuPy arrays, whose
        results are CuPy arrays, and the CPU for all others in memory.
    n_threads : int or None, default=None
        Threads; None uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the random starts.
    forgetting : float, default=0.9
        What :meth:`partial_fit` keeps of the sums of earlier batches when the next one comes; 1 keeps all.
    sparse_output : bool, default=True
        Whether :meth:`transform` returns a sparse array.
    verbose : int, default=0
        Print a line for each iteration, and record the objective in ``history_``.

    Attributes
    ----------
    labels_ : (n,) array of int
        Cluster of each row. For a Dask collection this, ``scales_`` and ``margins_`` are Dask arrays.
    scales_ : (n,) array
        Scale of each row. Within a cluster their squares sum to one.
    cluster_centers_ : (n_clusters, n_features) array
        Centroids, at the size that goes with the normalised scales: the paper's Wᵀ.
    components_ : (n_clusters, n_features) array
        The same array under its name in scikit-learn's decompositions.
    n_iter_ : int
        Iterations of the run that was kept.
    reconstruction_err_ : float
        D(X, WH): the divergence of the fit, ‖X − WH‖_F² for Frobenius.
    history_ : dict of str to array
        For each iteration ``"moved"`` (rows that changed cluster), ``"change"`` (of H), ``"seconds"`` and, with
        ``verbose`` or callbacks, ``"objective"``.
    stop_reason_ : str
        ``"converged"``, ``"fixed point"``, ``"max_iter"`` or ``"callback"``.
    engine_ : str
        Name of the engine that ran.
    init_rows_ : (n_clusters,) array of int or None
        Rows of X that served as first centroids, where rows did.
    margins_ : (n,) array
        How sure each row is of its cluster: by how much the best other one is worse, per unit of the row (per word, for
        counts).
    n_sweeps_ : int
        Sweeps of the local search over the rows; 0 without one.
    agreement_ : Agreement or None
        With ``init="consensus"``, how far its runs agreed: ``agreement_.overall``, and ``agreement_.rows`` by row.
    clustering_ : Clustering
        The result as one object, with the paper's ``W`` and ``H``.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : (n_features,) array of str
        Names of the features, if X had any.

    References
    ----------
    .. [1] J. P. Nkurunziza, F. Nahayo and N. Gillis, "Orthogonal Nonnegative Matrix Factorization with the
       Kullback-Leibler divergence".

    Examples
    --------
    >>> import numpy as np
    >>> from onmf import ONMF
    >>> X = np.array([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
    >>> model = ONMF(n_clusters=2).fit(X)
    >>> model.labels_
    array([0, 0, 1, 1], dtype=int32)
    >>> model.n_iter_
    2
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        beta_loss: str | float | Divergence = "kullback-leibler",
        init: str | Any | Callable[..., Any] = "snpa",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-6,
        refine: str | None = None,
        n_consensus: int = 30,
        smoothing: float = 1e-3,
        engine: str | Engine = "auto",
        n_threads: int | None = None,
        random_state: Any = None,
        forgetting: float = 0.9,
        sparse_output: bool = True,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.beta_loss = beta_loss
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.refine = refine
        self.n_consensus = n_consensus
        self.smoothing = smoothing
        self.engine = engine
        self.n_threads = n_threads
        self.random_state = random_state
        self.forgetting = forgetting
        self.sparse_output = sparse_output
        self.verbose = verbose

    @interrupt.all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Cluster the rows of ``X``.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame; Dask collection; or callable
            Data. Integers, float32 and float64 are used as they are, and so are canonical CSR and C-ordered arrays.
            Data larger than memory: a Dask array, frame, bag or list of delayed blocks, or a callable that returns
            batches of rows, the same ones each time, like :func:`onmf.datasets.open_shards`.
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Weight of each row; a row of weight 2 counts as two equal rows.

        Returns
        -------
        self : ONMF
        """
        self._check_parameters()
        divergence = get_divergence(self.beta_loss, self.smoothing)
        check_refine(self.refine, divergence)
        n_init = self._runs()
        if in_parts(X):
            self._check_for_parts()
        rows, engine, held = hold(self, X, divergence, sample_weight, reset=True, warn=True)
        self._check_rows(held.shape[0])
        voters = self.n_consensus if self._by_consensus else 0
        reporter = FitReporter(self, divergence, X, sample_weight, n_init * (1 + voters))
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=n_init)
        plan = Plan(self.max_iter, self.tol, self.refine)
        watch = reporter.iteration if reporter.wanted else None
        agreement: Agreement | None = None

        def start(run: int) -> Start:
            nonlocal agreement
            if not voters:
                reporter.begin_run()
                return self._start(engine, held, rows, int(seeds[run]))
            found, agreement = consensus_start(
                engine,
                held,
                self.n_clusters,
                np.random.default_rng(int(seeds[run])),
                n_runs=voters,
                plan=plan,
                watch=watch,
                begin=reporter.begin_run,
            )
            reporter.begin_run()
            return found

        clustering = solve(engine, held, start, seeds, plan, watch=watch, parameters=self.get_params(deep=False))
        reporter.searched(clustering)
        self._divergence = divergence
        self._adopt(replace(clustering, agreement=agreement), engine.name)
        for stale in ("extra_", "provenance_", "_stream"):  # of a file or a stream that an earlier fit came from
            self.__dict__.pop(stale, None)
        reporter.end()
        return self

    @available_if(lambda model: model._learns_from_batches())
    @interrupt.all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, batch: Hashable | None = None) -> Self:
        """Learn from a batch of rows, after those of earlier calls.

        The first batch gives the start, by ``init``, and needs at least ``n_clusters`` rows; after :meth:`fit`, or in a
        model from a file, the start are its centroids, though not the rows behind them. Every batch is assigned
        under the centroids of the moment and added to the sums that they are made of, after these have been multiplied
        by ``forgetting``. Pass over the batches several times, each time under the same names, and each batch replaces
        what it gave before.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            The batch.
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Weight of each row.
        batch : hashable, optional
            Name of the batch. 12 bytes are kept for each row of a batch that has one, and its weights.

        Returns
        -------
        self : ONMF
            ``labels_``, ``scales_`` and ``margins_`` are those of this batch; ``n_iter_`` counts batches. There is no
            ``reconstruction_err_``: :meth:`score` tells how well any rows fit.

        Examples
        --------
        >>> from onmf import ONMF
        >>> from onmf.datasets import make_counts
        >>> X = make_counts(1000, 80, 4, random_state=0).X
        >>> model = ONMF(n_clusters=4)
        >>> for _ in range(3):
        ...     for i in range(0, 1000, 100):
        ...         model = model.partial_fit(X[i : i + 100], batch=i)
        >>> from onmf.metrics import clustering_accuracy
        >>> bool(clustering_accuracy(ONMF(4).fit(X).labels_, model.predict(X)) > 0.9)
        True
        """
        self._check_parameters()
        divergence = get_divergence(self.beta_loss, self.smoothing)
        if in_parts(X):
            raise ValueError("partial_fit takes one batch, in memory: pass data in parts to fit.")
        known: Stream | None = getattr(self, "_stream", None)
        if known is None and hasattr(self, "cluster_centers_"):
            known = Stream(np.array(to_host(self.cluster_centers_), dtype=np.float64))
        if known is not None and (divergence != self._divergence or len(known.centroids) != self.n_clusters):
            raise ValueError("n_clusters, beta_loss or smoothing has changed since the first batch: clone the model.")
        rows, engine, held = hold(self, X, divergence, sample_weight, reset=known is None, warn=True)
        if known is None:
            self._check_rows(held.shape[0])
            start = self._start(engine, held, rows, int(check_random_state(self.random_state).randint(2**31 - 1)))
            known = Stream(np.ascontiguousarray(start.centroids, dtype=np.float64))
        else:  # what is learned in place is a copy, so that a failure leaves what was known
            known = replace(known, centroids=known.centroids.copy(), seen=dict(known.seen))
        step = learn(known, engine, held, float(self.forgetting), batch)
        self._stream, self._divergence = known, divergence
        whole = known.whole
        assert whole is not None
        labels, scales = engine.by_row(held, last_labels, whole.norms)
        (margins,) = engine.by_row(held, margins_of, known.centroids, labels=labels)
        centroids, masses = engine.keep(held, known.centroids.copy(), whole.scale_sums / whole.norms)
        clustering = Clustering(
            labels=labels,
            scales=scales,
            centroids=centroids,
            objective=objective(held, step),
            n_iter=known.steps,
            stop_reason="batch",
            history={},
            masses=masses,
            n_filled=int(np.count_nonzero(~whole.empty)),
            init_rows=None,
            parameters=self.get_params(deep=False),
            margins=margins,
        )
        warn_about(clustering, self.max_iter)
        self._adopt(clustering, engine.name)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Array:
        """Cluster the rows of ``X`` and return their labels.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.

        Returns
        -------
        labels : (n,) array of int
        """
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Cluster the rows of ``X`` and return Hᵀ, whose columns are orthonormal.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`fit`.

        Returns
        -------
        H : (n, n_clusters) sparse array, or array if ``sparse_output=False``
        """
        self.fit(X, sample_weight=sample_weight)
        return self._output(self.labels_, self.scales_)

    def predict(self, X: Any) -> Array:
        """The cluster of each row of ``X``, by the assignment rule alone.

        After ``refine="local-search"`` some training rows are better off in another cluster than the one the rule
        gives them: ``labels_``, :meth:`fit_predict` and :meth:`fit_transform` have that one.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        labels : (n,) array of int
        """
        (labels,) = self._by_row(X, best_labels)
        return labels

    def predict_proba(self, X: Any, temperature: float = 1.0) -> FloatArray:
        """The probability of each cluster for each row of ``X``, under the likelihood that the divergence stands for.

        With loss_k the divergence of a row from cluster k, it is proportional to exp(−loss_k / temperature). For counts
        and Kullback–Leibler at temperature 1 that is the posterior of a multinomial mixture with equal weights. Every
        word of a long row counts as evidence of its own, so its probabilities are nearly always 0 and 1; words of
        real texts are not independent, and a temperature of about the number of words that come together (10 to 100)
        gives probabilities that can be compared.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.
        temperature : float, default=1.0
            Divides the losses; greater than 0.

        Returns
        -------
        probabilities : (n, n_clusters) array
            Rows sum to one.
        """
        check_is_fitted(self)
        if not 0 < number(temperature) < np.inf:
            raise ValueError(f"temperature={temperature!r} is not allowed: it must be a number greater than 0.")
        (found,) = self._by_row(X, probabilities, float(temperature))
        return found

    def transform(self, X: Any) -> Any:
        """The scale of each row of ``X`` in the column of its cluster: one nonzero per row.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        H : (n, n_clusters) sparse array, or array if ``sparse_output=False``
        """
        return self._output(*self._by_row(X, labels_and_scales))

    def assign(self, X: Any) -> Assigned:
        """The cluster of each row of ``X``, its scale, and how sure it is: :meth:`predict` and more, in one pass.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        Assigned
            ``labels`` as :meth:`predict` gives them, ``scales`` in the columns of :meth:`transform`, and ``margins`` as
            in ``margins_``.
        """
        return Assigned(*self._by_row(X, assigned))

    def inverse_transform(self, X: Any) -> Any:
        """The rows that memberships stand for: ``X @ cluster_centers_``.

        Parameters
        ----------
        X : (n, n_clusters) array or sparse matrix
            Memberships, as :meth:`transform` returns them.

        Returns
        -------
        rows : (n, n_features) array, or sparse array
            Sparse where ``X`` is sparse and the sparse form is the smaller one.
        """
        check_is_fitted(self)
        H: Any = X if on_gpu(X) else check_array(sound(X), accept_sparse="csr", dtype=np.float64)
        W = to_host(self.cluster_centers_)
        if H.shape[1] != len(W):
            raise ValueError(
                f"X has {H.shape[1]} columns, but the model has {len(W)} clusters: pass what transform returned."
            )
        if on_gpu(H):
            import cupy

            return H @ cupy.asarray(W)
        dense = 8 * H.shape[0] * W.shape[1]
        if issparse(H):
            entries = np.count_nonzero(W, axis=1)
            sparse = 16 * int(np.bincount(H.indices, minlength=len(W)) @ entries)
            if sparse < dense:
                _check_memory(sparse, "sparse", H.shape[0], W.shape[1])
                return csr_array(H) @ csr_array(W)
        _check_memory(dense, "dense", H.shape[0], W.shape[1])
        return H @ W

    @interrupt.heeding
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean loss of the rows of ``X``: higher is better.

        The centroids are smoothed and normalised first, so that a word that a cluster has never seen does not cost
        infinity.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Weight of each row.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        engine, held = self._held(X, sample_weight)
        smoothed = self._divergence.smooth(engine.bring(self.cluster_centers_), at_least=UNSEEN)
        losses, weights = engine.total(held, total_loss, smoothed)
        return -float(losses / weights)

    def top_features(self, n: int = 10, feature_names: Any = None) -> list[dict[str, float]]:
        """The most telling features of each cluster: those that set it apart from the data as a whole.

        With c the centroid and q the whole of the fitted data, both summing to one, the weight of feature j is ``c_j
        log(c_j / q_j)``: what it adds to the Kullback–Leibler divergence of the cluster from the whole. Centroids
        with negative entries are ranked by the size of their entries instead.

        Parameters
        ----------
        n : int, default=10
            Features for each cluster.
        feature_names : (n_features,) array of str, optional
            Names, for instance ``vectorizer.get_feature_names_out()``. By default those of the fitted data, else
            ``"x0"``, ``"x1"``, …

        Returns
        -------
        list of dict
            For each cluster, the weights of its features by name, the most telling first; fewer than ``n`` where fewer
            set it apart.
        """
        check_is_fitted(self)
        if not _is_integer(n) or n < 1:
            raise ValueError(f"n={n!r} is not allowed: n must be an integer, at least 1.")
        centroids = to_host(self.cluster_centers_)
        p = centroids.shape[1]
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(p)])
        names = [str(name) for name in feature_names]
        if len(names) != p:
            raise ValueError(f"feature_names has {len(names)} names, but the model has {p} features.")
        if len(set(names)) < p:
            raise ValueError("feature_names holds the same name twice: every feature needs one of its own.")
        weights = telling(centroids, to_host(self.clustering_.masses))
        sizes = np.abs(weights) if (centroids < 0).any() else weights
        tops = np.argsort(-sizes, axis=1, kind="stable")[:, :n]
        return [{names[j]: float(weights[k, j]) for j in top if sizes[k, j] > NOTHING} for k, top in enumerate(tops)]

    def to_cpu(self) -> Self:
        """The fitted model with its arrays in the memory of the host, for a machine without a GPU or a cluster.

        Returns
        -------
        model : ONMF
            A copy, with ``engine="auto"`` where it was ``"gpu"``.
        """
        check_is_fitted(self)
        model, own = copy(self), vars(self)
        arrays = {field.name: getattr(self.clustering_, field.name) for field in fields(self.clustering_)}
        values = {id(value): value for value in (*own.values(), *arrays.values())}
        found = {key: _in_host_memory(value) for key, value in values.items()}
        for name, value in own.items():
            setattr(model, name, found[id(value)])
        model.clustering_ = replace(self.clustering_, **{name: found[id(value)] for name, value in arrays.items()})
        if isinstance(self.engine, Engine) or self.engine == "gpu":
            model.engine = "auto"
        return model

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model into a file, whole or not at all; :func:`onmf.load` reads it.

        The file holds no pickle and no code: parameters and metadata as JSON, arrays as ``.npy``, each with a checksum,
        in one zip.

        Parameters
        ----------
        path : str or path
            Where to; ``.onmf`` is the usual ending.
        extra : mapping, optional
            More to keep with the model, by name: arrays of numbers, and whatever JSON can say. ``"kind"`` says what the
            data are (``"matrix"`` by default). Loading gives it back as ``extra_``, which is saved again by default.

        Examples
        --------
        >>> import os, tempfile
        >>> import onmf
        >>> model = onmf.ONMF(n_clusters=2).fit([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.onmf"))
        ...     again = onmf.load(os.path.join(folder, "model.onmf"))
        >>> again.predict([[5, 0, 0], [0, 0, 3]])
        array([0, 1], dtype=int32)
        """
        check_is_fitted(self)
        kept = getattr(self, "extra_", {}) if extra is None else extra
        names = getattr(self, "feature_names_in_", None)
        write_model(
            path,
            SavedModel(
                parameters=self.get_params(deep=False),
                divergence=self._divergence,
                clustering=self.to_cpu().clustering_,
                engine=self.engine_,
                feature_names=None if names is None else [str(name) for name in names],
                extra={"kind": "matrix", **kept},
                provenance=provenance(),
            ),
        )

    @property
    def components_(self) -> FloatArray:
        """The centroids under their name in scikit-learn's decompositions."""
        return self.cluster_centers_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        try:
            domain = get_divergence(self.beta_loss).domain
        except ValueError:  # fit() will say so
            domain = "nonnegative"
        tags.input_tags.sparse = domain != "positive"
        tags.input_tags.positive_only = domain != "real"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cluster_centers_")

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense, before any data are touched."""

        def require(fine: bool, name: str, what: str) -> None:
            if not fine:
                raise ValueError(f"{name}={getattr(self, name)!r} is not allowed: {name} must be {what}.")

        for name in ("n_clusters", "n_init", "n_consensus", "max_iter"):
            value = getattr(self, name)
            require(_is_integer(value) and 1 <= value < 2**31, name, "an integer, at least 1 and below 2**31")
        for name in ("tol", "smoothing"):
            require(0 <= number(getattr(self, name)) < np.inf, name, "a number, at least 0")
        require(0 < number(self.forgetting) <= 1, "forgetting", "a number greater than 0, at most 1")
        require(isinstance(self.sparse_output, bool | np.bool_), "sparse_output", "True or False")
        require(isinstance(self.verbose, Integral) and self.verbose >= 0, "verbose", "an integer, at least 0")
        require(
            (isinstance(self.init, str) and self.init in (*STARTS, "consensus"))
            or callable(self.init)
            or np.ndim(self.init) > 0,
            "init",
            f"one of {', '.join(map(repr, STARTS))}, 'consensus', an array of centroids, or a callable",
        )

    def _runs(self) -> int:
        """Number of runs that make sense for this start."""
        if self.n_init > 1 and self._by_consensus:
            raise ValueError(
                f"n_init={self.n_init} is not allowed with init='consensus': a consensus is one start made of many "
                "runs. Set n_consensus to their number instead."
            )
        if self.n_init > 1 and not callable(self.init) and not (isinstance(self.init, str) and self.init in RANDOM):
            warn(
                f"n_init={self.n_init} runs would all be the same from a deterministic start: running once. "
                f"Use one of {', '.join(map(repr, sorted(RANDOM)))} as init.",
                RuntimeWarning,
            )
            return 1
        return self.n_init

    def _learns_from_batches(self) -> bool:
        """Whether there is a :meth:`partial_fit`."""
        if self.refine is not None or self._by_consensus:
            raise AttributeError(
                "partial_fit sees a batch at a time, and refine='local-search' and init='consensus' need all rows: "
                "leave them out."
            )
        return True

    @property
    def _by_consensus(self) -> bool:
        return isinstance(self.init, str) and self.init == "consensus"

    def _start(self, engine: Engine, held: Held, rows: Any, seed: int) -> Start:
        """The first centroids of a run."""
        if isinstance(self.init, str):
            return STARTS[self.init](engine, held, self.n_clusters, np.random.default_rng(seed))
        init = self.init
        if callable(init):
            given = rows.origin if isinstance(rows, Rows) else read_only(rows)
            init = init(given, self.n_clusters, random_state=check_random_state(seed))
        centroids = check_centroids(init, self.n_clusters, held.shape[1], held.divergence)
        tie_parallel(centroids)
        return Start(centroids)

    def _adopt(self, clustering: Clustering, engine: str) -> None:
        """Take over a result as fitted attributes."""
        self.clustering_ = clustering
        self.labels_ = clustering.labels
        self.scales_ = clustering.scales
        self.cluster_centers_ = clustering.centroids
        self.n_iter_ = clustering.n_iter
        if clustering.stop_reason == "batch":  # the objective is that of the last batch alone
            self.__dict__.pop("reconstruction_err_", None)
        else:
            self.reconstruction_err_ = clustering.objective
        self.history_ = clustering.history
        self.stop_reason_ = clustering.stop_reason
        self.engine_ = engine
        self.init_rows_ = clustering.init_rows
        self.margins_ = clustering.margins
        self.n_sweeps_ = clustering.n_sweeps
        self.agreement_ = clustering.agreement

    @classmethod
    def _restore(cls, saved: SavedModel) -> Self:
        """The fitted estimator that a file describes."""
        unknown = sorted(set(saved.parameters) - set(cls().get_params()))
        if unknown:
            raise ValueError(f"unknown parameters: {', '.join(unknown)}")
        model = cls(**saved.parameters)
        model._check_parameters()
        model._divergence = saved.divergence
        model._adopt(saved.clustering, saved.engine)
        model.n_features_in_ = saved.clustering.centroids.shape[1]
        if saved.feature_names is not None:
            model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        model.extra_ = saved.extra
        model.provenance_ = saved.provenance
        return model

    @interrupt.heeding
    def _by_row(self, X: Any, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """What a function of the rows and the centroids gives for each row of new data."""
        check_is_fitted(self)
        engine, held = self._held(X)
        return engine.by_row(held, function, engine.bring(self.cluster_centers_), *args)

    def _held(self, X: Any, sample_weight: Any = None) -> tuple[Engine, Held]:
        """New data, held by the engine that they need; they have the features of the centroids."""
        _, engine, held = hold(self, X, self._divergence, sample_weight)
        features = self.cluster_centers_.shape[1]
        if held.shape[1] != features:  # somebody has set one of them; kernels do not look
            raise ValueError(
                f"X has {held.shape[1]} features, but cluster_centers_ has {features}: fit the model again."
            )
        return engine, held

    def _check_rows(self, n: int) -> None:
        if n < self.n_clusters:
            raise ValueError(
                f"n_samples={n} should be >= n_clusters={self.n_clusters}: ask for fewer clusters, or pass more rows."
            )

    def _check_for_parts(self) -> None:
        """Refuse parameters for which the rows must be gone through one by one, in any order."""
        for name, value, instead in (
            ("refine", "local-search", "refine=None, and several runs with n_init"),
            ("init", "consensus", "init='random-partition' with n_init"),
        ):
            if isinstance(getattr(self, name), str) and getattr(self, name) == value:
                raise ValueError(f"{name}={value!r} needs all rows in memory, and X comes in parts: use {instead}.")

    def _output(self, labels: Any, scales: Any) -> Any:
        k = len(self.cluster_centers_)
        if hasattr(labels, "map_blocks"):
            like = csr_array((0, k)) if self.sparse_output else np.empty((0, k))
            return labels.map_blocks(
                one_column, scales, k, self.sparse_output, meta=like, new_axis=1, chunks=(labels.chunks[0], (k,))
            )
        return one_column(labels, scales, k, self.sparse_output)


def one_column(labels: Array, scales: FloatArray, k: int, sparse: bool) -> Any:
    """The scale of each row in the column of its cluster. → (n, k)"""
    H = membership(labels, scales, k)
    return H if sparse else H.toarray()


def engine_of_blocks(model: ONMF, progress: Callable[[str, float], None] | None = None) -> BlocksEngine:
    """The engine that reads batches, each worked on by the engine that the model has."""
    engine = get_engine(model.engine, n_threads=model.n_threads)
    if isinstance(engine, DaskEngine):
        raise ValueError(
            "engine='dask' takes Dask collections, and these rows come in batches: use engine='auto', 'cpu' or 'gpu'."
        )
    if isinstance(engine, BlocksEngine):
        return BlocksEngine(engine.inner, progress or engine.progress)
    return BlocksEngine(engine, progress)


def fit_by_blocks(
    model: ONMF, X: Callable[[], Any], progress: Callable[[str, float], None] | None, **start: Any
) -> None:
    """Fit batches, each with the engine that the model has, and tell how far each pass is.

    Parameters
    ----------
    model : ONMF
        To be fitted; its parameters stay what they are.
    X : callable
        Returns the batches.
    progress : callable, optional
        As in :class:`onmf.engine.BlocksEngine`.
    **start
        Parameters that are others during the fit.
    """
    changed = {"engine": engine_of_blocks(model, progress), "n_threads": None, **start}
    given = {name: getattr(model, name) for name in changed}
    model.set_params(**changed)
    try:
        model.fit(X)
    finally:
        model.set_params(**given)
    model.clustering_ = replace(model.clustering_, parameters=model.get_params(deep=False))


def load(path: str | os.PathLike[str]) -> ONMF:
    """Read a model that :meth:`ONMF.save` wrote.

    Nothing in the file is executed, and nothing is believed before its checksum was right.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    ONMF
        Fitted, with all its attributes. ``extra_`` holds what was saved along with it and the ``"kind"`` of its data;
        ``provenance_`` when and with what it was written.

    Raises
    ------
    ValueError
        If the file is no model, damaged, or written by a newer version.
    """
    saved = read_model(path)
    try:
        return ONMF._restore(saved)
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error).rstrip(".")) from error


def _in_host_memory(value: Any) -> Any:
    """An array of a GPU or of Dask as NumPy's; whatever else as it is."""
    return to_host(value.compute() if hasattr(value, "__dask_graph__") else value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_memory(needed: int, form: str, n: int, p: int) -> None:
    """Refuse an array that cannot fit, before it is tried."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not known on this system
        return
    if needed > available:
        raise MemoryError(
            f"The {form} result, {n} × {p}, would take {needed / 1e9:.1f} GB, and this machine has "
            f"{available / 1e9:.1f} GB: transform back fewer rows at a time."
        )
