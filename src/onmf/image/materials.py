"""The materials of an image: what is known of them, how clusters compare with it, and names where nothing is known.

The truth of an image is true spectra, a true map, or both. Where there is none, a name says how bright a cluster is in
this image, and how its spectrum runs: ``dark and flat``. It does not guess the material, which a spectrum in unknown
units does not tell; :func:`onmf.naming.rename_clusters` gives the right name.
"""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.io.csv_file import plain
from onmf.io.limits import read_small
from onmf.io.rules import require
from onmf.metrics import Scores, SpectraMatch, match_clusters, match_spectra
from onmf.metrics import compare as scores_of
from onmf.naming import distinct

from .cube import Cube, in_nanometres
from .files import Header, find_header, floats, open_data, read_plane, read_variables

DARK, BRIGHT = 0.6, 1.4  # a cluster is dark below, or bright above, so many times the mean brightness of the image
SLOPE = 1.3  # Ratio of the last third of a spectrum to its first third from which it is rising, and its inverse falling
MIDDLE = 1.25  # ratio of the middle third to the others from which it is high in the middle, and its inverse low
RED, INFRARED = (640.0, 680.0), (770.0, 900.0)  # nanometres before and behind the red edge of vegetation
LEADING = ("band", "wavelength", "wavelength_nm", "name")  # names of the columns before the spectra of a table
RED_EDGE = 0.4  # normalised difference of these (NDVI) from which a spectrum has a red edge


@dataclass(frozen=True, eq=False)
class Truth:
    """Ground truth of an image.

    Attributes
    ----------
    spectra : (materials, bands) array or None
        True spectra, the endmembers.
    labels : (lines, samples) array of int or None
        True material of each pixel, −1 if unknown.
    names : list of str or None
        Names of the materials.
    source : str
        Origin of the truth, usually a path.
    nanometres : (bands,) array or None
        Wavelengths of the spectra, if the file has them.
    """

    spectra: FloatArray | None = None
    labels: Array | None = None
    names: list[str] | None = None
    source: str = ""
    nanometres: FloatArray | None = None

    @property
    def materials(self) -> list[str]:
        """Names of all materials; those without a name are numbered from 1."""
        mapped = 0 if self.labels is None else int(self.labels.max(initial=-1)) + 1
        number = max(mapped, 0 if self.spectra is None else len(self.spectra))
        return [*(self.names or []), *(f"material {i + 1}" for i in range(len(self.names or []), number))][:number]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Comparison of a clustering with the truth.

    Attributes
    ----------
    mrsa : float or None
        Mean removed spectral angle, averaged over the materials under the best matching; 0 to 100, lower is better.
    spectra : SpectraMatch or None
        The matching, with the angle of each material.
    scores : Scores or None
        Scores of the clusters against the materials, over the pixels of known material.
    matched : dict of int to int
        Material of each matched cluster.
    materials : dict of int to str
        Name of this material.
    """

    mrsa: float | None
    spectra: SpectraMatch | None
    scores: Scores | None
    matched: dict[int, int]
    materials: dict[int, str]

    def against(self, kind: Any) -> str:
        """What the clusters were compared with."""
        return "the truth"

    def facts(self) -> list[tuple[str, str]]:
        """Names and values for people to read, without those that do not apply."""
        spectral = [] if self.mrsa is None else [("MRSA", f"{self.mrsa:.2f}")]
        return spectral if self.scores is None else spectral + self.scores.facts()

    def sentence(self) -> str:
        """The facts in one line."""
        return ", ".join(f"{name if name.isupper() else name.lower()} {value}" for name, value in self.facts())

    def record(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {"mrsa": self.mrsa, **({} if self.scores is None else self.scores.numbers())}

    @property
    def angles(self) -> dict[int, float]:
        """MRSA of each cluster that is matched with a true spectrum."""
        match = self.spectra
        return {} if match is None else dict(zip(match.permutation.tolist(), match.angles.tolist(), strict=True))

    @property
    def accuracy(self) -> float | None:
        """Share of the pixels of known material whose cluster is matched with it; see :class:`onmf.metrics.Scores`."""
        return None if self.scores is None else self.scores.accuracy


def read_truth(path: str | Path, shape: tuple[int, int, int]) -> Truth:
    """Read the truth of an image.

    Parameters
    ----------
    path : path
        A MATLAB file with endmembers ``M`` (bands × materials) and optionally abundances ``A`` and names ``cood``; an
        ENVI spectral library; a CSV file as ``onmf image`` writes it, with a row for each band and a column for each
        material; or a label map: an image of one band or a matrix, with 0 or less for unknown pixels.
    shape : tuple of int
        Lines, samples and bands of the image.

    Returns
    -------
    Truth
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give endmembers or a label map as truth.")
    suffix = path.suffix.lower()
    content = read_variables(path) if suffix == ".mat" else {}
    found = None if suffix in (".csv", ".mat", ".npy", ".npz", ".tif", ".tiff") else find_header(path)
    header = None if found is None else Header(found)
    if suffix == ".csv":
        truth = _read_table(path)
    elif "M" in content:
        truth = _from_endmembers(content, path, shape)
    elif header is not None and header.is_library:
        truth = _read_library(header, path)
    else:
        return _from_plane(read_plane(path), header, path, shape)
    bands = 0 if truth.spectra is None else truth.spectra.shape[1]  # ``compare`` checks the number of used bands
    require(bands <= shape[2], f"{path} has spectra of {bands} bands, but the image has {shape[2]}.")
    return truth


