"""The kinds of core cases: fit, call the methods of the model, and compare fits that must give the same result."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from .board import accept
from .oracle import not_finite, structure_is_sound, wrong_fit, wrong_prediction, wrong_range
from .stage import Stage

CLEAR_MARGIN = 1e-6
"""If the margins of all rows exceed this, two fits must give the same clusters, even if they sum in another order."""


def fitted(stage: Stage, case: Any, X: str = "X", w: str | None = "w", name: str = "model", **changes: str) -> Any:
    """Fit a model and check it; return None if the fit was refused. ``X`` and ``w`` are expressions."""
    w = w if w is not None and w in stage.names else None
    weights = "" if w is None else f", sample_weight={w}"
    if not stage.do(f"{name} = {case.model(**changes)}"):
        return None
    before = frozen(stage.names.get(X)), frozen(stage.names.get(w or ""))
    succeeded = stage.do(f"{name}.fit({X}{weights})")
    if before != (frozen(stage.names.get(X)), frozen(stage.names.get(w or ""))):
        stage.broken("fit changed the caller's data.", "changed")
    model = stage.names[name]
    if not succeeded:
        check_unfitted(stage, model, "A refused fit")
        return None
    accept()
    A = stage.names["A"] if case.data.sound else None
    if not case.data.sound and not structure_is_sound(stage.names["X"]):
        stage.broken("X has indices out of bounds, but was fitted.", "structure")
    stage.add(wrong_fit(model, A, stage.names.get(w or ""), stage.caught))
    return model


def check_unfitted(stage: Stage, model: Any, subject: str) -> None:
    """Check that an estimator whose first fit did not end has no fitted attributes."""
    attributes = [name for name in vars(model) if name.endswith("_") and not name.startswith("__")]
    if attributes:
        stage.broken(f"{subject} left the attributes {', '.join(attributes)}.", "half fitted")


def frozen(X: Any) -> Any:
    """Return the bytes of data that a caller passed, to check whether they change."""
    if isinstance(X, np.ndarray):
        return X.tobytes()
    if hasattr(X, "tocsr"):
        parts = [getattr(X, name) for name in ("data", "indices", "indptr", "row", "col") if hasattr(X, name)]
        return [np.asarray(part).tobytes() for part in parts if isinstance(part, np.ndarray)]
    return repr(X) if isinstance(X, list) else None


def question(stage: Stage, rng: Random, X: str = "X") -> None:
    """Call ``predict`` of a fitted model, and a random choice of its other methods."""
    model = stage.names["model"]
    loss, k = model.divergence_.name, len(model.cluster_centers_)
    infinite = k == 1 or not getattr(model.divergence_, "smoothing", 1) > 0
    labels = stage.after(f"model.predict({X})", lambda labels: wrong_range(labels, k))
    if labels is None:
        return
    if rng.random() < 0.4:
        stage.names["H"] = stage.after(f"model.transform({X})", lambda H: not_finite("transform", H, loss))
        if stage.names["H"] is not None:
            stage.after("model.inverse_transform(H)", lambda rows: not_finite("inverse_transform", rows, loss))
    if rng.random() < 0.4:
        stage.after(f"model.score({X})", lambda score: not_finite("score", score, loss))
    if rng.random() < 0.4:
        proba = stage.after(f"model.predict_proba({X})", lambda proba: not_finite("predict_proba", proba, loss))
        if proba is not None and not np.allclose(np.asarray(proba).sum(axis=1), 1):
            stage.broken("predict_proba does not sum to 1", f"predict_proba, {loss}")
    if rng.random() < 0.4:
        margins = stage.after(f"model.assign({X}).margins", lambda m: not_finite("margins", m, loss, infinite))
        if margins is not None:
            assigned = stage.ask(f"model.assign({X}).labels")
            if not np.array_equal(np.asarray(assigned), np.asarray(labels)):
                stage.broken("assign and predict differ", f"assign, {loss}")
    if rng.random() < 0.2:
        stage.ask("model.top_features(3)")


def fit(stage: Stage, case: Any) -> None:
    """Fit, and call the methods of the model on the same rows."""
    model, rng = fitted(stage, case), Random(case.seed)
    if model is None:
        return
    question(stage, rng)
    stage.after("model.predict(X)", lambda labels: wrong_prediction(model, labels))
    draw = rng.random()
    if draw < 0.05:
        save_and_load(stage)
    elif draw < 0.1:
        loss = model.divergence_.name
        stage.after("model.fit_transform(X)", lambda H: not_finite("fit_transform", H, loss))
    elif draw < 0.15 and hasattr(model, "partial_fit") and stage.do("model.partial_fit(X)"):
        question(stage, rng)


def save_and_load(stage: Stage) -> None:
    """Save the model to a file, load it, and compare the predictions."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        stage.names["path"] = os.path.join(folder, "model.onmf")
        if not stage.do("model.save(path)"):
            return
        if not stage.do("again = onmf.load(path)"):
            stage.broken("a saved model cannot be loaded", "load")
            return
        before, after = stage.ask("model.predict(X)"), stage.ask("again.predict(X)")
        if before is not None and not np.array_equal(np.asarray(before), np.asarray(after)):
            stage.broken("a loaded model gives other predictions", "load")


