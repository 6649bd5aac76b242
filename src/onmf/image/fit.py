"""How pixels are clustered: the number of clusters, the fit of pixels that are read in blocks, and the maps."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import clone

from onmf.confidence import Calibration, confidence_by_row, evenly_spaced
from onmf.data import Blocks, Part, Source, get_engine
from onmf.divergence import Array, FloatArray, divide
from onmf.door.kind import take_rows
from onmf.door.run import UNSEEN
from onmf.estimator import ONMF, fit_model, start_of
from onmf.fit import snpa
from onmf.fit.describe import margins
from onmf.io.rules import require
from onmf.select import Range, Selection, Work, check_range, reproduced, try_numbers

from .cube import Pixels

START_SAMPLE = 100_000  # pixels, evenly spread, on which the start of a larger image is found
CHOICE_SAMPLE = 2_000  # pixels, evenly spread, on which the number of clusters is chosen
MAX_CLUSTERS = 12  # largest number to try by default, if the objective chooses
MIN_GAIN = 0.1  # fraction of the objective that one more cluster must remove
SPLITS = 2  # how often the pixels are halved

WithOffsets = tuple[FloatArray, FloatArray | None]  # Templates, and their offsets if there are any


def choose_n_clusters(pixels: Pixels, span: Range, model: ONMF, progress: Callable[[float], None]) -> Selection:
    """Choose the number of clusters, with the divergence, the smoothing, the seed and the threads of a model.

    Pixels of one material differ by more than photon noise, so halves of the pixels agree on shades of it, and a
    likelihood would always prefer more clusters. The objective itself falls in large steps while each new cluster is a
    material, and in small steps after that. So the default is the number after which neither of the next two lowers the
    objective by a tenth. The other criteria are as in :func:`onmf.select_n_clusters`.
    """
    rows = take_rows(pixels, evenly_spaced(pixels.shape[0], CHOICE_SAMPLE))
    n, k_min, criterion = len(rows), span.k_min or 1, span.criterion or "objective"
    require(n >= 2, f"{n} pixels are too few to choose the number of clusters: give a number.")
    most = check_range(k_min, span.k_max, n)
    if criterion == "objective" and span.k_max is None:
        most = max(min(MAX_CLUSTERS, most), k_min)
    rng = np.random.default_rng(0)
    splits = [rng.permutation(n) % 2 == 0 for _ in range(SPLITS)]
    plain = ONMF(
        beta_loss=model.beta_loss,
        smoothing=model.smoothing,
        init="++",
        n_init=5,
        random_state=0 if model.random_state is None else model.random_state,
        n_threads=model.n_threads,
    )
    work = Work(1, progress)
    trials: dict[int, dict[str, Any]] = {}

    def fit(some: Array, k: int) -> ONMF:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # runs that did not converge still show how far the objective falls
            return clone(plain).set_params(n_clusters=k).fit(some)

    def score(k: int) -> float:
        compared, held_out = [], []
        for inside in splits:
            halves = [(fit(rows[half], k), ~half) for half in (inside, ~inside)]
            compared.append(reproduced(*(half.predict(rows) for half, _ in halves)))
            held_out += [half.score(rows[others]) for half, others in halves]
        information, stability = np.array(compared).T
        trials[k] = {
            "objective": fit(rows, k).reconstruction_err_,
            "information": information,
            "stability": stability if k > 1 else np.full(SPLITS, np.nan),  # one cluster is always reproduced
            "held_out": held_out,
        }
        work.advance(k)
        return float(Selection.of({k: trials[k]}).values(criterion)[0])

    bend = _bend(score, k_min, most, work) if criterion == "objective" else None
    if bend is None:
        try_numbers(score, k_min, most, work.plan)
    return Selection.of(trials, criterion=criterion, n_rows=n, n_total=pixels.shape[0], bend=bend)


def _bend(score: Callable[[int], float], k_min: int, k_max: int, work: Work) -> int:
    """The number after which neither of the next two lowers the objective, which is −score, by a tenth."""
    last, chosen = np.inf, k_min
    work.plan([k_min, k_min + 1, k_min + 2])
    for k in range(k_min, k_max + 1):
        if k > k_min + 2:
            work.plan([k])
        value = -score(k)
        if value <= (1 - MIN_GAIN) * last:
            chosen = k
        last = min(last, value)
        if last <= 0 or k >= chosen + 2:
            break
    return chosen


def fit_blocks(model: ONMF, pixels: Pixels, engine: Any) -> str:
    """Fit from blocks: a start from a spread sample, then the loop over all pixels. → a note on what was done"""
    require(
        model.refine is None,
        f"refine={model.refine!r} is not allowed for an image that is read by blocks: a local search goes through "
        "single pixels in random order. Use refine=None, or in_memory=True if the pixels fit.",
    )
    sample = take_rows(pixels, evenly_spaced(pixels.shape[0], START_SAMPLE))
    start, how = start_of(model), f", and the start comes from {len(sample):,} of them, evenly spread"
    if isinstance(start, str) and start == "snpa":
        start = sample[snpa(sample, model.n_clusters, n_threads=model.n_threads)]
        how += " (SNPA chose its pixels)"
    elif isinstance(start, str) or callable(start):
        start = ONMF(**model.get_params()).fit(sample).cluster_centers_
        how += " (a fit found it)"
    else:
        how = ""
    fit_model(model, pixels, engine=engine, init=start)
    return f"The pixels were read in {len(pixels.sizes)} blocks{how}."


def measure(model: ONMF, pixels: Pixels, labels: Array | None, calibration: Calibration | None) -> dict[str, Any]:
    """The maps and spectra of a fitted model, in one pass over the pixels; without labels, pixels are assigned."""
    divergence, centroids = model.divergence_, model.cluster_centers_
    k, normal = len(centroids), divergence.normalise(centroids)
    exact = normal + UNSEEN if divergence.domain == "nonnegative" else normal
    pairs = ((divergence, centroids), (divergence.unsmoothed(), exact))
    templates = [(family.templates(C), family.offsets(C)) for family, C in pairs]
    source = Source(
        pixels,
        lambda block, **_: (block, 0),  # blocks of pixels were checked when the image was scanned
        noun="block of pixels",
        sizes=pixels.sizes,
        features=pixels.shape[1],
    )
    rows = Blocks(get_engine(model.engine, None, model.n_threads).backend, None).open(source, divergence)
    labels, scales, residuals, distances, sure, following = rows.map_rows(
        _measure_part, *templates, centroids, calibration, labels=labels
    )
    compact = np.int16 if k < 2**15 else np.int32
    labels = labels.astype(compact)
    totals, counts = np.bincount(labels, weights=scales, minlength=k), np.bincount(labels, minlength=k)
    mean = divide(totals.astype(np.float64), counts.astype(np.float64))
    unit = mean.astype(np.float32)
    scales /= np.where(unit > 0, unit, np.float32(1.0))[labels]
    return {
        "labels": pixels.image(labels, -1),
        "scales": pixels.image(scales, np.nan),
        "margins": pixels.image(distances, np.nan),
        "confidence": pixels.image(sure, np.nan),
        "runners_up": pixels.image(following.astype(compact), -1),
        "residuals": pixels.image(residuals, np.nan),
        "spectra": normal * np.where(mean > 0, mean, 1.0)[:, None] * pixels.cube.scale,
    }


def _measure_part(
    part: Part,
    templates: WithOffsets,
    exact: WithOffsets,
    centroids: FloatArray,
    calibration: Calibration | None,
    labels: Array | None = None,
) -> tuple[Array, ...]:
    """Label, scale, residual (from ``exact``), margin, confidence and runner-up of each pixel. → 6 × (n,)"""
    block, divergence = part.block, part.block.divergence
    prepared = block.prepare_templates(*templates)
    labels = block.assign(prepared).labels if labels is None else block.backend.to_device(labels).astype(np.int32)
    own, following = block.own_and_next(prepared, labels)
    best, _ = block.own_and_next(block.prepare_templates(*exact), labels)
    residuals = np.maximum(divide(block.losses(best), divergence.row_size(block.terms)), 0.0)
    measured = (block.own_scales(prepared, labels, own), residuals, margins(divergence, own, following, block.terms))
    if calibration is None:
        sure, others = np.full(len(block), np.nan), np.full(len(block), -1, dtype=np.int32)
    else:
        sure, others = confidence_by_row(part, centroids, calibration, labels)
    return labels, *(values.astype(np.float32) for values in (*measured, sure)), others
