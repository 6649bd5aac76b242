"""Plotly charts as dicts of traces and layout, for ``onmf.data.figures``."""

from __future__ import annotations

from typing import Any

from onmf.divergence import Array

Figure = dict[str, Any]


def escaped(text: str) -> str:
    """Escape a text for Plotly, which interprets some HTML, including links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def convergence(moved: Array, label: str = "documents that moved") -> Figure:
    """Draw the number of rows that changed their cluster in each iteration."""
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(range(1, len(moved) + 1)),
        "y": [int(value) for value in moved],
        "hovertemplate": "iteration %{x}: %{y} moved<extra></extra>",
        "line": {"color": "#4a86c8"},
    }
    return {
        "data": [trace],
        "layout": {
            "xaxis": {"title": {"text": "iteration"}, "fixedrange": True},
            "yaxis": {"title": {"text": label}, "rangemode": "tozero", "fixedrange": True},
        },
    }