def threads(stage: Stage, case: Any) -> None:
    """Check that one thread and three give exactly the same result."""
    if "engine" in case.params:
        return fit(stage, case)
    one, three = (fitted(stage, case, name=name, n_threads=n) for name, n in (("one", "1"), ("three", "3")))
    if one is None or three is None:
        if (one is None) != (three is None):
            stage.broken("a fit is refused with one number of threads, but not with another", "threads")
        return None
    for name in ("labels_", "scales_", "cluster_centers_", "reconstruction_err_", "margins_", "n_iter_"):
        first, second = np.asarray(getattr(one, name)), np.asarray(getattr(three, name))
        if not np.array_equal(first, second):
            stage.broken(f"1 thread and 3 threads: {name} differs", f"threads, {name}, {one.divergence_.name}")
            return None
    return None


def dense_and_sparse(stage: Stage, case: Any) -> None:
    """Check that a model assigns an array of integers and the same data as CSR alike, unless a row is near a tie.

    Two fits may end in different clusters: they add up scores in different orders, and may break a tie differently.
    """
    A = stage.names["A"]
    integers = A.dtype.kind in "iu" and A.dtype.byteorder != ">" and A.max() <= 1000
    if not integers or not case.data.sound:
        return fit(stage, case)
    for name, X, other in (("dense", "A", "sp.csr_array(A)"), ("sparse", "sp.csr_array(A)", "A")):
        model = fitted(stage, case, X, name=name)
        if model is None:
            continue
        one, two = (stage.ask(f"{name}.assign({rows})") for rows in (X, other))
        if one is None or two is None:  # no sparse rows for divergences that take no zeros
            continue
        clear = np.minimum(one.margins, two.margins) > CLEAR_MARGIN
        if not np.array_equal(one.labels[clear], two.labels[clear]):
            stage.broken("an array and CSR get other clusters", f"an array and CSR, {model.divergence_.name}")
    return None


def repeats(stage: Stage, case: Any) -> None:
    """Check that a row of weight 2 counts as two equal rows."""
    plain = case.params.get("init", "'snpa'") == "'snpa'" and "refine" not in case.params
    if not case.data.sound or not plain:
        return fit(stage, case)
    stage.prepare([f"w = np.random.default_rng({case.seed}).integers(1, 4, len(A))"])
    weighted = fitted(stage, case, "A", name="weighted")
    if weighted is None or not stage.do(f"repeated = {case.model()}"):
        return None
    if stage.do("repeated.fit(np.repeat(A, w, axis=0))"):
        labels = np.repeat(np.asarray(weighted.labels_), stage.names["w"])
        same_clusters(stage, weighted, stage.names["repeated"], labels, "weights and repeated rows")
    return None


def same_clusters(stage: Stage, a: Any, b: Any, labels: Any, variants: str) -> None:
    """Check that two fits have the same clusters, if the margins are clear and the rows have similar magnitudes."""
    clear = min(np.asarray(a.margins_).min(), np.asarray(b.margins_).min()) > CLEAR_MARGIN
    sizes = np.abs(np.asarray(stage.names["A"], dtype=np.float64)).max(axis=1)
    similar = sizes.max() < 1e6 * sizes.min()
    converged = "max_iter" not in (a.stop_reason_, b.stop_reason_)
    same = np.array_equal(labels, np.asarray(b.labels_))
    if a.n_init not in (
        1,
        "auto",
    ):  # runs may end in the same clustering with other numbers, and rounding decides which one wins
        same = adjusted_rand_score(labels, np.asarray(b.labels_)) == 1
    if clear and similar and converged and not same:
        objectives = f"{a.reconstruction_err_:.12g} and {b.reconstruction_err_:.12g}"
        stage.broken(f"{variants} give other clusters: objectives {objectives}", f"{variants}, {a.divergence_.name}")


def partial_fit(stage: Stage, case: Any) -> None:
    """Fit batch by batch; some batches have names, and some are repeated."""
    rng, weights = Random(case.seed), ", sample_weight=w" if "w" in stage.names else ""
    if "refine" in case.params or case.params.get("init") == "'consensus'":  # they need all rows
        return fit(stage, case)
    if not stage.do(f"model = {case.model()}"):
        return
    model = stage.names["model"]
    for _ in range(rng.randrange(1, 5)):
        before = frozen(stage.names["X"])
        succeeded = stage.do(f"model.partial_fit(X{weights}, batch={rng.choice((None, 0, 'a'))!r})")
        if before != frozen(stage.names["X"]):
            stage.broken("partial_fit changed the caller's data.", "changed")
        if not succeeded:
            return
        accept()
        stage.add(wrong_fit(model, None, stage.names.get("w"), stage.caught))
    question(stage, rng)


