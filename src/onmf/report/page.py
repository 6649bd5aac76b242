"""The shell of every report: one HTML file that needs nothing else, on or off the network.

A page is a template that extends ``base.html``, a script of its own, and data. All three are made safe here: templates
escape whatever they print, data are embedded so that no text can end the script that holds them, and a content security
policy names the very scripts of the page, so that the browser runs no other and asks nobody for anything.
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
"""Characters that must not stand in a script, as JSON writes them: without ``<`` nothing can end or open an element."""


def render_page(template: str, *, title: str, script: str, data: Any, **context: Any) -> str:
    """A page as HTML, with everything it needs inside.

    Parameters
    ----------
    template : str
        A template of ``onmf/report/templates`` that extends ``base.html``.
    title : str
        Title of the page.
    script : str
        The page's own script, a file beside the template. It runs after Plotly and ``base.js``, which gives it
        ``onmf.data`` and draws ``onmf.data.figures`` wherever an element says ``data-figure="NAME"``.
    data : object
        What the scripts work on: whatever JSON can say, and NumPy's numbers and arrays.
    **context
        What the template prints; it is escaped.

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
    scripts = [plotly_script(), _inside(_template("base.js")), _inside(_template(script))]
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
    """Data as JSON that may stand inside a script element, whatever texts it holds."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    return re.sub("[<\u2028\u2029]", lambda match: ESCAPES[match.group()], _encodable(text))


@cache
def plotly_script() -> str:
    """Plotly's own script, as the installed package has it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("Reports need jinja2 and plotly: pip install 'onmf[report]'.") from error
    return _inside(str(get_plotlyjs()))


def _inside(script: str) -> str:
    """A script that may stand in HTML: nothing in it ends the element, and its bytes are those that are hashed."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _template(name: str) -> str:
    return (files("onmf.report") / "templates" / name).read_text(encoding="utf-8")


def _encodable(text: str) -> str:
    """The text without halves of characters, which UTF-8 cannot write."""
    return text.encode("utf-8", errors="replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be embedded in a page")
