"""What a case of a fit does: it makes its data, fits, asks the model everything, and holds it against the oracle."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np

from .oracle import not_finite, wrong_error, wrong_fit, wrong_prediction, wrong_warnings
from .runner import Failure

HEADER = """
import math
from math import inf, nan
import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
import onmf
from onmf import ONMF
from onmf.engine import BlocksEngine
from onmf.engine.cpu import CpuEngine
from onmf.engine.reference import ReferenceEngine
"""

_names: dict[str, Any] = {}


def names() -> dict[str, Any]:
    """The names that cases use, imported once."""
    if not _names:
        exec(HEADER, _names)
        _names["dask"].config.set(scheduler="synchronous")
    return dict(_names)


class Stage:
    """Where a case plays: its names, and the failures so far."""

    def __init__(self, case: Any) -> None:
        self.case = case
        self.names = names()
        self.failures: list[Failure] = []
        self.caught: list[warnings.WarningMessage] = []

    def attempt(self, call: Callable[[], Any]) -> Any:
        """What a call returns, or None if it raised; an error that is no sentence is a failure."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return call()
            except Exception as error:
                wrong = wrong_error(error)
                self.failures += [] if wrong is None else [wrong]
                return None
            finally:
                self.caught = caught
                self.failures += wrong_warnings(caught)

    def add(self, failures: Iterator[Failure]) -> None:
        """Keep these failures."""
        self.failures += failures


def judge(case: Any) -> list[Failure]:
    """Play a case."""
    np.random.seed(case.seed % 2**32)  # noqa: NPY002: random_state=None draws from there
    stage = Stage(case)
    ignored: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, ignored.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec("\n".join(case.setup()), stage.names)
            except Exception as error:
                return [Failure("error", f"the case itself: {type(error).__name__}: {error}", "setup")]
        with contextlib.redirect_stdout(io.StringIO()):
            ACTS[case.act](stage)
    finally:
        sys.unraisablehook = hook
    for event in ignored:
        what = f"{type(event.exc_value).__name__} ignored in {event.object!r}: {event.exc_value}"
        stage.failures.append(Failure("error", what, "ignored"))
    return stage.failures


def made(stage: Stage, **changes: str) -> Any:
    """The estimator of a case, or None if it refuses."""
    return stage.attempt(lambda: eval(stage.case.model(**changes), stage.names))


def fitted(stage: Stage, X: Any, w: Any, **changes: str) -> Any:
    """A fitted estimator that has been looked at, or None."""
    model = made(stage, **changes)
    if model is None:
        return None
    before = frozen(X), frozen(w)
    done = stage.attempt(lambda: model.fit(X, sample_weight=w))
    if before != (frozen(X), frozen(w)):
        stage.failures.append(Failure("contract", "fit changed the caller's data.", "changed"))
    if done is None:
        return None
    case = stage.case
    A = stage.names["A"] if case.data.sound else None
    if not case.data.sound and not structure_is_sound(X):
        stage.failures.append(Failure("contract", "X has indices that lead outside, and was fitted.", "structure"))
    stage.add(wrong_fit(model, A, w, stage.caught, model._divergence.name, smooth=smoothed(model)))
    return model


def smoothed(model: Any) -> bool:
    """Whether no cost can be infinite."""
    return getattr(model._divergence, "smoothing", 1) > 0


def frozen(X: Any) -> Any:
    """The bytes of what a caller passed, to see whether they change."""
    if isinstance(X, np.ndarray):
        return X.tobytes()
    if hasattr(X, "tocsr") and hasattr(X, "data"):
        parts = [getattr(X, name) for name in ("data", "indices", "indptr", "row", "col") if hasattr(X, name)]
        return [np.asarray(part).tobytes() for part in parts if not isinstance(part, memoryview)]
    if isinstance(X, list):
        return repr(X)
    return None


