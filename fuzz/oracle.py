"""The checks: which errors are clear messages for the user, and what must hold for every fitted model."""

from __future__ import annotations

import dis
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .divergences import published
from .report import Failure

ALLOWED = (ValueError, TypeError, OSError, ImportError, MemoryError)
"""Types of errors that a user may see, including their subclasses."""

PACKAGES = ("onmf", "sklearn")
"""Packages whose own ``raise`` statements give clear messages for the user."""

CLEAR = ("Seed must be", "could not convert string to float")
"""Beginnings of messages of NumPy that are clear enough: for a wrong seed, and for text among numbers."""

RAISE = {number for name, number in dis.opmap.items() if name in ("RAISE_VARARGS", "RERAISE")}

CLOSE = 1e-7
"""Largest error of a recomputed objective, relative to the size of its terms."""

CLEAR_MARGIN = 1e-9
"""Relative margin of a row above which rounding cannot change its cluster."""


def wrong_error(error: BaseException) -> Failure | None:
    """Return a failure for an error, or None if it is a clear message for the user."""
    where = location_of(error)
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if isinstance(error, MemoryError):
        return None if raised_on_purpose(error) else Failure("memory", text, where)
    if not isinstance(error, ALLOWED) and not (isinstance(error, KeyError) and raised_on_purpose(error)):
        return Failure("error", text, where)
    if " " not in str(error).strip():
        return Failure("error", f"{text} (not a sentence)", where)
    if isinstance(error, OSError) and error.filename is not None:
        return None  # the message of the operating system, with the name of the file
    if not raised_on_purpose(error) and not str(error).startswith(CLEAR):
        return Failure("error", f"{text} (not raised by {' or '.join(PACKAGES)})", where)
    return None


def raised_on_purpose(error: BaseException) -> bool:
    """Whether a ``raise`` of one of the packages raised the error, in the innermost frame."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return False
    code = frame.tb_frame.f_code
    ours = any(f"/{name}/" in code.co_filename for name in PACKAGES)
    return ours and code.co_code[frame.tb_lasti] in RAISE


def location_of(error: BaseException) -> str:
    """Return the innermost line of onmf in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/onmf/" in frame.filename] or frames
    if not ours:
        return type(error).__name__
    return f"{type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def wrong_warnings(caught: list[warnings.WarningMessage]) -> Iterator[Failure]:
    """Yield a failure for each warning of NumPy about an invalid computation."""
    for warning in caught:
        text = str(warning.message)
        if issubclass(warning.category, RuntimeWarning) and not text.startswith("n_init="):
            where = f"{Path(warning.filename).name}:{warning.lineno}"
            yield Failure("nan", f"RuntimeWarning: {text} ({where})", f"warning {where}")


def not_finite(name: str, values: Any, loss: str, infinite: bool = False) -> Iterator[Failure]:
    """Yield a failure for NaN, and for infinity unless ``infinite`` allows it."""
    values = np.asarray(values.data if hasattr(values, "indptr") else values)
    bad = ~np.isfinite(values) & ~(infinite & np.isposinf(values))
    if bad.any():
        yield Failure("nan", f"{name} has {values[bad].ravel()[0]}, {bad.sum()} of {bad.size}.", f"{name}, {loss}")


