"""Models of cells as a kind of model: what their files hold besides the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onmf.confidence import TEMPERATURES, calibration_rules
from onmf.io.rules import Rule, number, one_of, optional, strings
from onmf.kinds import Kind, get_kind

from .views import NAMES


def _rules(k: int, p: int) -> dict[str, Rule]:
    return {
        "genes": strings(p, distinct=True),
        "symbols": optional(strings(p)),
        "names": strings(k),
        "view": one_of(*NAMES),
        **calibration_rules(k),
        "temperature": number(*TEMPERATURES),
    }


def _genes(extra: Mapping[str, Any]) -> list[str]:
    return extra.get("symbols") or extra["genes"]


CELLS = Kind(
    predict="onmf.cli.cells:predict_new_cells",
    rules=_rules,
    feature_names=_genes,
    features="genes",
    rows="cells",
    first=0,  # as scanpy and Seurat count, whose clusters stand beside ours in the same file
)


def is_cells(parts: Mapping[str, Any]) -> bool:
    """Whether the entries of a model are those of cells."""
    return get_kind(parts.get("kind", "matrix")) is CELLS