def structure_is_sound(X: Any) -> bool:
    """Whether the indices of a sparse matrix stay inside it; written for itself, entry by entry."""
    if X.format == "coo":
        return all(0 <= i < X.shape[0] and 0 <= j < X.shape[1] for i, j in zip(X.row, X.col, strict=True))
    lines, across = X.shape if X.format != "csc" else X.shape[::-1]
    if X.format == "bsr":
        lines, across = lines // X.blocksize[0], across // X.blocksize[1]
    pointers = [int(x) for x in X.indptr]
    if len(pointers) != lines + 1 or pointers[0] != 0 or pointers != sorted(pointers):
        return False
    if pointers[-1] > min(len(X.indices), len(X.data)) or X.indices.dtype.kind not in "iu":
        return False
    return all(0 <= int(j) < across for j in X.indices[: pointers[-1]])


def question(stage: Stage, model: Any, X: Any, w: Any) -> None:
    """Ask a fitted model everything about some rows."""
    loss, smooth = model._divergence.name, smoothed(model)
    sharp = model._divergence.name == "frobenius"
    labels = stage.attempt(lambda: model.predict(X))
    if labels is None:
        return
    labels = np.asarray(labels)
    k = len(model.cluster_centers_)
    if labels.min() < 0 or labels.max() >= k:
        stage.failures.append(Failure("contract", f"predict gives {labels}", "predict"))
    H = stage.attempt(lambda: model.transform(X))
    if H is not None:
        H = H.compute() if hasattr(H, "compute") else H
        stage.add(not_finite("transform", H, loss))
        back = stage.attempt(lambda: model.inverse_transform(H))
        if back is not None:
            stage.add(not_finite("inverse_transform", back, loss))
    score = stage.attempt(lambda: model.score(X, sample_weight=w))
    if score is not None:
        stage.add(not_finite("score", score, loss))
    chances = stage.attempt(lambda: model.predict_proba(X))
    if chances is not None:
        chances = np.asarray(chances)
        stage.add(not_finite("predict_proba", chances, loss))
        if not np.allclose(chances.sum(axis=1), 1):
            stage.failures.append(Failure("contract", f"predict_proba sums to {chances.sum(axis=1)}", "proba"))
    found = stage.attempt(lambda: model.assign(X))
    if found is not None:
        stage.add(not_finite("assign.scales", found.scales, loss))
        stage.add(not_finite("assign.margins", found.margins, loss, infinite=k == 1 or not smooth))
        if not np.array_equal(np.asarray(found.labels), labels):
            stage.failures.append(Failure("contract", "assign and predict differ", f"assign, {loss}, {sharp}"))


def fit(stage: Stage) -> None:
    """Fit, and ask everything about the same rows."""
    X, w = stage.names["X"], stage.names.get("w")
    model = fitted(stage, X, w)
    if model is None:
        return
    question(stage, model, X, w)
    labels = stage.attempt(lambda: model.predict(X))
    if labels is not None:
        stage.add(wrong_prediction(model, labels))
    stage.attempt(lambda: model.top_features(3))
    draw = Random(stage.case.seed).random()
    if draw < 0.05:
        saved(stage, model, X)
    elif draw < 0.1:
        again = stage.attempt(lambda: model.fit_transform(X, sample_weight=w))
        stage.add(not_finite("fit_transform", [] if again is None else again, model._divergence.name))
    elif draw < 0.15 and hasattr(model, "partial_fit"):
        stage.attempt(lambda: model.partial_fit(X, sample_weight=w))
        question(stage, model, X, None)


def saved(stage: Stage, model: Any, X: Any) -> None:
    """Write the model into a file and read it again."""
    from onmf import load

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onmf")
        stage.attempt(lambda: model.save(path))
        if not os.path.exists(path):
            return
        again = stage.attempt(lambda: load(path))
        if again is None:
            stage.failures.append(Failure("contract", "a saved model cannot be loaded", "load"))
            return
        before, after = stage.attempt(lambda: model.predict(X)), stage.attempt(lambda: again.predict(X))
        if before is not None and not np.array_equal(np.asarray(before), np.asarray(after)):
            stage.failures.append(Failure("contract", "a loaded model predicts otherwise", "load"))


