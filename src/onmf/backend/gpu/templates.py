"""Templates on the GPU, in the forms that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import Templates
from .rows import DenseRows


@dataclass(frozen=True)
class GpuTemplates(Templates):
    """Templates on the card: for arrays as wide as the rows, for sparse rows transposed and in 16 bits for the screen.

    Attributes
    ----------
    wide : (k, pitch) array or None
        With columns of zeros at the end, if the rows have such columns.
    BT : (p, k) array or None
        Transposed.
    table : (p, 8 chunks) array or None
        In 16 bits; see ``template_table`` in kernels.cu.
    chunks : int
        16-byte parts of a line of the table; 0 if there is none.
    """

    wide: Any = None
    BT: Any = None
    table: Any = None
    chunks: int = 0


def widened(cupy: Any, B: Any, width: int, room: Templates | None = None) -> Any:
    """Templates with columns of zeros up to a width, in the memory of earlier ones if they had that shape."""
    k, p = B.shape
    if p == width:
        return None
    wide = room.wide if isinstance(room, GpuTemplates) else None
    if wide is None or wide.shape != (k, width):
        wide = cupy.zeros((k, width))
    wide[:, :p] = B
    return wide


def fitting(cupy: Any, templates: Templates, rows: DenseRows) -> Any:
    """Templates as wide as these rows. → (k, pitch)"""
    assert isinstance(templates, GpuTemplates), "templates come from prepare()"
    width = rows.X.shape[1]
    for B in (templates.B, templates.wide):
        if B is not None and B.shape[1] == width:
            return B
    return widened(cupy, templates.B, width)
