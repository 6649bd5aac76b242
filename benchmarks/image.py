"""Time and peak memory of ``onmf image`` on a cube of 4,000 × 4,000 × 100 float32 values on disk (6.4 GB).

The cube and the result are written to the folder; they take 8 GB.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import zoom

from onmf.datasets import make_scene

from .measure import seconds

LINES, QUICK_LINES = 4000, 400
BANDS, MATERIALS, COARSE = 100, 4, 20


def write_cube(path: Path, side: int) -> None:
    """Write a scene with photon noise as an ENVI image (BIP), in blocks of lines."""
    scene = make_scene(side // COARSE, side // COARSE, BANDS, MATERIALS, darkness=0.15, random_state=3)
    spectra = scene.endmembers.astype(np.float32)
    labels = np.kron(scene.to_image(scene.abundances.argmax(axis=0)), np.ones((COARSE, COARSE), dtype=np.int8))
    rng = np.random.default_rng(0)
    light = np.exp(0.3 * zoom(rng.standard_normal((side // 200, side // 200)), 200, order=1)).astype(np.float32)
    with path.open("wb") as file:
        for start in range(0, side, 100):
            rows = slice(start, start + 100)
            photons = spectra[labels[rows]] * light[rows, :, None]
            photons += np.sqrt(photons) * rng.standard_normal(photons.shape, dtype=np.float32)
            np.maximum(np.rint(photons, out=photons), 0, out=photons).tofile(file)
    waves = ", ".join(f"{wave:.1f}" for wave in scene.wavelengths)
    Path(f"{path}.hdr").write_text(
        f"ENVI\nsamples = {side}\nlines = {side}\nbands = {BANDS}\nheader offset = 0\nfile type = ENVI Standard\n"
        f"data type = 4\ninterleave = bip\nbyte order = 0\nwavelength units = Nanometers\nwavelength = {{{waves}}}\n"
    )


def run(folder: Path, quick: bool = False) -> None:
    """Make the cube if it does not exist, cluster it, and print time and memory."""
    import resource  # not on Windows

    folder.mkdir(parents=True, exist_ok=True)
    cube = folder / ("small.img" if quick else "large.img")
    if not Path(f"{cube}.hdr").exists():
        write_cube(cube, QUICK_LINES if quick else LINES)
    command = [sys.executable, "-m", "onmf", "image", str(cube), "-k", str(MATERIALS), "--out", str(folder / "out")]
    spent = seconds(lambda: subprocess.run(command, check=True))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"{cube.stat().st_size / 1e9:.1f} GB: {spent:.0f} s, peak memory {peak:.2f} GB")
