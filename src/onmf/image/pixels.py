"""The pixels of a cube as rows: which of them are inside, and how they are read by blocks of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from onmf.divergence import Array, Divergence

from .cube import Cube, native

BLOCK = 32 << 20
"""Bytes of a block, about."""

LARGEST = 1e30
"""Values above this mark pixels without data; the scales of the others fit into the float32 of the maps."""

Negatives = Literal["refuse", "clip"]


class Pixels:
    """The pixels inside a cube, in the order of its lines. Called, it reads them block by block, as ``fit`` wants them.

    Outside are pixels that the mask leaves out, that hold NaN, infinity or the ignore value in a used band, and those
    that are zero everywhere. One pass over the cube finds them.

    Attributes
    ----------
    shape : tuple of int
        Rows and features: pixels and used bands.
    dtype : numpy.dtype
        Native type of the values.
    sizes : list of int
        Rows of each block.
    inside : (lines, samples) array of bool
        Which pixels are rows.
    negatives : int
        Values below zero inside.
    clipped : bool
        Whether they read as zero.
    """

    def __init__(
        self,
        cube: Cube,
        divergence: Divergence,
        negatives: Negatives = "refuse",
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        if negatives not in ("refuse", "clip"):
            raise ValueError(f"negatives={negatives!r} is not allowed: it must be 'refuse' or 'clip'.")
        self.cube = cube
        lines, samples, _ = cube.shape
        used = int(np.count_nonzero(cube.good_bands))
        self.dtype = native(np.dtype(cube.data.dtype))
        self.clipped = negatives == "clip"
        depth = max(1, BLOCK // (samples * used * self.dtype.itemsize))
        self.lines = [(start, min(start + depth, lines)) for start in range(0, lines, depth)]
        self.inside = np.zeros((lines, samples), dtype=bool)
        self._scan(divergence, progress or (lambda what, share: None))
        self.lines = [(start, stop) for start, stop in self.lines if self.inside[start:stop].any()]
        self.sizes = [int(np.count_nonzero(self.inside[start:stop])) for start, stop in self.lines]
        self.shape = (sum(self.sizes), used)
        if self.shape[0] == 0:
            raise ValueError(
                f"{cube.source or 'The cube'} has no pixel to cluster: all are masked, without data, or zero in every "
                "used band."
            )

    def _scan(self, divergence: Divergence, progress: Callable[[str, float], None]) -> None:
        """Find the pixels inside, and refuse values that the divergence is not defined for."""
        cube = self.cube
        self.negatives = zeros = 0
        first: str | None = None
        progress("looking for pixels", 0.0)
        for start, stop in self.lines:
            part = cube.read(start, stop)
            low, high = part.min(axis=2), part.max(axis=2)
            inside = np.isfinite(low) & np.isfinite(high) & ((low != 0) | (high != 0))
            if cube.mask is not None:
                inside &= cube.mask[start:stop]
            ignore = cube.ignore_value
            if ignore is not None and ignore != 0:
                inside &= ~self._holds(part, low, high, ignore)
            if inside.any() and max(float(high[inside].max()), -float(low[inside].min())) > LARGEST:
                raise ValueError(
                    f"{cube.source} holds values beyond {LARGEST:g}: they mark pixels without data, or the type of the "
                    "data is wrong. Say which value to ignore (ignore_value=, or --ignore)."
                )
            below = inside & (low < 0)
            if below.any():
                self.negatives += int(np.count_nonzero(part[below] < 0))
                if first is None:
                    line, sample = np.argwhere(below)[0]
                    band = int(np.argmax(part[line, sample] < 0))
                    number = int(np.flatnonzero(cube.good_bands)[band])
                    first = (
                        f"line {start + line}, sample {sample}, band {number} = {part[line, sample, band]:g} "
                        "(counted from 0)"
                    )
                if self.clipped:
                    inside &= high > 0  # nothing would be left of them
            if divergence.domain == "positive":
                zeros += int(np.count_nonzero(part[inside] <= 0))
            self.inside[start:stop] = inside
            progress("looking for pixels", stop / len(self.inside))
        if self.negatives and not self.clipped and divergence.domain != "real":
            raise ValueError(
                f"{cube.source or 'The cube'} holds {self.negatives} negative values, {first} being the first, and the "
                f"{divergence.name} divergence needs values ≥ 0. Set them to zero (negatives='clip', or --negatives "
                "clip), say which value marks missing data (ignore_value=, or --ignore), or use the Frobenius norm."
            )
        if zeros:
            raise ValueError(
                f"{cube.source or 'The cube'} holds {zeros} values that are not positive, and the {divergence.name} "
                "divergence needs values > 0 everywhere: use the Kullback-Leibler divergence."
            )

    @staticmethod
    def _holds(part: Array, low: Array, high: Array, value: float) -> Array:
        """Which pixels hold a value in a used band; it may have been rounded to the type of the data."""
        out = np.zeros(low.shape, dtype=bool)
        if part.dtype.kind == "f":
            with np.errstate(over="ignore"):  # infinity is outside in any case
                value = float(part.dtype.type(value))
        maybe = (low <= value) & (value <= high)
        out[maybe] = (part[maybe] == value).any(axis=1)
        return out

    def __call__(self) -> Iterator[Array]:
        """Every block; the next one is read while this one is used."""
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self.block, 0)
            for number in range(1, len(self.sizes)):
                block = coming.result()
                coming = reader.submit(self.block, number)
                yield block
            yield coming.result()

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Every block, and which rows it holds."""
        ends = np.cumsum(self.sizes)
        for end, block in zip(ends, self(), strict=True):
            yield slice(int(end) - len(block), int(end)), block

    def rows(self, index: Array) -> Array:
        """The rows of that index."""
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        ends = np.cumsum(self.sizes)
        home = np.searchsorted(ends, index, side="right")
        for number in np.unique(home):
            wanted = home == number
            out[wanted] = self.block(int(number))[index[wanted] - (ends[number] - self.sizes[number])]
        return out

    def block(self, number: int) -> Array:
        """The rows of a block: a C-contiguous array, the caller's to keep."""
        start, stop = self.lines[number]
        part, inside = self.cube.read(start, stop), self.inside[start:stop]
        rows = part.reshape(-1, part.shape[2]) if inside.all() else part[inside]
        if self.clipped and self.negatives:
            np.maximum(rows, 0, out=rows)
        return rows

    def array(self) -> Array:
        """All rows, in memory."""
        out = np.empty(self.shape, dtype=self.dtype)
        for rows, block in self:
            out[rows] = block
        return out

    def spread(self, n: int) -> Array:
        """Numbers of at most n rows, evenly spread over all."""
        return np.unique(np.linspace(0, self.shape[0] - 1, min(n, self.shape[0])).astype(np.int64))

    def image(self, values: Array, outside: Any) -> Array:
        """Values of the rows laid out as the image. (n,) → (lines, samples)"""
        out = np.full(self.inside.shape, outside, dtype=values.dtype)
        out[self.inside] = values
        return out
