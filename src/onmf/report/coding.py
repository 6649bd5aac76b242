"""Arrays, texts and tables in the form in which the scripts of a page read them."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from onmf.divergence import Array, FloatArray

UNKNOWN = 65535
"""Code of an unknown share; known ones are coded from 0 to 65,534."""


def base64_array(values: Array, kind: str) -> str:
    """Return an array as base64 of numbers of this kind, such as ``"<i2"``."""
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode()


def code_places(places: FloatArray) -> str:
    """Return places in the plane as numbers from 0 to 65,535. The longer side of the map fills that range."""
    low, high = (places.min(axis=0), places.max(axis=0)) if len(places) else (np.zeros(2), np.ones(2))
    extent = float((high - low).max()) or 1.0
    return base64_array(np.rint((places - (low + high) / 2) / extent * 65535 + 32767.5), "<u2")


def code_shares(shares: FloatArray) -> str:
    """Return numbers between 0 and 1, or NaN, in two bytes each."""
    known = np.isfinite(shares)
    return base64_array(np.where(known, np.rint(np.clip(shares, 0, 1) * (UNKNOWN - 1)), UNKNOWN), "<u2")


def pack_texts(texts: Iterable[str]) -> str:
    """Return texts as base64 of a zlib stream, one per line. Line breaks in a text become spaces."""
    lines = (text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace") for text in texts)
    return base64.b64encode(zlib.compress(b"\n".join(lines), 9)).decode()


def heat(counts: Array, shares: FloatArray) -> dict[str, Any]:
    """Return a table of counts, each with its share and its shade. The largest share has the darkest shade."""
    shades = shares / (shares.max() if shares.size and shares.max() > 0 else 1.0)
    looks = np.where(counts == 0, "none", np.where(shades > 0.55, "dark", ""))
    fields = {"count": counts, "share": shares, "shade": shades.round(3), "look": looks}
    return {"cells": [[{name: array[i, j].item() for name, array in fields.items()} for j in range(counts.shape[1])]
                      for i in range(counts.shape[0])]}  # fmt: skip
