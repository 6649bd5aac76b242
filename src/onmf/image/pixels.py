"""The pixels of a cube as rows of a matrix, read in blocks of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from onmf.divergence import Array, Divergence

from .cube import Cube, native

BLOCK = 32 << 20
"""Approximate size of a block, in bytes."""

LARGEST = 1e30
"""Values above this are refused: they mark missing data, and the maps store scales as float32."""

Negatives = Literal["refuse", "clip"]


class Pixels:
    """The pixels inside a cube, in the order of its lines. A call yields them block by block, as ``fit`` expects.

    A pixel is outside if the mask excludes it, if it has NaN, infinity or the ignore value in a used band, or if it is
    zero in all used bands. The constructor finds these pixels in one pass over the cube.

    Attributes
    ----------
    shape : tuple of int
        Number of rows (pixels inside) and of features (used bands).
    dtype : numpy.dtype
        Type of the values, in native byte order.
    sizes : list of int
        Number of rows of each block.
    inside : (lines, samples) array of bool
        Which pixels are rows.
    negatives : int
        Number of negative values in the pixels inside.
    clipped : bool
        Whether negative values are set to zero.
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
                f"{cube.source or 'The cube'} has no pixel to cluster: all are masked, without data, or zero in all "
                "used bands."
            )

    def _scan(self, divergence: Divergence, progress: Callable[[str, float], None]) -> None:
        """Find the pixels inside, and refuse values for which the divergence is not defined."""
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
                inside &= ~self._contains(part, low, high, ignore)
            if inside.any() and max(float(high[inside].max()), -float(low[inside].min())) > LARGEST:
                raise ValueError(
                    f"{cube.source} has values beyond {LARGEST:g}: they mark missing data, or the data type is wrong. "
                    "Name the value to ignore (ignore_value=, or --ignore)."
                )
            below = inside & (low < 0)
            if below.any():
                self.negatives += int(np.count_nonzero(part[below] < 0))
                if first is None:
                    line, sample = np.argwhere(below)[0]
                    band = int(np.argmax(part[line, sample] < 0))
                    number = int(np.flatnonzero(cube.good_bands)[band])
                    first = (
                        f"line {start + line}, sample {sample}, band {number} = {part[line, sample, band]:g}, "
                        "counted from 0"
                    )
                if self.clipped:
                    inside &= high > 0  # the others would become zero in all bands
            if divergence.domain == "positive":
                zeros += int(np.count_nonzero(part[inside] <= 0))
            self.inside[start:stop] = inside
            progress("looking for pixels", stop / len(self.inside))
        if self.negatives and not self.clipped and divergence.domain != "real":
            raise ValueError(
                f"{cube.source or 'The cube'} has {self.negatives} negative values (first: {first}), but the "
                f"{divergence.name} divergence needs values ≥ 0. Set them to zero (negatives='clip', or --negatives "
                "clip), name the value that marks missing data (ignore_value=, or --ignore), or use the Frobenius norm."
            )
        if zeros:
            raise ValueError(
                f"{cube.source or 'The cube'} has {zeros} values that are not positive, but the {divergence.name} "
                "divergence needs values > 0: use the Kullback-Leibler divergence."
            )

    @staticmethod
    def _contains(part: Array, low: Array, high: Array, value: float) -> Array:
        """Find the pixels that have ``value``, rounded to the type of the data, in any used band."""
        out = np.zeros(low.shape, dtype=bool)
        if part.dtype.kind == "f":
            with np.errstate(over="ignore"):  # pixels with infinite values are outside anyway
                value = float(part.dtype.type(value))
        maybe = (low <= value) & (value <= high)
        out[maybe] = (part[maybe] == value).any(axis=1)
        return out

    def __call__(self) -> Iterator[Array]:
        """Yield all blocks; the next one is read while the caller uses the current one."""
        with ThreadPoolExecutor(1) as reader:
            pending = reader.submit(self.block, 0)
            for number in range(1, len(self.sizes)):
                block = pending.result()
                pending = reader.submit(self.block, number)
                yield block
            yield pending.result()

    def __iter__(self) -> Iterator[tuple[slice, Array]]:
        """Yield all blocks, each with the slice of its rows."""
        ends = np.cumsum(self.sizes)
        for end, block in zip(ends, self(), strict=True):
            yield slice(int(end) - len(block), int(end)), block

    def rows(self, index: Array) -> Array:
        """Read the rows of these numbers."""
        out = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        ends = np.cumsum(self.sizes)
        block_of = np.searchsorted(ends, index, side="right")
        for number in np.unique(block_of):
            wanted = block_of == number
            out[wanted] = self.block(int(number))[index[wanted] - (ends[number] - self.sizes[number])]
        return out

    def block(self, number: int) -> Array:
        """Read the rows of a block as a C-contiguous array that the caller owns."""
        start, stop = self.lines[number]
        part, inside = self.cube.read(start, stop), self.inside[start:stop]
        rows = part.reshape(-1, part.shape[2]) if inside.all() else part[inside]
        if self.clipped and self.negatives:
            np.maximum(rows, 0, out=rows)
        return rows

    def array(self) -> Array:
        """Read all rows into memory."""
        out = np.empty(self.shape, dtype=self.dtype)
        for rows, block in self:
            out[rows] = block
        return out

    def spread(self, n: int) -> Array:
        """Return the numbers of at most n rows, evenly spaced."""
        return np.unique(np.linspace(0, self.shape[0] - 1, min(n, self.shape[0])).astype(np.int64))

    def image(self, values: Array, outside: Any) -> Array:
        """Arrange values of the rows as an image. (n,) → (lines, samples)"""
        out = np.full(self.inside.shape, outside, dtype=values.dtype)
        out[self.inside] = values
        return out
