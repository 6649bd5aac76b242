"""What must hold: which errors are sentences for the user, and what every fitted model promises."""

from __future__ import annotations

import dis
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .report import Failure

ALLOWED = (ValueError, TypeError, OSError, ImportError, MemoryError)
"""Kinds of errors that a user may see; subclasses of theirs too."""

SPEAKERS = ("onmf", "sklearn")
"""Packages whose own ``raise`` counts as a sentence for the user."""

FAMILIAR = ("Seed must be", "could not convert string to float")
"""Beginnings of NumPy's messages that say it as well as we could: to a wrong seed, and texts among the numbers."""

RAISE = {number for name, number in dis.opmap.items() if name in ("RAISE_VARARGS", "RERAISE")}

CLOSE = 1e-7
"""Relative error that a recomputed objective may have, in units of the terms it is made of."""

SURE = 1e-9
"""Margin of a row, relative, above which rounding cannot change its cluster."""


def wrong_error(error: BaseException) -> Failure | None:
    """What is wrong with an error, or None if it is a sentence for the user."""
    where = place_of(error)
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if isinstance(error, MemoryError):
        return None if spoken(error) else Failure("memory", text, where)
    if not isinstance(error, ALLOWED) and not (isinstance(error, KeyError) and spoken(error)):
        return Failure("error", text, where)
    if " " not in str(error).strip():
        return Failure("error", f"{text} (no sentence)", where)
    if isinstance(error, OSError) and error.filename is not None:
        return None  # the operating system's own words, with the name of the file
    if not spoken(error) and not str(error).startswith(FAMILIAR):
        return Failure("error", f"{text} (raised by no line of {' or '.join(SPEAKERS)})", where)
    return None


def spoken(error: BaseException) -> bool:
    """Whether a line of ours raised it: the innermost frame is ours, and stands at a ``raise``."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return False
    code = frame.tb_frame.f_code
    own = any(f"/{name}/" in code.co_filename for name in SPEAKERS)
    return own and code.co_code[frame.tb_lasti] in RAISE


def place_of(error: BaseException) -> str:
    """The innermost line of ours that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/onmf/" in frame.filename] or frames
    if not ours:
        return type(error).__name__
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def wrong_warnings(caught: list[warnings.WarningMessage]) -> Iterator[Failure]:
    """Warnings of NumPy's about what it could not compute."""
    for warning in caught:
        text = str(warning.message)
        if issubclass(warning.category, RuntimeWarning) and not text.startswith("n_init="):
            where = f"{Path(warning.filename).name}:{warning.lineno}"
            yield Failure("nan", f"RuntimeWarning: {text} ({where})", f"warning {where}")


def not_finite(name: str, values: Any, loss: str, infinite: bool = False) -> Iterator[Failure]:
    """NaN, or infinity where it is not allowed."""
    values = np.asarray(values.data if hasattr(values, "indptr") else values)
    bad = ~np.isfinite(values) & ~(infinite & np.isposinf(values))
    if bad.any():
        yield Failure("nan", f"{name} holds {values[bad].ravel()[0]}, {bad.sum()} of {bad.size}.", f"{name}, {loss}")


def wrong_range(labels: Any, k: int) -> Iterator[Failure]:
    """Labels that name no cluster."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu" or (len(labels) and not 0 <= labels.min() <= labels.max() < k):
        yield Failure("contract", f"labels are {labels.dtype}: {labels[:9]} for {k} clusters", "labels")


def structure_is_sound(X: Any) -> bool:
    """Whether the indices of a sparse matrix stay inside it: entry by entry, and nothing of the package's own."""
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


