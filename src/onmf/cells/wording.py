"""How messages name a parameter: readers of cells are called from Python and from the command line."""

from __future__ import annotations

import shlex


def setting(parameter: str, value: str) -> str:
    """Return how a parameter is set, in Python and on the command line.

    Parameters
    ----------
    parameter, value : str
        Its name, which is also that of the option, and its value.

    Returns
    -------
    str

    Examples
    --------
    >>> from onmf.cells.wording import setting
    >>> setting("layer", "counts")
    "layer='counts' (--layer counts on the command line)"
    """
    return f"{parameter}={value!r} (--{parameter} {shlex.quote(value)} on the command line)"
