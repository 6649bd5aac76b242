"""ONMF as a scikit-learn estimator. It handles parameters, input and output, and has no mathematics."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if

from onmf import interrupt
from onmf.assign import AssignMixin
from onmf.backend import Backend, to_host
from onmf.callbacks import CallbackSupportMixin, FitReporter, with_callbacks
from onmf.data import Engine
from onmf.data.intake import in_parts, prepare_data
from onmf.divergence import Array, Divergence, FloatArray, get_divergence
from onmf.fit import Clustering, Listener, fit
from onmf.fit.dispersion import fit_estimating, with_estimate
from onmf.fit.settings import check_moves, check_rows
from onmf.fit.solve import Compute, first_seeds, warn_about
from onmf.fit.stream import Stream, describe_batch, learn
from onmf.io.container import damaged
from onmf.io.model_file import SavedModel, read_model
from onmf.parameters import check_for_parts, check_parameters, needs_all_rows, number_of_runs, settings_of, voters_of
from onmf.save import SaveMixin


class ONMF(
    AssignMixin,
    SaveMixin,
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    BaseEstimator,
):
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
            start = first_seeds(data, settings_of(self, seeds=np.array([seed])), Listener())
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

    @classmethod
    def _restore(cls, saved: SavedModel) -> Self:
        """The fitted estimator that a file describes."""
        unknown = sorted(set(saved.parameters) - set(cls().get_params()))
        if unknown:
            raise ValueError(f"unknown parameters: {', '.join(unknown)}")
        model = cls(**saved.parameters)
        check_parameters(model)
        model._divergence = saved.divergence
        adopt_clustering(model, saved.clustering, saved.engine)
        model.n_features_in_ = saved.clustering.centroids.shape[1]
        if saved.feature_names is not None:
            model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        model.extra_ = saved.extra
        model.provenance_ = saved.provenance
        return model


def adopt_clustering(model: ONMF, clustering: Clustering, engine: str) -> None:
    """Set the fitted attributes of an estimator from a result, and the name of the engine that computed it."""
    model.clustering_ = clustering
    model.labels_ = clustering.labels
    model.scales_ = clustering.scales
    model.cluster_centers_ = clustering.centroids
    model.n_iter_ = clustering.n_iter
    if clustering.stop_reason == "batch":  # the objective is that of the last batch alone
        model.__dict__.pop("reconstruction_err_", None)
    else:
        model.reconstruction_err_ = clustering.objective
    model.history_ = clustering.history
    model.stop_reason_ = clustering.stop_reason
    model.engine_ = engine
    model.init_rows_ = clustering.init_rows
    model.margins_ = clustering.margins
    model.n_sweeps_ = clustering.n_sweeps
    model.agreement_ = clustering.agreement


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
    reporter = FitReporter(model, divergence, X, weights, len(settings.seeds) * (1 + voters_of(settings)))
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
        return ONMF._restore(saved)
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error).rstrip(".")) from error
