"""How the number of clusters was chosen: a small chart of each criterion, and the table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onmf.divergence import FloatArray
from onmf.select import COLUMNS, Selection

WIDTH, HEIGHT = 320, 170
"""Size of a chart."""

LEFT, RIGHT, ABOVE, BELOW = 66, 14, 10, 24
"""Margins of a chart, for its numbers."""

TITLES = {
    "information": "Information in both halves, bits",
    "stability": "Stability: the share that is reproduced",
    "held-out": "Fit of held-out data",
    "objective": "Objective (lower is better)",
    "bic": "BIC (lower is better)",
}


def selection_parts(selection: Selection | None) -> dict[str, Any] | None:
    """Return what ``selection.html`` shows; None if the number of clusters was given.

    Parameters
    ----------
    selection : Selection or None
        The choice.

    Returns
    -------
    dict or None
        The charts, with that of the criterion which chose first, and the rows of the table.
    """
    if selection is None:
        return None
    known = [name for name, column in COLUMNS.items() if np.isfinite(getattr(selection, column)).any()]
    shown = sorted((name for name in known if name != "bic"), key=lambda name: name != selection.criterion)
    if selection.criterion == "bic":
        shown = ["bic", *shown]
    marks = {selection.n_clusters: "chosen"} | dict.fromkeys(selection.runners_up, "runner-up")
    rows = [
        {
            "number": k,
            "mark": marks.get(k, ""),
            "values": [_written(float(getattr(selection, COLUMNS[name])[i])) for name in known],
        }
        for i, k in enumerate(selection.candidates.tolist())
    ]
    charts = [_chart(selection, name, marks) for name in shown]
    sizes = {"left": LEFT, "width": WIDTH, "height": HEIGHT}
    return {"charts": charts, "names": known, "rows": rows, "fewest": selection.fewest} | sizes


def _chart(selection: Selection, name: str, marks: dict[int, str]) -> dict[str, Any]:
    """Return one curve, in the units of the chart."""
    values: FloatArray = getattr(selection, COLUMNS[name])
    finite = np.isfinite(values)
    numbers, values = selection.candidates[finite], values[finite]
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 1.0
    x = _scaled(np.log2(numbers), np.log2(numbers[0]), np.log2(numbers[-1]), LEFT, WIDTH - RIGHT)
    y = _scaled(values, low - room, high + room, HEIGHT - BELOW, ABOVE)
    dots = [
        {"x": a, "y": b, "number": k, "mark": marks.get(k, ""), "value": _written(value)}
        for a, b, k, value in zip(x, y, numbers.tolist(), values.tolist(), strict=True)
    ]
    enough = [] if name != "held-out" or selection.enough is None else [max(selection.enough, low)]
    ends = (low, high) if high > low else (low,)
    heights = _scaled(np.array(ends), low - room, high + room, HEIGHT - BELOW, ABOVE)
    return {
        "key": name,
        "title": TITLES[name],
        "path": " ".join(f"{dot['x']},{dot['y']}" for dot in dots),
        "dots": dots,
        "labels": _apart(dots),
        "levels": [{"y": at, "text": f"{value:,.3g}"} for value, at in zip(ends, heights, strict=True)],
        "enough": _scaled(np.array(enough), low - room, high + room, HEIGHT - BELOW, ABOVE),
        "chosen": next((dot["x"] for dot in dots if dot["mark"] == "chosen"), None),
    }


def _scaled(values: FloatArray, low: float, high: float, first: float, last: float) -> list[float]:
    share = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return [round(float(first + (last - first) * part), 1) for part in share]


def _apart(dots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the dots whose numbers fit under the axis: the choice first, then from left to right."""
    placed: list[dict[str, Any]] = []
    for dot in sorted(dots, key=lambda dot: (dot["mark"] != "chosen", dot["mark"] == "", dot["x"])):
        if all(abs(dot["x"] - other["x"]) >= 22 for other in placed):
            placed.append(dot)
    return placed


def _written(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else ""
