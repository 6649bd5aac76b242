"""The frame of every report: one self-contained HTML file, which works online and offline.

A page is a template that extends ``base.html``, its own script, and data. All three are made safe here. Templates
escape everything they print. Data are embedded so that no text can close the script element that contains them. A
content security policy lists the hashes of the page's scripts, so that the browser runs no other script and sends no
request. Below: arrays, texts and tables in the form in which the scripts read them, and the section on how the number
of clusters was chosen.
"""

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np

from onmf._version import __version__
from onmf.divergence import Array, FloatArray, divide
from onmf.door import Clusters, Kind
from onmf.door.groups import group_contributions
from onmf.door.outcome import update_columns
from onmf.estimator import start_of
from onmf.fit.describe import distinctiveness
from onmf.naming import so_many
from onmf.plot import distinct_colours
from onmf.select import Selection

UNKNOWN = 65535  # Code of an unknown share; known ones are coded from 0 to 65,534
WIDTH, HEIGHT = 320, 170  # Size of a chart
MOST_GROUPS = 60  # groups in a page; the largest ones are shown
MOST_TOLD = 12  # those whose features are listed: the ones that differ most
TELLING, FEATURES = 100, 8  # features of a group that are looked at, and those of each side that are shown
LEFT, RIGHT, ABOVE, BELOW = 66, 14, 10, 24  # Margins of a chart, for its numbers
LEAST_PART = 0.01  # of a cluster, that is listed among the finer clusters that it splits into
DOUBTFUL = 0.5  # a row with a lower confidence counts as doubtful
FOUND, FOUND_IN_ALL = 300, 40_000  # features of a cluster by which it is found in the page, and those of all together