def threads(stage: Stage) -> None:
    """One thread and three give the same bits."""
    X, w = stage.names["X"], stage.names.get("w")
    if "engine" in stage.case.params:
        return fit(stage)
    one, three = (fitted(stage, X, w, n_threads=number) for number in ("1", "3"))
    if one is None or three is None:
        if (one is None) != (three is None):
            stage.failures.append(Failure("contract", "one number of threads is refused", "threads"))
        return None
    same_bits(stage, one, three, "1 thread and 3 threads", "threads")
    return None


def same_bits(stage: Stage, a: Any, b: Any, what: str, where: str) -> None:
    """Both models have the same labels, centroids and objective."""
    for name in ("labels_", "scales_", "cluster_centers_", "reconstruction_err_", "n_iter_"):
        first, second = np.asarray(getattr(a, name)), np.asarray(getattr(b, name))
        if not np.array_equal(first, second, equal_nan=name != "labels_"):
            stage.failures.append(
                Failure("contract", f"{what}: {name} differs", f"{where}, {name}, {a._divergence.name}")
            )
            return


def dense_and_sparse(stage: Stage) -> None:
    """Integers give the same labels and objective as an array and as CSR."""
    from scipy.sparse import csr_array

    A, w = stage.names["A"], stage.names.get("w")
    if A.dtype.kind not in "iu" or A.dtype.byteorder == ">" or not stage.case.data.sound:
        return fit(stage)
    if A.max() > 1000 or stage.case.params.get("random_state", "").startswith("np."):
        return fit(stage)
    dense, sparse = (fitted(stage, X, w) for X in (A, csr_array(A)))
    if dense is not None and sparse is not None and "random_state" in stage.case.params:
        same_result(stage, dense, sparse, "an array and CSR", "dense and sparse")
    return None


def same_result(stage: Stage, a: Any, b: Any, what: str, where: str) -> None:
    """Both models have the same objective and, where the rows are sure of them, the same labels."""
    one, two = a.reconstruction_err_, b.reconstruction_err_
    sure = min(np.asarray(a.margins_).min(), np.asarray(b.margins_).min()) > 1e-6
    if not sure or "max_iter" in (a.stop_reason_, b.stop_reason_):
        return
    same = np.array_equal(np.asarray(a.labels_), np.asarray(b.labels_))
    if not same or abs(one - two) > 1e-6 * (abs(one) + abs(two)) + 1e-9:
        stage.failures.append(
            Failure("contract", f"{what}: objectives {one:.12g}, {two:.12g}, same labels: {same}", where)
        )


def repeats(stage: Stage) -> None:
    """A row of weight 2 counts as two equal rows."""
    A, case = stage.names["A"], stage.case
    if not case.data.sound or case.params.get("init") not in (None, "'snpa'") or "random_state" not in case.params:
        return fit(stage)
    w = np.random.default_rng(case.seed).integers(1, 4, len(A))
    weighted = fitted(stage, A, w)
    if weighted is None:
        return None
    again = made(stage)
    done = stage.attempt(lambda: again.fit(np.repeat(A, w, axis=0)))
    if done is not None and case.params.get("refine") is None:
        one, two = weighted.reconstruction_err_, again.reconstruction_err_
        sure = min(np.asarray(weighted.margins_).min(), np.asarray(again.margins_).min()) > 1e-6
        converged = "max_iter" not in (weighted.stop_reason_, again.stop_reason_)
        if sure and converged and not np.array_equal(np.repeat(weighted.labels_, w), again.labels_):
            text = f"weights and repeated rows: objectives {one:.12g}, {two:.12g}, other labels"
            stage.failures.append(Failure("contract", text, f"repeats, {weighted._divergence.name}"))
    return None


