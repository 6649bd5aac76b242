"""What a case of a fit does: it fits, asks the model everything, and compares fits that must be the same."""

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

SURE = 1e-6
"""Margin of all rows above which two fits must end in the same clusters, though they add up in another order."""


def fitted(stage: Stage, case: Any, X: str = "X", w: str | None = "w", name: str = "model", **changes: str) -> Any:
    """A fitted model that has been looked at, or None if it was refused; ``X`` and ``w`` are expressions."""
    w = w if w is not None and w in stage.names else None
    weights = "" if w is None else f", sample_weight={w}"
    if not stage.do(f"{name} = {case.model(**changes)}"):
        return None
    before = frozen(stage.names.get(X)), frozen(stage.names.get(w or ""))
    fine = stage.do(f"{name}.fit({X}{weights})")
    if before != (frozen(stage.names.get(X)), frozen(stage.names.get(w or ""))):
        stage.broken("fit changed the caller's data.", "changed")
    model = stage.names[name]
    if not fine:
        half_fitted(stage, model, "A fit that was refused")
        return None
    accept()
    A = stage.names["A"] if case.data.sound else None
    if not case.data.sound and not structure_is_sound(stage.names["X"]):
        stage.broken("X has indices that lead outside, and was fitted.", "structure")
    stage.add(wrong_fit(model, A, stage.names.get(w or ""), stage.caught))
    return model


def half_fitted(stage: Stage, model: Any, what: str) -> None:
    """An estimator whose first fit did not end is as new."""
    left = [name for name in vars(model) if name.endswith("_") and not name.startswith("__")]
    if left:
        stage.broken(f"{what} has left {', '.join(left)} behind.", "half fitted")


def frozen(X: Any) -> Any:
    """The bytes of what a caller passed, to see whether they change."""
    if isinstance(X, np.ndarray):
        return X.tobytes()
    if hasattr(X, "tocsr"):
        parts = [getattr(X, name) for name in ("data", "indices", "indptr", "row", "col") if hasattr(X, name)]
        return [np.asarray(part).tobytes() for part in parts if isinstance(part, np.ndarray)]
    return repr(X) if isinstance(X, list) else None


def question(stage: Stage, rng: Random, X: str = "X") -> None:
    """Ask a fitted model about some rows: where they belong, always; the rest, some of it."""
    model = stage.names["model"]
    loss, k = model._divergence.name, len(model.cluster_centers_)
    infinite = k == 1 or not getattr(model._divergence, "smoothing", 1) > 0
    labels = stage.after(f"model.predict({X})", lambda found: wrong_range(found, k))
    if labels is None:
        return
    if rng.random() < 0.4:
        stage.names["H"] = stage.after(f"model.transform({X})", lambda H: not_finite("transform", H, loss))
        if stage.names["H"] is not None:
            stage.after("model.inverse_transform(H)", lambda rows: not_finite("inverse_transform", rows, loss))
    if rng.random() < 0.4:
        stage.after(f"model.score({X})", lambda score: not_finite("score", score, loss))
    if rng.random() < 0.4:
        chances = stage.after(f"model.predict_proba({X})", lambda found: not_finite("predict_proba", found, loss))
        if chances is not None and not np.allclose(np.asarray(chances).sum(axis=1), 1):
            stage.broken("predict_proba does not sum to 1", f"predict_proba, {loss}")
    if rng.random() < 0.4:
        found = stage.after(f"model.assign({X}).margins", lambda found: not_finite("margins", found, loss, infinite))
        if found is not None and not np.array_equal(*map(np.asarray, (stage.ask(f"model.assign({X}).labels"), labels))):
            stage.broken("assign and predict differ", f"assign, {loss}")
    if rng.random() < 0.2:
        stage.ask("model.top_features(3)")


def fit(stage: Stage, case: Any) -> None:
    """Fit, and ask everything about the same rows."""
    model, rng = fitted(stage, case), Random(case.seed)
    if model is None:
        return
    question(stage, rng)
    stage.after("model.predict(X)", lambda labels: wrong_prediction(model, labels))
    more = rng.random()
    if more < 0.05:
        saved(stage)
    elif more < 0.1:
        loss = model._divergence.name
        stage.after("model.fit_transform(X)", lambda H: not_finite("fit_transform", H, loss))
    elif more < 0.15 and hasattr(model, "partial_fit") and stage.do("model.partial_fit(X)"):
        question(stage, rng)


