"""Reports: each is one self-contained HTML file that works offline."""

from typing import Any

from onmf import old_names

from .page import embed, render_page
from .rows import rows_page

__all__ = ["embed", "render_page", "rows_page"]


def __getattr__(name: str) -> Any:
    return old_names.lookup(__name__, name)