def render_page(
    template: str, *, title: str, script: str | tuple[str, ...], data: dict[str, Any], **context: Any
) -> str:
    """Render a self-contained HTML page.

    Parameters
    ----------
    template : str
        A template in ``onmf/report/templates`` that extends ``base.html``.
    title : str
        Title of the page.
    script : str or tuple of str
        The page's own scripts, files beside the template. They run after ``base.js``, which provides ``onmf.data``.
    data : dict
        Data for the scripts: JSON values, and NumPy numbers and arrays.
    **context
        Variables of the template; they are escaped.

    Returns
    -------
    str
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("Reports need jinja2: pip install 'onmf[report]'.") from error
    environment = Environment(
        loader=PackageLoader("onmf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["percent"] = lambda value: f"{value:.1%}"
    own = (script,) if isinstance(script, str) else script
    # Nothing in a script closes its element, and browsers hash the same bytes as we do.
    scripts = [
        _template(name).replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")
        for name in ("base.js", *own)
    ]
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; "
        "form-action 'none'; script-src " + " ".join(f"'sha256-{code}'" for code in hashes)
    )
    return environment.get_template(template).render(
        title=title,
        version=__version__,
        policy=policy,
        css=Markup(_template("base.css")),
        scripts=[Markup(text) for text in scripts],
        data=Markup(embed(data)),
        **context,
    )


def clusters_page(
    found: Clusters, template: str, *, script: tuple[str, ...], data: dict[str, Any], **parts: Any
) -> str:
    """Render the page of a result, as :func:`render_page` does, with what all results have."""
    model, kind = found.model, found.kind
    nouns = {"row": kind.row, "rows": kind.rows_of(2), "feature": kind.feature, "features": f"{kind.feature}s"}
    sure, means = "margin" if found.calibration is None else "confidence", meanings(kind)
    parts_of_all = {"edit": edit_parts(found), "find": find_parts(found), "doubtful": DOUBTFUL}
    words: dict[str, Any] = {"nouns": nouns, "sure": sure, "means": means}
    start = start_of(model, model.group_effects_ is not None)
    start = start if isinstance(start, str) else "given centroids"
    run = f"start {start}{', then local search' if model.refine else ''}"
    divergence = model.divergence_.name.replace("beta=", "β = ")
    return render_page(
        template,
        subtitle=f"{so_many(found.n_clusters, 'cluster')}, {divergence}, {found.how or run}",
        notes=found.notes,
        script=("explore.js", "edit.js", *script),
        data=parts_of_all | words | data,
        rows=nouns["rows"],
        numbers=found.shown_numbers,
        unusual=bool(np.isfinite(found.surprise).any()),
        selection=selection_parts(found),
        groups=groups_parts(found),
        updated=None if found.updated is None else update_columns(found),
        **words,
        **parts,
    )


def meanings(kind: Kind) -> dict[str, str]:
    """What the numbers of a row mean, in a sentence each."""
    row, rows = kind.row, kind.rows_of(2)
    return {
        "confidence": f"Confidence: how often independent fits put the {row} with the rest of its cluster; it is not "
        "the chance of being right.",
        "margin": f"Margin: how much worse the best other cluster, the runner-up, is, per {kind.feature}; near 0, the "
        f"{row} lies between the two.",
        "surprise": f"Surprise: the share of {rows} of its cluster and size that are at least as unusual; near 0, the "
        f"{row} fits nowhere well.",
    }


def edit_parts(found: Clusters) -> dict[str, Any]:
    """What the page needs for edits: the clusters as people know them, and which result they belong to."""
    colours = found.colours() or found.palette
    columns = zip(found.shown_numbers, found.names, found.sizes.tolist(), colours, strict=True)
    fields = ("number", "name", "size", "colour")
    clusters = [dict(zip(fields, column, strict=True)) for column in columns]
    return {"run": found.run_id, "kind": found.kind.name, "clusters": clusters}


def find_parts(found: Clusters) -> dict[str, Any]:
    """The most distinctive features of each cluster, and how many times as frequent as in all rows they are."""
    _, centroids, masses = found.model.clustering_.by_cluster()
    C = np.maximum(centroids, 0.0)  # features with negative values have no shares, and are not found
    shares, whole = divide(C, C.sum(axis=1, keepdims=True)), masses @ C
    times = divide(shares, np.broadcast_to(divide(whole, whole.sum()), shares.shape))
    n = min(FOUND, FOUND_IN_ALL // max(len(C), 1))
    places = np.argsort(-distinctiveness(C, masses), axis=1, kind="stable")[:, :n]
    kept = np.take_along_axis(times, places, axis=1) > 1
    used, place = np.unique(places[kept], return_inverse=True)
    return {
        "features": pack_texts(str(found.features[j]) for j in used),
        "starts": base64_array(np.cumsum([0, *kept.sum(axis=1)]), "<u4"),
        "places": base64_array(place, "<u4"),
        "times": base64_array(np.take_along_axis(times, places, axis=1)[kept], "<f4"),
    }


def embed(data: Any) -> str:
    """Return data as JSON that is safe inside a script element, whatever texts it contains."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    encodable = text.encode("utf-8", errors="replace").decode()  # lone surrogates cannot be encoded
    # Without "<", no element can open or close. The others end a line in scripts, but not in JSON.
    return encodable.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _template(name: str) -> str:
    return (files("onmf.report") / "templates" / name).read_text(encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be embedded in a page")


def base64_array(values: Array, kind: str) -> str:
    """Return an array as base64 of numbers of this kind, such as ``"<i2"``."""
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode()


def code_places(places: FloatArray) -> str:
    """Return places in the plane as numbers from 0 to 65,535. The longer side of the map fills that range."""
    low, high = (places.min(axis=0), places.max(axis=0)) if len(places) else (np.zeros(2), np.ones(2))
    extent = float((high - low).max()) or 1.0
    return base64_array(np.rint((places - (low + high) / 2) / extent * 65535 + 32767.5), "<u2")


def code_shares(shares: FloatArray) -> str:
    """Return numbers between 0 and 1, or NaN, in two bytes each."""
    known = np.isfinite(shares)
    return base64_array(np.where(known, np.rint(np.clip(shares, 0, 1) * (UNKNOWN - 1)), UNKNOWN), "<u2")


def packed(content: bytes, level: int = 9) -> str:
    """Return bytes as base64 of a zlib stream."""
    return base64.b64encode(zlib.compress(content, level)).decode()


def pack_texts(texts: Iterable[str]) -> str:
    """Return texts as base64 of a zlib stream that holds a JSON array."""
    return packed(json.dumps(list(texts), ensure_ascii=False).encode("utf-8", "replace"))


def class_codes(found: Clusters, rows: Array, classes: list[str], kind: str) -> str | None:
    """Return the class of each of the rows, by its number in the list, -1 for others; None if no class is known."""
    known = found.table.classes
    if not classes or known is None:
        return None
    place = {label: i for i, label in enumerate(classes)}
    return base64_array(np.array([place.get(known[i], -1) for i in rows]), kind)


def coloured(names: list[str], colours: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the names, each with a colour: those given, or different ones."""
    chosen = distinct_colours(len(names)) if colours is None else colours
    return [{"name": name, "colour": colour} for name, colour in zip(names, chosen, strict=True)]


def group_codes(found: Clusters, rows: Array) -> str | None:
    """Return the group of each of the rows, by its number; None if there are none."""
    return base64_array(found.group_codes[rows], "<i4") if found.composition.any() else None


def groups_parts(found: Clusters) -> dict[str, Any] | None:
    """What ``groups.html`` shows: how groups are divided among clusters, and the features in which they differ."""
    counts = found.composition
    if not counts.any():
        return None
    sizes = counts.sum(axis=0)
    shown = np.sort(np.argsort(-sizes, kind="stable")[:MOST_GROUPS])
    shown, tops = shown[sizes[shown] > 0], found.group_features(TELLING)
    differences = group_contributions(found.model).sum(axis=1)[shown]
    told = shown[np.sort(np.argsort(-differences, kind="stable")[:MOST_TOLD])]
    factors = [
        [(feature, f"{factor:.2g}", factor > 1) for feature, factor in tops[found.groups[b]].items()] for b in told
    ]
    numbered = zip(found.shown_numbers, found.names, strict=True)
    more, less = (
        [
            [(feature, factor) for feature, factor, up in some if up == above and factor != "1"][:FEATURES]
            for some in factors
        ]
        for above in (True, False)
    )
    return {
        "counts": counts[:, shown].T.tolist(),
        "feature": found.kind.feature,
        "clusters": [f"{number}: {name}" for number, name in numbered],
        "shown": [found.groups[b] for b in shown],
        "sizes": sizes[shown].tolist(),
        "left_out": int(np.count_nonzero(sizes)) - len(shown),
        "told": [(found.groups[b], int(sizes[b])) for b in told],
        "untold": int(np.count_nonzero(sizes)) - len(told),
        "more": more,
        "less": less,
    }


def selection_parts(found: Clusters) -> dict[str, Any] | None:
    """What ``selection.html`` shows: the agreement of halves, a table of it, and how the levels split."""
    selection = found.selection
    if selection is None:
        return None
    numbers = selection.numbers.tolist()
    marks = {level.n_clusters: level.name for level in selection.levels}
    low, high = min(0.0, float(selection.agreement.min())), max(1.0, float(selection.agreement.max()))
    x = _scaled(np.log2(selection.numbers), np.log2(numbers[0]), np.log2(numbers[-1]), LEFT, WIDTH - RIGHT)
    heights = partial(_scaled, low=low, high=high, first=HEIGHT - BELOW, last=ABOVE)
    dots = [
        {"x": a, "y": b, "number": k, "mark": marks.get(k, ""), "value": _written(value)}
        for a, b, k, value in zip(x, heights(selection.agreement), numbers, selection.agreement.tolist(), strict=True)
    ]
    chance = zip(x, heights(selection.chance), strict=True) if np.isfinite(selection.chance).all() else ()
    ticks = (0.0, 0.5, 1.0)
    return {
        "dots": dots,
        "labels": _apart(dots),
        "chance": " ".join(f"{a},{b}" for a, b in chance),
        "rules": [{"y": at, "text": f"{value:g}"} for value, at in zip(ticks, heights(np.array(ticks)), strict=True)],
        "rows": selection.table(),
        "levels": selection.levels,
        "draws": so_many(selection.draws, "draw"),
        "taken": found.n_clusters,
        "splits": (splits := _splits(found, selection) if selection.levels else []),
        "finer": any(row["parts"] for row in splits),
        "left": LEFT,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _splits(found: Clusters, selection: Selection) -> list[dict[str, Any]]:
    """For each cluster the share of halves that find it, its coarser cluster, and the finer ones that it splits into.

    A cluster belongs to the coarser one with most of its rows, and a finer one to the cluster with most of its own.
    """
    k, own = found.n_clusters, found.labels[found.templates >= 0][selection.rows]
    tables, inside = {}, own >= 0
    for level in selection.levels:
        tables[level.name] = np.zeros((k, level.n_clusters))
        np.add.at(tables[level.name], (own[inside], level.labels[inside]), 1)
    coarser = [each for each in selection.levels if each.n_clusters < k]
    finer = [each for each in selection.levels if each.n_clusters > k]
    above = tables[coarser[-1].name].argmax(axis=1) if coarser else None
    below = tables[finer[0].name] if finer else np.zeros((k, 0))
    parents = below.argmax(axis=0)
    numbered = zip(found.shown_numbers, found.names, found.finding().tolist(), strict=True)
    rows = []
    for c, (number, name, share) in enumerate(numbered):
        shares = np.sort(below[c, parents == c])[::-1] / max(below[c].sum(), 1)
        parts = [f"{share:.0%}" for share in shares if share >= LEAST_PART]
        rows.append(
            {
                "cluster": f"{number}: {name}",
                "found": "" if math.isnan(share) else f"{share:.0%}",
                "above": "" if above is None else chr(ord("A") + int(above[c]) % 26) * (1 + int(above[c]) // 26),
                "parts": " + ".join(parts) if len(parts) > 1 else "",
            }
        )
    return sorted(rows, key=lambda row: str(row["above"]))


def _scaled(values: FloatArray, low: float, high: float, first: float, last: float) -> list[float]:
    share = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return [round(float(first + (last - first) * part), 1) for part in share]


def _apart(dots: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the dots whose numbers fit under the axis: the levels first, then from left to right."""
    placed: list[dict[str, Any]] = []
    for dot in sorted(dots, key=lambda dot: (dot["mark"] == "", dot["x"])):
        if all(abs(dot["x"] - other["x"]) >= 22 for other in placed):
            placed.append(dot)
    return placed


def _written(value: float) -> str:
    return f"{value:,.4g}" if math.isfinite(value) else ""