def wrong_fit(model: Any, A: Any, weights: Any, caught: list[warnings.WarningMessage]) -> Iterator[Failure]:
    """What every fitted model promises; ``A`` is what was fitted as an array, or None where that is not known."""
    loss = model._divergence.name
    labels, scales, margins = (np.asarray(getattr(model, name)) for name in ("labels_", "scales_", "margins_"))
    centers, k = np.asarray(model.cluster_centers_), len(model.cluster_centers_)
    yield from not_finite("scales_", scales, loss)
    yield from not_finite("cluster_centers_", centers, loss)
    # Without smoothing another cluster can cost infinity, and with one cluster there is no other.
    smooth = getattr(model._divergence, "smoothing", 1) > 0
    # Nor does a row of weight 0 shape its centroid, so that in a fit that stopped early its own may cost infinity.
    weightless = np.zeros(len(margins), dtype=bool) if weights is None else np.asarray(weights) == 0
    allowed = np.isneginf(margins) & weightless & (not smooth)
    yield from not_finite("margins_", margins[~allowed], loss, infinite=k == 1 or not smooth)
    if hasattr(model, "reconstruction_err_"):
        yield from not_finite("reconstruction_err_", model.reconstruction_err_, loss)
        if model.reconstruction_err_ < 0:
            yield Failure("contract", f"reconstruction_err_ is {model.reconstruction_err_}", f"negative, {loss}")
    yield from not_finite("history_", np.concatenate([[0.0], *(v[1:] for v in model.history_.values())]), loss)
    n = len(labels) if A is None else len(A)
    outside = list(wrong_range(labels, k))
    if outside or labels.shape != (n,):
        yield from outside or [Failure("contract", f"labels_ has shape {labels.shape} for {n} rows", "labels")]
        return
    if (scales < 0).any():
        yield Failure("contract", f"scales_ holds {scales.min()}", f"scales_, {loss}")
    w = np.ones(n) if weights is None else np.broadcast_to(np.asarray(weights, dtype=np.float64), (n,))
    if model.stop_reason_ == "batch":
        return
    filled = np.bincount(labels[(scales > 0) & (w > 0)], minlength=k) > 0
    if not filled.all() and not any("clusters hold rows" in str(warning.message) for warning in caught):
        yield Failure("contract", f"Only {filled.sum()} of {k} clusters hold rows, and no warning says so.", "empty")
    with np.errstate(all="ignore"):
        gram = np.bincount(labels, weights=w * scales * scales, minlength=k)
    if np.isfinite(gram).all() and not np.allclose(gram, filled, atol=1e-6):
        yield Failure("contract", f"H Hᵀ has the diagonal {gram}, clusters filled: {filled}", f"gauge, {loss}")
    if A is not None:
        yield from wrong_objective(model, A, w, labels, scales, centers, loss)


def wrong_objective(model: Any, A: Any, w: Any, labels: Any, scales: Any, centers: Any, loss: str) -> Iterator[Failure]:
    """An objective that is far from D(X, WH), computed row by row."""
    X = np.asarray(A, dtype=np.float64)
    with np.errstate(all="ignore"):
        # The cosine knows no scales, and a row of scale 0 is no row of zeros to it.
        Y = centers[labels] if loss == "cosine" else scales[:, None] * centers[labels]
        value, size = direct_objective(X, Y, w[:, None], model._divergence)
    found = model.reconstruction_err_
    if np.isfinite([value, size, found]).all() and abs(found - value) > CLOSE * size + 1e-300:
        yield Failure(
            "contract", f"reconstruction_err_ is {found:.12g}, but D(X, WH) is {value:.12g}", f"objective, {loss}"
        )


def direct_objective(X: Any, Y: Any, w: Any, divergence: Any) -> tuple[float, float]:
    """D(X, Y), and the size of the terms that it is the sum of."""
    name = divergence.name
    if name == "kullback-leibler":
        logs = np.where(X > 0, X * (np.log(X) - np.log(Y)), 0.0)
        return float((w * (logs - X + Y)).sum()), float((w * X * (1 + np.abs(np.log(X.clip(1e-300))))).sum())
    if name == "frobenius":
        return float((w * (X - Y) ** 2).sum()), float((w * X**2).sum())
    if name == "cosine":
        dots, lengths = (X * Y).sum(1), np.linalg.norm(X, axis=1) * np.linalg.norm(Y, axis=1)
        cosines = np.where(lengths > 0, dots / np.where(lengths > 0, lengths, 1), 0.0)
        there = (np.abs(X).max(axis=1) > 0) * w[:, 0]
        return float((there * (1 - cosines)).sum()), float(there.sum())
    if name == "itakura-saito":
        ratio = X / Y
        return float((w * (ratio - np.log(ratio) - 1)).sum()), float((w * (1 + np.abs(np.log(X)))).sum())
    β = divergence.beta
    crossed = np.where(X == 0, 0.0, X * Y ** (β - 1))
    terms = np.where((X == 0) & (Y == 0), 0.0, X**β + (β - 1) * Y**β - β * crossed)
    size = (w * (np.abs(X**β) + np.abs(Y**β))).sum() * (1 + 1 / abs(β * (β - 1)))
    return float((w * terms).sum() / (β * (β - 1))), float(size)


def wrong_prediction(model: Any, predicted: Any) -> Iterator[Failure]:
    """Rows that the fitted model puts elsewhere than the fit did.

    The centroids are those of the labels. Where these alone decide (Kullback–Leibler, cosine), a fit in which no row
    moved any more predicts them exactly, ties included; else, where a row is sure of its cluster.
    """
    labels, margins = np.asarray(model.labels_), np.asarray(model.margins_)
    predicted = np.asarray(predicted)
    ended = model.stop_reason_ in ("converged", "fixed point") and model.history_["moved"][-1] == 0
    settled = ended and model.n_sweeps_ == 0 and model._divergence.fixed_weights
    different = (predicted != labels) & (settled | (margins > SURE))
    if different.any():
        i = int(np.argmax(different))
        yield Failure(
            "contract",
            f"predict gives row {i} cluster {predicted[i]}, labels_ {labels[i]}, with margin {margins[i]:.3g}",
            f"predict, {model._divergence.name}",
        )
