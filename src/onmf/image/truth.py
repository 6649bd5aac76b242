"""Ground truth of an image (true spectra, a true map, or both), and its comparison with a clustering."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.io.csv_file import plain
from onmf.io.limits import read_small
from onmf.metrics import Scores, SpectraMatch, match_clusters, match_spectra
from onmf.metrics import compare as scores_of

from .envi import find_data, find_header, open_data, read_header
from .matlab import read_variables
from .read import read_plane


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
    """

    spectra: FloatArray | None = None
    labels: Array | None = None
    names: list[str] | None = None
    source: str = ""


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
    materials : dict of int to str
        Name of the material of each matched cluster.
    """

    mrsa: float | None
    spectra: SpectraMatch | None
    scores: Scores | None
    materials: dict[int, str]

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
    if path.suffix.lower() == ".csv":
        return _table(path, shape)
    if path.suffix.lower() == ".mat":
        content = read_variables(path)
        if "M" in content:
            return _endmembers(content, path, shape)
    header = None if path.suffix.lower() in (".mat", ".npy", ".npz", ".tif", ".tiff") else find_header(path)
    if header is not None and "library" in str(read_header(header).get("file type", "")).lower():
        return _library(header, path, shape)
    plane = read_plane(path)
    if plane.shape != shape[:2]:
        if plane.ndim == 2 and shape[2] in plane.shape:
            spectra = plane if plane.shape[1] == shape[2] else plane.T
            return Truth(spectra=spectra.astype(np.float64), source=str(path))
        raise ValueError(
            f"{path} is {' × '.join(map(str, plane.shape))}, which fits neither the {shape[0]} × {shape[1]} pixels nor "
            f"the {shape[2]} bands of the image."
        )
    values, labels = np.unique(plane[plane > 0], return_inverse=True)
    out = np.full(shape[:2], -1, dtype=np.int32)
    out[plane > 0] = labels
    return Truth(labels=out, names=_class_names(header, values), source=str(path))


def _class_names(header: Path | None, values: Array) -> list[str]:
    """Return the names of the classes of a map, from the ENVI header or from their numbers."""
    names = read_header(header).get("class names") if header is not None else None
    names = names if isinstance(names, list) else []
    return [names[int(value)] if value < len(names) else f"class {value:g}" for value in values]


def _endmembers(content: dict[str, Any], path: Path, shape: tuple[int, int, int]) -> Truth:
    spectra = _numbers(content["M"], 2, f"{path}: M").T
    labels = None
    if "A" in content:
        A = _numbers(content["A"], 2 if np.ndim(content["A"]) == 2 else 3, f"{path}: A")
        if A.size != len(spectra) * shape[0] * shape[1]:
            raise ValueError(
                f"{path} belongs to another image: its abundances A have shape {A.shape}, but the image has "
                f"{shape[0]} × {shape[1]} pixels."
            )
        A = A.reshape(len(spectra), shape[0], shape[1], order="F") if A.ndim == 2 else A
        if A.shape != (len(spectra), *shape[:2]):
            raise ValueError(f"{path}: its abundances A have shape {A.shape}, not materials × lines × samples.")
        labels = A.argmax(axis=0).astype(np.int32)
    names = None
    if "cood" in content and np.size(content["cood"]) == len(spectra):
        names = [str(np.squeeze(cell)).split("-")[-1].strip().lower() for cell in np.ravel(content["cood"])]
    return Truth(_check_bands(spectra, shape, path), labels, names, str(path))


def _library(header: Path, path: Path, shape: tuple[int, int, int]) -> Truth:
    fields = read_header(header)
    # A library stores one spectrum after the other (a line each, one band), whatever its interleave says.
    stored = open_data({**fields, "bands": "1", "interleave": "bsq"}, str(header), find_data(header, path))
    spectra = stored.read(0, stored.shape[0])[:, :, 0].astype(np.float64)
    names = fields.get("spectra names", [str(number + 1) for number in range(len(spectra))])
    if not isinstance(names, list) or len(names) != len(spectra):
        raise ValueError(f"{header} says lines = {len(spectra)}, but its list spectra names has another length.")
    return Truth(_check_bands(spectra, shape, path), names=names, source=str(path))


def _numbers(value: Any, dimensions: int, where: str) -> FloatArray:
    """Check that a value is a numeric array with this number of dimensions."""
    if np.ndim(value) != dimensions or not hasattr(value, "dtype") or value.dtype.kind not in "buif":
        raise ValueError(f"{where} is not a numeric array of {dimensions} dimensions.")
    return np.asarray(value, dtype=np.float64)


def _table(path: Path, shape: tuple[int, int, int]) -> Truth:
    try:
        text = read_small(path, 64, "a table of spectra has one line for each band")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a table: {error}. Save it as CSV in UTF-8.") from error
    if len(rows) < 2:
        raise ValueError(f"{path} is empty: expected a line of names, then a line of numbers for each band.")
    head, body = rows[0], rows[1:]
    try:
        values = np.array([[float(word) for word in row] for row in body])
    except ValueError as error:
        raise ValueError(f"{path}: {error}. Expected a line of names, then a line of numbers for each band.") from None
    first = sum(name.strip().lower() in ("band", "wavelength", "wavelength_nm", "name") for name in head)
    if values.ndim != 2 or values.shape[1] != len(head) or first == len(head):
        raise ValueError(f"{path} has {len(head)} names, but its lines of numbers have another length.")
    spectra = values[:, first:].T
    return Truth(
        _check_bands(spectra, shape, path), names=[plain(name.strip()) for name in head[first:]], source=str(path)
    )


def _check_bands(spectra: FloatArray, shape: tuple[int, int, int], path: Path) -> FloatArray:
    """Refuse spectra with too many bands early; ``compare`` checks the number of used bands."""
    if spectra.ndim != 2 or spectra.shape[1] > shape[2]:
        raise ValueError(f"{path} has spectra of {spectra.shape[-1]} bands, but the image has {shape[2]}.")
    return spectra


def compare(truth: Truth, spectra: FloatArray, labels: Array, good_bands: Array) -> Comparison:
    """Compare a clustering with the truth.

    Parameters
    ----------
    truth : Truth
        Ground truth.
    spectra : (k, used bands) array
        Spectra of the clusters.
    labels : (lines, samples) array of int
        Cluster of each pixel, −1 outside.
    good_bands : (bands,) array of bool
        Which bands were used.

    Returns
    -------
    Comparison
    """
    match, scores, materials = None, None, {}
    r = 0 if truth.labels is None else int(truth.labels.max()) + 1
    r = r if truth.spectra is None else len(truth.spectra)
    names = truth.names or [f"material {i + 1}" for i in range(r)]
    if truth.spectra is not None:
        true_spectra = truth.spectra[:, good_bands] if truth.spectra.shape[1] == len(good_bands) else truth.spectra
        if true_spectra.shape[1] != spectra.shape[1]:
            raise ValueError(
                f"{truth.source} has spectra of {true_spectra.shape[1]} bands, but the image has {len(good_bands)}, of "
                f"which {spectra.shape[1]} are used."
            )
        if len(true_spectra) > len(spectra):
            raise ValueError(
                f"{truth.source} has {len(true_spectra)} materials, too many to match with {len(spectra)} clusters: "
                f"ask for at least {len(true_spectra)} clusters."
            )
        match = match_spectra(true_spectra, spectra)
        materials = {int(cluster): names[material] for material, cluster in enumerate(match.permutation)}
    if truth.labels is not None:
        both = (truth.labels >= 0) & (labels >= 0)
        if both.any():
            scores = scores_of(truth.labels[both], labels[both], n_clusters=len(spectra))
            if match is None:
                matched = match_clusters(truth.labels[both], labels[both])
                materials = {int(cluster): names[int(material)] for cluster, material in matched.items()}
    return Comparison(None if match is None else match.mean, match, scores, materials)
