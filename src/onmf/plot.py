"""What people look at: figures, colours, tables in notebooks, and maps of rows in the plane.

Each ``plot_`` function returns the axes that it drew, and never calls ``show``. They need matplotlib:
``pip install 'onmf[report]'``. Clusters are never computed from a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics.cluster import contingency_matrix
from sklearn.neighbors import NearestNeighbors

from onmf.divergence import Array, FloatArray
from onmf.metrics import match_clusters
from onmf.warn import import_optional

if TYPE_CHECKING:
    from onmf.estimator import ONMF
    from onmf.select import Selection

__all__ = ["plot_confusion", "plot_selection", "plot_top_features"]

BAR, INK, FAINT = "#2a6f97", "#1b263b", "#8d99ae"


def plot_top_features(
    model: ONMF,
    n: int = 6,
    *,
    feature_names: Any = None,
    titles: list[str] | None = None,
    colours: list[str] | None = None,
    columns: int = 5,
) -> Any:
    """Draw a small bar chart of the most characteristic features of each cluster, the largest cluster first.

    Parameters
    ----------
    model : ONMF
        A fitted model.
    n, feature_names
        As in :meth:`onmf.ONMF.top_features`.
    titles, colours : lists of str, optional
        For each cluster, in the order of the labels; titles are numbers and sizes by default.
    columns : int, default=5
        Number of charts in a row.

    Returns
    -------
    (n_clusters,) array of matplotlib.axes.Axes
        In the order of the labels.
    """
    tops = model.top_features(n, feature_names)
    k = len(tops)
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=k)
    columns = min(columns, k)
    rows = -(-k // columns)
    figure, grid = pyplot().subplots(
        rows, columns, figsize=(2.6 * columns, (0.55 + 0.23 * n) * rows), layout="constrained", squeeze=False
    )
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.06)
    axes = np.empty(k, dtype=object)
    for ax, cluster in zip(grid.flat, np.argsort(-sizes, kind="stable"), strict=False):
        axes[cluster] = ax
        features, weights = list(tops[cluster]), list(tops[cluster].values())
        title = titles[cluster] if titles else f"cluster {cluster} · {sizes[cluster]}"
        bar, ink = [colours[cluster]] * 2 if colours else [BAR, INK]
        ax.barh(np.arange(len(features))[::-1], weights, color=bar, height=0.72)
        ax.set_yticks(np.arange(len(features))[::-1], features, fontsize=9, color=INK, parse_math=False)
        ax.set_title(title, fontsize=10, loc="left", color=ink, fontweight="bold", parse_math=False)
        ax.set_xticks([])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    for ax in grid.flat[k:]:
        ax.remove()
    return axes


def plot_confusion(
    y_true: ArrayLike,
    labels: ArrayLike,
    *,
    classes: Any = None,
    names: list[str] | None = None,
    colours: list[str] | None = None,
    ax: Any = None,
) -> Any:
    """Draw the number of samples of each class in each cluster; clusters come in the order of their matched classes.

    A darker cell holds a larger share of its class.

    Parameters
    ----------
    y_true, labels : (n,) array, (n,) array of int
        Class and cluster of each sample.
    classes : array of str, optional
        Names of the classes, in sorted order of ``y_true``.
    names, colours : lists of str, optional
        Names of the clusters and their colours, in the order of the labels; names are labels by default.
    ax : matplotlib.axes.Axes, optional
        By default new ones.

    Returns
    -------
    matplotlib.axes.Axes
    """
    values, clusters = np.unique(y_true), np.unique(labels).tolist()
    of_class = [str(c) for c in (values if classes is None else classes)]
    if len(of_class) != len(values):
        raise ValueError(f"classes has {len(of_class)} names, but y_true has {len(values)} classes.")
    row = {cluster: np.searchsorted(values, of) for cluster, of in match_clusters(y_true, labels).items()}
    order = sorted(range(len(clusters)), key=lambda c: (row.get(clusters[c], len(values)), c))
    table = contingency_matrix(y_true, labels)[:, order]
    if ax is None:
        _, ax = pyplot().subplots(figsize=(0.45 * len(order) + 2.2, 0.4 * len(values) + 1.4), layout="constrained")
    share = table / table.sum(axis=1, keepdims=True)
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, j in zip(*np.nonzero(table), strict=True):
        ax.text(j, i, table[i, j], ha="center", va="center", fontsize=8, color="white" if share[i, j] > 0.5 else INK)
    rows = [f"{name} ({total})" for name, total in zip(of_class, table.sum(axis=1), strict=True)]
    ax.set_yticks(range(len(rows)), rows, parse_math=False)  # a dollar sign in a name does not start a formula
    shown = [clusters[c] for c in order]
    ticks = [str(cluster) if names is None else names[cluster] for cluster in shown]
    turned = {} if names is None else {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(order)), ticks, parse_math=False, **turned)
    for text, cluster in zip(ax.get_xticklabels(), shown, strict=True):
        text.set_color(colours[cluster] if colours else INK)
    ax.set(xlabel="cluster", ylabel="class")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


def pyplot() -> Any:
    """Import matplotlib's pyplot."""
    return import_optional("matplotlib.pyplot", "Pictures need matplotlib", "report")


