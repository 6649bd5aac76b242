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
import re
import zlib
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from onmf._version import __version__
from onmf.divergence import Array, FloatArray
from onmf.door import Clusters
from onmf.naming import so_many
from onmf.plot import distinct_colours
from onmf.select import COLUMNS, Selection

ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that must not occur in a script, and their escapes in JSON. Without ``<`` no element can open or close."""

UNKNOWN = 65535  # Code of an unknown share; known ones are coded from 0 to 65,534
WIDTH, HEIGHT = 320, 170  # Size of a chart
LEFT, RIGHT, ABOVE, BELOW = 66, 14, 10, 24  # Margins of a chart, for its numbers

TITLES = {
    "information": "Information in both halves, bits",
    "stability": "Stability: the share that is reproduced",
    "held-out": "Fit of held-out data",
    "objective": "Objective (lower is better)",
    "bic": "BIC (lower is better)",
}


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
        The page's own scripts, files beside the template. They run after Plotly and ``base.js``. The latter provides
        ``onmf.data`` and draws ``onmf.data.figures`` in the elements with ``data-figure="NAME"``.
    data : dict
        Data for the scripts: JSON values, and NumPy numbers and arrays. Without ``figures``, the page has no Plotly.
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
        raise ImportError("Reports need jinja2 and plotly: pip install 'onmf[report]'.") from error
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
    charts = [plotly_script()] if data.get("figures") else []
    scripts = [*charts, *(_inside(_template(name)) for name in ("base.js", *own))]
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; "
        f"form-action 'none'; script-src {' '.join(map(_hash, scripts))}"
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


def clusters_page(found: Clusters, template: str, **parts: Any) -> str:
    """Render the page of a result, as :func:`render_page` does, with what all results have."""
    return render_page(
        template, subtitle=_subtitle(found), notes=found.notes, selection=selection_parts(found.selection), **parts
    )


def _subtitle(found: Clusters) -> str:
    """What was done, in a line: the number of clusters, the divergence, and who voted or where the run started."""
    params = found.model.get_params()
    divergence = found.model.divergence_.name.replace("beta=", "β = ")
    start = params["init"] if isinstance(params["init"], str) else "given centroids"
    run = f"start {start}{', then local search' if params['refine'] else ''}"
    return f"{so_many(found.n_clusters, 'cluster')}, {divergence}, {found.how or run}"


def embed(data: Any) -> str:
    """Return data as JSON that is safe inside a script element, whatever texts it contains."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    encodable = text.encode("utf-8", errors="replace").decode()  # lone surrogates cannot be encoded
    return re.sub("[<\u2028\u2029]", lambda match: ESCAPES[match.group()], encodable)


@cache
def plotly_script() -> str:
    """Return Plotly's script from the installed package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("Reports need jinja2 and plotly: pip install 'onmf[report]'.") from error
    return _inside(str(get_plotlyjs()))


def _inside(script: str) -> str:
    """Make a script safe inside HTML: nothing in it closes the element, and browsers hash the same bytes as we do."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


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


def packed(content: bytes) -> str:
    """Return bytes as base64 of a zlib stream."""
    return base64.b64encode(zlib.compress(content, 9)).decode()


def pack_texts(texts: Iterable[str]) -> str:
    """Return texts as base64 of a zlib stream, one per line. Line breaks in a text become spaces."""
    lines = (text.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace") for text in texts)
    return packed(b"\n".join(lines))


def class_codes(found: Clusters, rows: Array, classes: list[str], kind: str) -> str | None:
    """Return the class of each of the rows, by its number in the list, -1 for others; None if no class is known."""
    known = found.table.classes
    if not classes or known is None:
        return None
    place = {label: i for i, label in enumerate(classes)}
    return base64_array(np.array([-1 if known[i] is None else place.get(known[i], -1) for i in rows]), kind)


def named_colours(names: list[str]) -> list[dict[str, str]]:
    """Return the names, each with a colour."""
    return [{"name": name, "colour": colour} for name, colour in zip(names, distinct_colours(len(names)), strict=True)]


def heat(counts: Array, shares: FloatArray) -> dict[str, Any]:
    """Return a table of counts, each with its share and its shade. The largest share has the darkest shade."""
    shades = shares / (shares.max() if shares.size and shares.max() > 0 else 1.0)
    looks = np.where(counts == 0, "none", np.where(shades > 0.55, "dark", ""))
    fields = {"count": counts, "share": shares, "shade": shades.round(3), "look": looks}
    return {"cells": [[{name: array[i, j].item() for name, array in fields.items()} for j in range(counts.shape[1])]
                      for i in range(counts.shape[0])]}  # fmt: skip


def selection_parts(selection: Selection | None) -> dict[str, Any] | None:
    """What ``selection.html`` shows: a chart of each criterion, the one that chose first, and a table."""
    if selection is None:
        return None
    known = [name for name, column in COLUMNS.items() if np.isfinite(getattr(selection, column)).any()]
    drawn = sorted(known, key=lambda name: name != selection.criterion)
    marks = {selection.n_clusters: "chosen"} | dict.fromkeys(selection.runners_up, "runner-up")
    rows = [
        {
            "number": k,
            "mark": marks.get(k, ""),
            "values": [_written(float(getattr(selection, COLUMNS[name])[i])) for name in known],
        }
        for i, k in enumerate(selection.candidates.tolist())
    ]
    charts = [_chart(selection, name, marks) for name in drawn if name != "bic" or name == selection.criterion]
    found = {"charts": charts, "names": known, "rows": rows, "fewest": selection.fewest}
    return found | {"left": LEFT, "width": WIDTH, "height": HEIGHT}


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
