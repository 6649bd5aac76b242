"""Several scenes as one image: their lines below each other, each scene a group of pixels with a light of its own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from onmf.divergence import Array, Divergence, FloatArray, divide
from onmf.door import Progress
from onmf.door.groups import group_of_file
from onmf.door.join import names_of_files
from onmf.door.settle import Standards
from onmf.door.write import Columns
from onmf.estimator import ONMF
from onmf.io.rules import require, some_names
from onmf.naming import distinct

from .cube import Cube, Lines, Negatives, Pixels, in_nanometres, type_of_product
from .fit import measure
from .materials import Truth

UNCHANGED, FIRST_CHANGE = 1, 2  # in a map of changes; 0 means that the pixel has no cluster in one of the scenes


class StackedLines(Lines):
    """The lines of several cubes below each other, in the unit of the first. Lines of narrower ones end in zeros."""

    def __init__(self, cubes: Sequence[Cube]) -> None:
        self.cubes = [replace(cube, good_bands=np.ones(cube.shape[2], dtype=bool)) for cube in cubes]
        self.factors = [cube.scale / cubes[0].scale for cube in cubes]
        heights, widths, bands = zip(*(cube.shape for cube in cubes), strict=True)
        self.ends = np.cumsum(heights).tolist()
        self.shape = (self.ends[-1], max(widths), bands[0])
        self.dtype = np.result_type(*map(type_of_product, cubes, self.factors))

    def read(self, start: int, stop: int) -> Array:
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        out = np.zeros((max(stop - start, 0), *self.shape[1:]), dtype=self.dtype)
        for cube, factor, end in zip(self.cubes, self.factors, self.ends, strict=True):
            first = end - cube.shape[0]
            low, high = max(start, first), min(stop, end)
            if low < high:
                part = cube.read(low - first, high - first)
                out[low - start : high - start, : cube.shape[1]] = part if factor == 1 else part * factor
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Scenes(Cube):
    """Several scenes below each other, as one cube in the unit of the first. Each keeps its mask and coordinates."""

    scenes: tuple[Cube, ...] = ()  #: the cubes, with the same used bands, and with the names of the scenes

    def __post_init__(self) -> None:
        super().__post_init__()
        own = (replace(scene, good_bands=self.good_bands) for scene in self.scenes)
        object.__setattr__(self, "scenes", tuple(own))

    def without_texts(self) -> Self:
        """The same of each scene; scenes keep their names, as other groups do."""
        scenes = tuple(replace(scene.without_texts(), name=scene.name) for scene in self.scenes)
        return replace(self, source="", scenes=scenes)

    @property
    def names(self) -> list[str]:
        """The names of the scenes."""
        return [scene.name for scene in self.scenes]

    @property
    def places(self) -> list[tuple[slice, slice]]:
        """The lines and samples of each scene in this cube."""
        ends = np.cumsum([scene.shape[0] for scene in self.scenes]).tolist()
        sizes = [scene.shape[:2] for scene in self.scenes]
        return [(slice(end - lines, end), slice(0, samples)) for end, (lines, samples) in zip(ends, sizes, strict=True)]

    @cached_property
    def groups(self) -> list[str]:
        """The scene of each pixel."""
        width = self.shape[1]
        return list(chain.from_iterable(repeat(scene.name, scene.shape[0] * width) for scene in self.scenes))

    def put_together(self, parts: Sequence[Array], missing: Any) -> Array:
        """Images of the scenes as one, with ``missing`` beside narrower ones."""
        out = np.full(self.shape[:2], missing, dtype=np.result_type(*parts))
        for place, part in zip(self.places, parts, strict=True):
            out[place] = part
        return out


def stack(cubes: Sequence[Cube], sources: Sequence[Any]) -> Scenes:
    """Several scenes of one sensor as one cube; ``sources`` are what they were read from. Bands must match."""
    paths = [source for source in sources if isinstance(source, str | Path)]
    named = names_of_files(paths) if len(paths) == len(cubes) else []  # refuses one that is named twice
    names = [cube.name for cube in cubes]
    if len(set(names)) < len(names):
        names = named or [f"scene {number}" for number in range(1, len(names) + 1)]
    first = cubes[0]
    for cube, name in zip(cubes[1:], names[1:], strict=True):
        check_same_bands(first, cube, names[0], name)
    return Scenes(
        StackedLines(cubes),
        wavelengths=first.wavelengths,
        wavelength_unit=first.wavelength_unit,
        band_names=first.band_names,
        good_bands=np.logical_and.reduce([cube.good_bands for cube in cubes]),
        scale=first.scale,
        name=", ".join(names),
        source=", ".join(cube.source for cube in cubes),
        truth=_truth_of(cubes, names),
        scenes=tuple(replace(cube, name=name) for cube, name in zip(cubes, names, strict=True)),
    )


def check_same_bands(one: Cube, other: Cube, name: str, its_name: str) -> None:
    """Refuse two scenes with other bands."""
    p, its_p = one.shape[2], other.shape[2]
    require(
        p == its_p,
        f"{name} has {p} bands, and {its_name} has {its_p}: only scenes of the same sensor can be clustered together.",
    )
    if one.wavelengths is None or other.wavelengths is None:
        return
    waves, its_waves = (in_nanometres(np.asarray(cube.wavelengths), cube.wavelength_unit) for cube in (one, other))
    apart = np.flatnonzero(are_apart(its_waves, waves))
    if len(apart):
        pairs = [f"{waves[band]:.1f} nm in {name} and {its_waves[band]:.1f} nm in {its_name}" for band in apart[:3]]
        raise ValueError(
            f"{name} and {its_name} have other bands: {len(apart)} of {p} differ, such as {'; '.join(pairs)}. Resample "
            "one of the scenes to the bands of the other."
        )


def are_apart(ours: FloatArray, theirs: FloatArray) -> Array:
    """Which bands lie further apart than half the usual gap between two of theirs. → (bands,)"""
    gap = np.median(np.abs(np.diff(theirs))) if len(theirs) > 1 else 1.0
    return np.abs(ours - theirs) > 0.5 * gap


def _truth_of(cubes: Sequence[Cube], names: Sequence[str]) -> Truth | None:
    """What is known about several scenes as what is known about all of them; None if nothing is."""
    known = [(name, cube.truth) for name, cube in zip(names, cubes, strict=True) if cube.truth is not None]
    if not known:
        return None
    (first, truth), maps = known[0], [None if cube.truth is None else cube.truth.labels for cube in cubes]
    for name, other in known[1:]:
        require(
            other.materials == truth.materials,
            f"The truth of {first} has the materials {some_names(truth.materials)}, and that of {name} has "
            f"{some_names(other.materials)}: give the same materials, in the same order.",
        )
    if all(labels is None for labels in maps):
        return truth
    width = max(cube.shape[1] for cube in cubes)
    both = zip(cubes, maps, strict=True)
    filled = [np.full(cube.shape[:2], -1) if labels is None else np.asarray(labels) for cube, labels in both]
    wide = [np.pad(labels, ((0, 0), (0, width - labels.shape[1])), constant_values=-1) for labels in filled]
    return replace(truth, labels=np.concatenate(wide))


class ScenePixels(Pixels):
    """The pixels of several scenes, one scene after the other. ``parts`` are those of each."""

    def __init__(self, cube: Scenes, divergence: Divergence, negatives: Negatives, progress: Progress) -> None:
        factors = (scene.scale / cube.scale for scene in cube.scenes)
        given = zip(cube.scenes, factors, strict=True)
        self.parts = [Pixels(scene, divergence, negatives, progress, factor) for scene, factor in given]
        self.cube, self.clipped, self.factor = cube, negatives == "clip", 1.0
        self.dtype = np.result_type(*(part.dtype for part in self.parts))
        self.inside = cube.put_together([part.inside for part in self.parts], False)
        self.blocks = [(part, number) for part in self.parts for number in range(len(part.sizes))]
        self.sizes = [part.sizes[number] for part, number in self.blocks]
        self.shape = (sum(self.sizes), self.parts[0].shape[1])

    def block(self, number: int) -> Array:
        part, own = self.blocks[number]
        return part.block(own).astype(self.dtype, copy=False)

    def notes(self) -> list[str]:
        return [f"{part.cube.name}: {note}" for part in self.parts for note in part.notes()]


def measure_scenes(
    model: ONMF, pixels: ScenePixels, labels: Array, standards: Standards, surprise: Array
) -> dict[str, Any]:
    """The maps of all scenes as one, the spectra that they share, and those of each in its own light."""
    cube: Any = pixels.cube
    ends = np.cumsum([part.shape[0] for part in pixels.parts])[:-1]
    own, unusual = np.split(labels, ends), np.split(surprise, ends)
    found = [
        measure(model, part, some, standards, each, part.cube.name)
        for part, some, each in zip(pixels.parts, own, unusual, strict=True)
    ]
    spectra = np.stack([each.pop("spectra_of_templates") for each in found])
    # A material is as bright as its pixels in all scenes are on average.
    counts = np.stack([np.bincount(some, minlength=spectra.shape[1]) for some in own])
    levels = divide((counts * spectra.sum(axis=2)).sum(axis=0), counts.sum(axis=0).astype(np.float64))
    shared = model.divergence_.normalise(model.cluster_centers_) * levels[:, None]
    whole = ("templates", "runners_up")
    maps = {
        name: cube.put_together([each[name] for each in found], -1 if name in whole else np.nan) for name in found[0]
    }
    return maps | {"spectra_of_templates": shared, "scene_spectra": spectra}


def scene_of(model: ONMF, cube: Cube) -> tuple[str, list[str]]:
    """The scene of a model that an image is, by its name or its path, empty if it is a new one; and a note."""
    if model.group_effects_ is None:
        return "", []
    known = [str(name) for name in model.groups_]
    name = cube.name if cube.name in known else group_of_file(known, cube.source)
    if name:
        return name, [f"The factors of the bands are those of the scene {name}."]
    return "", [
        f"The model has factors for the scenes {some_names(known)}, and {cube.name} is none of them: the factors are "
        "1. Estimate them from its pixels (--estimate-groups, in Python estimate_groups=True)."
    ]


class Change(NamedTuple):
    """How the materials of the pixels changed from one scene to the next of the same shape."""

    before: str  #: name of the earlier scene
    after: str  #: name of the later scene
    pixels: Array  #: (clusters, clusters) number of pixels that were in one cluster and are in another
    map: Array  #: (lines, samples) 0 where one of the scenes has no cluster, 1 unchanged, from 2 on the ``pairs``
    pairs: list[tuple[int, int]]  #: cluster before and after of each kind of change, the most frequent first

    @property
    def share(self) -> float:
        """The share of the pixels that changed, of those with a cluster in both scenes."""
        return 1.0 - float(np.trace(self.pixels)) / max(int(self.pixels.sum()), 1)


def changes_between(labels: Sequence[Array], names: Sequence[str], k: int) -> list[Change]:
    """The changes between consecutive scenes of the same shape."""
    found = []
    for (before, name), (after, next_name) in pairwise(zip(labels, names, strict=True)):
        if before.shape != after.shape:
            continue
        both = (before >= 0) & (after >= 0)
        codes = before[both].astype(np.int64) * k + after[both]
        pixels = np.bincount(codes, minlength=k * k).reshape(k, k)
        moved = pixels - np.diag(np.diag(pixels))
        order = [int(code) for code in np.argsort(-moved, axis=None, kind="stable") if moved.flat[code]]
        values = np.full(k * k, UNCHANGED, dtype=np.int64)
        values[order] = np.arange(FIRST_CHANGE, FIRST_CHANGE + len(order))
        image = np.zeros(before.shape, dtype=np.min_scalar_type(FIRST_CHANGE + len(order)))
        image[both] = values[codes]
        found.append(Change(name, next_name, pixels, image, [divmod(code, k) for code in order]))
    return found


def changes_table(clusters: Any) -> Columns:
    """A row for each material before and after, with the value of the pair in the map of the change."""
    clusters = clusters.dense
    names, shown, rows = clusters.names, clusters.shown_numbers, []
    for change in clusters.changes:
        same = [(UNCHANGED, (k, k)) for k in range(len(names)) if change.pixels[k, k]]
        for value, (old, new) in same + list(enumerate(change.pairs, FIRST_CHANGE)):
            n, total = int(change.pixels[old, new]), int(change.pixels.sum())
            pair = (shown[old], names[old], shown[new], names[new])
            rows.append((change.before, change.after, value, *pair, n, round(n / total, 6)))
    columns = ("from_scene", "to_scene", "value", "from", "from_name", "to", "to_name", "pixels", "share")
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def summary_of_scenes(clusters: Any) -> dict[str, Any]:
    """Entries of ``summary.json``: each scene, and the share of the pixels that changed since the one before."""
    cube, changed = clusters.cube, {change.after: change.share for change in clusters.changes}
    n = sum(scene.labels.size for scene in clusters.scenes)
    scenes = [
        {"name": name, "lines": scene.labels.shape[0], "samples": scene.labels.shape[1], "changed": changed.get(name)}
        for name, scene in zip(cube.names, clusters.scenes, strict=True)
    ]
    return {
        "n_pixels": n,
        "unassigned": n - int(np.count_nonzero(clusters.labels >= 0)),
        "n_bands": cube.shape[2],
        "n_bands_used": clusters.spectra.shape[1],
        "scenes": scenes,
    }


def folders_of(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The name of a folder for each scene, none of which is taken."""
    plain = [re.sub(r"[^\w.+-]+", "-", name)[:100].strip(".-") or "scene" for name in names]
    return distinct([*taken, *plain])[len(taken) :]