def plot_selection(selection: Selection) -> Any:
    """Plot how well halves of the rows agree against the number of clusters, and mark the levels.

    Parameters
    ----------
    selection : Selection

    Returns
    -------
    matplotlib.axes.Axes
    """
    _, ax = pyplot().subplots(figsize=(5.0, 3.2), layout="constrained")
    numbers, error = selection.numbers, np.nan_to_num(selection.agreement_error)
    ax.plot(numbers, selection.agreement, color=BAR, marker="o", markersize=3, label="the data")
    low, high = selection.agreement - error, selection.agreement + error
    ax.fill_between(numbers, low, high, color=BAR, alpha=0.15, linewidth=0)
    if np.isfinite(selection.chance).any():
        ax.plot(numbers, selection.chance, color=FAINT, linestyle="--", label="without structure")
        ax.legend(fontsize=8, frameon=False)
    for level in selection.levels:
        ax.axvline(level.n_clusters, color=FAINT, linestyle=":", linewidth=1)
        ax.text(level.n_clusters, 1.02, f" {level.n_clusters} {level.name}", fontsize=8, color=INK, ha="center")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda k, _: f"{k:g}")
    ax.set_xlabel("clusters", fontsize=8, color=INK)
    ax.set_ylabel("agreement of halves", fontsize=8, color=INK)
    ax.tick_params(labelsize=8, colors=INK)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


DISTINCT = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#636363", "#1830fc", "#9ccca8", "#6084fc"),
    *("#b4300c", "#cc009c", "#fc546c", "#e400cc", "#78cce4", "#f0b46c", "#246cf0", "#545478", "#90b49c", "#006c30"),
    *("#6c9cfc", "#3c903c", "#8418c0", "#2484cc", "#e49c6c", "#f078cc", "#c00c54", "#6c6090", "#cc9030", "#f0b400"),
    *("#30a8c0", "#b46c9c", "#846c78", "#9cc0c0", "#e44854", "#84c0fc", "#cc7884", "#3c90e4", "#3c6ccc", "#009060"),
    *("#9c009c", "#5478e4", "#306048", "#c024b4", "#483cd8", "#f09090", "#f05448", "#e4b490", "#a82424", "#30a8e4"),
    *("#54d848", "#0c60a8", "#f0a8d8", "#606078", "#b46cb4", "#3c6000", "#d89060", "#b42484", "#3cb4c0", "#907884"),
)
"""Six colours of Okabe and Ito and a grey, then always the colour that is farthest from those before it.

The distance (in OKLab) is the smallest of three: as most people see the colours, and as people see them who lack red or
green cones (Machado et al. 2009). All can be seen on light and on dark backgrounds.
"""


def distinct_colours(k: int) -> list[str]:
    """Return k colours, as ``#rrggbb``. The first 60 differ, also for colour-blind people; then they repeat."""
    return [DISTINCT[i % len(DISTINCT)] for i in range(k)]


