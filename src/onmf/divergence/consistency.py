"""Checks that a divergence of a user's own class keeps what backends rely on.

Backends compute templates of some centroids at a time, publish centroids in a gauge, and take shortcuts that a class
has promised. A class that contradicts this would give wrong clusters on one engine and not on another. So everything
that backends ask of it is computed once for a few made-up rows, and compared.

Symbols: X (6, p) rows, C (3, p) centroids, S (6, 3) scores.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np

from onmf.arrays import FloatArray

from .base import Divergence, Domain, Scale
from .bregman import SAMPLES, Convex, check_derivatives, check_scale

N_ROWS, N_CENTROIDS = 6, 3
RTOL = 1e-9  # relative difference that counts as rounding
BY_ROW = ("constant", "row_size", "scale", "weight", "gain")  # what has one number for each row

CLOSED_FORMS = (
    *("row_terms", "templates", "offsets", "size", "normalise", "scale", "weight"),
    *("constant", "gain", "loss", "objective", "centers", "initial_centroids", "unit"),
)
"""What a divergence without closed forms must not override, because it would never be called."""


def sample(divergence: Divergence, features: int) -> tuple[FloatArray, FloatArray]:
    """Made-up rows and centroids with entries that are allowed. → (6, p), (3, p)"""
    domain, (_, largest) = divergence.domain, divergence.entry_range
    entries = np.random.default_rng(0).uniform(0.1, 0.9, size=(N_ROWS + N_CENTROIDS, features))
    factor, least = {"real": (4, -2), "unit": (1, 0)}.get(domain, (5, 0))
    entries = (factor * entries + least) * min(1.0, largest / 5)
    return entries[:N_ROWS], entries[N_ROWS:]


@np.errstate(all="ignore")  # clusters may be empty
def outputs_of(divergence: Divergence, X: Any, C: Any) -> SimpleNamespace:
    """What a backend asks for in a step, by the names of the methods. X and C may be CuPy arrays."""
    like = X[0, :1]
    j = np.arange(X.shape[1], like=like)
    terms = {name: function(X, j).sum(axis=1) for name, function in divergence.row_terms.items()}
    terms["features"] = np.float64(X.shape[1])
    constant, row_size, size = divergence.constant(terms), divergence.row_size(terms), divergence.size(C)
    B, offsets = divergence.templates(C), divergence.offsets(C)
    scores = X @ B.T if offsets is None else X @ B.T + offsets
    best, labels = scores.max(axis=1), scores.argmax(axis=1)
    scale = divergence.scale(best, terms)
    weight, gain = divergence.weight(scale, terms), divergence.gain(best, scale, terms)
    loss = divergence.loss(best, scale, terms, constant)
    members = (labels == np.arange(len(C), like=like)[:, None]) * weight
    sums, mass = members @ X, (members * scale).sum(axis=1)
    centers = divergence.centers(sums, mass)
    objective = divergence.objective(sums, mass, float(loss.sum()), float(constant.sum()))
    divergence.normalise(divergence.smooth(centers, at_least=1e-10))
    of_rows = {"constant": constant, "row_size": row_size, "scale": scale, "weight": weight, "gain": gain}
    of_clusters = {"size": size, "templates": B, "offsets": offsets, "centers": centers}
    return SimpleNamespace(terms=terms, scores=scores, objective=float(objective), **of_rows, **of_clusters)


def of_onmf(divergence: Divergence) -> bool:
    """Whether the class is one of this package, which the tests check."""
    return type(divergence).__module__.startswith("onmf.divergence.")


# The last object that passed, its number of features, and whether rows were sparse: every block of rows asks.
_sound: tuple[Divergence | None, int, bool] = None, 0, False


def check_consistent(divergence: Divergence, features: int, *, sparse: bool = False) -> None:
    """Refuse a divergence of a user's own class that contradicts itself, for rows of this many features."""
    global _sound
    if of_onmf(divergence) or (_sound[0] is divergence and _sound[1:] == (features, sparse)):
        return
    for holds, what in _claims(divergence, features, sparse):
        if not holds:
            raise ValueError(f"{type(divergence).__name__} {what}.")
    _sound = divergence, features, sparse


Claims = Iterator[tuple[bool, str]]
"""Whether each claim holds, and what is wrong if it does not. Later claims rely on earlier ones."""