def saved(stage: Stage) -> None:
    """Write the model into a file and read it again."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        stage.names["path"] = os.path.join(folder, "model.onmf")
        if not stage.do("model.save(path)"):
            return
        if not stage.do("again = onmf.load(path)"):
            stage.broken("a saved model cannot be loaded", "load")
            return
        before, after = stage.ask("model.predict(X)"), stage.ask("again.predict(X)")
        if before is not None and not np.array_equal(np.asarray(before), np.asarray(after)):
            stage.broken("a loaded model predicts otherwise", "load")


def threads(stage: Stage, case: Any) -> None:
    """One thread and three give the same bits."""
    if "engine" in case.params:
        return fit(stage, case)
    one, three = (fitted(stage, case, name=name, n_threads=n) for name, n in (("one", "1"), ("three", "3")))
    if one is None or three is None:
        if (one is None) != (three is None):
            stage.broken("one number of threads is refused, another is not", "threads")
        return None
    for name in ("labels_", "scales_", "cluster_centers_", "reconstruction_err_", "margins_", "n_iter_"):
        first, second = np.asarray(getattr(one, name)), np.asarray(getattr(three, name))
        if not np.array_equal(first, second):
            stage.broken(f"1 thread and 3 threads: {name} differs", f"threads, {name}, {one._divergence.name}")
            return None
    return None


def dense_and_sparse(stage: Stage, case: Any) -> None:
    """A model says the same about integers in an array and in CSR, if a row is sure of its cluster.

    Two fits need not end alike: scores are added up in another order, and a tie on the way may send them elsewhere.
    """
    A = stage.names["A"]
    whole = A.dtype.kind in "iu" and A.dtype.byteorder != ">" and A.max() <= 1000
    if not whole or not case.data.sound:
        return fit(stage, case)
    for name, X, other in (("dense", "A", "sp.csr_array(A)"), ("sparse", "sp.csr_array(A)", "A")):
        model = fitted(stage, case, X, name=name)
        if model is None:
            continue
        one, two = (stage.ask(f"{name}.assign({rows})") for rows in (X, other))
        if one is None or two is None:  # no sparse rows for divergences that take no zeros
            continue
        sure = np.minimum(one.margins, two.margins) > SURE
        if not np.array_equal(one.labels[sure], two.labels[sure]):
            stage.broken("an array and CSR get other clusters", f"an array and CSR, {model._divergence.name}")
    return None


def repeats(stage: Stage, case: Any) -> None:
    """A row of weight 2 counts as two equal rows."""
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


def same_clusters(stage: Stage, a: Any, b: Any, labels: Any, what: str) -> None:
    """Two fits have the same clusters, if all rows are sure of theirs, and none is lost in the rounding of another."""
    sure = min(np.asarray(a.margins_).min(), np.asarray(b.margins_).min()) > SURE
    sizes = np.abs(np.asarray(stage.names["A"], dtype=np.float64)).max(axis=1)
    alike = sizes.max() < 1e6 * sizes.min()
    converged = "max_iter" not in (a.stop_reason_, b.stop_reason_)
    same = np.array_equal(labels, np.asarray(b.labels_))
    if a.n_init > 1:  # runs that end in one clustering differ by its numbering, and rounding chooses among them
        same = adjusted_rand_score(labels, np.asarray(b.labels_)) == 1
    if sure and alike and converged and not same:
        objectives = f"{a.reconstruction_err_:.12g} and {b.reconstruction_err_:.12g}"
        stage.broken(f"{what} give other clusters: objectives {objectives}", f"{what}, {a._divergence.name}")


def partial_fit(stage: Stage, case: Any) -> None:
    """Learn from batches, some of them with names, some of them again."""
    rng, weights = Random(case.seed), ", sample_weight=w" if "w" in stage.names else ""
    if "refine" in case.params or case.params.get("init") == "'consensus'":  # they need all rows
        return fit(stage, case)
    if not stage.do(f"model = {case.model()}"):
        return
    model = stage.names["model"]
    for _ in range(rng.randrange(1, 5)):
        before = frozen(stage.names["X"])
        fine = stage.do(f"model.partial_fit(X{weights}, batch={rng.choice((None, 0, 'a'))!r})")
        if before != frozen(stage.names["X"]):
            stage.broken("partial_fit changed the caller's data.", "changed")
        if not fine:
            return
        accept()
        stage.add(wrong_fit(model, None, stage.names.get("w"), stage.caught))
    question(stage, rng)


def new_data(stage: Stage, case: Any) -> None:
    """Fit something sane, and ask about rows that may be anything."""
    features = case.other.p + (case.seed % 5 == 0)
    stage.prepare([f"S = np.random.default_rng({case.seed}).gamma(1, 1, (9, {features})) + 0.1"])
    if stage.do(f"model = {case.model()}") and stage.do("model.fit(S)"):
        accept()
        stage.prepare(case.other.lines())
        question(stage, Random(case.seed))


def interrupt(stage: Stage, case: Any) -> None:
    """Ctrl-C at some bytecode of a fit: it comes out as KeyboardInterrupt, and the estimator is as new or fitted."""
    if not stage.do(f"model = {case.model()}"):
        return
    model, left = stage.names["model"], int(10 ** Random(case.seed).uniform(0, 4.5))
    everywhere, came_out = case.seed % 4 == 0, False  # how often others are called depends on what is compiled already

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes = ours = "/onmf/" in frame.f_code.co_filename
        left -= ours or everywhere
        if left == 0 and (ours or everywhere):
            signal.getsignal(signal.SIGINT)(signal.SIGINT, frame)  # as Python calls it, with its frame
        return count if ours else None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for one such frame when tracing begins
    try:
        sys.settrace(count)
        refused = not stage.do("model.fit(X)")
    except KeyboardInterrupt:
        came_out = True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    if left <= 0 and not came_out:
        stage.broken(f"An interrupt was swallowed by a fit that {'was refused' if refused else 'ended'}.", "interrupt")
    if hasattr(model, "clustering_"):  # it had ended when the interrupt came
        question(stage, Random(case.seed))
    else:
        half_fitted(stage, model, "A fit that was interrupted")
    if stage.do("model.fit(X)"):
        accept()
        stage.add(wrong_fit(model, stage.names["A"] if case.data.sound else None, None, stage.caught))
        question(stage, Random(case.seed))


class Bell:
    """A callback that raises, or asks to stop, at the end of the first task."""

    def __init__(self, kind: type[BaseException] | None) -> None:
        self.kind = kind

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do."""

    teardown = on_fit_task_begin = setup

    def on_fit_task_end(self, *args: Any, **kwargs: Any) -> bool:
        """Ring."""
        if self.kind is not None:
            raise self.kind("from the caller's own function")
        return True


