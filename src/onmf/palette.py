"""Colours for many groups, the same in pages, pictures and maps."""

from __future__ import annotations

DISTINCT = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#636363", "#1830fc", "#9ccca8", "#6084fc"),
    *("#b4300c", "#cc009c", "#fc546c", "#e400cc", "#78cce4", "#f0b46c", "#246cf0", "#545478", "#90b49c", "#006c30"),
    *("#6c9cfc", "#3c903c", "#8418c0", "#2484cc", "#e49c6c", "#f078cc", "#c00c54", "#6c6090", "#cc9030", "#f0b400"),
    *("#30a8c0", "#b46c9c", "#846c78", "#9cc0c0", "#e44854", "#84c0fc", "#cc7884", "#3c90e4", "#3c6ccc", "#009060"),
    *("#9c009c", "#5478e4", "#306048", "#c024b4", "#483cd8", "#f09090", "#f05448", "#e4b490", "#a82424", "#30a8e4"),
    *("#54d848", "#0c60a8", "#f0a8d8", "#606078", "#b46cb4", "#3c6000", "#d89060", "#b42484", "#3cb4c0", "#907884"),
)
"""Six colours of Okabe and Ito and a grey, then always the colour that is farthest from those before it.

The distance (in OKLab) is the smallest of three: as most people see the colours, and as people see them who lack red or
green cones (Machado et al. 2009). All can be seen on light and on dark backgrounds.
"""


def distinct_colours(k: int) -> list[str]:
    """Return k colours, as ``#rrggbb``. The first 60 differ, also for colour-blind people; then they repeat."""
    return [DISTINCT[i % len(DISTINCT)] for i in range(k)]


def parts_of(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``, from 0 to 255."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue
