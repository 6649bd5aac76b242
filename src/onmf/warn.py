"""What users are told: warnings that point to their line of code, and which package is missing."""

import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import sklearn

INSIDE = tuple(str(Path(file).parent) for file in (__file__, sklearn.__file__, joblib.__file__))

FOLDS = "sklearn.model_selection._validation"
"""The module in which scikit-learn fits and scores the folds of a cross-validation."""


def warn(message: str, category: type[Warning], *, in_folds: bool = True) -> None:
    """Warn at the nearest caller outside this package, scikit-learn and joblib.

    Without ``in_folds``, be silent about the folds of a cross-validation. scikit-learn sets the filters anew for each
    of them, so no filter makes one warning of many. A search fits all rows at the end, and that fit warns;
    ``cross_val_score`` has no such fit, and says nothing.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(INSIDE):
        if not in_folds and frame.f_globals.get("__name__") == FOLDS:
            return
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def import_optional(module: str, need: str, extra: str) -> Any:
    """Import a module of an optional package, or say what needs it, and which extra of onmf installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{need}: pip install 'onmf[{extra}]'.") from error
