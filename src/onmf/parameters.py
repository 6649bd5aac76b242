"""Checks the parameters of the estimator, and turns them into the settings of a fit."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from onmf.divergence import Array, number
from onmf.fit import STARTS, Plan, Settings
from onmf.fit.start import get_start
from onmf.warn import warn


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


def voters_of(settings: Settings) -> int:
    """The number of runs of which a start is made; 0 for most starts."""
    init = settings.init
    return settings.n_consensus if isinstance(init, str) and STARTS[init].by_runs else 0


def needs_all_rows(init: Any) -> bool:
    """Whether a start needs all rows in memory."""
    return isinstance(init, str) and init in STARTS and STARTS[init].needs_all_rows


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