def _from_plane(plane: Array, header: Header | None, path: Path, shape: tuple[int, int, int]) -> Truth:
    """The truth of a label map, whose ENVI header may name the classes; or of a matrix of spectra."""
    if plane.shape != shape[:2]:
        require(
            shape[2] in plane.shape,
            f"{path} is {' × '.join(map(str, plane.shape))}, which fits neither the {shape[0]} × {shape[1]} pixels "
            f"nor the {shape[2]} bands of the image.",
        )
        return Truth((plane if plane.shape[1] == shape[2] else plane.T).astype(np.float64), source=str(path))
    labels = np.full(shape[:2], -1, dtype=np.int32)
    values, labels[plane > 0] = np.unique(plane[plane > 0], return_inverse=True)
    given = None if header is None else header.get("class names")
    classes = given if isinstance(given, list) else []
    names = [classes[int(value)] if value < len(classes) else f"class {value:g}" for value in values]
    return Truth(labels=labels, names=names, source=str(path))


def _from_endmembers(content: dict[str, Any], path: Path, shape: tuple[int, int, int]) -> Truth:
    spectra, labels, names = _numbers(content["M"], (2,), f"{path}: M").T, None, None
    if "A" in content:
        A = _numbers(content["A"], (2, 3), f"{path}: A")
        wanted = (len(spectra), *shape[:2])
        if A.ndim == 2 and A.size == np.prod(wanted):
            A = A.reshape(wanted, order="F")
        require(
            A.shape == wanted,
            f"{path}: its abundances A have shape {A.shape}, not {wanted}, materials × lines × samples: they belong to "
            "another image.",
        )
        labels = A.argmax(axis=0).astype(np.int32)
    if "cood" in content and np.size(content["cood"]) == len(spectra):
        names = [str(np.squeeze(cell)).split("-")[-1].strip().lower() for cell in np.ravel(content["cood"])]
    return Truth(spectra, labels, names, str(path))


def _read_library(header: Header, path: Path) -> Truth:
    # A library stores one spectrum after the other (a line each, one band), whatever its interleave says.
    header.update({"bands": "1", "interleave": "bsq"})
    spectra = np.asarray(open_data(header, path), dtype=np.float64)[:, :, 0]
    names = header.get("spectra names", [str(number + 1) for number in range(len(spectra))])
    matching = isinstance(names, list) and len(names) == len(spectra)
    require(matching, f"{header.path} says lines = {len(spectra)}, but its list spectra names has another length.")
    waves = header.numbers("wavelength", spectra.shape[1])
    nanometres = None if waves is None else in_nanometres(waves, str(header.get("wavelength units", "")))
    return Truth(spectra, names=names, source=str(path), nanometres=nanometres)


