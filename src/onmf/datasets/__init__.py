"""Data to try things on."""

from __future__ import annotations

from .docstrings import load_docstrings
from .documents import Documents

__all__ = ["Documents", "load_docstrings"]
