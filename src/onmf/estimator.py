"""ONMF as a scikit-learn estimator. It handles parameters, input and output, and has no mathematics."""

import os
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import fields, replace
from functools import partial
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from onmf import interrupt
from onmf.backend import Backend, on_gpu, to_host
from onmf.callbacks import CallbackSupportMixin, FitReporter, with_callbacks
from onmf.data import Data, Engine
from onmf.data.intake import in_parts, prepare_data
from onmf.data.validate import check_container, warn_zero_rows
from onmf.divergence import Array, Divergence, FloatArray, get_divergence, number
from onmf.fit import STARTS, Assigned, Clustering, Listener, Plan, Settings, fit
from onmf.fit.describe import (
    MIN_SMOOTHING,
    best_labels,
    distinctiveness,
    labels_and_scales,
    labels_scales_and_margins,
    membership,
    probabilities,
    total_loss,
)
from onmf.fit.restarts import check_moves, check_rows
from onmf.fit.solve import Compute, fit_estimating, get_start, seeds_of_run, warn_about, with_estimate
from onmf.fit.starts import Seeds
from onmf.fit.stream import Stream, describe_batch, learn
from onmf.io.model_file import SavedModel, damaged, provenance, read_model, write_model
from onmf.warn import warn

NEGLIGIBLE = 1e-12  # weights of features up to this may be rounding errors


