"""Smoothing of images: absolute, as in the paper, or relative to the mean share of a band? No labels are looked at.

``python -m benchmarks.smoothing`` fits each scene, with all bands and with every fourth and every twelfth, with several
smoothings, and prints the exact divergence relative to the lowest, the share of pixels that smoothing puts elsewhere,
and the agreement (adjusted mutual information) of fits of two halves of the pixels on all of them.
"""

import warnings

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

from onmf import ONMF
from onmf.datasets import load_hyperspectral, make_scene
from onmf.door.run import moved_without_smoothing

CLUSTERS = {"samson": 3, "jasper": 4, "moffett": 3, "made": 16}
SMOOTHINGS = (1e-3, 1e-4, 1e-5, 1e-6)
SHARES = (0.2, 0.05, 0.01)
HALVINGS = 3


def main() -> None:
    """Print a line for each scene, number of bands and smoothing."""
    print("scene    bands  smoothing  of a mean share  divergence   moved  halves")
    for name, k in CLUSTERS.items():
        X = make_scene(145, 145, 200, k, random_state=0).X if name == "made" else load_hyperspectral(name).X
        for step in (1, 4, 12):
            rows = np.ascontiguousarray(np.maximum(X[:, ::step], 0))
            rows = rows[rows.sum(axis=1) > 0]
            p = rows.shape[1]
            tried = sorted({*SMOOTHINGS, *(share / p for share in SHARES)}, reverse=True)
            found = {epsilon: measure(rows, k, epsilon) for epsilon in tried}
            for epsilon, (divergence, moved, agreement) in found.items():
                scores = f"{divergence / min(found.values())[0]:10.3f}  {moved:6.1%}  {agreement:.3f}"
                print(f"{name:8} {p:5}  {epsilon:9.2g}  {epsilon * p:15.1%}  {scores}")


def measure(rows: np.ndarray, k: int, smoothing: float) -> tuple[float, float, float]:
    """Divergence, share of pixels that smoothing moves, and agreement of halves, of fits with a smoothing."""
    warnings.simplefilter("ignore")
    model, agreements = ONMF(k, smoothing=smoothing).fit(rows), []
    for seed in range(HALVINGS):
        half = np.random.default_rng(seed).permutation(len(rows)) % 2 == 0
        fits = [ONMF(k, smoothing=smoothing).fit(rows[own]) for own in (half, ~half)]
        agreements.append(adjusted_mutual_info_score(*(fit.predict(rows) for fit in fits)))
    return float(model.reconstruction_err_), moved_without_smoothing(model, rows) or 0.0, float(np.mean(agreements))


if __name__ == "__main__":
    main()
