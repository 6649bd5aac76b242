"""Models of images as a kind of model: what their files hold besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onmf.confidence import calibration_rules
from onmf.io.rules import NULL, STRING, Rule, either, is_array, one_of, optional, strings
from onmf.kinds import Kind, get_kind

UNITS = {
    "nanometers": "nm",
    "nanometres": "nm",
    "micrometers": "µm",
    "micrometres": "µm",
    "microns": "µm",
    "unknown": "",
}
"""Short forms of units of wavelengths."""


def _rules(k: int, p: int) -> dict[str, Rule]:
    return {
        "names": strings(k),
        "spectra": Rule(lambda a: is_array(a, "f") and a.shape == (k, p), "a spectrum for each cluster"),
        "good_bands": Rule(
            lambda a: is_array(a, "bu") and a.ndim == 1 and a.max(initial=0) <= 1 and int(a.sum(dtype=np.int64)) == p,
            f"a flag for each band, {p} of them set",
        ),
        "negatives": one_of("refuse", "clip"),
        "image": optional(STRING),
        "wavelengths": optional(Rule(lambda a: is_array(a, "fiu") and a.ndim == 1, "a number for each band")),
        "wavelength_unit": optional(either(NULL, STRING)),
        **calibration_rules(k),
    }


def _check(extra: Mapping[str, Any]) -> None:
    if "wavelengths" not in extra:
        return
    if len(extra["wavelengths"]) != len(extra["good_bands"]):
        raise ValueError("its wavelengths do not match its bands")
    if "wavelength_unit" not in extra:
        raise ValueError("'wavelength_unit' is missing")


def _bands(extra: Mapping[str, Any]) -> list[str]:
    return [f"band {band + 1}" for band in np.flatnonzero(extra["good_bands"])]


def _distinctive(model: Any, n: int) -> list[str]:
    """The bands that set each material apart: neighbours as one range, with the wavelengths if they are known."""
    extra = model.extra_
    numbers = np.flatnonzero(extra["good_bands"])
    tops = model.top_features(n, [str(band) for band in numbers])
    return [", ".join(_range(run, extra) for run in _runs([int(band) for band in top])) for top in tops]


def _runs(bands: list[int]) -> list[tuple[int, int]]:
    """Bands as ranges of neighbours, in the order in which a band of each came first."""
    left, runs = set(bands), []
    for band in bands:
        if band in left:
            low = high = band
            while below := [b for b in (low - 1, low - 2) if b in left]:  # a gap of one band is no gap
                low = below[0]
            while above := [b for b in (high + 1, high + 2) if b in left]:
                high = above[0]
            left -= set(range(low, high + 1))
            runs.append((low, high))
    return runs


def _range(run: tuple[int, int], extra: Mapping[str, Any]) -> str:
    ends = [band + 1 for band in dict.fromkeys(run)]
    text = f"band{'s' if len(ends) > 1 else ''} {'–'.join(map(str, ends))}"
    if "wavelengths" not in extra:
        return text
    waves = "–".join(f"{extra['wavelengths'][band - 1]:.4g}" for band in ends)
    unit = (extra["wavelength_unit"] or "").strip()
    unit = UNITS.get(unit.lower(), unit)
    return f"{text} ({waves}{f' {unit}' if unit else ''})"


IMAGE = Kind(
    predict="onmf.cli.image:map_image",
    rules=_rules,
    check=_check,
    feature_names=_bands,
    features="bands",
    rows="pixels",
    clusters="materials",
    first=1,  # 0 means no data in a map
    distinctive=_distinctive,
)


def is_image(parts: Mapping[str, Any]) -> bool:
    """Whether the entries of a model are those of an image."""
    return get_kind(parts.get("kind", "matrix")) is IMAGE
