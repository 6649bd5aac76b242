"""How many clusters do the 20 newsgroups and the Jasper Ridge image have? Prints and draws three criteria.

Run as ``python examples/how_many_clusters.py FOLDER``; the folder receives the figures. Needs the paper's data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from onmf import select_n_clusters
from onmf.datasets import load_documents, load_hyperspectral


def main(folder: Path) -> None:
    """Choose the number of clusters of each data set, print it and draw the criteria."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "jasper": (load_hyperspectral("jasper").X, range(2, 11), {"n_init": 5, "refine": None}),
        "ng20": (load_documents("NG20").X, [2, 4, 6, 8, 12, 16, 20, 26, 32, 40], {"n_init": 2}),
    }
    for name, (X, candidates, options) in data.items():
        selection = select_n_clusters(X, candidates, n_splits=2, random_state=0, verbose=1, **options)
        print(f"{name}\n{selection}\n")
        selection.plot()[0].figure.savefig(folder / f"select-{name}.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