class ONMF(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, BaseEstimator):
    """Cluster nonnegative data by orthogonal nonnegative matrix factorization.

    Row i of X is approximated by ``scales_[i] * cluster_centers_[labels_[i]]``: each row has one cluster and one
    scale. With the defaults this is KL-ONMF as in the paper [1]_, the maximum-likelihood choice for counts.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    beta_loss : str, float or Divergence, default="kullback-leibler"
        The divergence to minimise: ``"kullback-leibler"`` for counts, ``"frobenius"`` for Gaussian noise,
        ``"itakura-saito"``, ``"cosine"``, which is exact spherical k-means, ``"negative-binomial"`` for counts that
        vary more than Poisson counts, ``"bernoulli"`` or ``"exponential"``. A number is the β of a β-divergence. An
        object of :mod:`onmf.divergence`, such as ``Bregman(phi, slope, curvature)``, brings its own parameters.
    init : str, array or callable, default="snpa"
        How to choose the first centroids. ``"snpa"``: the rows that the successive nonnegative projection algorithm
        chooses, deterministic. ``"++"``: rows drawn with probability proportional to their loss under the rows drawn
        before. ``"random"``: rows drawn with equal probability. ``"random-partition"``: the sums of a random partition.
        ``"bisection"``: all rows are halved by a local search, then again and again the cluster whose halves lower the
        objective most; for Kullback–Leibler and cosine. With ``refine="local-search"`` it is as good as a random
        partition, and faster for many rows and clusters. ``"consensus"``: the clusters that ``n_consensus`` runs from
        random partitions agree on. It takes the time of these runs and finds the best clusters, especially with
        ``refine="local-search"``. An array gives the centroids, one row each, in any scale. A callable is called as
        ``init(X, n_clusters, random_state=...)`` and returns such an array.
    n_init : int, default=1
        Number of runs from different random starts; the one with the lowest objective is kept.
    max_iter : int, default=100
        Maximum number of iterations of a run.
    tol : float, default=1e-6
        Stop when the matrix of scales changes by less than this in the Frobenius norm, and the share of rows that
        change cluster is not larger than this either; 0 runs to a fixed point.
    refine : None or "local-search", default=None
        Refinement after the loop. None does none, as in the paper. ``"local-search"`` moves single rows to other
        clusters while the objective falls, which finds better optima; for Kullback–Leibler and cosine.
    n_consensus : int, default=30
        Number of runs that vote if ``init="consensus"``.
    smoothing : float, default=1e-3
        The ε that keeps a zero in a centroid from costing infinity. Only 0 < β ≤ 1 needs it. It is added to centroids
        of sum 1.
    engine : str, Engine or Backend, default="auto"
        Where the rows are held and what computes on them: ``"cpu"``, ``"gpu"`` (needs CuPy) or ``"reference"``, plain
        NumPy; for data in parts ``"blocks"`` or ``"dask"``. ``"auto"`` chooses by the data: the GPU for CuPy arrays,
        whose results are CuPy arrays, and the CPU for all others in memory.
    n_threads : int or None, default=None
        Threads; None uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the random starts.
    forgetting : float, default=0.9
        Factor by which :meth:`partial_fit` multiplies the sums of earlier batches at each new batch; 1 forgets nothing.
    sparse_output : bool, default=True
        Whether :meth:`transform` returns a sparse array. If ``set_output`` asks for a frame, it returns that.
    verbose : int, default=0
        Print a line for each iteration, and record the objective in ``history_``.

    Attributes
    ----------
    labels_ : (n,) array of int
        Cluster of each row. For a Dask collection this, ``scales_`` and ``margins_`` are Dask arrays.
    scales_ : (n,) array
        Scale of each row. Within a cluster their squares sum to one, unless the size of centroids means something.
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
        Rows of X that were the first centroids; None if these were not rows.
    margins_ : (n,) array
        How much worse the best other cluster is for each row, per unit of the row (for counts: per word). A small
        margin means an uncertain assignment.
    n_sweeps_ : int
        Sweeps of the local search over the rows; 0 without one.
    agreement_ : Agreement or None
        With ``init="consensus"``, how well its runs agreed: ``agreement_.overall``, and ``agreement_.rows`` by row.
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

    _divergence: Divergence  # that the fit minimised

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
        engine: str | Engine | Backend = "auto",
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
        return _fit(self, X, sample_weight)

    @available_if(lambda model: model._learns_from_batches())
    @interrupt.all_or_nothing
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, batch: Hashable | None = None) -> Self:
        """Learn from a batch of rows, in addition to the batches of earlier calls.

        The first batch gives the start, by ``init``, and needs at least ``n_clusters`` rows. A model that was fitted or
        loaded starts from its centroids, and forgets the rows behind them. Each batch is assigned under the current
        centroids. The sums by cluster, from which the centroids are computed, are multiplied by ``forgetting``, and
        those of the batch are added. To pass over the batches several times, give each batch a name: a batch that
        comes again under its name replaces its earlier sums.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            The batch.
        y : None
            Ignored.
        sample_weight : (n,) array, optional
            Weight of each row.
        batch : hashable, optional
            Name of the batch. A batch with a name keeps 12 bytes per row, and its weights.

        Returns
        -------
        self : ONMF
            ``labels_``, ``scales_`` and ``margins_`` are those of this batch; ``n_iter_`` counts batches. There is no
            ``reconstruction_err_``: use :meth:`score` to see how well rows fit.

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
        check_parameters(self)
        divergence = get_divergence(self.beta_loss, self.smoothing)
        if in_parts(X):
            raise ValueError("partial_fit takes one batch, in memory: pass data in parts to fit.")
        known: Stream | None = getattr(self, "_stream", None)
        if known is None and hasattr(self, "cluster_centers_"):
            known = Stream(np.array(to_host(self.cluster_centers_), dtype=np.float64))
        divergence = with_estimate(divergence, None if known is None else self._divergence)
        if known is not None and (divergence != self._divergence or len(known.centroids) != self.n_clusters):
            raise ValueError("n_clusters, beta_loss or smoothing has changed since the first batch: clone the model.")
        engine, data = prepare_data(self, X, divergence, sample_weight, reset=known is None, warn=True)
        if known is None:
            check_rows(data.shape[0], self.n_clusters)
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            start = seeds_of_run(data, settings_of(self, seeds=np.array([seed])), Listener())
            assert isinstance(start, Seeds), "starts that move rows were refused"
            known = Stream(np.array(divergence.initial_centroids(start.centroids), dtype=np.float64, order="C"))
        else:  # learn() changes a copy, so a failure leaves the model as it was
            known = replace(known, centroids=known.centroids.copy(), seen=dict(known.seen))
        step = learn(known, data, float(self.forgetting), batch)
        self._stream, self._divergence = known, divergence
        clustering = describe_batch(known, data, step, self.get_params(deep=False))
        warn_about(clustering, self.max_iter)
        adopt_clustering(self, clustering, engine.name)
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
        H : (n, n_clusters) sparse array, array if ``sparse_output=False``, or frame if ``set_output`` asks for one
        """
        self.fit(X, sample_weight=sample_weight)
        return self._output(self.labels_, self.scales_)

    def predict(self, X: Any) -> Array:
        """The cluster of each row of ``X``, by the assignment rule alone.

        After ``refine="local-search"`` some training rows are in another cluster than the rule gives them, because that
        lowers the objective. ``labels_``, :meth:`fit_predict` and :meth:`fit_transform` give the refined clusters.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        labels : (n,) array of int
        """
        (labels,) = self._map_rows(X, best_labels)
        return labels

    def predict_proba(self, X: Any, temperature: float = 1.0) -> FloatArray:
        """The probability of each cluster for each row of ``X``, under the likelihood that belongs to the divergence.

        With loss_k the divergence of a row from cluster k, it is proportional to exp(−loss_k / temperature). For counts
        and Kullback–Leibler at temperature 1 that is the posterior of a multinomial mixture with equal weights. That
        model treats the words of a row as independent, so the probabilities of long rows are nearly always 0 or 1.
        Words of real texts are not independent: a temperature of about the number of words that occur together (10 to
        100) gives more useful probabilities.

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
        (chances,) = self._map_rows(X, probabilities, float(temperature))
        return chances

    def transform(self, X: Any) -> Any:
        """The scale of each row of ``X`` in the column of its cluster: one nonzero per row.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Data.

        Returns
        -------
        H : (n, n_clusters) sparse array, array if ``sparse_output=False``, or frame if ``set_output`` asks for one
        """
        return self._output(*self._map_rows(X, labels_and_scales))

    def assign(self, X: Any) -> Assigned:
        """The cluster, scale and margin of each row of ``X``, in one pass.

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
        return Assigned(*self._map_rows(X, labels_scales_and_margins))

    def inverse_transform(self, X: Any) -> Any:
        """The rows that memberships stand for: ``X @ cluster_centers_``.

        Parameters
        ----------
        X : (n, n_clusters) array or sparse matrix
            Memberships, as :meth:`transform` returns them.

        Returns
        -------
        rows : (n, n_features) array, or sparse array
            Sparse if ``X`` is sparse and the sparse form is smaller.
        """
        check_is_fitted(self)
        H: Any = X if on_gpu(X) else check_array(check_container(X), accept_sparse="csr", dtype=np.float64)
        W = to_host(self.cluster_centers_)
        if H.shape[1] != len(W):
            raise ValueError(
                f"X has {H.shape[1]} columns, but the model has {len(W)} clusters: pass the result of transform."
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

        The centroids are smoothed and normalised first. Otherwise a word that does not occur in a cluster would cost
        infinity.

        Compare scores only between models with the same features and the same divergence. The loss is a sum over
        features, so a smaller vocabulary gives a higher score, whatever the clusters are: a grid search must not
        choose the vocabulary by it.

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
        data = self._data(X, sample_weight)
        smoothed = self._divergence.smooth(data.to_device(self.cluster_centers_), at_least=MIN_SMOOTHING)
        losses, weights = data.total(total_loss, smoothed)
        return -float(losses / weights)

    def top_features(self, n: int = 10, feature_names: Any = None) -> list[dict[str, float]]:
        """The most distinctive features of each cluster: those that set it apart from the data as a whole.

        With c the centroid and q the sum of the fitted data, both normalised to sum 1, the weight of feature j is ``c_j
        log(c_j / q_j)``: its contribution to the Kullback–Leibler divergence of the cluster from the whole. Centroids
        with negative entries are ranked by the size of their entries instead.

        Parameters
        ----------
        n : int, default=10
            Number of features for each cluster.
        feature_names : (n_features,) array of str, optional
            Names, for instance ``vectorizer.get_feature_names_out()``. By default those of the fitted data, else
            ``"x0"``, ``"x1"``, …

        Returns
        -------
        list of dict
            For each cluster, the weights of its features by name, the most distinctive first; fewer than ``n`` if fewer
            features set it apart.
        """
        check_is_fitted(self)
        if not is_integer(n) or n < 1:
            raise ValueError(f"n={n!r} is not allowed: n must be an integer, at least 1.")
        centroids = to_host(self.cluster_centers_)
        p = centroids.shape[1]
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(p)])
        names = [str(name) for name in feature_names]
        if len(names) != p:
            raise ValueError(f"feature_names has {len(names)} names, but the model has {p} features.")
        if len(set(names)) < p:
            raise ValueError("feature_names holds the same name twice: give every feature its own name.")
        weights = distinctiveness(centroids, to_host(self.clustering_.masses))
        sizes = np.abs(weights) if (centroids < 0).any() else weights
        tops = np.argsort(-sizes, axis=1, kind="stable")[:, :n]
        return [{names[j]: float(weights[k, j]) for j in top if sizes[k, j] > NEGLIGIBLE} for k, top in enumerate(tops)]

    @property
    def divergence_(self) -> Divergence:
        """The divergence that the fit minimised."""
        check_is_fitted(self)
        return self._divergence

    @interrupt.heeding
    def _map_rows(self, X: Any, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Apply a function of rows and centroids to new data."""
        check_is_fitted(self)
        data = self._data(X, warn=True)
        found = data.map_rows(function, data.to_device(self.cluster_centers_), *args)
        if data.zeros and not self._divergence.absolute:  # Dask has read nothing yet
            warn_zero_rows(data.zeros, len(found[0]))
        return found

    def _data(self, X: Any, sample_weight: Any = None, *, warn: bool = False) -> Data:
        """New data as the engine holds them, with the features of the centroids."""
        _, data = prepare_data(self, X, self._divergence, sample_weight, warn=warn)
        features = self.cluster_centers_.shape[1]
        if data.shape[1] != features:  # an attribute was overwritten, and kernels do not check
            raise ValueError(
                f"X has {data.shape[1]} features, but cluster_centers_ has {features}: fit the model again."
            )
        return data

    def _output(self, labels: Any, scales: Any) -> Any:
        k = len(self.cluster_centers_)
        form = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        frame = form != "default"  # scikit-learn makes frames from arrays in memory only
        sparse = self.sparse_output and not frame
        if hasattr(labels, "map_blocks"):
            like = csr_array((0, k)) if sparse else np.empty((0, k))
            H = labels.map_blocks(one_column, scales, k, sparse, meta=like, new_axis=1, chunks=(labels.chunks[0], (k,)))
            return H.compute() if frame else H
        return one_column(labels, scales, k, sparse)

    def to_cpu(self) -> Self:
        """A copy of the fitted model with its arrays in host memory, for machines without a GPU or a Dask cluster.

        Returns
        -------
        model : ONMF
            A copy, with ``engine="auto"`` if it was ``"gpu"``, or an engine or backend object.
        """
        check_is_fitted(self)
        model, own = copy(self), vars(self)
        arrays = {field.name: getattr(self.clustering_, field.name) for field in fields(self.clustering_)}
        values = {id(value): value for value in (*own.values(), *arrays.values())}
        on_host = {
            key: to_host(value.compute() if hasattr(value, "__dask_graph__") else value)
            for key, value in values.items()
        }
        for name, value in own.items():
            setattr(model, name, on_host[id(value)])
        model.clustering_ = replace(self.clustering_, **{name: on_host[id(value)] for name, value in arrays.items()})
        if isinstance(self.engine, Engine | Backend) or self.engine == "gpu":
            model.engine = "auto"
        return model

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file, atomically; :func:`onmf.load` reads it.

        The file has no pickle and no code. It is a zip of parameters and metadata as JSON, and arrays as ``.npy``, each
        with a checksum.

        Parameters
        ----------
        path : str or path
            The file; ``.onmf`` is the usual extension.
        extra : mapping, optional
            More entries to save with the model, by name: arrays of numbers, and values that JSON supports. ``"kind"``
            says what the data are (``"matrix"`` by default). A loaded model has them as ``extra_``, and saves them
            again by default.

        Examples
        --------
        >>> import os, tempfile
        >>> import onmf
        >>> model = onmf.ONMF(n_clusters=2).fit([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.onmf"))
        ...     loaded = onmf.load(os.path.join(folder, "model.onmf"))
        >>> loaded.predict([[5, 0, 0], [0, 0, 3]])
        array([0, 1], dtype=int32)
        """
        check_is_fitted(self)
        entries = getattr(self, "extra_", {}) if extra is None else extra
        names = getattr(self, "feature_names_in_", None)
        write_model(
            path,
            SavedModel(
                parameters=self.get_params(deep=False),
                divergence=self._divergence,
                clustering=self.to_cpu().clustering_,
                engine=self.engine_,
                feature_names=None if names is None else [str(name) for name in names],
                extra={"kind": "matrix", **entries},
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
        except ValueError:  # fit() raises it
            domain = "nonnegative"
        tags.input_tags.sparse = domain != "positive"
        tags.input_tags.positive_only = domain != "real"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cluster_centers_")

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _learns_from_batches(self) -> bool:
        """Whether :meth:`partial_fit` is available."""
        if self.refine is not None or needs_all_rows(self.init):
            raise AttributeError(
                "partial_fit sees a batch at a time, and refine='local-search', init='bisection' and init='consensus' "
                "need all rows: leave them out."
            )
        return True


def adopt_clustering(model: ONMF, clustering: Clustering, engine: str) -> None:
    """Set the fitted attributes of an estimator from a result, and the name of the engine that computed it."""
    model.clustering_, model.cluster_centers_, model.engine_ = clustering, clustering.centroids, engine
    for name in (
        "labels",
        "scales",
        "n_iter",
        "history",
        "stop_reason",
        "init_rows",
        "margins",
        "n_sweeps",
        "agreement",
    ):
        setattr(model, f"{name}_", getattr(clustering, name))
    model.reconstruction_err_ = clustering.objective
    if clustering.stop_reason == "batch":  # the objective is that of the last batch alone
        del model.reconstruction_err_


def _fit(
    model: ONMF, X: Any, weights: Any = None, *, engine: Engine | None = None, init: Any = None, compute: Compute = fit
) -> ONMF:
    check_parameters(model)
    divergence = get_divergence(model.beta_loss, model.smoothing)
    start = model.init if init is None else init
    check_moves(model.refine, start, divergence)
    n_runs = number_of_runs(model) if init is None else 1
    if in_parts(X):
        check_for_parts(model.refine, start)
    chosen, data = prepare_data(model, X, divergence, weights, engine=engine, reset=True, warn=True)
    check_rows(data.shape[0], model.n_clusters)
    settings = settings_of(model, init=start, n_runs=n_runs)
    voters = settings.n_consensus if isinstance(start, str) and start == "consensus" else 0
    reporter = FitReporter(model, divergence, X, weights, len(settings.seeds) * (1 + voters))
    again = partial(prepare_data, model, X, sample_weight=weights, engine=engine, reset=True)
    clustering, divergence = fit_estimating(data, again, settings, reporter, compute)
    reporter.report_search(clustering)
    model._divergence = divergence
    adopt_clustering(model, clustering, chosen.name)
    for stale in ("extra_", "provenance_", "_stream"):  # left by a file or by partial_fit
        model.__dict__.pop(stale, None)
    reporter.end()
    return model


@interrupt.all_or_nothing
@with_callbacks
def fit_model(model: ONMF, X: Any, *, engine: Engine | None = None, init: Any = None, compute: Compute = fit) -> ONMF:
    """Fit an estimator in another way than its parameters name. The parameters do not change.

    An ``engine`` replaces that of the estimator. With ``init``, first centroids, the fit is a single run.
    ``compute(data, settings, listener)`` replaces :func:`onmf.fit.fit`.
    """
    return _fit(model, X, engine=engine, init=init, compute=compute)


def load(path: str | os.PathLike[str]) -> ONMF:
    """Read a model that :meth:`ONMF.save` wrote.

    No code from the file is executed, and every part is checked against its checksum before use.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    ONMF
        The fitted model. ``extra_`` has the entries saved along with it and the ``"kind"`` of its data;
        ``provenance_`` says when and with which versions it was written.

    Raises
    ------
    ValueError
        If the file is not a model, is damaged, or was written by a newer version.
    """
    saved = read_model(path)
    try:
        if unknown := sorted(set(saved.parameters) - set(ONMF().get_params())):
            raise ValueError(f"unknown parameters: {', '.join(unknown)}")
        model = ONMF(**saved.parameters)
        check_parameters(model)
    except (ValueError, TypeError) as error:
        raise damaged(path, error) from error
    model._divergence, model.extra_, model.provenance_ = saved.divergence, saved.extra, saved.provenance
    adopt_clustering(model, saved.clustering, saved.engine)
    model.n_features_in_ = saved.clustering.centroids.shape[1]
    if saved.feature_names is not None:
        model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    return model


def check_parameters(model: Any) -> None:
    """Refuse invalid parameters before any data are read."""

    def require(valid: bool, name: str, what: str) -> None:
        if not valid:
            raise ValueError(f"{name}={getattr(model, name)!r} is not allowed: {name} must be {what}.")

    for name in ("n_clusters", "n_init", "n_consensus", "max_iter"):
        value = getattr(model, name)
        require(is_integer(value) and 1 <= value < 2**31, name, "an integer, at least 1 and below 2**31")
    for name in ("tol", "smoothing"):
        require(0 <= number(getattr(model, name)) < np.inf, name, "a number, at least 0")
    require(0 < number(model.forgetting) <= 1, "forgetting", "a number greater than 0, at most 1")
    require(isinstance(model.sparse_output, bool | np.bool_), "sparse_output", "True or False")
    require(isinstance(model.verbose, Integral) and int(model.verbose) >= 0, "verbose", "an integer, at least 0")
    require(
        get_start(model.init) is not None,
        "init",
        f"one of {', '.join(map(repr, STARTS))}, an array of centroids, or a callable",
    )


def settings_of(model: Any, *, init: Any = None, n_runs: int = 1, seeds: Array | None = None) -> Settings:
    """The settings of a fit with these parameters.

    ``init`` replaces that of the model, for a single run. Without ``seeds``, random ones are drawn.
    """
    if seeds is None:
        seeds = check_random_state(model.random_state).randint(np.iinfo(np.int32).max, size=n_runs)
    return Settings(
        n_clusters=model.n_clusters,
        init=model.init if init is None else init,
        seeds=seeds,
        plan=Plan(model.max_iter, model.tol, model.refine),
        n_consensus=model.n_consensus,
        parameters=model.get_params(deep=False),
    )


def number_of_runs(model: Any) -> int:
    """The number of runs: ``n_init``, or 1 for a deterministic start."""
    start, n_init = get_start(model.init), int(model.n_init)
    assert start is not None, "init was checked"
    if n_init > 1 and start.by_runs:
        raise ValueError(
            f"n_init={n_init} is not allowed with init={model.init!r}: a consensus is one start made of many runs. Set "
            "n_consensus to their number instead."
        )
    if n_init > 1 and not start.random:
        names = sorted(name for name, start in STARTS.items() if start.random)
        warn(
            f"n_init={n_init} runs would all be the same from a deterministic start: running once. Use one of "
            f"{', '.join(map(repr, names))} as init.",
            RuntimeWarning,
        )
        return 1
    return n_init


def needs_all_rows(init: Any) -> bool:
    """Whether a start needs all rows in memory."""
    start = STARTS.get(init) if isinstance(init, str) else None
    return start is not None and (start.by_runs or start.moves_rows)


def check_for_parts(refine: Any, init: Any) -> None:
    """Refuse parameters that need all rows in memory."""
    for needs_all, name, value, instead in (
        (refine is not None, "refine", refine, "refine=None, and several runs with n_init"),
        (needs_all_rows(init), "init", init, "init='random-partition' with n_init"),
    ):
        if needs_all:
            raise ValueError(f"{name}={value!r} needs all rows in memory, and X comes in parts: use {instead}.")


def is_integer(value: Any) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def one_column(labels: Array, scales: FloatArray, k: int, sparse: bool) -> Any:
    """The scale of each row in the column of its cluster. → (n, k)"""
    H = membership(labels, scales, k)
    return H if sparse else H.toarray()


def _check_memory(needed: int, form: str, n: int, p: int) -> None:
    """Refuse to create an array that cannot fit in memory."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not known on this system
        return
    if needed > available:
        raise MemoryError(
            f"The {form} result, {n} × {p}, would take {needed / 1e9:.1f} GB, and this machine has "
            f"{available / 1e9:.1f} GB: transform back fewer rows at a time."
        )
