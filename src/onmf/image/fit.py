"""How pixels are clustered: the fit of pixels that are read in blocks or come from several scenes, and the maps."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from onmf.confidence import Calibration, confidence_by_row, evenly_spaced
from onmf.data import Blocks, Part, Source, get_engine
from onmf.data.groups import Groups
from onmf.data.intake import with_groups
from onmf.divergence import Array, FloatArray, divide
from onmf.door.run import UNSEEN
from onmf.door.settle import Standards, surprise_in, take_rows
from onmf.estimator import ONMF, fit_model, start_of
from onmf.fit import snpa
from onmf.fit.describe import labels_scales_and_margins, margins
from onmf.fit.groups import sizes_in_groups
from onmf.fit.starts import Seeds
from onmf.io.rules import require

from .cube import Pixels

START_SAMPLE = 100_000  # pixels, evenly spread, on which the start of a larger image is found
SCENES_SAMPLE = 20_000  # pixels, equally many of each scene, on which the start of several scenes is found
SCENE_STARTS = 20  # fits of these
LEAST_SHARE = 1e-3  # of the mean of all bands, added to the mean profile of a scene

WithOffsets = tuple[FloatArray, FloatArray | None]  # Templates, and their offsets if there are any


def fit_blocks(model: ONMF, pixels: Pixels, engine: Any, groups: Array | None = None) -> str:
    """Fit from blocks: a start from a spread sample, then the loop over all pixels. → a note on what was done"""
    require(
        model.refine is None,
        f"refine={model.refine!r} is not allowed for an image that is read by blocks: a local search goes through "
        "single pixels in random order. Use refine=None, or in_memory=True if the pixels fit.",
    )
    some = spread(pixels.shape[0], START_SAMPLE, groups)
    sample = take_rows(pixels, some)
    how = f", and the start comes from {len(sample):,} of them, evenly spread"
    start = start_of(model, groups is not None)
    if isinstance(start, str) and start == "snpa":
        start = sample[snpa(sample, model.n_clusters, n_threads=model.n_threads)]
        how += " (SNPA chose its pixels)"
    elif isinstance(start, str) or callable(start):
        fitted = fit_model(ONMF(**model.get_params()), sample, groups=None if groups is None else groups[some])
        start = fitted.cluster_centers_ if groups is None else _start_from(fitted)
        how += " (a fit found it)"
    else:
        how = ""
    fit_model(model, pixels, groups=groups, engine=engine, init=start)
    return f"The pixels were read in {len(pixels.sizes)} blocks{how}."


def spread(n: int, most: int, groups: Array | None = None) -> Array:
    """The numbers of at most ``most`` of n pixels, evenly spread; of several scenes, equally many of each."""
    if groups is None:
        return evenly_spaced(n, most)
    names, sizes = np.unique(groups, return_counts=True)
    own = zip(names.tolist(), sizes.tolist(), strict=True)
    each = max(most // len(names), 1)
    return np.sort(np.concatenate([np.flatnonzero(groups == name)[evenly_spaced(size, each)] for name, size in own]))


def fit_scenes(model: ONMF, pixels: Any, groups: Array, engine: Any = None) -> tuple[Array, list[Array]]:
    """Fit pixels of several scenes, from the best of fits of a sample. → the sample, its labels in each, best first

    If lights differ much, multipliers that start at 1 lead into clusters of one scene each. So in half of the fits they
    start where they would be if all scenes had equally much of each material: at the mean profile of the scene,
    relative to that of all scenes. In the other half they start at 1, for scenes that differ in their materials.
    """
    some = spread(pixels.shape[0], SCENES_SAMPLE, groups)
    runs = sorted(fits_of_scenes(model, take_rows(pixels, some), groups[some]), key=lambda run: run.reconstruction_err_)
    fit_model(model, pixels, groups=groups, engine=engine, init=_start_from(runs[0]))
    return some, [run.labels_ for run in runs]


def fits_of_scenes(model: ONMF, rows: Array, groups: Array) -> list[ONMF]:
    """Fits of pixels of several scenes from random starts; see :func:`fit_scenes`."""
    names, codes = np.unique(groups, return_inverse=True)
    profiles = divide(rows.astype(np.float64), rows.sum(axis=1, dtype=np.float64)[:, None])
    means = np.stack([profiles[codes == b].mean(axis=0) for b in range(len(names))])
    means += LEAST_SHARE / rows.shape[1]
    effects = means / means.mean(axis=0)
    effects /= effects.mean(axis=1, keepdims=True)
    runs = SCENE_STARTS if isinstance(model.n_init, str) else model.n_init
    seeds = check_random_state(model.random_state).randint(2**31 - 1, size=runs)
    plain = clone(model).set_params(init="++", n_init=1)
    found = []
    for number, seed in enumerate(seeds.tolist()):
        s = np.ones_like(effects) if number % 2 else effects
        C = plain.set_params(random_state=seed).fit(rows / s[codes]).cluster_centers_
        start = Seeds(np.pad(C, ((0, 0), (0, len(names)))), effects=s, given=True) if len(names) > 1 else C
        found.append(fit_model(clone(model), rows, groups=groups, init=start))
    return found


def _start_from(fitted: ONMF) -> Seeds:
    """A start from a fit of some of the pixels of several scenes."""
    effects: Any = fitted.group_effects_
    return Seeds(np.pad(fitted.cluster_centers_, ((0, 0), (0, len(effects)))), effects=effects, given=True)


def measure(
    model: ONMF,
    pixels: Pixels,
    labels: Array | None,
    standards: Standards,
    surprise: Array | None = None,
    scene: str = "",
) -> dict[str, Any]:
    """The maps and spectra of a fitted model, in one pass over the pixels; without labels, pixels are assigned.

    How unusual each pixel is takes another pass, unless it is known.

    If the model has groups, ``scene`` is that of the pixels, and their spectra are those in its light. The multipliers
    of a scene that the model does not know are 1.
    """
    divergence, centroids = model.divergence_, model.cluster_centers_
    k, normal = len(centroids), divergence.normalise(centroids)
    plain, groups = divergence, None
    if model.group_effects_ is not None:
        known = model.groups_.tolist()
        sizes = sizes_in_groups(normal, model.group_effects_)
        code = known.index(scene) if scene in known else len(known)
        groups = Groups(model.groups_, np.array(code), factors=sizes.min(axis=0))
        divergence = groups.divergence(plain, normal.shape[1])
        centroids = divergence.with_groups(normal, sizes)
        if scene in known:
            normal = plain.normalise(normal * model.group_effects_[code])
    exact = normal + UNSEEN if plain.domain == "nonnegative" else normal
    pairs = ((divergence, centroids), (plain.unsmoothed(), exact))
    templates = [(family.templates(C), family.offsets(C)) for family, C in pairs]
    if groups is not None:  # in its own light, a spectrum needs no columns of groups
        templates[1] = np.pad(templates[1][0], ((0, 0), (0, len(groups)))), templates[1][1]
    source = Source(
        pixels,
        lambda block, **_: (block, 0),  # blocks of pixels were checked when the image was scanned
        noun="block of pixels",
        sizes=pixels.sizes,
        features=pixels.shape[1],
    )
    if groups is not None:
        source = with_groups(source, groups, pixels.sizes, pixels.shape[1])
    rows = Blocks(get_engine(model.engine, None, model.n_threads).backend, None).open(source, divergence)
    labels, scales, residuals, distances, sure, following = rows.map_rows(
        _measure_part, *templates, centroids, standards.calibration, model.clusters_, labels=labels
    )
    compact = np.int16 if k < 2**15 else np.int32
    labels = labels.astype(compact)
    if surprise is None:
        own = None if groups is None else np.full(len(labels), scene)
        surprise = surprise_in(model, pixels, standards.usual, own)
    totals, counts = np.bincount(labels, weights=scales, minlength=k), np.bincount(labels, minlength=k)
    mean = divide(totals.astype(np.float64), counts.astype(np.float64))
    unit = mean.astype(np.float32)
    scales /= np.where(unit > 0, unit, np.float32(1.0))[labels]
    usual = 1.0 if groups is None else float(totals.sum()) / len(labels)  # not every material is in every scene
    return {
        "templates": pixels.image(labels, -1),
        "scales": pixels.image(scales, np.nan),
        "margins": pixels.image(distances, np.nan),
        "confidence": pixels.image(sure, np.nan),
        "surprise": pixels.image(surprise.astype(np.float32), np.nan),
        "runners_up": pixels.image(following.astype(compact), -1),
        "residuals": pixels.image(residuals, np.nan),
        "spectra_of_templates": normal * np.where(mean > 0, mean, usual)[:, None] * (pixels.cube.scale / pixels.factor),
    }


def _measure_part(
    part: Part,
    templates: WithOffsets,
    exact: WithOffsets,
    centroids: FloatArray,
    calibration: Calibration | None,
    clusters: Array | None,
    labels: Array | None = None,
) -> tuple[Array, ...]:
    """Template, scale, residual (from ``exact``), margin, confidence and runner-up of each pixel. → 6 × (n,)"""
    block, divergence = part.block, part.block.divergence
    prepared = block.prepare_templates(*templates)
    labels = block.assign(prepared).labels if labels is None else block.backend.to_device(labels).astype(np.int32)
    own, following = block.own_and_next(prepared, labels)
    best, _ = block.own_and_next(block.prepare_templates(*exact), labels)
    residuals = np.maximum(divide(block.losses(best), divergence.row_size(block.terms)), 0.0)
    if clusters is None:
        distances = margins(divergence, own, following, block.terms)
    else:
        distances = labels_scales_and_margins(part, centroids, clusters, labels)[2]
    measured = (block.own_scales(prepared, labels, own), residuals, distances)
    if calibration is None:
        sure, others = np.full(len(block), np.nan), np.full(len(block), -1, dtype=np.int32)
    else:
        sure, others = confidence_by_row(part, centroids, calibration, clusters, labels)
    return labels, *(values.astype(np.float32) for values in (*measured, sure)), others