def own_code(stage: Stage, case: Any) -> None:
    """A start or a callback of the caller's own that raises: its error comes out as it is. Or one that asks to stop."""
    rng = Random(case.seed)
    kind = rng.choice((KeyboardInterrupt, ZeroDivisionError, None))
    by_start = kind is not None and (rng.random() < 0.5 or not hasattr(stage.names["ONMF"], "set_callbacks"))

    def start(X: Any, k: int, random_state: Any) -> Any:
        raise kind("from the caller's own function")  # type: ignore[misc]

    stage.names |= {"start": start, "bell": Bell(kind)}
    if not stage.do(f"model = {case.model(**{'init': 'start'} if by_start else {})}"):
        return
    if not by_start and not stage.do("model.set_callbacks(bell)"):
        return
    try:
        fine = stage.do("model.fit(X)")
    except KeyboardInterrupt:
        return
    if kind is None and fine:
        question(stage, rng)
    elif fine:
        stage.broken(f"a {kind.__name__} of the caller's own was swallowed", "own code")
    elif stage.failures and stage.failures[-1].what.startswith("ZeroDivisionError: from the caller's"):
        stage.failures.pop()  # it came out as it is


def functions(stage: Stage, case: Any) -> None:
    """The functions beside the estimator."""
    line = (
        f"onmf.snpa(X, {case.k})",
        f"onmf.kl_onmf(X, {case.k}).scales",
        f"onmf.fro_onmf(X, {case.k}).scales",
        f"onmf.select_n_clusters(X, [1, {case.k}], n_splits=2, n_init=2, random_state=0, max_iter=20).held_out",
    )[case.seed % 4]
    found = stage.after(line, lambda found: not_finite(line.partition("(")[0], found, ""))
    if found is not None and not case.data.sound and not structure_is_sound(stage.names["X"]):
        stage.broken("X has indices that lead outside, and was fitted.", "structure", line)


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
"""What a case does, and how often."""
