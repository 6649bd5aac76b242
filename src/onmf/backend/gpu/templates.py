"""Templates on the GPU, in the forms that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import Templates


@dataclass(frozen=True)
class GpuTemplates(Templates):
    """Templates on the card. For sparse rows also transposed, and in 16 bits for the screen."""

    BT: Any = None  # (p, k)
    table: Any = None  # (p, 8 chunks) in 16 bits; see template_table in kernels.cu
    chunks: int = 0  # 16-byte parts of a line of the table; 0 if there is none
