"""Colours for many groups."""

from __future__ import annotations

DISTINCT = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#5018f8", "#5070f8", "#a81828", "#b8c070"),
    *("#006060", "#e8a8b0", "#6098f8", "#c07040", "#a80090", "#8810c0", "#f86880", "#b82000", "#a80058", "#30c8d8"),
    *("#5048f0", "#a85850", "#00d830", "#b04888", "#d800c0", "#306030", "#a868d8", "#c89848", "#b078b8", "#b09860"),
    *("#f0a890", "#505090", "#709010", "#f890c8", "#e07898", "#e068f8", "#b830d8", "#f098f8", "#d80848", "#b05078"),
    *("#0860b0", "#408058", "#886820", "#c0c058", "#50b0b8", "#7808d8", "#e868d8", "#883878", "#807098", "#2070e0"),
    *("#c040f8", "#40a088", "#b07068", "#d87830", "#f04068", "#68c8b0", "#d050a0", "#a008f8", "#307030", "#b000a8"),
)
"""Six colours of Okabe and Ito, then always the colour that is farthest from those before it.

The distance is the smallest of three: as most people see the colours, and as people see them who lack red or green
cones (Machado et al. 2009). All can be seen on light and on dark backgrounds.
"""


def distinct_colours(k: int) -> list[str]:
    """Return k colours, as ``#rrggbb``. The first 60 differ, also for colour-blind people; then they repeat."""
    return [DISTINCT[i % len(DISTINCT)] for i in range(k)]
