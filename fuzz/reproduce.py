"""Lines of Python that show a failure, short enough to paste."""

from __future__ import annotations

from typing import Any

from .runner import Failure

IMPORTS = {
    "math.": "import math",
    "inf": "from math import inf, nan",
    "nan": "from math import inf, nan",
    "dask.": "import dask",
    "da.": "import dask.array as da",
    "np.": "import numpy as np",
    "pd.": "import pandas as pd",
    "pl.": "import polars as pl",
    "sp.": "import scipy.sparse as sp",
    "ONMF": "from onmf import ONMF",
    "BlocksEngine": "from onmf.engine import BlocksEngine",
    "CpuEngine": "from onmf.engine.cpu import CpuEngine",
    "ReferenceEngine": "from onmf.engine.reference import ReferenceEngine",
}


def snippet(case: Any, failure: Failure) -> str:
    """The lines of a fit."""
    lines = case.setup()
    lines.append(f"model = {case.model()}.fit(X" + (", sample_weight=w)" if case.weights is not None else ")"))
    if case.other is not None:
        lines += [f"# {case.act}:", *case.other.lines()]
    text = "\n".join(lines)
    imports = dict.fromkeys(line for name, line in IMPORTS.items() if name in text)
    return "\n".join([*imports, *lines, f"# {case.act}"])
