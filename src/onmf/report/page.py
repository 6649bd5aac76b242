"""The frame of every report: one self-contained HTML file, which works online and offline.

A page is a template that extends ``base.html``, its own script, and data. All three are made safe here. Templates
escape everything they print. Data are embedded so that no text can close the script element that contains them. A
content security policy lists the hashes of the page's scripts, so that the browser runs no other script and sends no
request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from onmf._version import __version__

ESCAPES = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""Characters that must not occur in a script, and their escapes in JSON. Without ``<`` no element can open or close."""


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


def embed(data: Any) -> str:
    """Return data as JSON that is safe inside a script element, whatever texts it contains."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    return re.sub("[<\u2028\u2029]", lambda match: ESCAPES[match.group()], _encodable(text))


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


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", errors="replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be embedded in a page")