def read_library(path: Path) -> Truth:
    """Read known spectra: an ENVI spectral library, or a table with a column for each material."""
    if path.suffix.lower() == ".csv":
        return _read_table(path)
    found = find_header(path)
    header = None if found is None else Header(found)
    if header is None or not header.is_library:
        raise ValueError(f"{path} is no library of spectra: use an ENVI spectral library, or a csv.")
    return _read_library(header, path)


def resampled(library: Truth, cube: Cube) -> FloatArray:
    """The one spectrum of a library at the used bands of an image. → (used bands,)

    It is interpolated by wavelength, over values that are missing or negative. Without wavelengths, it must have the
    bands of the image.
    """
    assert library.spectra is not None
    (spectrum,), waves, ours, good = library.spectra, library.nanometres, cube.nanometres, cube.good_bands
    n = len(spectrum)
    if waves is None or ours is None:
        lacking = library.source if waves is None else cube.source
        require(
            n in (len(good), good.sum()),
            f"{lacking} has no wavelengths, so the spectra of {library.source} must have the bands of "
            f"{cube.source}, {good.sum()} of which are used, but they have {n}: resample them.",
        )
        return np.maximum(np.nan_to_num(spectrum[good] if n == len(good) else spectrum), 0.0)
    step = np.ptp(waves) / max(n - 1, 1)
    outside = ours[(ours < waves.min() - step) | (ours > waves.max() + step)]
    require(
        not len(outside),
        f"{library.source} has spectra from {waves.min():.1f} to {waves.max():.1f} nm, and {cube.source} has "
        f"{len(outside)} bands outside of that, such as at {outside.max(initial=0):.1f} nm: leave them out "
        "(drop_bands=, or --drop-bands).",
    )
    order = np.argsort(waves, kind="stable")
    there = order[np.nan_to_num(spectrum[order], nan=-1.0) >= 0]
    require(len(there), f"The spectrum of {library.materials[0]!r} in {library.source} has no values: leave it out.")
    return np.asarray(np.interp(ours, waves[there], spectrum[there]))


def _numbers(value: Any, dimensions: tuple[int, ...], where: str) -> FloatArray:
    """Check that a value is a numeric array with one of these numbers of dimensions."""
    numeric = np.ndim(value) in dimensions and np.asarray(value).dtype.kind in "buif"
    require(numeric, f"{where} is not a numeric array of {' or '.join(map(str, dimensions))} dimensions.")
    return np.asarray(value, dtype=np.float64)


def _read_table(path: Path) -> Truth:
    try:
        text = read_small(path, 64, "a table of spectra has one line for each band")
        head, *body = [row for row in csv.reader(io.StringIO(text, newline="")) if row] or [[]]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}. Save it as CSV in UTF-8.") from error
    leading = [name for name in map(str.lower, map(str.strip, head)) if name in LEADING]
    first, at = len(leading), next((i for i, name in enumerate(leading) if name.startswith("wavelength")), None)
    try:
        spectra = np.array([[float(word) for word in row[first:]] for row in body]).T
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Expected a line of names, then a line of numbers for each band.") from None
    if spectra.ndim != 2 or not len(spectra) == len(head) - first > 0:
        raise ValueError(f"{path} has {len(head)} names, but its lines of numbers have another length, or are missing.")
    waves = None if at is None else floats([row[at] for row in body])
    nanometres = None if waves is None else in_nanometres(waves, None)
    names = [plain(name.strip()) for name in head[first:]]
    return Truth(spectra, names=names, source=str(path), nanometres=nanometres)


