"""Models of images as a kind of model: what their files hold besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onmf.kinds import Kind
from onmf.model_file import NOTHING, TEXT, Rule, either, is_array, one_of, optional, texts


def _rules(k: int, p: int) -> dict[str, Rule]:
    return {
        "names": texts(k),
        "spectra": Rule(lambda a: is_array(a, "f") and a.shape == (k, p), "a spectrum for each cluster"),
        "good_bands": Rule(
            lambda a: is_array(a, "bu") and a.ndim == 1 and a.max(initial=0) <= 1 and int(a.sum(dtype=np.int64)) == p,
            "a flag for each band, as many of them set as there are features",
        ),
        "negatives": one_of("refuse", "clip"),
        "image": optional(TEXT),
        "wavelengths": optional(Rule(lambda a: is_array(a, "fiu") and a.ndim == 1, "a number for each band")),
        "wavelength_unit": optional(either(NOTHING, TEXT)),
    }


def _check(extra: Mapping[str, Any]) -> None:
    if "wavelengths" not in extra:
        return
    if len(extra["wavelengths"]) != len(extra["good_bands"]):
        raise ValueError("its wavelengths are not those of its bands")
    if "wavelength_unit" not in extra:
        raise ValueError("'wavelength_unit' is missing")


def _bands(extra: Mapping[str, Any]) -> list[str]:
    return [f"band {band + 1}" for band in np.flatnonzero(extra["good_bands"])]


IMAGE = Kind(predict="onmf.cli.image:map_image", rules=_rules, check=_check, feature_names=_bands)