def _claims(divergence: Divergence, features: int, sparse: bool) -> Claims:
    for name, allowed in (("scale_rule", get_args(Scale)), ("domain", get_args(Domain))):
        value, names = getattr(divergence, name), ", ".join(map(repr, allowed))
        yield value in allowed, f"has {name}={value!r}: use one of {names}"
    yield "features" not in divergence.row_terms, "has a row term 'features', which terms have anyway"
    yield from _fields(divergence)
    X, C = sample(divergence, features)
    if isinstance(divergence, Convex):
        check_scale(divergence.scale_rule, divergence.domain)
        check_derivatives(divergence)
        yield from _kernel_functions(divergence)
    if divergence.curved:
        yield isinstance(divergence, Convex), "is curved, and not a subclass of Convex"
        yield divergence.moves is None, "has moves, which need closed forms"
        for name in CLOSED_FORMS:
            yield (
                getattr(type(divergence), name) is getattr(Convex, name),
                f"overrides {name}, but with scale_rule={divergence.scale_rule!r} everything is computed from phi, "
                "slope and curvature, and this method is never called: remove it",
            )
        return
    try:
        outputs = outputs_of(divergence, X, C)
    except Exception as error:
        raise ValueError(
            f"{type(divergence).__name__} cannot compute with rows of {features} features: {type(error).__name__}: "
            f"{error}. Correct the method that raises this, or pass rows of another length."
        ) from error
    if sparse:
        for name, function in divergence.row_terms.items():
            yield (
                not np.any(function(np.zeros(features), np.arange(features))),
                f"has a row term {name!r} that is not 0 for x = 0, and sparse rows leave zeros out: pass an array",
            )
    yield from _shapes(divergence, outputs, features)
    yield from _rows_apart(divergence, outputs, X, C)
    yield from _gauge(divergence, outputs, C)
    # The best score must be the lowest loss.
    S, terms = np.sort(outputs.scores, axis=1), outputs.terms
    gains = np.stack([divergence.gain(s, divergence.scale(s, terms), terms) for s in S.T], axis=1)
    rises = np.diff(gains, axis=1) >= -RTOL * (1 + np.abs(gains[:, 1:]))
    yield bool(rises.all()), "has a gain that falls while the score rises: rows get the worst cluster"
    yield from _promises(divergence, outputs, C)
    yield from _zeros(divergence, X, C)


def _fields(divergence: Divergence) -> Claims:
    """Models are cloned, compared and saved by the fields of their divergence."""
    known = {field.name for field in fields(divergence)}
    own = set(vars(divergence)) - known - set(dir(type(divergence)))
    more = ", ".join(name for name in vars(divergence) if name in own and name[0] != "_")
    yield not more, f"keeps {more} beside its fields: decorate it with @dataclass(frozen=True), and declare all of them"
    try:
        again = divergence.changed()
        pairs = [(getattr(divergence, name), getattr(again, name)) for name in known]
        same = bool(divergence == deepcopy(divergence))
        same = same and all(a == b or bool(np.allclose(a, b, rtol=RTOL, atol=0)) for a, b in pairs)
    except Exception:  # an array is neither true nor false; a lock has no copy; another __init__ takes other names
        same = False
    yield (
        same,
        "cannot be copied, compared and made again from its fields: make them numbers, texts or tuples, and let "
        "__init__ take what they hold",
    )
    try:
        divergence.unsmoothed()
    except Exception as error:
        raise ValueError(
            f"{type(divergence).__name__} has a field 'smoothing' that cannot be 0: {error}. Allow 0, for scores and "
            "starts; or rename the field, or override unsmoothed()."
        ) from error


def _kernel_functions(divergence: Convex) -> Claims:
    phi, x = divergence.kernel_functions, SAMPLES[divergence.domain]
    if phi is None:
        return
    if isinstance(phi, float):
        found = -np.log1p(phi / x), phi / (x * (x + phi))
    else:
        from onmf.kernels.bregman import map_entries

        found = np.empty_like(x), np.empty_like(x)
        for address, out in zip(phi, found, strict=True):
            map_entries(address, x, out)
    same = close(found[0], divergence.slope(x)) and close(found[1], divergence.curvature(x))
    yield same, "has kernel_functions that are not its slope and curvature: leave them out"


def _shapes(divergence: Divergence, outputs: SimpleNamespace, features: int) -> Claims:
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(BY_ROW, (N_ROWS,))
    shapes |= {"size": (N_CENTROIDS,), "templates": (N_CENTROIDS, features), "centers": (N_CENTROIDS, features)}
    for name, shape in (shapes | ({} if outputs.offsets is None else {"offsets": (N_CENTROIDS,)})).items():
        found = getattr(outputs, name)
        yield isinstance(found, np.ndarray), f"gives {name} of type {type(found).__name__}, not an array"
        yield np.shape(found) == shape, f"gives {name} of shape {np.shape(found)}, not {shape}"
        yield (
            bool(np.isfinite(found).all()),
            f"gives {name} that is not finite for entries that its domain, {divergence.domain!r}, includes",
        )