def parts_of(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``, from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


ROWS = 30  # that a table shows; the others are counted

# Colours are inherited, so that the table is readable on light and on dark pages.
STYLE = "text-align:left;color:inherit;background:transparent;vertical-align:top"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], colours: Sequence[str] = ()) -> str:
    """A table in HTML, for ``_repr_html_``: everything is escaped. ``colours`` stand in front of the rows."""
    listed = list(rows)
    head = "".join(f'<th style="{STYLE}">{escape(column)}</th>' for column in columns)
    body = []
    for i, row in enumerate(listed[:ROWS]):
        cells = [escape(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row]
        if i < len(colours):
            cells[0] = f'<span style="color:{escape(colours[i])}">■</span> {cells[0]}'
        body.append("<tr>" + "".join(f'<td style="{STYLE}">{cell}</td>' for cell in cells) + "</tr>")
    more = f"<p>and {len(listed) - ROWS:,} more</p>" if len(listed) > ROWS else ""
    return (
        f"<div><p><strong>{escape(title)}</strong></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}</div>"
    )


PERPLEXITY = 30  # neighbours that each row is drawn towards, roughly
EARLY, LATE = 250, 500  # iterations of t-SNE that gather the rows, and that spread them; a quick map has fewer
MANY = 10_000  # rows from which half of the late iterations are enough: neighbours are kept as well (50,000 rows)
EXACT = 50_000  # rows up to which all distances are computed, which is faster than an index of approximate neighbours
SAMPLE = (500, 1500)  # a quick map places half of the rows by t-SNE: at least, and at most, so many
GOLDEN = np.pi * (3 - np.sqrt(5))  # the angle by which a sunflower turns from seed to seed
SHOWN = 50  # iterations between two reports of progress
FEW = 10  # fewer rows than this have no neighbourhoods to draw: they get their first two components

# Up to this number of rows, one thread draws the map: on a busy machine, threads that wait for each other take longer
# (1,300 documents, two threads on two busy cores: 37 s instead of 9 s).
ONE_THREAD = 5000

Progress = Callable[[str, float | None], None]  # Called with the name of a step and the share of it that is done


def place_rows(
    components: FloatArray,
    source: str,
    *,
    quick: bool = False,
    seed: int = 0,
    n_threads: int,
    progress: Progress,
    extra: str,
) -> tuple[FloatArray, str]:
    """Place rows in the plane so that similar rows are close, for people to look at. → (n, 2), how

    ``components`` (n, few) are sorted by falling variance; ``source`` says what they are. A ``quick`` map places a
    random choice of the rows by t-SNE, and each other row beside its nearest neighbour among them. The same seed,
    number of threads and machine give the same map. ``extra`` is the extra of onmf that installs openTSNE, for the
    error if it is missing.
    """
    n, kept = components.shape
    if n < FEW:
        return first_two(components), f"the first two {source}"
    some = np.arange(n)
    if quick and n > SAMPLE[0]:
        some = np.sort(np.random.default_rng(seed).choice(n, min(max(n // 2, SAMPLE[0]), SAMPLE[1]), replace=False))
    places = tsne(components[some], quick=quick, seed=seed, n_threads=n_threads, progress=progress, extra=extra)
    how = f"t-SNE (openTSNE) of the first {kept} {source}"
    if len(some) == n:
        return places, how
    how += f", for {len(some):,} at random; the others stand beside their nearest neighbours among these"
    return beside(components, some, places), how


def tsne(
    components: FloatArray, *, quick: bool, seed: int, n_threads: int, progress: Progress, extra: str
) -> FloatArray:
    """Place rows in the plane by t-SNE, starting from their first two components. → (n, 2)"""
    openTSNE = import_optional("openTSNE", "The map needs openTSNE", extra)
    n, done = len(components), count(SHOWN, SHOWN)
    early, late = (EARLY // 2, LATE // 4) if quick else (EARLY, LATE if n < MANY else LATE // 2)
    perplexity, cores = min(PERPLEXITY, (n - 1) / 3), n_threads if n > ONE_THREAD else 1
    index = openTSNE.nearest_neighbors.Sklearn if n <= EXACT else openTSNE.nearest_neighbors.Annoy
    neighbours = index(components, int(3 * perplexity), n_jobs=n_threads, random_state=seed)
    method = openTSNE.TSNE(
        early_exaggeration_iter=early,
        n_iter=late,
        n_jobs=cores,
        callbacks=lambda iteration, error, embedding: progress("map", min(next(done) / (early + late), 1.0)),
        callbacks_every_iters=SHOWN,
        random_state=seed,
    )
    places = method.fit(
        affinities=openTSNE.affinity.PerplexityBasedNN(perplexity=perplexity, knn_index=neighbours, n_jobs=cores),
        initialization=openTSNE.initialization.rescale(first_two(components)),
    )
    return np.asarray(places, dtype=np.float64)


def beside(components: FloatArray, some: Array, places: FloatArray) -> FloatArray:
    """Place all rows: ``some`` have ``places``, and the others stand around the nearest of them. → (n, 2)

    Those around the same row stand as the seeds of a sunflower do, the nearest ones inside, so that none covers
    another.
    """
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(components[some])
    others = np.setdiff1d(np.arange(len(components)), some)
    distances, neighbours = (found[:, 0] for found in nearest.kneighbors(components[others]))
    order = np.lexsort((distances, neighbours))
    centres = neighbours[order]
    rank = np.arange(len(others)) - np.searchsorted(centres, centres) + 1  # among those around the same row
    gaps = NearestNeighbors(n_neighbors=1).fit(places).kneighbors()[0]
    radius = np.median(gaps) * np.sqrt(len(some) / len(components) * rank)
    all_places = np.empty((len(components), 2))
    all_places[some] = places
    turned = np.column_stack([np.cos(GOLDEN * rank), np.sin(GOLDEN * rank)])
    all_places[others[order]] = places[centres] + radius[:, None] * turned
    return all_places


def first_two(components: FloatArray) -> FloatArray:
    """Return the first two components; zeros for those that are missing. → (n, 2)"""
    return np.pad(components[:, :2], ((0, 0), (0, max(2 - components.shape[1], 0)))).astype(np.float64)