def compare(
    truth: Truth, spectra: FloatArray, labels: Array, good_bands: Array, numbers: Array | None = None
) -> Comparison:
    """Compare spectra (k, used bands) and labels (lines, samples; −1 is unassigned) of a clustering with the truth.

    ``numbers`` are those of the clusters that there are, if these are fewer than the spectra.
    """
    numbers = np.arange(len(spectra)) if numbers is None else numbers
    match, scores, matched, names = None, None, {}, truth.materials
    if truth.spectra is not None:
        true_spectra = truth.spectra[:, good_bands] if truth.spectra.shape[1] == len(good_bands) else truth.spectra
        require(
            true_spectra.shape[1] == spectra.shape[1],
            f"{truth.source} has spectra of {true_spectra.shape[1]} bands, but the image has {len(good_bands)}, of "
            f"which {spectra.shape[1]} are used.",
        )
        require(
            len(true_spectra) <= len(numbers),
            f"{truth.source} has {len(true_spectra)} materials, too many to match with {len(numbers)} clusters: ask "
            f"for at least {len(true_spectra)} clusters.",
        )
        match = match_spectra(true_spectra, spectra[numbers])
        match = replace(match, permutation=numbers[match.permutation])
        matched = {int(cluster): material for material, cluster in enumerate(match.permutation)}
    known: Any = np.full(labels.shape, -1) if truth.labels is None else truth.labels
    both = (known >= 0) & (labels >= 0)
    if both.any():
        scores = scores_of(known[both], labels[both], n_clusters=len(numbers))
        if match is None:
            pairs = match_clusters(known[both], labels[both]).items()
            matched = {int(cluster): int(material) for cluster, material in pairs}
    materials = {cluster: names[material] for cluster, material in matched.items()}
    return Comparison(None if match is None else match.mean, match, scores, matched, materials)


def names_of_spectra(spectra: FloatArray, sizes: Array, nanometres: FloatArray | None) -> list[str]:
    """Name each cluster by the brightness and the shape of its spectrum, at its mean brightness. All names differ."""
    values = np.maximum(np.asarray(spectra, dtype=np.float64), 0.0)
    levels = values.mean(axis=1)
    whole = float(levels @ sizes) / max(float(sizes.sum()), 1.0)
    order = slice(None) if nanometres is None else np.argsort(nanometres, kind="stable")
    waves = None if nanometres is None else nanometres[order]
    shades = np.select([levels < DARK * whole, levels > BRIGHT * whole], ["dark and ", "bright and "], "")
    names = [f"{shade}{_shape(spectrum, waves)}" for shade, spectrum in zip(shades, values[:, order], strict=True)]
    if waves is None:
        return distinct(names)
    tops = np.argmax(values[:, order], axis=1)
    both = [(name, f"{name} with peak at {waves[top]:.0f} nm") for name, top in zip(names, tops, strict=True)]
    # Where they are strongest tells clusters of the same shape apart.
    several = {name for name in names if len({peak for other, peak in both if other == name}) > 1}
    return distinct([peak if name in several else name for name, peak in both])


def _shape(spectrum: FloatArray, waves: FloatArray | None) -> str:
    """How a spectrum runs, in a word or two."""
    if waves is not None:
        inside = [(waves >= low) & (waves <= high) for low, high in (RED, INFRARED)]
        if all(band.any() for band in inside):
            red, infrared = (float(spectrum[band].mean()) for band in inside)
            if red + infrared > 0 and (infrared - red) / (infrared + red) > RED_EDGE:
                return "red edge"
    thirds = [float(part.mean()) for part in np.array_split(spectrum, 3) if len(part)]
    if len(thirds) < 3:
        return "flat"
    start, middle, end = thirds
    shapes = {
        "high in the middle": middle > MIDDLE * max(start, end),
        "low in the middle": MIDDLE * middle < min(start, end),
        "rising": end > SLOPE * start,
        "falling": start > SLOPE * end,
    }
    return next((shape for shape, seen in shapes.items() if seen), "flat")
