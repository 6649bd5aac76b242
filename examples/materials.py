"""Materials of two hyperspectral images, Samson and Jasper Ridge: download them with ``onmf fetch samson jasper``.

Run as ``python examples/materials.py docs/gallery``; the folder receives a figure of each scene.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from onmf.datasets import load_hyperspectral
from onmf.image import Cube, Truth, cluster
from onmf.image.figures import composite


def cube_of(scene):
    """Convert a scene to a cube, and return it with its truth."""
    X = scene.X.reshape(scene.height, scene.width, -1, order=scene.order)
    labels = scene.to_image(scene.abundances.argmax(axis=0))
    cube = Cube(X, wavelengths=scene.wavelengths, wavelength_unit="nm", name=scene.name, source=scene.source)
    return cube, Truth(spectra=scene.endmembers, labels=labels, names=[str(name) for name in scene.names])


def draw(found, path):
    """Draw the image, the map and the spectra side by side."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 3.6), layout="constrained", width_ratios=(1, 1.5, 1.6)
    )
    colours = composite(found.cube, found.labels >= 0)
    left.imshow(colours.picture, interpolation="nearest")
    left.set_title(colours.title, fontsize=9, loc="left")
    left.tick_params(labelsize=8)
    found.plot_map(middle)
    found.plot_spectra(right)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(folder):
    """Cluster each scene, print the scores, and draw the result."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("samson", "jasper"):
        cube, truth = cube_of(load_hyperspectral(name))
        for loss in ("kullback-leibler", "frobenius"):
            found = cluster(cube, len(truth.names), truth=truth, beta_loss=loss)
            scores, names = found.comparison, np.sort(found.names)
            print(f"{name:8} {loss:17} MRSA {scores.mrsa:5.2f}, accuracy {scores.accuracy:.1%}, {names}")
            if loss == "kullback-leibler":
                draw(found, folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
