"""ONMF as a scikit-learn estimator. It handles parameters, input and output, and has no mathematics."""

import os
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import replace
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
from onmf.data.groups import Groups, check_groups, check_same_type, known_groups, names_of_groups
from onmf.data.intake import in_parts, prepare_data
from onmf.data.known import Known, clusters_given, priors_of
from onmf.data.validate import check_container, warn_zero_rows
from onmf.divergence import Array, Divergence, FloatArray, KullbackLeibler, get_divergence, number
from onmf.divergence.groups import GroupedKullbackLeibler
from onmf.fit import STARTS, Assigned, Clustering, Listener, Plan, Settings, describe, fit
from onmf.fit.groups import apart, estimate_effects, gain_of_groups, sizes_in_groups
from onmf.fit.known import STARTS_OF_OTHERS, check_seeds_occur
from onmf.fit.restarts import check_moves, check_rows
from onmf.fit.solve import Compute, fit_estimating, get_start, seeds_of_run, warn_about, with_estimate
from onmf.fit.starts import Seeds
from onmf.fit.stream import Stream, describe_batch, learn, stream_of
from onmf.io.model_file import SavedModel, damaged, provenance, read_model, write_model
from onmf.io.rules import require
from onmf.warn import warn

NEGLIGIBLE = 1e-12  # weights of features up to this may be rounding errors


