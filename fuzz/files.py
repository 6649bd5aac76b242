"""Files that were tampered with: each is read, and what was read is used, or a sentence says why not."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .mutate import tamper
from .oracle import wrong_error, wrong_warnings
from .runner import Failure
from .specimens import Specimen, make_specimens


class Reader(NamedTuple):
    """How a file is read, and what is done with what was read; ``PATH`` stands for its path."""

    read: str
    use: str = ""


HEADER = """
import numpy as np
import onmf
from onmf import ONMF
from onmf.datasets import open_h5ad, open_shards, open_zarr, read_documents
from onmf.image import cluster_image, read_cube, read_truth
from onmf.text import assign_documents, count_words, read_texts
"""

FIT = "small(X.shape) and ONMF(2, max_iter=5).fit(X)"

READERS = {
    "model": Reader(
        "model = onmf.load(PATH)",
        "model.predict(np.ones((2, model.n_features_in_)))\nmodel.top_features(3)\nrepr(model)",
    ),
    "model of documents": Reader(
        "model = onmf.load(PATH)",
        "assign_documents(model, ['Return the eigenvalues of a matrix.', 'a' * 99, ''])\nmodel.top_features(3)",
    ),
    "counts": Reader("X = read_documents(PATH).X", FIT),
    "texts": Reader("texts = list(read_texts(PATH))", "count_words(texts) if texts else None"),
    "image": Reader(
        "cube = read_cube(PATH)",
        "small(cube.shape) and cube.read(0, cube.shape[0])\nsmall(cube.shape) and cluster_image(cube, 2, max_iter=5, negatives='clip')",
    ),
    "truth": Reader("truth = read_truth(PATH, (4, 5, 6))"),
    "shards": Reader("X = open_shards(PATH)", f"[part for part in X()] if small(X.shape) else None\n{FIT}"),
    "h5ad": Reader("X = open_h5ad(PATH)", f"X[:9].compute() if small(X.shape) else None\n{FIT}"),
    "zarr": Reader("X = open_zarr(PATH, 'X')", f"X[:9].compute() if small(X.shape) else None\n{FIT}"),
}


def small(shape: tuple[int, ...]) -> bool:
    """Whether a matrix may be fitted: a file may claim that its rows, which are empty, are many."""
    return all(length <= 10**5 for length in shape) and np.prod(shape, dtype=float) <= 10**7


class Files:
    """Files that were tampered with."""

    name = "files"
    seconds = 20.0
    memory = 1 << 30

    def __init__(self) -> None:
        self.specimens: list[Specimen] = []
        self.names: dict[str, Any] = {}

    def warm_up(self) -> None:
        """Make the files to start from, and read each of them once: whole, they all must be read."""
        self.specimens = make_specimens()
        self.names = {"small": small}
        exec(HEADER, self.names)
        import dask

        dask.config.set(scheduler="synchronous")  # and no threads, so that this process can fork
        for number, specimen in enumerate(self.specimens):
            if failures := self.read(specimen, specimen.files, whole=True):
                raise RuntimeError(f"specimen {number}, {specimen.name}, cannot be read: {failures[0].what}")

    def make(self, seed: int, number: int) -> tuple[Specimen, dict[str, bytes]]:
        """The case of this number: a specimen, and its files, one of them or two damaged."""
        rng = random.Random(f"files {seed} {number}")
        specimen = rng.choice(self.specimens)
        files = dict(specimen.files)
        for _ in range(rng.choice((1, 1, 1, 2))):
            chosen = rng.choice(sorted(files))
            if len(files) > 2 and rng.random() < 0.05:
                del files[chosen]
            else:
                files[chosen] = tamper(rng, chosen, files[chosen])
        return specimen, files

    def run(self, seed: int, number: int) -> list[Failure]:
        """Read a case."""
        np.random.seed(number % 2**32)  # noqa: NPY002: random_state=None draws from there
        return self.read(*self.make(seed, number))

    def read(self, specimen: Specimen, files: dict[str, bytes], whole: bool = False) -> list[Failure]:
        """Write the files, read them, and say what was wrong with that."""
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        reader = READERS[specimen.reader]
        names = {**self.names, "PATH": str(folder / specimen.name)}
        failures: list[Failure] = []
        ignored: list[Any] = []
        hook, sys.unraisablehook = sys.unraisablehook, ignored.append
        try:
            put(files, folder)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for code, opening in ((reader.read, True), (reader.use, False)):
                    try:
                        exec(code, names)
                    except Exception as error:
                        wrong = wrong_error(error)
                        if wrong is None and opening and not names_it(error, specimen, files):
                            wrong = Failure("error", f"{error} (which does not name the file)", f"no name, {specimen.name}")
                        if whole:
                            wrong = wrong or Failure("error", str(error), "whole")
                        failures += [] if wrong is None else [wrong]
                        break
            failures += wrong_warnings(caught)
        finally:
            sys.unraisablehook = hook
            shutil.rmtree(folder, ignore_errors=True)
        failures += [Failure("error", f"ignored: {event.exc_value!r} in {event.object!r}", "ignored") for event in ignored]
        return [failure._replace(where=f"{specimen.reader}: {failure.where}") for failure in failures]

    def reproducer(self, seed: int, number: int, failure: Failure, folder: Path) -> str:
        """Save the file, and say how it is read."""
        specimen, files = self.make(seed, number)
        place = folder / f"{seed}-{number}"
        put(files, place)
        reader = READERS[specimen.reader]
        path = repr(str(place / specimen.name))
        lines = [line.partition(" and ")[2] or line for line in reader.use.splitlines()]
        return "\n".join([*HEADER.split("\n")[1:-1], reader.read.replace("PATH", path), *lines])


def names_it(error: Exception, specimen: Specimen, files: dict[str, bytes]) -> bool:
    """Whether a message says which file it is about."""
    return any(Path(name).name in str(error) for name in (specimen.name, *files))


def put(files: dict[str, bytes], folder: Path) -> None:
    """Write files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