def wrong_range(labels: Any, k: int) -> Iterator[Failure]:
    """Yield a failure for labels out of range."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "iu" or (len(labels) and not 0 <= labels.min() <= labels.max() < k):
        yield Failure("contract", f"labels are {labels.dtype}: {labels[:9]} for {k} clusters", "labels")


def structure_is_sound(X: Any) -> bool:
    """Whether the indices of a sparse matrix are in bounds; checked entry by entry, without code of onmf."""
    if X.format == "coo":
        return all(0 <= i < X.shape[0] and 0 <= j < X.shape[1] for i, j in zip(X.row, X.col, strict=True))
    major, minor = X.shape if X.format != "csc" else X.shape[::-1]
    if X.format == "bsr":
        major, minor = major // X.blocksize[0], minor // X.blocksize[1]
    pointers = [int(x) for x in X.indptr]
    if len(pointers) != major + 1 or pointers[0] != 0 or pointers != sorted(pointers):
        return False
    if pointers[-1] > min(len(X.indices), len(X.data)) or X.indices.dtype.kind not in "iu":
        return False
    return all(0 <= int(j) < minor for j in X.indices[: pointers[-1]])


def wrong_fit(model: Any, A: Any, weights: Any, caught: list[warnings.WarningMessage]) -> Iterator[Failure]:
    """Check what must hold for every fitted model; ``A`` is the fitted data as an array, or None if not known."""
    loss = model.divergence_.name
    labels, scales, margins = (np.asarray(getattr(model, name)) for name in ("labels_", "scales_", "margins_"))
    centers, k = np.asarray(model.cluster_centers_), len(model.cluster_centers_)
    yield from not_finite("scales_", scales, loss)
    yield from not_finite("cluster_centers_", centers, loss)
    # Without smoothing the cost of another cluster can be infinite, and with one cluster there is no other.
    smooth = getattr(model.divergence_, "smoothing", 1) > 0
    # A row of weight 0 has no influence on its centroid, so its own cost may be infinite if the fit stopped early.
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
        yield Failure("contract", f"scales_ has {scales.min()}", f"scales_, {loss}")
    w = np.ones(n) if weights is None else np.broadcast_to(np.asarray(weights, dtype=np.float64), (n,))
    if model.stop_reason_ == "batch":
        return
    filled = np.bincount(labels[(scales > 0) & (w > 0)], minlength=k) > 0
    if not filled.all() and not any("clusters hold rows" in str(warning.message) for warning in caught):
        yield Failure("contract", f"Only {filled.sum()} of {k} clusters have rows, and there is no warning.", "empty")
    with np.errstate(all="ignore"):
        gram = np.bincount(labels, weights=w * scales * scales, minlength=k)
    gauge = not model.divergence_.sized
    if gauge and np.isfinite(gram).all() and not np.allclose(gram, filled, atol=1e-6):
        yield Failure("contract", f"H Hᵀ has the diagonal {gram}, clusters filled: {filled}", f"gauge, {loss}")
    if A is not None:
        yield from wrong_objective(model, A, w, labels, scales, centers, loss)


def wrong_objective(model: Any, A: Any, w: Any, labels: Any, scales: Any, centers: Any, loss: str) -> Iterator[Failure]:
    """Yield a failure if the objective is far from D(X, WH), computed row by row."""
    value, size = published(model.divergence_, np.asarray(A, dtype=np.float64), w, labels, scales, centers)
    objective = model.reconstruction_err_
    if np.isfinite([value, size, objective]).all() and abs(objective - value) > CLOSE * size + 1e-300:
        yield Failure(
            "contract", f"reconstruction_err_ is {objective:.12g}, but D(X, WH) is {value:.12g}", f"objective, {loss}"
        )


def wrong_prediction(model: Any, predicted: Any) -> Iterator[Failure]:
    """Yield a failure if ``predict`` assigns rows to other clusters than the fit did.

    The centroids are those of the labels. If they depend on the labels alone (Kullback–Leibler, cosine) and no row
    moved in the last iteration, the predictions must be exactly the labels, including ties. In other fits, this holds
    for rows with a clear margin.
    """
    labels, margins = np.asarray(model.labels_), np.asarray(model.margins_)
    predicted = np.asarray(predicted)
    ended = model.stop_reason_ in ("converged", "fixed point") and model.history_["moved"][-1] == 0
    settled = ended and model.n_sweeps_ == 0 and model.divergence_.fixed_weights
    different = (predicted != labels) & (settled | (margins > CLEAR_MARGIN))
    if different.any():
        i = int(np.argmax(different))
        yield Failure(
            "contract",
            f"predict gives row {i} cluster {predicted[i]}, labels_ {labels[i]}, with margin {margins[i]:.3g}",
            f"predict, {model.divergence_.name}",
        )
