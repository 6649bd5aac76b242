"""Division of work among the warps of a block in step.cu, the kernel that labels and sums dense rows in one pass."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np

from onmf.divergence import FloatArray

MOST_PLACES = 6
"""Maximum number of tiles of rows that a block has in shared memory."""

MOST_ADDERS = 15
"""Maximum number of warps of a block that sum rows while others label them."""

MOST_CLUSTERS = 48
"""Maximum number of clusters whose scores a warp can keep in registers."""


def template_pitch(p: int) -> int:
    """Features of a template in shared memory: an odd multiple of 16, so that threads read from different banks."""
    return 16 * (-(-p // 16) | 1)


@dataclass(frozen=True)
class Crew:
    """The numbers of warps, tiles and labels of a block. The names are those of the kernel."""

    scorers: int
    adders: int
    labels: int
    tiles: int
    places: int
    features: int

    @property
    def tile(self) -> int:
        """Rows of a tile."""
        return 16 * self.scorers

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * (self.scorers + self.adders + 1)

    @property
    def duties(self) -> int:
        """Number of labels that the adders can handle."""
        return self.adders * self.labels

    def heaviest(self, counts: FloatArray) -> float:
        """The largest share of the rows that one duty gets, if clusters have these counts. As ``share_labels`` does."""
        shares = counts / max(counts.sum(), 1e-300)
        numbers = 1 + np.floor((self.duties - len(counts)) * 0.999 * shares)
        return float((shares / numbers).max())

    @cached_property
    def macros(self) -> dict[str, int]:
        """The macros that the kernel is compiled with."""
        return {field.name.upper(): getattr(self, field.name) for field in fields(self)}

    def asked_for(self, itemsize: int) -> int:
        """Bytes of dynamic shared memory that the host must request: tiles of rows, and templates."""
        return self.places * (self.tile * self.features + 16) * itemsize + 32 * self.tiles * self.pitch

    def shared(self, itemsize: int) -> int:
        """Bytes of shared memory in all."""
        lists = self.tile * self.adders + 12 * self.duties + 4 * max(self.pitch, self.duties) + 64
        return self.asked_for(itemsize) + self.places * (20 * self.tile + 24) + lists

    @property
    def pitch(self) -> int:
        """Features of a template in shared memory."""
        return template_pitch(self.features)


@lru_cache(maxsize=64)
def crew_for(p: int, itemsize: int, k: int, shared: int) -> Crew | None:
    """A crew for k clusters of p features whose registers and tiles fit; None if there is none.

    ``itemsize`` is the size of an entry, ``shared`` the bytes of shared memory that a block can have.
    """
    if k > MOST_CLUSTERS or p * itemsize % 16:
        return None
    slices, tiles = -(-p // 32), -(-k // 8)
    for scorers in (4, 3, 2):
        for labels in (1, 2, 3, 4):
            # Registers of an adder (templates and sums of its labels, and two rows), and of a scorer.
            registers = max(4 * slices * (labels + 1) + 40, 12 * tiles + 50)
            warps = 4 * (512 // (-(-registers // 8) * 8))
            adders = min(warps - scorers - 1, MOST_ADDERS)
            if registers > 248 or adders * labels < k:
                continue
            crews = (Crew(scorers, adders, labels, tiles, places, p) for places in range(MOST_PLACES, 2, -1))
            fitting = next((crew for crew in crews if crew.shared(itemsize) <= shared), None)
            if fitting is not None:
                return fitting
    return None
