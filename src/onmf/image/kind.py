"""Models of images as a kind of model: what their files hold besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onmf.confidence import calibration_rules
from onmf.io.rules import NULL, STRING, Rule, either, is_array, one_of, optional, strings
from onmf.kinds import Kind, get_kind


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


IMAGE = Kind(predict="onmf.cli.image:map_image", rules=_rules, check=_check, feature_names=_bands, features="bands")


def is_image(parts: Mapping[str, Any]) -> bool:
    """Whether the entries of a model are those of an image."""
    return get_kind(parts.get("kind", "matrix")) is IMAGE