def partial_fit(stage: Stage) -> None:
    """Learn from batches, some of them with names, some of them again."""
    X, w = stage.names["X"], stage.names.get("w")
    model = made(stage)
    if model is None:
        return
    if not hasattr(model, "partial_fit"):
        return fit(stage)
    rng = Random(stage.case.seed)
    for _ in range(rng.randrange(1, 5)):
        batch = rng.choice((None, 0, "a"))
        before = frozen(X)
        done = stage.attempt(lambda batch=batch: model.partial_fit(X, sample_weight=w, batch=batch))
        if before != frozen(X):
            stage.failures.append(Failure("contract", "partial_fit changed the caller's data.", "changed"))
        if done is None:
            return
        stage.add(wrong_fit(model, None, w, stage.caught, "batches", smooth=smoothed(model)))
    question(stage, model, X, w)


def new_data(stage: Stage) -> None:
    """Fit something sane, and ask about rows that may be anything."""
    rng = np.random.default_rng(stage.case.seed)
    p = stage.case.other.p if stage.case.seed % 5 else stage.case.other.p + 1
    model = made(stage)
    sane = rng.gamma(1, 1, (9, p)) + 0.1
    if model is None or stage.attempt(lambda: model.fit(sane)) is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(stage.case.other.lines()), stage.names)
    X = stage.names["X"]
    question(stage, model, X, None)


def interrupt(stage: Stage) -> None:
    """Ctrl-C at some moment of a fit: it comes out as KeyboardInterrupt, and the estimator is whole."""
    X, w = stage.names["X"], stage.names.get("w")
    model = made(stage)
    if model is None:
        return
    fired = False

    def ring(number: int, frame: Any) -> None:
        nonlocal fired
        fired = True
        raise KeyboardInterrupt

    came_out = False
    old = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, Random(stage.case.seed).uniform(1e-5, 4e-3))
            stage.attempt(lambda: model.fit(X, sample_weight=w))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        came_out = True
    finally:
        signal.signal(signal.SIGALRM, old)
    if fired and not came_out:
        stage.failures.append(Failure("contract", "an interrupt was swallowed", "interrupt"))
    fitted(stage, X, w)
    if stage.attempt(lambda: model.fit(X, sample_weight=w)) is not None:
        question(stage, model, X, w)


def stop_from_callback(stage: Stage) -> None:
    """A start that raises: the interrupt, or the user's own error, comes out as it is."""
    X, w = stage.names["X"], stage.names.get("w")
    kind = (KeyboardInterrupt, ZeroDivisionError)[stage.case.seed % 2]

    def start(X: Any, k: int, random_state: Any) -> Any:
        raise kind("from the caller's own function")

    model = made(stage)
    if model is None:
        return
    model.set_params(init=start)
    try:
        model.fit(X, sample_weight=w)
    except kind:
        return
    except Exception as error:
        wrong = wrong_error(error)
        stage.failures += [] if wrong is None else [wrong]
        return
    stage.failures.append(Failure("contract", f"a {kind.__name__} of a start was swallowed", "callback"))


def functions(stage: Stage) -> None:
    """The functions beside the estimator."""
    import onmf

    X, case = stage.names["X"], stage.case
    which = case.seed % 4
    k = stage.attempt(lambda: eval(case.k, stage.names))
    if which == 0:
        found = stage.attempt(lambda: onmf.snpa(X, k))
        if found is not None and (min(found) < 0 or max(found) >= case.data.n):
            stage.failures.append(Failure("contract", f"snpa gives rows {found}", "snpa"))
    elif which == 1:
        stage.attempt(lambda: onmf.kl_onmf(X, k))
    elif which == 2:
        stage.attempt(lambda: onmf.fro_onmf(X, k))
    else:
        found = stage.attempt(
            lambda: onmf.select_n_clusters(X, [1, k], n_splits=2, n_init=2, random_state=0, max_iter=20)
        )
        if found is not None:
            stage.add(not_finite("select", [found.held_out, found.stability, found.bic], "select"))


ACTS: dict[str, Callable[[Stage], None]] = {
    "fit": fit,
    "threads": threads,
    "dense and sparse": dense_and_sparse,
    "repeats": repeats,
    "partial_fit": partial_fit,
    "new data": new_data,
    "interrupt": interrupt,
    "stop": stop_from_callback,
    "functions": functions,
}
