"""Results and models as small tables in notebooks. Everything is escaped, and follows the notebook's light or dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

ROWS = 30
"""Clusters that a table shows; the others are counted."""

STYLE = "text-align:left;color:inherit;background:transparent;vertical-align:top"
"""Colours are inherited, so that the table is readable on light and on dark pages."""


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], colours: Sequence[str] = ()) -> str:
    """A table in HTML, for ``_repr_html_``.

    Parameters
    ----------
    title : str
        What the table shows.
    columns : list of str
        Names of the columns.
    rows : iterable of list
        The cells of each row: texts and numbers.
    colours : list of str, optional
        A colour for each row, as ``#rrggbb``, shown in front of it.

    Returns
    -------
    str
    """
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
