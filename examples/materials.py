"""Materials of hyperspectral images: a generated scene, and Samson and Jasper Ridge where they are at hand.

Run as ``python examples/materials.py FOLDER``; the folder gets a picture of each scene.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from onmf.datasets import list_datasets, load_hyperspectral, make_scene
from onmf.image import Cube, Truth, cluster_image
from onmf.image.figures import composite


def cube_of(scene):
    """A scene as a cube, with its truth."""
    X = scene.X.reshape(scene.height, scene.width, -1, order=scene.order)
    labels = scene.to_image(scene.abundances.argmax(axis=0))
    cube = Cube(X, wavelengths=scene.wavelengths, wavelength_unit="nm", name=scene.name, source=scene.source)
    return cube, Truth(spectra=scene.endmembers, labels=labels, names=[str(name) for name in scene.names])


def picture(found, path):
    """The image, the map and the spectra, side by side."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 3.6), layout="constrained", width_ratios=(1, 1.5, 1.6)
    )
    shown = composite(found.cube, found.labels >= 0)
    left.imshow(shown.picture, interpolation="nearest")
    left.set_title(shown.title, fontsize=9, loc="left")
    left.tick_params(labelsize=8)
    found.plot_map(middle)
    found.plot_spectra(right)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(folder):
    """Cluster each scene, print how it went, and draw it."""
    folder.mkdir(parents=True, exist_ok=True)
    scenes = {"scene": make_scene(80, 100, 120, 4, random_state=3)}
    at_hand = {info.name for info in list_datasets() if info.available}
    for name in ("samson", "jasper"):
        if name in at_hand:
            scenes[name] = load_hyperspectral(name)
        else:
            print(f"{name} is not at hand: fetch it with 'onmf fetch {name}'")
    for name, scene in scenes.items():
        cube, truth = cube_of(scene)
        for loss in ("kullback-leibler", "frobenius"):
            found = cluster_image(cube, len(truth.names), truth=truth, beta_loss=loss)
            result = found.comparison
            print(f"{name:8} {loss:17} MRSA {result.mrsa:5.2f}, accuracy {result.accuracy:.1%}, {np.sort(found.names)}")
            if loss == "kullback-leibler":
                picture(found, folder / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output"))