class ONMF(CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, BaseEstimator):
    """Cluster nonnegative data by orthogonal nonnegative matrix factorization.

    Row i of X is about ``scales_[i] * cluster_centers_[labels_[i]]``: each row has one cluster and one scale. The
    defaults are KL-ONMF as in the paper [1]_, the maximum-likelihood choice for counts.

    Parameters
    ----------
    n_clusters : int, default=8
    beta_loss : str, float or Divergence, default="kullback-leibler"
        ``"kullback-leibler"`` for counts, ``"frobenius"`` for Gaussian noise, ``"itakura-saito"``, ``"cosine"``, which
        is exact spherical k-means, ``"negative-binomial"`` for counts that vary more than Poisson counts,
        ``"bernoulli"`` or ``"exponential"``. A number is the β of a β-divergence. An object of :mod:`onmf.divergence`,
        such as ``Bregman(phi, slope, curvature)``, brings its own parameters.
    init : str, array or callable, default="auto"
        The first centroids. ``"auto"``: ``"snpa"``, as in the paper; ``"random-partition"`` for rows with groups, which
        a start must mix. ``"snpa"``: rows that the successive nonnegative projection algorithm chooses,
        deterministic. ``"++"``: rows drawn in proportion to their loss under the rows drawn before. ``"random"``: rows
        drawn with equal probability. ``"random-partition"``: the sums of a random partition. ``"bisection"``: local
        searches halve all rows, then always the cluster whose halves lower the objective most; for Kullback–Leibler and
        cosine. With ``refine="local-search"`` it is as good as a random partition, and faster for many rows and
        clusters. ``"consensus"``: what ``n_consensus`` runs from random partitions agree on; with groups, what the best
        third of them does. It takes the time of these runs and finds the best clusters, especially with
        ``refine="local-search"``. An array: the centroids, one row each, in any scale. A callable:
        ``init(X, n_clusters, random_state=...)`` returns such an array.
    n_init : int or "auto", default="auto"
        Number of runs from different random starts; the one with the lowest objective is kept. ``"auto"``: 1, or 10 for
        rows with groups.
    max_iter : int, default=100
        Maximum number of iterations of a run.
    tol : float, default=1e-6
        Stop when H changes by less than this in the Frobenius norm, and at most this share of the rows changes cluster;
        0 runs to a fixed point.
    refine : None or "local-search", default=None
        What follows the loop: nothing, as in the paper; or changes that lower the objective, which find better optima.
        For Kullback–Leibler and cosine single rows move to other clusters, and in the best runs clusters are split and
        merged. For other divergences clusters are split and dissolved, each time followed by the loop; the negative
        binomial begins with such a search under Kullback–Leibler.
    n_consensus : int, default=30
        Number of runs that vote if ``init="consensus"``.
    smoothing : float or "auto", default="auto"
        The ε that is added to centroids of sum 1, so that a zero does not cost infinity. Only 0 < β ≤ 1 needs it.
        ``"auto"``: 1e-3, as in the paper; 0.01 / n_features for rows with groups; with known rows of all clusters
        at most 0.3 counts of each feature in a cluster of mean size.
    engine : str, Engine or Backend, default="auto"
        What holds the rows and computes: ``"cpu"``, ``"gpu"`` (needs CuPy) or ``"reference"``, plain NumPy; for data in
        parts ``"blocks"`` or ``"dask"``. ``"auto"``: the GPU for CuPy arrays, whose results are such, else the CPU.
    n_threads : int or None, default=None
        Threads; None uses all cores. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the random starts.
    forgetting : float, default=0.9
        Factor of the sums of earlier batches at each new batch of :meth:`partial_fit`; 1 forgets nothing.
    adapt : float or "auto", default="auto"
        How much a free row counts in a cluster with known rows, if :meth:`fit` gets any; a known row counts 1. 0: the
        centroid is that of the known rows, and a row goes where a multinomial classifier with equal priors puts it. 1:
        all rows count alike. ``"auto"``: the value, from 0 to 1, with which known rows that are left out are put back
        best.
    seed_share : float, default=0.1
        How much the seed features of a cluster count, relative to its rows, if :meth:`fit` gets any.
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
    cluster_centers_, components_ : (n_clusters, n_features) array
        Centroids, at the size that goes with the normalised scales: the paper's Wᵀ.
    clusters_ : (n_centroids,) array of int or None
        In the model of a result that was edited: the cluster of each centroid, -1 for one that was set aside. Clusters
        that were merged share one, and :meth:`predict` gives it; memberships have a column for each centroid.
    n_iter_, n_sweeps_ : int
        Iterations of the run that was kept, and passes of its local search over the rows.
    reconstruction_err_ : float
        D(X, WH): the divergence of the fit, ‖X − WH‖_F² for Frobenius.
    history_ : dict of str to array
        For each iteration ``"moved"`` (rows that changed cluster), ``"change"`` (of H), ``"seconds"`` and, with
        ``verbose`` or callbacks, ``"objective"``.
    stop_reason_, engine_ : str
        ``"converged"``, ``"fixed point"``, ``"max_iter"`` or ``"callback"``; and the name of the engine that ran.
    init_rows_ : (n_clusters,) array of int or None
        Rows of X that were the first centroids; None if these were not rows.
    margins_ : (n,) array
        How much worse the best other cluster is for each row, per unit (for counts: per word); small if unsure.
    adapt_ : float or None
        How much free rows counted in clusters with known rows; None if no row was known.
    agreement_ : Agreement or None
        With ``init="consensus"``, how well its runs agreed: ``agreement_.overall``, and ``agreement_.rows`` by row.
    groups_, group_effects_ : (groups,) array, (groups, n_features) array; or None
        Labels of the groups of the rows, and the factor by which each group multiplies each feature, if ``fit`` got
        groups: row i is about ``scales_[i] * cluster_centers_[labels_[i]] * group_effects_[b]`` in group b.
    clustering_, divergence_ : Clustering, Divergence
        The result as one object, with the paper's ``W`` and ``H``; and the divergence that the fit minimised.
    n_features_in_, feature_names_in_ : int, (n_features,) array of str
        Number of features, and their names if X had any.

    References
    ----------
    .. [1] J. P. Nkurunziza, F. Nahayo and N. Gillis, "Orthogonal Nonnegative Matrix Factorization with the
       Kullback-Leibler divergence".

    Examples
    --------
    >>> import numpy as np
    >>> from onmf import ONMF
    >>> X = np.array([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]])
    >>> ONMF(n_clusters=2).fit(X).labels_
    array([0, 0, 1, 1], dtype=int32)
    """

    divergence_: Divergence
    groups_: Any = None  # if the fit had no groups
    group_effects_: Any = None
    clusters_: Any = None  # if no clusters were edited
    adapt_: float | None = None  # if no row was known

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        beta_loss: str | float | Divergence = "kullback-leibler",
        init: str | Any | Callable[..., Any] = "auto",
        n_init: int | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-6,
        refine: str | None = None,
        n_consensus: int = 30,
        smoothing: float | str = "auto",
        engine: str | Engine | Backend = "auto",
        n_threads: int | None = None,
        random_state: Any = None,
        forgetting: float = 0.9,
        adapt: float | str = "auto",
        seed_share: float = 0.1,
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
        self.adapt = adapt
        self.seed_share = seed_share
        self.sparse_output = sparse_output
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        known: Any = None,
        seeds: Mapping[Any, Any] | None = None,
    ) -> Self:
        """Cluster the rows of ``X``.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame; Dask collection; or callable
            Integers, float32, float64, canonical CSR and C-ordered arrays are not copied. Data larger than memory: a
            Dask array, frame, bag or list of delayed blocks, or a callable that returns the same batches of rows each
            time, like :func:`onmf.datasets.open_shards`.
        y : ignored
        sample_weight : (n,) array, optional
            Weight of each row; a row of weight 2 counts as two equal rows.
        groups : (n,) array of labels, optional
            The batch, source or scene that each row is from: texts, whole numbers or booleans, all of one type. Each
            group multiplies every feature by a factor of its own, which is fitted, too, so that clusters do not follow
            the groups. For Kullback–Leibler. (The splitters of scikit-learn call something else groups: rows that must
            not be divided between training and test.)
        known : (n,) array of int, optional
            The cluster of each row that is known, from 0 on, and -1 for a free one. Known rows stay in their clusters,
            and free rows join these or the others: ``n_clusters`` may be larger than the number of known clusters.
            ``adapt`` says how far free rows change a known cluster. For Kullback–Leibler.
        seeds : mapping, optional
            Features that clusters should have, ``{cluster: {feature: weight}}`` or ``{cluster: [features]}``. Clusters
            are numbers, or names, which are then the clusters 0, 1, … in their order. Features are names of those of X,
            or their numbers. They count ``seed_share`` times as much as the rows of the cluster, in every iteration.
            For Kullback–Leibler.

        Returns
        -------
        self : ONMF
        """
        return fit_model(self, X, sample_weight, groups=groups, known=known, seeds=seeds)

    @available_if(lambda model: model._learns_from_batches())
    @interrupt.all_or_nothing
    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None, *, batch: Hashable | None = None
    ) -> Self:
        """Learn from a batch of rows, in addition to the batches of earlier calls.

        The first batch gives the start, by ``init``, and needs at least ``n_clusters`` rows. A model that was fitted or
        loaded starts from its centroids, and forgets the rows behind them. Each batch is assigned under the current
        centroids; its sums by cluster are added to the earlier ones, times ``forgetting``. For several passes, name the
        batches: one that comes again under its name replaces its earlier sums.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            The batch.
        y : ignored
        sample_weight : (n,) array, optional
            Weight of each row.
        groups : (n,) array of labels, optional
            As in :meth:`fit`, for every batch or for none. A batch may bring new groups. The first one is fitted as
            :meth:`fit` does it, so it should have rows of most clusters and several groups.
        batch : hashable, optional
            Name of the batch. A batch with a name keeps 12 bytes per row, and its weights and groups.

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
        >>> for i in [0, 250, 500, 750] * 3:
        ...     model = model.partial_fit(X[i : i + 250], batch=i)
        >>> model.n_iter_
        12
        """
        check_parameters(self)
        require(not in_parts(X), "partial_fit takes one batch, in memory: pass data in parts to fit.")
        known: Stream | None = getattr(self, "_stream", None)
        divergence = get_divergence(self.beta_loss, self.smoothing)
        own = None if groups is None else check_groups(groups, has_relative_smoothing(self))
        if own is not None:
            check_divergence_for_groups(divergence)
        if own is not None and not hasattr(self, "cluster_centers_"):
            check_for_groups(self, start_of(self, grouped=True), divergence)
            fit_model(self, X, sample_weight, groups=groups)
            self.divergence_ = own.plain_divergence(divergence, self.n_features_in_)  # also of a single group
        if known is None and hasattr(self, "cluster_centers_"):
            known = stream_of(self)
        if known is not None:
            known = known.copy()  # a failure leaves the model as it was
            own = known.meet(own)
            divergence = own.plain_divergence(divergence, self.n_features_in_) if own is not None else divergence
        if known is not None and self.adapt_ is not None and has_relative_smoothing(self):
            divergence = self.divergence_  # its smoothing followed from the known rows
        divergence = with_estimate(divergence, None if known is None else self.divergence_)
        if known is not None and (divergence != self.divergence_ or len(known.centroids) != self.n_clusters):
            raise ValueError("n_clusters, beta_loss or smoothing has changed since the first batch: clone the model.")
        engine, data = prepare_data(self, X, divergence, sample_weight, groups=own, reset=known is None, warn=True)
        if known is None:
            check_rows(data.shape[0], self.n_clusters)
            start = seeds_of_run(data, settings_of(self, self.init), Listener())
            assert isinstance(start, Seeds), "starts that move rows were refused"
            known = Stream(np.array(divergence.initial_centroids(start.centroids), dtype=np.float64, order="C"))
        step = learn(known, data, float(self.forgetting), batch)
        self._stream = known
        clustering = describe_batch(known, data, step, self.get_params(deep=False))
        warn_about(clustering, self.max_iter)
        return adopt_clustering(self, clustering, engine.name, divergence)

    def fit_predict(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        known: Any = None,
        seeds: Mapping[Any, Any] | None = None,
    ) -> Array:
        """Cluster the rows of ``X``, as :meth:`fit` does, and return their labels.

        Returns
        -------
        labels : (n,) array of int
        """
        return self.fit(X, sample_weight=sample_weight, groups=groups, known=known, seeds=seeds).labels_

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        known: Any = None,
        seeds: Mapping[Any, Any] | None = None,
    ) -> Any:
        """Cluster the rows of ``X``, as :meth:`fit` does, and return Hᵀ, whose columns are orthonormal.

        Returns
        -------
        H : (n, n_clusters) sparse array, array if ``sparse_output=False``, or frame if ``set_output`` asks for one
        """
        self.fit(X, sample_weight=sample_weight, groups=groups, known=known, seeds=seeds)
        return self._output(self.labels_, self.scales_)

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The cluster of each row of ``X``, by the assignment rule alone.

        A local search puts some training rows into other clusters than the rule: ``labels_``, :meth:`fit_predict` and
        :meth:`fit_transform` have these.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
        groups : (n,) array of labels, optional
            The group of each row, if the model was fitted with groups. Without it, or for a group that the model does
            not know, multipliers are 1, and a warning says so. :meth:`estimate_group` finds those of a new group.

        Returns
        -------
        labels : (n,) array of int
        """
        return self._map_rows(X, groups, describe.best_labels, self.clusters_)[0]

    def predict_proba(self, X: Any, temperature: float = 1.0, groups: Any = None) -> FloatArray:
        """The probability of each cluster for each row of ``X``, under the likelihood that belongs to the divergence.

        It is proportional to exp(−loss / temperature). For counts and Kullback–Leibler at temperature 1 that is the
        posterior of a multinomial mixture with equal weights. That model treats the words of a row as independent, so
        long rows have probabilities near 0 or 1. For real texts a temperature of about the number of words that occur
        together (10 to 100) is more useful.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
        temperature : float, default=1.0
            Divides the losses; greater than 0.
        groups : (n,) array of labels, optional
            As in :meth:`predict`.

        Returns
        -------
        probabilities : (n, n_clusters) array
        """
        if not 0 < number(temperature) < np.inf:
            raise ValueError(f"temperature={temperature!r} is not allowed: it must be a number greater than 0.")
        return self._map_rows(X, groups, describe.probabilities, float(temperature), self.clusters_)[0]

    def transform(self, X: Any, groups: Any = None) -> Any:
        """The scale of each row of ``X`` in the column of its cluster: one nonzero per row.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
        groups : (n,) array of labels, optional
            As in :meth:`predict`.

        Returns
        -------
        H : (n, n_clusters) sparse array, array if ``sparse_output=False``, or frame if ``set_output`` asks for one
        """
        return self._output(*self._map_rows(X, groups, describe.labels_and_scales))

    def assign(self, X: Any, groups: Any = None) -> Assigned:
        """The cluster, scale and margin of each row of ``X``, in one pass.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
        groups : (n,) array of labels, optional
            As in :meth:`predict`.

        Returns
        -------
        Assigned
            ``labels`` as of :meth:`predict`, ``scales`` as of :meth:`transform`, and ``margins`` as in ``margins_``.
        """
        return Assigned(*self._map_rows(X, groups, describe.assigned, self.clusters_))

    def inverse_transform(self, X: Any) -> Any:
        """The rows that memberships stand for: ``X @ cluster_centers_``, with multipliers of 1 if there are groups.

        Parameters
        ----------
        X : (n, n_clusters) array or sparse matrix, as :meth:`transform` returns it

        Returns
        -------
        rows : (n, n_features) array; sparse if ``X`` is sparse and the sparse form is smaller
        """
        check_is_fitted(self)
        H: Any = X if on_gpu(X) else check_array(check_container(X), accept_sparse="csr", dtype=np.float64)
        W = to_host(self.cluster_centers_)
        if H.shape[1] != len(W):
            raise ValueError(
                f"X has {H.shape[1]} columns, but the model has {len(W)} clusters: use what transform gave."
            )
        if on_gpu(H):
            import cupy

            return H @ cupy.asarray(W)
        bytes_of = {"dense": 8 * H.shape[0] * W.shape[1]}
        if issparse(H):
            bytes_of["sparse"] = 16 * int(np.bincount(H.indices, minlength=len(W)) @ np.count_nonzero(W, axis=1))
        form = min(bytes_of, key=bytes_of.__getitem__)
        _check_memory(bytes_of[form], f"{form} result, {H.shape[0]} × {W.shape[1]},")
        return H @ W if form == "dense" else csr_array(H) @ csr_array(W)

    @interrupt.heeding
    def score(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> float:
        """Minus the mean loss of the rows of ``X``: higher is better.

        The centroids are smoothed first, so that a word that a cluster does not have costs less than infinity. Compare
        scores only between models with the same features and divergence: the loss is a sum over features, so a smaller
        vocabulary gives a higher score, whatever the clusters are.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
        y : ignored
        sample_weight : (n,) array, optional
            Weight of each row.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        C = to_host(self.divergence_.smooth(self.cluster_centers_, at_least=describe.MIN_SMOOTHING))
        data, centroids = new_rows(self, X, sample_weight, groups=groups, centroids=C)
        losses, weights = data.total(describe.total_loss, centroids)
        if isinstance(data.divergence, GroupedKullbackLeibler):
            losses -= gain_of_groups(data, to_host(self.group_effects_))
        return -float(losses / weights)

    @interrupt.heeding
    def estimate_group(self, X: Any, name: Any = None, sample_weight: Any = None) -> FloatArray:
        """Estimate the multipliers of a group that the model does not know, for centroids that stay as they are.

        Parameters
        ----------
        X : (n, n_features) array, sparse matrix or frame
            Rows of that group, of as many clusters as there are.
        name : str, int or bool, optional
            Label of the group, of the type of the others. The model then knows it: ``groups_`` and ``group_effects_``
            have one more entry.
        sample_weight : (n,) array, optional
            Weight of each row.

        Returns
        -------
        multipliers : (n_features,) array
        """
        check_is_fitted(self)
        require(self.group_effects_ is not None, "The model was fitted without groups: fit it with groups= first.")
        check_divergence_for_groups(self.divergence_)
        if name is not None:
            check_same_type([name], self.groups_, f"name={name!r}")
            if name in self.groups_.tolist():
                raise ValueError(f"name={name!r} is a group that the model knows: give the new one another name.")
        one = Groups(np.array([0]), np.array(0, dtype=np.int32), factors=np.ones(1))
        _, data = prepare_data(self, X, self.divergence_, sample_weight, groups=one, warn=True)
        found = estimate_effects(data, self.divergence_.normalise(to_host(self.cluster_centers_)))
        if name is not None:
            names = names_of_groups([*self.groups_.tolist(), name])
            effects = np.vstack([to_host(self.group_effects_), found])
            clustering = replace(self.clustering_, groups=names, group_effects=effects)
            adopt_clustering(self, clustering, self.engine_, self.divergence_)
        return found

    def top_features(self, n: int = 10, feature_names: Any = None) -> list[dict[str, float]]:
        """The most distinctive features of each cluster: those that set it apart from the data as a whole.

        With c the centroid and q the sum of the fitted data, both of sum 1, the weight of feature j is ``c_j log(c_j /
        q_j)``: its part of the divergence of the cluster from the whole. Centroids with negative entries are ranked by
        the size of their entries instead.

        Parameters
        ----------
        n : int, default=10
        feature_names : (n_features,) array of str, optional
            By default the names of the fitted data, else ``"x0"``, ``"x1"``, …

        Returns
        -------
        list of dict
            For each cluster, the weights of at most ``n`` features by name, the most distinctive first.
        """
        check_is_fitted(self)
        require(is_integer(n) and n >= 1, f"n={n!r} is not allowed: n must be an integer, at least 1.")
        numbers, centroids, masses = self.clustering_.by_cluster()
        p = centroids.shape[1]
        known = getattr(self, "feature_names_in_", [f"x{j}" for j in range(p)])
        names = [str(name) for name in (known if feature_names is None else feature_names)]
        require(len(names) == p, f"feature_names has {len(names)} names, but the model has {p} features.")
        require(len(set(names)) == p, "feature_names holds the same name twice: give every feature its own name.")
        weights = describe.distinctiveness(centroids, masses)
        sizes = np.abs(weights) if (centroids < 0).any() else weights
        found: list[dict[str, float]] = [{} for _ in range(int(numbers.max(initial=-1)) + 1)]
        for k, cluster in enumerate(numbers):
            top = np.argsort(-sizes[k], kind="stable")[:n]
            found[cluster] = {names[j]: float(weights[k, j]) for j in top if sizes[k, j] > NEGLIGIBLE}
        return found

    @interrupt.heeding
    def _map_rows(self, X: Any, groups: Any, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Apply a function of rows and centroids to new data."""
        data, centroids = new_rows(self, X, groups=groups, warn=True)
        found = data.map_rows(function, centroids, *args)
        if data.zeros and not self.divergence_.absolute:  # Dask has read nothing yet
            warn_zero_rows(data.zeros, len(found[0]))
        return found

    def _output(self, labels: Any, scales: Any) -> Any:
        k = len(self.cluster_centers_)
        asked = {"transform": get_config()["transform_output"]} | getattr(self, "_sklearn_output_config", {})
        frame = asked["transform"] != "default"  # scikit-learn makes frames from arrays in memory only
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
            With ``engine="auto"`` if it was ``"gpu"``, or an engine or backend object.
        """
        check_is_fitted(self)
        bound = isinstance(self.engine, Engine | Backend) or self.engine == "gpu"
        model = copy(self).set_params(init=to_host(self.init), engine="auto" if bound else self.engine)
        on_host = {
            name: to_host(value.compute() if hasattr(value, "__dask_graph__") else value)
            for name, value in vars(self.clustering_).items()
        }
        return adopt_clustering(model, replace(self.clustering_, **on_host), self.engine_, self.divergence_)

    def save(self, path: str | os.PathLike[str], *, extra: Mapping[str, Any] | None = None) -> None:
        """Write the fitted model to a file, atomically; :func:`onmf.load` reads it.

        The file has no pickle and no code: a zip of JSON and ``.npy`` arrays, each with a checksum.

        Parameters
        ----------
        path : str or path
            The file; ``.onmf`` is the usual extension.
        extra : mapping, optional
            More entries by name: arrays of numbers, and values that JSON supports. ``"kind"`` says what the data are
            (``"matrix"`` by default). A loaded model has them as ``extra_``, and saves them again by default.

        Examples
        --------
        >>> import os, tempfile
        >>> import onmf
        >>> path = os.path.join(tempfile.mkdtemp(), "model.onmf")
        >>> onmf.ONMF(n_clusters=2).fit([[9, 1, 0], [4, 0, 0], [0, 1, 7], [0, 2, 8]]).save(path)
        >>> onmf.load(path).predict([[5, 0, 0], [0, 0, 3]])
        array([0, 1], dtype=int32)
        """
        check_is_fitted(self)
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        write_model(
            path,
            SavedModel(
                parameters=self.get_params(deep=False),
                divergence=self.divergence_,
                clustering=self.to_cpu().clustering_,
                engine=self.engine_,
                feature_names=names or None,
                extra={"kind": "matrix", **(getattr(self, "extra_", {}) if extra is None else extra)},
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


def adopt_clustering(model: Any, clustering: Clustering, engine: str, divergence: Divergence) -> Any:
    """Set the fitted attributes of an estimator: a result, the name of the engine that ran, and the divergence."""
    model.clustering_, model.engine_, model.divergence_ = clustering, engine, divergence
    model.cluster_centers_, model.reconstruction_err_ = clustering.centroids, clustering.objective
    names = (
        *("labels", "scales", "n_iter", "history", "stop_reason", "init_rows", "margins", "n_sweeps", "agreement"),
        *("groups", "group_effects", "clusters", "adapt"),
    )
    model.__dict__.update({f"{name}_": getattr(clustering, name) for name in names})
    if clustering.clusters is not None:
        model.labels_ = clustering.clusters[clustering.labels]
    if clustering.stop_reason == "batch":  # the objective is that of the last batch alone
        del model.reconstruction_err_
    return model


def new_rows(
    model: ONMF,
    X: Any,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    centroids: Any = None,
    engine: Engine | Backend | None = None,
    warn: bool = False,
) -> tuple[Data, Any]:
    """New rows as an engine holds them, and the centroids of a model, or others, in the form that goes with them."""
    check_is_fitted(model)
    centroids = model.cluster_centers_ if centroids is None else centroids
    known, number = None, len(model.groups_) if model.group_effects_ is not None else 0
    require(number or groups is None, "The model was fitted without groups, and has no multipliers: leave groups out.")
    if number > 1 or groups is not None:
        sizes = sizes_in_groups(model.divergence_.normalise(to_host(centroids)), to_host(model.group_effects_))
        known = known_groups(groups, model.groups_, sizes.min(axis=0))
    several = known if number > 1 else None  # one group is none
    _, data = prepare_data(model, X, model.divergence_, sample_weight, groups=several, engine=engine, warn=warn)
    if known is not None and several is None and data.shape[0]:  # Dask may not know yet how many rows there are
        known.check_length(data.shape[0])
    if isinstance(data.divergence, GroupedKullbackLeibler):
        centroids = data.divergence.with_groups(to_host(centroids), sizes)
    features = centroids.shape[1]
    if data.shape[1] != features:  # an attribute was overwritten, and kernels do not check
        raise ValueError(f"X has {data.shape[1]} features, but cluster_centers_ has {features}: fit the model again.")
    return data, data.to_device(centroids)


@interrupt.all_or_nothing
@with_callbacks
def fit_model(
    model: ONMF,
    X: Any,
    weights: Any = None,
    *,
    groups: Any = None,
    known: Any = None,
    seeds: Mapping[Any, Any] | None = None,
    engine: Engine | None = None,
    init: Any = None,
    compute: Compute = fit,
) -> Any:
    """Fit an estimator, if need be in another way than its parameters name. The parameters do not change.

    An ``engine`` replaces that of the estimator. With ``init``, first centroids, the fit is a single run.
    ``compute(data, settings, listener)`` replaces :func:`onmf.fit.fit`.
    """
    check_parameters(model)
    divergence = get_divergence(model.beta_loss, model.smoothing)
    relative = has_relative_smoothing(model)
    labels = None if known is None else Known.of(known, model.n_clusters, relative and groups is None)
    given = labels if labels is not None and len(labels.rows) else None  # -1 alone says nothing
    own = None if groups is None else check_groups(groups, relative)
    several = own if own is not None and len(own) > 1 else None  # one group is none
    guided = None if given is None and seeds is None else clusters_given(given, seeds, model.n_clusters)
    settings = settings_of(model, init, grouped=several is not None, given=guided)
    if several is not None:
        check_for_groups(model, settings.init, divergence)
    if guided is not None:
        check_for_guides(model, settings.init, divergence)
    check_moves(model.refine, settings.init, divergence)
    if in_parts(X):
        check_for_parts(model.refine, settings.init)
    chosen, data = prepare_data(
        model, X, divergence, weights, groups=several, known=given, engine=engine, reset=True, warn=True
    )
    check_rows(data.shape[0], model.n_clusters)
    if labels is not None:
        labels.check_rows(data.shape[0])
    if seeds is not None:
        names = getattr(model, "feature_names_in_", None)
        priors = priors_of(seeds, model.n_clusters, model.n_features_in_, names)
        check_seeds_occur(data, priors, names)
        settings = replace(settings, priors=priors)
    voters = settings.n_consensus if isinstance(settings.init, str) and settings.init == "consensus" else 0
    reporter = FitReporter(model, divergence, X, weights, len(settings.seeds) * (1 + voters))
    again = partial(prepare_data, model, X, sample_weight=weights, engine=engine, reset=True)
    clustering, divergence = fit_estimating(data, again, settings, reporter, compute)
    if own is not None:
        own.check_length(data.shape[0])
        if several is None:
            clustering = replace(clustering, group_effects=np.ones((1, data.shape[1])))
        else:
            divergence = several.plain_divergence(divergence, model.n_features_in_)
        clustering = replace(clustering, groups=own.names)
        if sentence := apart(clustering):
            warn(sentence, UserWarning)
    adopt_clustering(model, clustering, chosen.name, divergence)
    for stale in ("extra_", "provenance_", "_stream"):  # left by a file or by partial_fit
        model.__dict__.pop(stale, None)
    reporter.end()
    return model


def load(path: str | os.PathLike[str]) -> ONMF:
    """Read a model that :meth:`ONMF.save` wrote.

    No code from the file is executed, and every part is checked against its checksum.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    ONMF
        The fitted model, with ``extra_``, the entries saved along with it and the ``"kind"`` of its data, and
        ``provenance_``: when and with which versions it was written.

    Raises
    ------
    ValueError
        If the file is not a model, is damaged, or was written by a newer version.
    """
    saved = read_model(path)
    model = ONMF(**saved.parameters)
    try:
        check_parameters(model)
    except ValueError as error:
        raise damaged(path, error) from error
    model.extra_, model.provenance_ = saved.extra, saved.provenance
    adopt_clustering(model, saved.clustering, saved.engine, saved.divergence)
    model.n_features_in_ = saved.clustering.centroids.shape[1]
    if saved.feature_names is not None:
        model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    return model


CHECKS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (
        ("n_clusters", "n_consensus", "max_iter"),
        lambda value: is_integer(value) and 1 <= value < 2**31,
        "an integer, at least 1 and below 2**31",
    ),
    (("tol",), lambda value: 0 <= number(value) < np.inf, "a number, at least 0"),
    (("smoothing",), lambda value: is_auto(value) or 0 <= number(value) < np.inf, "a number, at least 0, or 'auto'"),
    (
        ("n_init",),
        lambda value: is_auto(value) or (is_integer(value) and 1 <= value < 2**31),
        "an integer, at least 1 and below 2**31, or 'auto'",
    ),
    (("forgetting",), lambda value: 0 < number(value) <= 1, "a number greater than 0, at most 1"),
    (("adapt",), lambda value: is_auto(value) or 0 <= number(value) <= 1, "a number from 0 to 1, or 'auto'"),
    (("seed_share",), lambda value: 0 < number(value) <= 1e6, "a number greater than 0, at most 1e6"),
    (("sparse_output",), lambda value: isinstance(value, bool | np.bool_), "True or False"),
    (("verbose",), lambda value: isinstance(value, Integral) and int(value) >= 0, "an integer, at least 0"),
    (
        ("init",),
        lambda value: get_start(value) is not None,
        f"'auto', one of {', '.join(map(repr, STARTS))}, an array of centroids, or a callable",
    ),
)
"""Names of parameters, whether a value is allowed, and what it must be."""


def check_parameters(model: Any) -> None:
    """Refuse invalid parameters before any data are read."""
    for names, allowed, what in CHECKS:
        for name in names:
            value = getattr(model, name)
            if not allowed(value):
                raise ValueError(f"{name}={value!r} is not allowed: {name} must be {what}.")


RANDOM_RUNS = 10  # from random starts, if n_init="auto" and the rows have groups or some clusters are known


def settings_of(model: Any, init: Any = None, *, grouped: bool = False, given: int | None = None) -> Settings:
    """The settings of a fit with these parameters. An ``init`` replaces that of the model, for a single run.

    ``given`` is the number of clusters of which something is known, if anything is.
    """
    start = start_of(model, grouped, given is not None)
    several = grouped if given is None else given < model.n_clusters
    n_init = (RANDOM_RUNS if several else 1) if is_auto(model.n_init) else int(model.n_init)
    n_runs = _number_of_runs(start, n_init, automatic=is_auto(model.n_init)) if init is None else 1
    return Settings(
        n_clusters=model.n_clusters,
        init=start if init is None else init,
        seeds=check_random_state(model.random_state).randint(2**31 - 1, size=n_runs),
        plan=Plan(model.max_iter, model.tol, model.refine),
        n_consensus=model.n_consensus,
        parameters=model.get_params(deep=False),
        adapt=None if is_auto(model.adapt) else float(model.adapt),
        seed_share=float(model.seed_share),
    )


def start_of(model: Any, grouped: bool = False, guided: bool = False) -> Any:
    """The start of a fit: that of the model, or the one that ``"auto"`` stands for."""
    return ("random-partition" if grouped or guided else "snpa") if is_auto(model.init) else model.init


def _number_of_runs(init: Any, n_init: int, automatic: bool) -> int:
    """The number of runs: ``n_init``, or 1 for a deterministic start."""
    start = get_start(init)
    if n_init == 1 or start is None or start.random:
        return n_init
    if automatic:
        return 1
    if start.by_runs:
        raise ValueError(
            f"n_init={n_init} is not allowed with init={init!r}: a consensus is one start made of many runs. Set "
            "n_consensus to their number instead."
        )
    warn(
        f"n_init={n_init} runs would all be the same from a deterministic start: running once. Use one of "
        f"{', '.join(sorted(repr(name) for name, start in STARTS.items() if start.random))} as init.",
        RuntimeWarning,
    )
    return 1


def needs_all_rows(init: Any) -> bool:
    """Whether a start needs all rows in memory."""
    start = get_start(init)
    return start is not None and (start.by_runs or start.moves_rows)


def check_for_parts(refine: Any, init: Any) -> None:
    """Refuse parameters that need all rows in memory."""
    for needs_all, name, value, instead in (
        (refine is not None, "refine", refine, "refine=None, and several runs with n_init"),
        (needs_all_rows(init), "init", init, "init='random-partition' with n_init"),
    ):
        if needs_all:
            raise ValueError(f"{name}={value!r} needs all rows in memory, and X comes in parts: use {instead}.")


ROW_STARTS = ("snpa", "++", "random", "bisection")  # rows, or clusters of single rows, each of one group


def check_divergence_for_groups(divergence: Divergence) -> None:
    """Refuse divergences that have no multipliers of groups."""
    if type(divergence) is not KullbackLeibler:
        raise ValueError(
            f"groups= is for Kullback–Leibler, and beta_loss is {divergence.name}: use beta_loss='kullback-leibler'."
        )


def check_for_groups(model: Any, init: Any, divergence: Divergence) -> None:
    """Refuse parameters that cannot be combined with groups."""
    check_divergence_for_groups(divergence)
    if model.refine is not None:
        raise ValueError(
            f"refine={model.refine!r} cannot be combined with groups: use refine=None and more runs, n_init."
        )
    if isinstance(init, str) and init in ROW_STARTS:
        raise ValueError(
            f"init={init!r} begins from clusters that belong to one group each, and would stay there: use "
            "init='random-partition' or 'consensus'."
        )


def check_for_guides(model: Any, init: Any, divergence: Divergence) -> None:
    """Refuse parameters that cannot be combined with known rows or seed features."""
    if type(divergence) is not KullbackLeibler:
        raise ValueError(
            f"known= and seeds= are for Kullback–Leibler, and beta_loss is {divergence.name}: use "
            "beta_loss='kullback-leibler'."
        )
    if model.refine is not None:
        raise ValueError(
            f"refine={model.refine!r} moves every row, and cannot be combined with known= or seeds=: use refine=None."
        )
    if isinstance(init, str) and init not in STARTS_OF_OTHERS:
        raise ValueError(
            f"init={init!r} finds first centroids for all clusters, and some are known: use init='auto' or one of "
            f"{', '.join(map(repr, STARTS_OF_OTHERS))}."
        )


def has_relative_smoothing(model: Any) -> bool:
    """Whether the smoothing of a fit with groups follows from the number of features."""
    return is_auto(model.smoothing) and not isinstance(model.beta_loss, Divergence)


def is_auto(value: Any) -> bool:
    """Whether a parameter is left to the fit."""
    return isinstance(value, str) and value == "auto"


def is_integer(value: Any) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def one_column(labels: Array, scales: FloatArray, k: int, sparse: bool) -> Any:
    """The scale of each row in the column of its cluster. → (n, k)"""
    H = describe.membership(labels, scales, k)
    return H if sparse else H.toarray()


def _check_memory(needed: int, what: str) -> None:
    """Refuse to create what needs so many bytes if it cannot fit in memory."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not known on this system
        return
    if needed > available:
        raise MemoryError(
            f"The {what} would take {needed / 1e9:.1f} GB, and this machine has {available / 1e9:.1f} GB: transform "
            "back fewer rows at a time."
        )