def _rows_apart(divergence: Divergence, outputs: SimpleNamespace, X: FloatArray, C: FloatArray) -> Claims:
    """Backends ask about some rows or clusters at a time."""
    first, rest, ones = outputs_of(divergence, X[:2], C), outputs_of(divergence, X[2:], C), np.ones(N_CENTROIDS)
    of_rows = [(np.append(getattr(first, name), getattr(rest, name)), getattr(outputs, name)) for name in BY_ROW]
    functions: list[Any] = [divergence.templates, divergence.size, divergence.smooth]
    functions += [] if outputs.offsets is None else [divergence.offsets]
    of_clusters = [(function(C[:1]), function(C)) for function in functions]
    of_clusters.append((divergence.centers(C[:1], ones[:1]), divergence.centers(C, ones)))
    for what, pairs in (("rows", of_rows), ("centroids", of_clusters)):
        same = all(close(part, whole[: len(part)]) for part, whole in pairs)
        yield same, f"has methods whose results depend on the other {what}: compute each on its own"
    whole = divergence.objective(C, ones, 1.0, 2.0)
    yield bool(np.isfinite(whole)), "has an objective that is not finite for centroids in its domain"
    parts = divergence.objective(C[:1], ones[:1], 1.0, 2.0) + divergence.objective(C[1:], ones[1:], 0.0, 0.0)
    yield (
        close(whole, parts),
        f"has an objective that is not a sum over clusters: {whole:g} for three, {parts:g} for one and two",
    )


def _gauge(divergence: Divergence, outputs: SimpleNamespace, C: FloatArray) -> Claims:
    """Centroids are published in the gauge H Hᵀ = I, that is at any size, unless their size counts."""
    if divergence.absolute:
        yield bool((outputs.scale == 1).all()), "has scale_rule='none', and a scale other than 1"
    if divergence.sized:
        rule = f"has scale_rule={divergence.scale_rule!r}"
        yield bool((outputs.size == 1).all()), f"{rule}, and a size other than 1: return ones"
        return
    offsets = divergence.offsets(2 * C)
    yield (
        close(divergence.templates(2 * C), outputs.templates)
        and (offsets is None or outputs.offsets is None or close(offsets, outputs.offsets))
        and close(divergence.size(2 * C), 2 * outputs.size),
        "has templates, offsets or a size that do not suit centroids of any size: compute templates and offsets from "
        "normalise(centroids) with a size that doubles when the centroid does, or set scale_rule = 'none' for rows "
        "without a scale",
    )


def _promises(divergence: Divergence, outputs: SimpleNamespace, C: FloatArray) -> Claims:
    best, terms = outputs.scores.max(axis=1), outputs.terms
    if divergence.fixed_weights:
        other = divergence.weight(2 * outputs.scale + 1, terms)
        yield close(other, outputs.weight), "promises fixed_weights, and its weight depends on the scale"
    scored = not divergence.score_weights or close(outputs.weight, np.maximum(best, 0.0))
    yield scored, "promises score_weights, and its weight is not the best score"
    if divergence.fixed_scales:
        yield divergence.fixed_weights, "promises fixed_scales, which need fixed_weights"
        other = divergence.scale(best - 1, terms)
        yield close(other, outputs.scale), "promises fixed_scales, and its scale depends on the score"
        value = divergence.objective(C, np.ones(N_CENTROIDS), np.nan, 0.0)
        yield not np.isnan(value), "promises fixed_scales, and its objective depends on the loss"
    yield divergence.moves is None or divergence.fixed_weights, "has moves, which need fixed_weights"
    if (form := divergence.template_form) is not None:
        yield form.smoothing > 0 or not form.logarithms, f"promises {form}, and logarithms need a smoothing"
        shares, B = C / outputs.size[:, None], outputs.templates
        same = (
            outputs.offsets is None
            and close(B, np.log(shares + form.smoothing) if form.logarithms else shares)
            and np.array_equal(divergence.templates_at(C[:, :1], outputs.size), B[:, :1])
            and bool((np.abs(C).max(axis=1) <= outputs.size).all())
            and divergence.size(np.eye(1, C.shape[1]))[0] >= 1
        )
        yield same, f"promises {form}, and its templates, templates_at, offsets or size are different"


def _zeros(divergence: Divergence, X: FloatArray, C: FloatArray) -> Claims:
    """Zeros in rows and centroids give numbers; a zero in a centroid may cost infinity."""
    if divergence.domain == "positive":
        return
    X, C = (np.where(np.eye(*each.shape), 0.0, each) for each in (X, C))
    outputs = outputs_of(divergence, X, C)
    finite = bool(np.isfinite(outputs.constant).all())
    yield finite, "has a constant that is not finite for rows with zeros, which its domain includes"
    for name, values in (("templates", outputs.templates), ("offsets", outputs.offsets)):
        yield values is None or bool((values < np.inf).all()), f"has {name} of NaN or ∞ for centroids with zeros"
    ones, empty = np.ones(N_CENTROIDS), np.zeros((1, C.shape[1]))
    with np.errstate(all="ignore"):
        values = divergence.objective(C, ones, 0.0, 0.0), divergence.objective(empty, empty[:, 0], 0.0, 0.0)
        unknown = np.isnan(divergence.centers(C, ones)).any() or np.isnan(values).any()
    yield not unknown, "has centers or an objective of NaN for sums with zeros or an empty cluster: use divide"


def close(a: Any, b: Any) -> bool:
    """Whether two arrays are equal but for rounding."""
    return bool(np.allclose(a, b, rtol=RTOL, atol=RTOL))
