"""Plotly charts as dicts of traces and layout, for ``onmf.data.figures``."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import xlogy

from onmf.divergence import Array, FloatArray, divide

Figure = dict[str, Any]
LIGHT = [[0, "#ffffff"], [1, "#0b4a9e"]]
DARK = [[0, "#1d2125"], [1, "#8ab8f0"]]


def escaped(text: str) -> str:
    """Escape a text for Plotly, which interprets some HTML, including links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def colours(k: int) -> list[str]:
    """Return k different colours that are readable on light and dark backgrounds."""
    golden = 0.618033988749895
    rgb = (colorsys.hls_to_rgb((0.58 + golden * i) % 1, (0.46, 0.56, 0.38)[i % 3], 0.6) for i in range(k))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in rgb]


def positions(centroids: FloatArray) -> FloatArray:
    """Place clusters in the plane so that similar ones are close. → (k, 2)

    Classical scaling of the Jensen–Shannon distances between the centroids, normalized to sum one. Centroids with
    negative entries are normalized to length one, and their Euclidean distances are used.
    """
    k = len(centroids)
    if (centroids < 0).any():
        C = divide(centroids, np.linalg.norm(centroids, axis=1, keepdims=True))
        squared = np.array([((C - row) ** 2).sum(axis=1) for row in C])
    else:
        C = divide(centroids, centroids.sum(axis=1, keepdims=True))
        entropies = xlogy(C, C).sum(axis=1)
        squared = np.empty((k, k))
        for i in range(k):
            middle = (C + C[i]) / 2
            squared[i] = np.maximum((entropies + entropies[i]) / 2 - xlogy(middle, middle).sum(axis=1), 0.0)
    squared = (squared + squared.T) / 2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    plane = np.zeros((k, 2))
    for axis in range(min(2, k)):
        vector = vectors[:, -1 - axis]
        sign = -1.0 if vector[np.argmax(np.abs(vector))] < 0 else 1.0  # the sign of an eigenvector is arbitrary
        plane[:, axis] = sign * vector * np.sqrt(max(values[-1 - axis], 0.0))
    return plane


def _separate(plane: FloatArray, diameters: FloatArray, width: float = 620.0, height: float = 360.0) -> FloatArray:
    """Scale positions to the size of the chart, and move bubbles and names apart until they hardly overlap. → (k, 2)"""
    extent = np.ptp(plane, axis=0)
    middle = (plane.max(axis=0) + plane.min(axis=0)) / 2
    xy = divide(plane - middle, np.broadcast_to(extent, plane.shape)) * (width, height)
    for _ in range(300):
        moved = False
        for i in range(len(xy)):
            for j in range(i):
                gap = xy[i] - xy[j]
                reach = (diameters[i] + diameters[j]) / 2
                need = np.array([max(reach, 90.0), reach / 2 + 30.0])  # names are wider than tall
                overlap = 1 - np.hypot(*(gap / need))
                if overlap > 0.01:
                    away = np.where(gap >= 0, 1.0, -1.0) * need * overlap * (0.1, 0.4)
                    xy[i] += away / 2
                    xy[j] -= away / 2
                    moved = True
        if not moved:
            break
    return xy


def cluster_map(centroids: FloatArray, sizes: Array, names: Sequence[str], texts: Sequence[str]) -> Figure:
    """Draw a bubble for each cluster with its name. ``texts``, in Plotly's HTML, appear under the pointer."""
    areas = np.asarray(sizes) / max(int(np.max(sizes)), 1)
    diameters = 10 + 46 * np.sqrt(areas)
    plane = _separate(positions(centroids), diameters)
    hidden = {"visible": False, "fixedrange": True}
    trace = {
        "type": "scatter",
        "mode": "markers+text",
        "x": plane[:, 0].round(1).tolist(),
        "y": plane[:, 1].round(1).tolist(),
        "text": list(map(escaped, names)),
        "textposition": "top center",
        "hovertext": list(texts),
        "hoverinfo": "text",
        "customdata": list(range(len(sizes))),
        "cliponaxis": False,
        "marker": {
            "size": diameters.round(1).tolist(),
            "color": colours(len(sizes)),
            "opacity": 0.85,
            "line": {"width": 1, "color": "#888"},
        },
    }
    return {
        "data": [trace],
        "layout": {"xaxis": hidden, "yaxis": hidden, "margin": {"l": 60, "r": 60, "t": 30, "b": 20}},
    }


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


def shaded_table(counts: Array, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Draw a table of counts, each cell shaded by its share of the row."""
    shares = divide(np.asarray(counts, dtype=np.float64), np.sum(counts, axis=1, keepdims=True))
    trace = {
        "type": "heatmap",
        "z": shares.round(4).tolist(),
        "x": list(map(escaped, columns)),
        "y": list(map(escaped, rows)),
        "text": np.asarray(counts).tolist(),
        "texttemplate": "%{text}",
        "hovertemplate": "%{y} in %{x}: %{text}<extra></extra>",
        "colorscale": LIGHT,
        "dark_colorscale": DARK,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }
    return {
        "data": [trace],
        "layout": {
            "xaxis": {"fixedrange": True, "tickangle": -50, "type": "category"},
            "yaxis": {"fixedrange": True, "autorange": "reversed", "type": "category"},
        },
    }
