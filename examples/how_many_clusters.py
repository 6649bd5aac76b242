"""How many clusters do the 20 newsgroups and the Jasper Ridge image have? Prints and draws the criteria.

Run as ``python examples/how_many_clusters.py FOLDER``; the folder receives the figures. Needs the paper's data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from onmf import select_n_clusters
from onmf.datasets import load_documents, load_hyperspectral
from onmf.image import cluster_image


def main(folder: Path) -> None:
    """Choose the number of clusters of each data set, print it and draw the criteria."""
    folder.mkdir(parents=True, exist_ok=True)
    scene = load_hyperspectral("jasper")
    cube = scene.X.reshape(scene.height, scene.width, -1, order=scene.order)
    selections = {
        "jasper": cluster_image(cube, "auto").selection,
        "ng20": select_n_clusters(load_documents("NG20").X, random_state=0, verbose=1),
    }
    for name, selection in selections.items():
        assert selection is not None
        print(f"{name}\n{selection}\n")
        selection.plot()[0].figure.savefig(folder / f"select-{name}.png", dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