def new_data(stage: Stage, case: Any) -> None:
    """Fit valid data, and call the methods of the model on arbitrary rows."""
    features = case.other.p + (case.seed % 5 == 0)
    stage.prepare([f"S = np.random.default_rng({case.seed}).gamma(1, 1, (9, {features})) + 0.1"])
    if stage.do(f"model = {case.model()}") and stage.do("model.fit(S)"):
        accept()
        stage.prepare(case.other.lines())
        question(stage, Random(case.seed))


def interrupt(stage: Stage, case: Any) -> None:
    """Press Ctrl-C at a random bytecode of a fit: it raises KeyboardInterrupt, and leaves no half-fitted estimator."""
    if not stage.do(f"model = {case.model()}"):
        return
    model, remaining = stage.names["model"], int(10 ** Random(case.seed).uniform(0, 4.5))
    # Calls in other packages are counted only sometimes: their number depends on what is already compiled.
    everywhere, raised = case.seed % 4 == 0, False

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal remaining
        frame.f_trace_opcodes = ours = "/onmf/" in frame.f_code.co_filename
        remaining -= ours or everywhere
        if remaining == 0 and (ours or everywhere):
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # called with the frame, as Python does
        return count if ours else None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for such a frame when tracing starts
    try:
        sys.settrace(count)
        refused = not stage.do("model.fit(X)")
    except KeyboardInterrupt:
        raised = True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    if remaining <= 0 and not raised:
        stage.broken(f"An interrupt was swallowed by a fit that {'was refused' if refused else 'ended'}.", "interrupt")
    if hasattr(model, "clustering_"):  # the fit had ended before the interrupt
        question(stage, Random(case.seed))
    else:
        check_unfitted(stage, model, "An interrupted fit")
    if stage.do("model.fit(X)"):
        accept()
        stage.add(wrong_fit(model, stage.names["A"] if case.data.sound else None, None, stage.caught))
        question(stage, Random(case.seed))


class Bell:
    """A callback that raises an error, or requests a stop, at the end of the first task."""

    def __init__(self, kind: type[BaseException] | None) -> None:
        self.kind = kind

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, *args: Any, **kwargs: Any) -> bool:
        """Raise the error, or request a stop."""
        if self.kind is not None:
            raise self.kind("from the caller's own function")
        return True


def own_code(stage: Stage, case: Any) -> None:
    """Use an init function or a callback that raises: its error must reach the caller. Or a callback that stops."""
    rng = Random(case.seed)
    calls_back = hasattr(stage.names["ONMF"], "set_callbacks")  # with scikit-learn 1.9
    kind = rng.choice((KeyboardInterrupt, ZeroDivisionError, None if calls_back else ZeroDivisionError))
    by_start = kind is not None and (rng.random() < 0.5 or not calls_back)

    def start(X: Any, k: int, random_state: Any) -> Any:
        raise kind("from the caller's own function")  # type: ignore[misc]

    stage.names |= {"start": start, "bell": Bell(kind)}
    if not stage.do(f"model = {case.model(**{'init': 'start'} if by_start else {})}"):
        return
    if not by_start and not stage.do("model.set_callbacks(bell)"):
        return
    try:
        succeeded = stage.do("model.fit(X)")
    except KeyboardInterrupt:
        return
    if kind is None and succeeded:
        question(stage, rng)
    elif succeeded:
        stage.broken(f"a {kind.__name__} of the caller's code was swallowed", "own code")
    elif stage.failures and stage.failures[-1].what.startswith("ZeroDivisionError: from the caller's"):
        stage.failures.pop()  # the error reached the caller unchanged, as it should


def functions(stage: Stage, case: Any) -> None:
    """Call the functions of the package that are not methods of the estimator."""
    line = (
        f"onmf.snpa(X, {case.k})",
        f"onmf.kl_onmf(X, {case.k}).scales",
        f"onmf.fro_onmf(X, {case.k}).scales",
        f"onmf.select_n_clusters(X, k_max={case.k}, n_splits=2, false_alarms=0.5, random_state=0).agreement",
    )[case.seed % 4]
    result = stage.after(line, lambda value: not_finite(line.partition("(")[0], value, ""))
    if result is not None and not case.data.sound and not structure_is_sound(stage.names["X"]):
        stage.broken("X has indices out of bounds, but was fitted.", "structure", line)


ACTS: dict[str, tuple[Callable[[Stage, Any], None], int]] = {
    "fit": (fit, 70),
    "threads": (threads, 5),
    "dense and sparse": (dense_and_sparse, 5),
    "repeats": (repeats, 4),
    "partial fit": (partial_fit, 7),
    "new data": (new_data, 4),
    "interrupt": (interrupt, 3),
    "own code": (own_code, 2),
    "functions": (functions, 2),
}
"""The kinds of core cases, and their weights."""
