"""Formulas as pictures within the page: every browser draws them alike, without scripts, fonts or the network."""

from __future__ import annotations

from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

SIZE = 16
"""Size of the font in a formula."""

EM = 15
"""Size of the text around it, in the same unit. The letters of a formula are narrow, so they are a little larger."""

ziamath.config.svg2 = False  # outlines instead of symbols: their names would be the same in all formulas of a page
ziamath.config.precision = 2


def draw(latex: str, *, inline: bool) -> str:
    """Return a formula as SVG in the colour of the text, with its LaTeX for those who cannot see it."""
    formula = ziamath.Latex(latex, size=SIZE, inline=inline, color="currentcolor")
    svg = formula.svgxml()
    svg.set("class", "formula")
    svg.set("role", "img")
    svg.set("aria-label", " ".join(latex.split()))
    svg.set("style", f"vertical-align: {formula.getyofst() / EM:.3f}em")
    for side in ("width", "height"):
        svg.set(side, f"{float(svg.get(side)) / EM:.3f}em")
    return ElementTree.tostring(svg, encoding="unicode")


def inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(draw(node.astext(), inline=True))
    raise nodes.SkipNode


def block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="formula">{draw(node.astext(), inline=False)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer."""
    app.add_html_math_renderer("formulas", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
