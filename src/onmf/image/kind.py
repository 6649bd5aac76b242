"""Images as a kind of data: their options, the result, how pixels are clustered, and what their model files hold."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from onmf.backend import to_host
from onmf.confidence import evenly_spaced
from onmf.data import in_blocks
from onmf.divergence import Array, FloatArray, divide, get_divergence
from onmf.door import Clusters, Kind, Option, Progress, cluster_table, predict_table
from onmf.door.kind import SEEDS, Fit, Rows, part_parameters
from onmf.door.known import columns_of_seeds, fit_given
from onmf.door.run import check_kind
from onmf.door.settle import Standards, standards_rules, take_rows
from onmf.estimator import ONMF, fit_model, is_auto
from onmf.functions import matrix_product
from onmf.io.rules import NULL, STRING, Rule, either, is_array, one_of, optional, require, strings
from onmf.naming import CANDIDATES, allowed, distinct, number_by_size, so_many
from onmf.warn import import_optional

from . import figures
from .cube import NANOMETRES, Cube, Negatives, Pixels, in_nanometres
from .files import read
from .fit import START_SAMPLE, fit_blocks, fit_scenes, measure
from .materials import Comparison, Truth, compare, names_of_spectra, read_library, read_truth, resampled
from .scenes import (
    Change,
    ScenePixels,
    Scenes,
    are_apart,
    changes_between,
    measure_scenes,
    scene_of,
    stack,
    summary_of_scenes,
)

IN_MEMORY = 512 << 20  # Bytes of pixels up to which they are clustered in memory

SPECTRUM = 10.0
"""How much a known spectrum counts, relative to the pixels of its cluster. It is a whole profile, so it holds: with
less weight, a cluster leaves it for another material."""

UNITS = {unit: "nm" if factor == 1 else "µm" for unit, factor in NANOMETRES.items()} | {"unknown": ""}
"""Short forms of units of wavelengths."""


NUMBERS = r"(\d{1,6}(?:\.\d{1,6})?)(?: *[–-] *(\d{1,6}(?:\.\d{1,6})?))?"
BANDS = re.compile(rf"bands? *{NUMBERS}|{NUMBERS} *nm", re.IGNORECASE)
"""Bands that can be searched for: by their numbers, or by wavelengths."""


def parse_bands(value: str) -> list[int]:
    """Parse ``--drop-bands``: bands counted from 1, as in ``1-3,104-110``. Returns them counted from 0."""
    bands: list[int] = []
    for part in map(str.strip, value.split(",")):
        first, _, last = part.partition("-")
        last = last or first
        valid = first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)
        require(valid, f"{part!r} is not a band or a range of bands. Use for instance 1-3,104-110.")
        bands += range(int(first) - 1, int(last))
    return bands


FILES = (
    *("map.tif", "map.tif.aux.xml", "map.hdr", "map.img", "scales.tif", "residuals.tif", "margins.tif"),
    *("confidence.tif", "surprise.tif", "most_likely.tif", "runner_up.tif", "runner_up.tif.aux.xml"),
    *("spectra.csv", "spectra.hdr", "spectra.sli", "map.png", "map.svg", "spectra.png", "spectra.svg"),
)
"""Names of the files of a scene."""

MAPS = ("labels", "scales", "residuals", "margins", "confidence", "surprise", "runners_up")  # of a scene

OPTIONS = (
    Option("truth", "Compare with known endmembers or a label map.", Path | None, None, "FILE", reading=True),
    Option("negatives", "Refuse an image with negative values, or set them to zero.", str, "refuse", "refuse|clip"),
    Option("variable", "Variable of a MATLAB or npz file that holds the cube.", metavar="NAME", reading=True),
    Option("mask", "An image with one band: its nonzero pixels are used.", Path | None, None, "FILE", reading=True),
    Option(
        "ignore_value",
        "Value that marks pixels without data.",
        float | None,
        None,
        "VALUE",
        flags=("--ignore",),
        reading=True,
    ),
    Option(
        "drop_bands",
        "Bands to leave out, counted from 1, such as 1-3,104-110.",
        metavar="BANDS",
        parse=parse_bands,
        reading=True,
    ),
    Option("keep_bad_bands", "Use the bands that the file marks as bad.", bool, False, reading=True),
    replace(
        SEEDS,
        help="Known spectra of some materials: an ENVI spectral library, or a csv with the wavelength and a column for "
        "each. The other materials are found.",
        flags=("--library",),
        parse=read_library,
    ),
    Option(
        "blocks",
        "Read the pixels in blocks, or all at once; by default in blocks above 512 MB.",
        bool | None,
        None,
        flags=("--blocks/--in-memory",),
    ),
)


@dataclass(repr=False, eq=False)
class ImageClusters(Clusters):
    """The materials of an image: a map, and a spectrum of each; see :class:`onmf.door.Clusters`.

    A pixel is about ``scales[line, sample] * spectra[labels[line, sample]]``. Its arrays by row are maps of the shape
    (lines, samples), and the scale of a pixel is its brightness, 1 being the mean of its cluster.

    Several scenes lie below each other in these maps, and ``spectra`` are the spectra that they share. ``scenes`` has a
    result for each, with its own spectra: the shared ones times the factors of the scene, ``model.group_effects_``.

    Attributes
    ----------
    spectra : (numbers, used bands) array
        Spectrum of each cluster at its mean brightness, in physical units; 0 for a number without a cluster.
    spectra_of_templates : (centroids, used bands) array
        The same for each centroid of the model; those of clusters that were merged differ.
    residuals : (lines, samples) array of float32
        Divergence of each pixel from its scaled spectrum, per unit of the pixel; NaN for pixels that are unassigned.
    negatives : {"refuse", "clip"}
        How negative values were treated.
    scene_spectra : (scenes, centroids, used bands) array or None
        Those of each scene, if there are several.
    """

    table: Cube  # type: ignore[assignment]  # it has what a table has
    spectra_of_templates: FloatArray = field(kw_only=True)
    residuals: Array = field(kw_only=True)
    negatives: Negatives = "refuse"
    scene_spectra: FloatArray | None = None

    @cached_property
    def scenes(self) -> list["ImageClusters"]:
        """A result for each scene; a list of this one if it is the only one."""
        cube = self.cube
        if not isinstance(cube, Scenes) or self.scene_spectra is None:
            return [self]
        maps = (*MAPS, "templates")
        return [
            replace(
                self,
                table=scene,
                spectra_of_templates=spectra,
                scene_spectra=None,
                **{name: getattr(self, name)[place] for name in maps},
            )
            for scene, place, spectra in zip(cube.scenes, cube.places, self.scene_spectra, strict=True)
        ]

    @cached_property
    def changes(self) -> list[Change]:
        """What changed from each scene to the next, if they have the same shape."""
        labels = [scene.labels for scene in self.scenes]
        return changes_between(labels, [scene.cube.name for scene in self.scenes], self.n_numbers)

    @cached_property
    def spectra(self) -> FloatArray:
        """Spectrum of each cluster: the mean of those of its centroids, weighted by the pixels of the fit."""
        clusters, spectra = self.model.clusters_, self.spectra_of_templates
        if clusters is None:
            return spectra
        pixels = np.bincount(to_host(self.model.clustering_.labels), minlength=len(spectra)).astype(np.float64)
        members = np.where(np.arange(self.n_numbers)[:, None] == clusters, pixels, 0.0)
        return matrix_product(divide(members, members.sum(axis=1, keepdims=True)), spectra)

    @property
    def cube(self) -> Cube:
        """The image."""
        return self.table

    @property
    def truth(self) -> Truth | None:
        """What is known about the image."""
        return self.cube.truth

    @cached_property
    def comparison(self) -> Comparison | None:
        """The clusters compared with the truth; None if nothing is known."""
        if self.truth is None:
            return None
        truth = self.truth
        if self.history is not None and truth.spectra is not None and self.n_clusters < len(truth.spectra):
            truth = replace(truth, spectra=None)  # edits left fewer clusters than there are spectra to match
        return compare(truth, self.spectra, self.labels, self.cube.good_bands, self.numbers)

    @property
    def wavelengths(self) -> FloatArray | None:
        """Wavelengths of the used bands, in the unit of the cube. → (used bands,)"""
        return None if self.cube.wavelengths is None else self.cube.wavelengths[self.cube.good_bands]

    def colours(self) -> list[str]:
        """A colour for each cluster: the conventional one of its material, or an unused one."""
        if self._sparse is None:
            return figures.colours(self.names)
        every = self._sparse.colours()
        return [every[number] for number in self._sparse.numbers]

    def predict(self, cube: Any, /, **options: Any) -> Any:
        """Map another image of the same sensor; see :func:`onmf.image.predict`."""
        return predict(self, cube, **options)

    plot_map, plot_spectra = figures.plot_map, figures.plot_spectra

    def to_frame(self) -> Any:
        """The clusters as a pandas DataFrame: the columns of ``clusters.csv``. Pixels are in :meth:`to_xarray`."""
        import pandas as pd

        from onmf.door.write import clusters_table

        return pd.DataFrame(clusters_table(self))

    def to_xarray(self) -> Any:
        """The maps and the spectra as one ``xarray.Dataset``, with coordinates.

        Returns
        -------
        xarray.Dataset
        """
        xarray = import_optional("xarray", "to_xarray needs xarray", "image")
        lines, samples = self.labels.shape
        found = self.dense
        coords: dict[str, Any] = {"cluster": found.names, "number": ("cluster", self.numbers)}
        transform = self.cube.transform
        if transform is not None and transform[1] == transform[3] == 0:
            a, _, c, _, e, f = transform
            coords |= {"y": f + e * (np.arange(lines) + 0.5), "x": c + a * (np.arange(samples) + 0.5)}
        if self.wavelengths is not None:
            attributes = {"units": self.cube.wavelength_unit} if self.cube.wavelength_unit else {}
            coords["wavelength"] = ("band", self.wavelengths, attributes)
        variables: dict[str, Any] = {name: (("y", "x"), getattr(self, name)) for name in MAPS}
        variables["spectra"] = (("cluster", "band"), found.spectra)
        about = {"source": self.cube.source, "crs_wkt": self.cube.crs}
        return xarray.Dataset(variables, coords, {key: text for key, text in about.items() if text is not None})


class ImageKind(Kind):
    """Images: rows of light, by band."""

    name = command = "image"
    about = "Cluster the pixels of a hyperspectral image by their spectra."
    examples = (
        "onmf image scene.hdr -k 4 --negatives clip --out materials",
        "onmf image scene.mat --variable Y -k auto --truth endmembers.mat --out materials",
        "onmf image scene.tif -k 6 --mask land.tif --drop-bands 1-3,104-110 --out materials",
        "onmf image may.hdr july.hdr -k 5 --out season",
    )
    argument = "FILE"
    argument_help = "ENVI (header or data), GeoTIFF, MATLAB, npy or npz file; several are scenes of one sensor."
    row, feature, cluster = "pixel", "band", "material"
    known_by = "truth"
    several = True
    first = 1  # 0 means no data in a map
    rows_to_choose = 2_400
    options = OPTIONS
    not_in_predict = ("truth", "drop_bands", "keep_bad_bands")
    without = ("quick", "map")
    files = (*FILES, "changes.csv", *(f"*/{name}" for name in (*FILES, "change.tif", "change.tif.aux.xml")))
    listed = ("map.tif", "map.img", "spectra.csv", "spectra.sli", "map.png")
    packages: Mapping[str, str] = {"rasterio": "image"}
    report_packages: Mapping[str, str] = {"jinja2": "report", "matplotlib": "report"}
    found_elsewhere = "Pixels are not searched: the map shows where each material is."
    assignments = False
    shown = ("mrsa",)
    page = "onmf.image.page:image_page"
    result = ImageClusters

    def rules(self, k: int, p: int) -> dict[str, Rule]:
        return {
            "names": strings(),
            "spectra": Rule(lambda a: is_array(a, "f") and a.shape == (k, p), "a spectrum for each cluster"),
            "good_bands": Rule(
                lambda a: (
                    is_array(a, "bu") and a.ndim == 1 and a.max(initial=0) <= 1 and int(a.sum(dtype=np.int64)) == p
                ),
                f"a flag for each band, {p} of them set",
            ),
            "negatives": one_of("refuse", "clip"),
            "image": optional(STRING),
            "wavelengths": optional(Rule(lambda a: is_array(a, "fiu") and a.ndim == 1, "a number for each band")),
            "wavelength_unit": optional(either(NULL, STRING)),
            **standards_rules(k, p),
        }

    def check(self, extra: Mapping[str, Any]) -> None:
        super().check(extra)
        if "wavelengths" in extra:
            require(len(extra["wavelengths"]) == len(extra["good_bands"]), "its wavelengths do not match its bands")
            require("wavelength_unit" in extra, "'wavelength_unit' is missing")

    def feature_names(self, extra: Mapping[str, Any]) -> list[str]:
        return [f"band {band + 1}" for band in np.flatnonzero(extra["good_bands"])]

    def terms(self, query: str, model: ONMF, table: Any) -> dict[str, list[int]]:
        extra, asked = model.extra_, BANDS.fullmatch(query.strip())
        how = "search for 'band 12', 'bands 12-15', '650 nm' or '640-680 nm'."
        if asked is None:
            raise ValueError(f"{query!r} is no band of an image: {how}")
        first, last, low, high = asked.groups()
        bands = np.flatnonzero(extra["good_bands"])
        if first is not None:
            found = (bands + 1 >= float(first)) & (bands + 1 <= float(last or first))
        else:
            require("wavelengths" in extra, f"This image has no wavelengths: {how}")
            waves = in_nanometres(np.asarray(extra["wavelengths"]), extra["wavelength_unit"])[bands]
            found = (waves >= float(low)) & (waves <= float(high or low))
            if high is None and waves.min() <= float(low) <= waves.max():
                found = np.arange(len(waves)) == np.argmin(np.abs(waves - float(low)))
        return {query.strip(): np.flatnonzero(found).tolist()}

    def entries(self, clusters: Any) -> dict[str, Any]:
        cube: Cube = clusters.cube
        known = {"wavelengths": cube.wavelengths, "wavelength_unit": cube.wavelength_unit}
        good = cube.good_bands.astype(np.uint8)
        entries = {
            "spectra": clusters.spectra_of_templates,
            "good_bands": good,
            "negatives": clusters.negatives,
            "image": cube.name,
        }
        return entries if cube.wavelengths is None else entries | known

    def extended(self, extra: Mapping[str, Any], profiles: FloatArray) -> dict[str, Any]:
        spectra = np.asarray(extra["spectra"])
        new = profiles * spectra.sum(axis=1).mean()
        return {**extra, "spectra": np.vstack([spectra, new]).astype(spectra.dtype)}

    def distinctive(self, model: ONMF, n: int) -> list[str]:
        """The bands that set each material apart: neighbours as one range, with the wavelengths if they are known."""
        return [", ".join(top) for top in _bands(model, n, model.extra_)]

    def telling(self, clusters: Any) -> list[list[str]]:
        return _bands(clusters.model, CANDIDATES, self.entries(clusters))

    def read(self, path: Any, progress: Progress | None, *, force: bool = False, **options: Any) -> Any:
        truth = options.pop("truth", None)
        cube = read(path, **options)
        if truth is None:
            return cube
        return replace(cube, truth=truth if isinstance(truth, Truth) else read_truth(truth, cube.shape))

    def read_all(self, paths: Any, progress: Progress | None, *, truth: Any = None, **options: Any) -> Any:
        if not isinstance(paths, list | tuple):
            return self.read(paths, progress, truth=truth, **options)
        truths = truth if isinstance(truth, list | tuple) else [truth] * len(paths)
        require(len(paths), "There is no image to read: give at least one.")
        require(len(truths) == len(paths), f"truth has {len(truths)} entries for {len(paths)} scenes: give as many.")
        cubes = [self.read(path, progress, truth=own, **options) for path, own in zip(paths, truths, strict=True)]
        return cubes[0] if len(cubes) == 1 else stack(cubes, paths)

    def prepare(self, table: Any, parameters: dict[str, Any], progress: Progress, **options: Any) -> Rows:
        divergence = get_divergence(parameters.get("beta_loss", "kullback-leibler"), parameters.get("smoothing", 1e-3))
        pixels = (ScenePixels if isinstance(table, Scenes) else Pixels)(
            table, divergence, options["negatives"], progress
        )
        size = pixels.shape[0] * pixels.shape[1] * pixels.dtype.itemsize
        pixels.in_blocks = size > IN_MEMORY if options["blocks"] is None else options["blocks"]
        return Rows(pixels, np.flatnonzero(pixels.inside.ravel()), pixels.notes())

    def fit(
        self,
        rows: Rows,
        n_clusters: int,
        parameters: dict[str, Any],
        progress: Callable[[float], None],
        announce: Callable[[str], None],
    ) -> Fit:
        pixels: Any = rows.X
        model, engine = ONMF(n_clusters, **parameters), None
        fit = Fit(model, pixels, groups=rows.groups)
        if pixels.in_blocks:
            engine = in_blocks(model.engine, model.n_threads, lambda name, share: progress(share))
        else:
            fit.X = pixels = pixels.array()
        if rows.given is not None:
            # Pixels as first centroids are of one scene each, and would stay there.
            own = {"seed_share": SPECTRUM} if rows.groups is not None else {"seed_share": SPECTRUM, "init": "++"}
            return fit_given(pixels, n_clusters, own | parameters, rows.given, rows.groups, engine)
        if rows.groups is not None and is_auto(model.init):
            some, runs = fit_scenes(model, pixels, rows.groups, engine)
            fit.trials = (some, runs[: len(runs) // 2]) if len(runs) > 1 else None  # the others may follow the scenes
            fit.how = f"the best of {so_many(len(runs), 'start')} with {so_many(len(model.groups_), 'scene')}"
            if len(some) < pixels.shape[0]:
                fit.notes.append(f"The start comes from {len(some):,} pixels, equally many of each scene.")
            if engine is not None:
                fit.notes.append(f"The pixels were read in {len(rows.X.sizes)} blocks.")
        elif engine is not None:
            fit.notes.append(fit_blocks(model, pixels, engine, rows.groups))
        else:
            fit_model(model, pixels, groups=rows.groups)
        number_by_size(model, pixels, engine)
        return fit

    def check_seeds(self, seeds: Any) -> Mapping[str, Any]:
        library = seeds if isinstance(seeds, Truth) else read_library(Path(seeds))
        spectra = library.spectra
        require(spectra is not None, "The library has no spectra: give a spectral library or a csv.")
        assert spectra is not None
        each = zip(distinct([allowed(repr(name), name) for name in library.materials]), spectra, strict=True)
        return {name: replace(library, spectra=spectrum[None], names=[name]) for name, spectrum in each}

    def seeds_in(
        self, table: Any, rows: Rows, seeds: Mapping[str, Any]
    ) -> tuple[dict[str, dict[Any, float]], list[str]]:
        weights = {
            name: {band: value for band, value in enumerate(resampled(library, table).tolist()) if value > 0}
            for name, library in seeds.items()
        }
        return columns_of_seeds(self, rows, weights, int)

    def fit_part(
        self, fit: Fit, X: Any, groups: Array | None, n_clusters: int, progress: Callable[[float], None]
    ) -> Fit:
        model = ONMF(n_clusters, **part_parameters(fit))
        if groups is not None and is_auto(model.init):
            fit_scenes(model, X, groups)
        else:
            fit_model(model, X, groups=groups)
        number_by_size(model, X)
        return Fit(model, X, groups=groups)

    def measured(self, fit: Fit, rows: Rows, standards: Standards, surprise: Array, n: int) -> dict[str, Any]:
        way: Any = measure_scenes if isinstance(rows.X, ScenePixels) else measure
        found = way(fit.model, rows.X, fit.model.clustering_.labels, standards, surprise)
        return found | {"negatives": "clip" if rows.X.clipped else "refuse"}

    def assigned(
        self, model: ONMF, table: Any, standards: Standards, progress: Progress
    ) -> tuple[dict[str, Any], list[str]]:
        extra = model.extra_
        require(not isinstance(table, Scenes), "These are several scenes: predict one after the other.")
        cube = match_bands(table, extra)
        scene, about_scene = scene_of(model, cube)
        pixels = Pixels(cube, model.divergence_, extra["negatives"], progress)
        found = measure(model, pixels, None, standards, scene=scene) | {"negatives": extra["negatives"], "table": cube}
        if model.group_effects_ is not None:
            return found, pixels.notes() + about_scene
        spectra = np.asarray(extra["spectra"])
        # Brightness is relative to the model's clusters, so that two images can be compared.
        own = divide((found["spectra_of_templates"] * spectra).sum(axis=1), np.square(spectra).sum(axis=1))
        factors = np.append(own, np.nan)[found["templates"]].astype(np.float32)
        return found | {"spectra_of_templates": spectra, "scales": found["scales"] * factors}, pixels.notes()

    def rows_of_result(self, clusters: Any) -> tuple[Any, Array, Array | None]:
        if clusters.fit is not None:
            return super().rows_of_result(clusters)
        model, cube = clusters.model, clusters.cube
        pixels = Pixels(cube, model.divergence_, clusters.negatives, lambda name, share: None)
        scenes = None if model.group_effects_ is None else np.full(pixels.shape[0], scene_of(model, cube)[0])
        return pixels, np.flatnonzero(pixels.inside.ravel()), scenes

    def new_groups(self, model: ONMF, table: Any) -> Iterator[tuple[str, Any]]:
        if not scene_of(model, table)[0]:
            cube = match_bands(table, model.extra_)
            pixels = Pixels(cube, model.divergence_, model.extra_["negatives"], lambda name, share: None)
            yield cube.name, take_rows(pixels, evenly_spaced(pixels.shape[0], START_SAMPLE))

    def own_names(self, clusters: Any) -> list[str]:
        names = names_of_spectra(clusters.spectra, clusters.sizes, clusters.cube.nanometres)
        materials = {} if clusters.comparison is None else clusters.comparison.materials
        return [materials.get(k, name) for k, name in enumerate(names)]

    def cluster_columns(self, clusters: Any) -> dict[str, Any]:
        angles = {} if clusters.comparison is None else clusters.comparison.angles
        return {"mrsa": [angles.get(k) for k in clusters.numbers.tolist()]} if angles else {}

    def summary(self, clusters: Any) -> dict[str, Any]:
        lines, samples, bands = clusters.cube.shape
        if len(clusters.scenes) > 1:
            return summary_of_scenes(clusters)
        return {
            "lines": lines,
            "samples": samples,
            "n_bands": bands,
            "n_bands_used": clusters.spectra.shape[1],
        }

    def headline(self, clusters: Any) -> str:
        lines, samples = clusters.labels.shape
        if len(clusters.scenes) > 1:
            pixels = sum(scene.labels.size for scene in clusters.scenes)
            return f"{len(clusters.scenes)} scenes, {pixels:,} pixels, {clusters.spectra.shape[1]} bands"
        return f"{lines:,} × {samples:,} pixels, {clusters.spectra.shape[1]} bands"

    def write(self, clusters: Any, folder: Path) -> None:
        from .write import write_files

        write_files(clusters, folder)

    def write_most_likely(self, clusters: Any, folder: Path, n: int) -> None:
        from .write import write_most_likely

        write_most_likely(clusters, folder, n)


def match_bands(cube: Cube, extra: Mapping[str, Any]) -> Cube:
    """The cube with the bands of a model; refused if it has other bands."""
    good = np.asarray(extra["good_bands"]).astype(bool)
    matched = replace(cube, good_bands=good) if cube.shape[2] == len(good) else cube
    require(
        matched.good_bands.sum() == good.sum(),
        f"{cube.source} has {cube.shape[2]} bands, but the model was fitted on {len(good)}, of which it uses "
        f"{good.sum()}: only images of the same sensor can be mapped.",
    )
    if "wavelengths" in extra and cube.wavelengths is not None:
        theirs = in_nanometres(np.asarray(extra["wavelengths"]), extra["wavelength_unit"])[good]
        ours: Any = matched.nanometres
        band = int(np.argmax(np.abs(ours - theirs)))
        require(
            not are_apart(ours, theirs).any(),
            f"{cube.source} has other bands than the model: used band {band} lies at {ours[band]:.1f} nm, and at "
            f"{theirs[band]:.1f} nm in the model. Resample the image to the bands of the model.",
        )
    return matched


def _bands(model: ONMF, n: int, extra: Mapping[str, Any]) -> list[list[str]]:
    """The n bands that set each material apart, neighbours as one range."""
    found = []
    for top in model.top_features(n, [str(band) for band in np.flatnonzero(extra["good_bands"])]):
        ranks = {int(band): rank for rank, band in enumerate(top)}
        bands = np.sort(list(ranks))
        runs = np.split(bands, np.flatnonzero(np.diff(bands) > 2) + 1)  # a gap of one band is no gap
        runs.sort(key=lambda run: min((ranks[band] for band in run.tolist()), default=0))
        found.append([_range(run, extra) for run in runs if len(run)])
    return found


def _range(run: Array, extra: Mapping[str, Any]) -> str:
    """Neighbouring bands in words, such as ``bands 3–5 (450–470 nm)``."""
    ends = list(dict.fromkeys((int(run[0]), int(run[-1]))))
    text = f"band{'s' if len(ends) > 1 else ''} {'–'.join(str(band + 1) for band in ends)}"
    if "wavelengths" not in extra:
        return text
    unit = (extra["wavelength_unit"] or "").strip()
    waves = "–".join(f"{extra['wavelengths'][band]:.4g}" for band in ends)
    return f"{text} ({f'{waves} {UNITS.get(unit.lower(), unit)}'.strip()})"


IMAGE = ImageKind()


def cluster(
    cube: Any,
    n_clusters: int | str = "auto",
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    negatives: Negatives = "refuse",
    truth: Any = None,
    library: Any = None,
    in_memory: bool | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> ImageClusters:
    """Cluster the pixels of a hyperspectral image by their spectra, or those of several scenes together.

    Parameters
    ----------
    cube : Cube, path, array or xarray.DataArray, or a list of them
        The image; anything but a :class:`Cube` is read by :func:`read`. A list is several scenes of one sensor: their
        materials are the same, and each scene multiplies each band by a factor of its own, for its light.
    n_clusters : int, "auto", "coarse" or "fine", default="auto"
        Number of clusters. :func:`onmf.select_n_clusters` finds up to three levels: ``"auto"`` takes the medium one.
    k_min, k_max : int, optional
        As in :func:`onmf.select_n_clusters`.
    negatives : {"refuse", "clip"}, default="refuse"
        What to do with values below zero if the divergence takes none: refuse the image, or set them to zero.
    truth : Truth or path, optional
        Known endmembers, or a label map. Clusters are then named and compared. For several scenes also a list, with one
        for each or None.
    library : Truth or path, optional
        Known spectra of some materials: an ENVI spectral library, a csv with the wavelength and a column for each
        material, or a :class:`Truth` with ``spectra``. Their clusters are found as you mean them and have their names,
        the others besides them. Spectra are resampled to the bands by wavelength.
    in_memory : bool or None, default=None
        Whether the pixels are read at once, or in blocks in every iteration. The default is blocks above 512 MB. With
        blocks, the start is found on 100,000 pixels, evenly spread.
    progress : callable, optional
        Called with the name of a step and the share of it that is done.
    **parameters
        Parameters of :class:`onmf.ONMF`, such as ``beta_loss``, ``smoothing`` or ``random_state`` (0 by default), and
        of :func:`onmf.door.cluster_table`, such as ``namer``.

    Returns
    -------
    ImageClusters

    Examples
    --------
    >>> import onmf.image
    >>> from onmf.datasets import make_scene
    >>> scene = make_scene(20, 30, 50, 3, random_state=0)
    >>> found = onmf.image.cluster(scene.X.reshape(20, 30, 50), 3)
    >>> found
    <ImageClusters of array: 20 × 30 pixels, 50 bands, 3 clusters>
    >>> found.spectra.shape
    (3, 50)

    Two scenes:

    >>> both = onmf.image.cluster([scene.X.reshape(20, 30, 50), scene.X.reshape(20, 30, 50)[::-1]], 3)
    >>> both
    <ImageClusters of scene 1, scene 2: 2 scenes, 1,200 pixels, 50 bands, 3 clusters>
    >>> both.scenes[1].labels.shape
    (20, 30)
    """
    found = cluster_table(
        IMAGE,
        IMAGE.read_all(cube, progress, truth=truth),
        n_clusters,
        k_min=k_min,
        k_max=k_max,
        options={"negatives": negatives, "blocks": None if in_memory is None else not in_memory},
        seeds=library,
        progress=progress,
        **parameters,
    )
    return cast(ImageClusters, found)


def predict(
    model: ONMF | ImageClusters,
    cube: Any,
    *,
    negatives: Negatives | None = None,
    **options: Any,
) -> ImageClusters:
    """Map another image of the same sensor with the clusters of a model.

    Parameters
    ----------
    model : ONMF or ImageClusters
        The result of :func:`cluster`, or the model that it saved, as :func:`onmf.load` reads it.
    cube : Cube, path, array or xarray.DataArray
        The image. Its bands must be those that the model was fitted on; wavelengths are compared if both have them.
        For a model of several scenes, an image that is called like one of them has the factors of that scene.
    negatives : {"refuse", "clip"}, optional
        As in :func:`cluster`; by default as for the model.
    **options
        Of :func:`onmf.door.predict_table`, such as ``unassigned``, ``estimate_groups`` or ``progress``.

    Returns
    -------
    ImageClusters
        With the spectra of the model; for a model of several scenes with those in the light of this image.
    """
    fitted = model.model if isinstance(model, ImageClusters) else model
    check_kind(fitted, IMAGE)
    if negatives is not None:
        fitted = fitted.to_cpu()
        fitted.extra_ = fitted.extra_ | {"negatives": negatives}
    table: Any = read(cube)
    found = predict_table(fitted, table, kind=IMAGE, **options)
    return cast(ImageClusters, found)
