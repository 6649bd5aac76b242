"""Warnings that point to the user's line of code."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import sklearn

INSIDE = tuple(str(Path(file).parent) for file in (__file__, sklearn.__file__))


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the nearest caller outside this package and scikit-learn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
