"""File cases: each reads a damaged file and uses its content, unless a clear error refuses the file."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np
from typer.main import get_command

from .board import accept
from .core import seed_numpy
from .mutate import tamper
from .report import Failure
from .reproduce import snippet
from .runner import in_child
from .specimens import Specimen, make_specimens
from .stage import Stage, ignored_errors, quiet

APART, SHARE = (".mat", ".tif", ".h5", ".biom", ".loom", "matrix.mtx", "-apart"), 0.2
"""Files that a separate process reads take a hundred times as long, so they are chosen less often, by this factor."""


class Reader(NamedTuple):
    """The statement that reads a file at ``PATH``, and the statements that use its content."""

    read: str
    use: tuple[str, ...] = ()


HEADER = """
import numpy as np
import onmf.cells
import onmf.image
import onmf.table
import onmf.text
from onmf import ONMF
from onmf.cli import app
from onmf.datasets import open_h5ad, open_shards, open_zarr, read_documents
"""

FIT = "if small(X.shape): ONMF(2, max_iter=5).fit(X)"
SOME = "if small(X.shape): X[:9].compute()"
BRIEFLY = "if small(X.shape): ONMF(2, max_iter=2, init='random').fit(X)"
TEXTS = "['Return the eigenvalues of a matrix.', 'a' * 99, '']"

LIBRARIES = ("anndata", "h5py", "pyarrow.parquet", "rich.table", "spectral", "zarr")
"""Packages that the readers import when needed; imported once, not by every child."""

READERS = {
    "model": Reader(
        "model = onmf.load(PATH)",
        (
            "model.predict(np.ones((2, model.n_features_in_)))",
            "repr(model)",
            "command(['show', PATH], standalone_mode=False)",
        ),
    ),
    "documents": Reader(
        "model = onmf.load(PATH)",
        (f"onmf.text.predict(model, {TEXTS})", "command(['show', PATH, '--json'], standalone_mode=False)"),
    ),
    "counts": Reader("X = read_documents(PATH).X", (FIT,)),
    "texts": Reader("texts = list(onmf.text.read(PATH))", ("if texts: onmf.text.count(texts)",)),
    "image": Reader(
        "cube = onmf.image.read(PATH)",
        (
            "if small(cube.shape): cube.read(0, cube.shape[0])",
            "if small(cube.shape): onmf.image.cluster(cube, 2, max_iter=5, negatives='clip')",
        ),
    ),
    "truth": Reader("truth = onmf.image.read_truth(PATH, (4, 5, 6))"),
    "cells": Reader(
        "cells = onmf.cells.read(PATH)",
        (
            "if small(cells.X.shape): onmf.cells.check_counts(cells)",
            "if small(cells.X.shape): ONMF(2, max_iter=5).fit(cells.X)",
        ),
    ),
    "classes": Reader("cells = onmf.cells.read(PATH, labels='kind')"),
    "table": Reader("X = onmf.table.read(PATH, labels='kind').X", (FIT,)),
    "long": Reader("X = onmf.table.read(PATH, row='row', column='feature', count='n').X", (FIT,)),
    "shards": Reader("X = open_shards(PATH)", ("if small(X.shape): list(X())", FIT)),
    "h5ad": Reader("X = open_h5ad(PATH)", (SOME, BRIEFLY)),
    "zarr": Reader("X = open_zarr(PATH, 'X')", (SOME, BRIEFLY)),
}
"""Reader of each kind of file."""


def small(shape: tuple[int, ...]) -> bool:
    """Whether a matrix is small enough to fit; a damaged file may claim a huge number of empty rows."""
    return all(length <= 10**5 for length in shape) and np.prod(shape, dtype=float) <= 10**7


class Case(NamedTuple):
    """A specimen and its files, of which one or two are damaged."""

    specimen: Specimen
    files: dict[str, bytes]


class Files:
    """Damaged files."""

    name = "files"
    seconds = 20.0
    memory = 2 << 30

    def __init__(self) -> None:
        self.specimens: list[Specimen] = []
        self.names: dict[str, Any] = {"small": small}

    def warm_up(self) -> None:
        """Make the specimens, and read each of them once: undamaged, they must all be readable."""
        exec(HEADER, self.names)
        self.names["command"] = get_command(self.names["app"])  # made once, because it takes longer than most cases
        for library in LIBRARIES:
            import_module(library)
        dask.config.set(scheduler="synchronous")  # threads do not survive a fork
        self.specimens = in_child(make_specimens)
        in_child(self.check_specimens)

    def check_specimens(self) -> None:
        """Raise an error if an undamaged specimen cannot be read."""
        for specimen in self.specimens:
            if failures := self.run(Case(specimen, specimen.files), strict=True):
                raise RuntimeError(f"{specimen.name} cannot be read: {failures[0]}")

    def make(self, seed: int, number: int) -> Case:
        """Make the case with this number."""
        rng = random.Random(f"files {seed} {number}")
        shares = [SHARE if specimen.name.endswith(APART) else 1.0 for specimen in self.specimens]
        (specimen,) = rng.choices(self.specimens, shares)
        files = dict(specimen.files)
        for _ in range(rng.choice((1, 1, 1, 2))):
            chosen = rng.choice(sorted(files))
            if len(files) > 2 and rng.random() < 0.05:
                del files[chosen]
            else:
                files[chosen] = tamper(rng, chosen, files[chosen])
        return Case(specimen, files)

    def run(self, case: Case, strict: bool = False) -> list[Failure]:
        """Write the files of a case, read them, and return the failures. If ``strict``, any error is a failure."""
        seed_numpy(0)
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        stage = Stage(self.names)
        stage.names["PATH"] = str(folder / case.specimen.name)
        reader = READERS[case.specimen.reader]
        try:
            write_files(case.files, folder)
            with quiet() as ignored:
                succeeded = stage.do(reader.read)
                if not succeeded and not stage.failures and not names_file(stage.error, case):
                    stage.add([Failure("error", f"{stage.error} (which file?)", f"no name, {case.specimen.name}")])
                succeeded = succeeded and all(stage.do(line) for line in reader.use)
            if succeeded:
                accept()
            stage.add(ignored_errors(ignored))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if strict and not succeeded and not stage.failures:
            stage.add([Failure("error", str(stage.error))])
        return [failure._replace(where=f"{case.specimen.reader}: {failure.where}") for failure in stage.failures]

    def smaller(self, case: Case) -> Iterator[Case]:
        """Yield cases in which one of the damaged files is intact."""
        for name, data in case.files.items():
            if data != case.specimen.files.get(name):
                yield case._replace(files={**case.files, name: case.specimen.files[name]})

    def reproducer(self, case: Case, failure: Failure, folder: Path) -> str:
        """Save the files, and return the lines that read them."""
        shutil.rmtree(folder, ignore_errors=True)
        write_files(case.files, folder)
        reader = READERS[case.specimen.reader]
        lines = failure.lines or "\n".join([reader.read, *reader.use])
        lines = lines.replace("PATH", repr(str(folder / case.specimen.name))).replace("command(", "app(")
        return snippet(re.sub(r"if small\(.*?\): ", "", lines), HEADER)


def names_file(error: Exception | None, case: Case) -> bool:
    """Whether an error message names one of the files."""
    return any(Path(name).name in str(error) for name in (case.specimen.name, *case.specimen.files))


def write_files(files: dict[str, bytes], folder: Path) -> None:
    """Write files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
