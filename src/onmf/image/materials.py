"""Names of clusters from the shapes of their spectra, for images whose materials are not known.

A name says how bright a cluster is in this image, and how its spectrum runs: ``dark and flat``. It does not guess the
material, which a spectrum in unknown units does not tell; :func:`onmf.naming.rename_clusters` gives the right name.
"""

from __future__ import annotations

import numpy as np

from onmf.divergence import Array, FloatArray
from onmf.naming import distinct

DARK, BRIGHT = 0.6, 1.4
"""Mean brightness, relative to that of the image, below and above which a cluster is dark or bright."""

SLOPE = 1.3
"""Ratio of the last third of a spectrum to its first third from which it is rising, and its inverse falling."""

MIDDLE = 1.25
"""Ratio of the middle third to the others from which a spectrum is high in the middle, and its inverse low."""

RED, INFRARED = (640.0, 680.0), (770.0, 900.0)
"""Wavelengths in nanometres before and behind the red edge of vegetation."""

RED_EDGE = 0.4
"""Normalised difference of these (NDVI) from which a spectrum has a red edge."""


def names_of_spectra(spectra: FloatArray, sizes: Array, nanometres: FloatArray | None) -> list[str]:
    """A short name of each cluster, from the brightness and the shape of its spectrum.

    Parameters
    ----------
    spectra : (k, bands) array
        Spectra at the mean brightness of the clusters.
    sizes : (k,) array of int
        Number of pixels of each cluster.
    nanometres : (bands,) array or None
        Wavelengths, if they are known.

    Returns
    -------
    list of str
        All different.
    """
    values = np.maximum(np.asarray(spectra, dtype=np.float64), 0.0)
    levels = values.mean(axis=1)
    whole = float(levels @ sizes) / max(float(sizes.sum()), 1.0)
    order = slice(None) if nanometres is None else np.argsort(nanometres, kind="stable")
    waves = None if nanometres is None else nanometres[order]
    names = []
    for level, spectrum in zip(levels, values[:, order], strict=True):
        shade = "dark and " if level < DARK * whole else "bright and " if level > BRIGHT * whole else ""
        names.append(shade + _shape(spectrum, waves))
    tops = [] if waves is None else [f"{waves[band]:.0f}" for band in np.argmax(values[:, order], axis=1)]
    for name in {name for name in names if names.count(name) > 1 and tops}:
        alike = [k for k in range(len(names)) if names[k] == name]
        peaks = [tops[k] for k in alike]
        if len(set(peaks)) > 1:  # where they are strongest tells them apart
            for k, peak in zip(alike, peaks, strict=True):
                names[k] = f"{name} with peak at {peak} nm"
    return distinct(names)


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
    if middle > MIDDLE * max(start, end):
        return "high in the middle"
    if MIDDLE * middle < min(start, end):
        return "low in the middle"
    if end > SLOPE * start:
        return "rising"
    return "falling" if start > SLOPE * end else "flat"
