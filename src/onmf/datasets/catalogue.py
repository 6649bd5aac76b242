"""The data sets, the paper's and those of cells: their names, and the public files that hold them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

DOCUMENTS = (
    "NG20",
    "ng3sim",
    "classic",
    "ohscal",
    "k1b",
    "hitech",
    "reviews",
    "sports",
    "la1",
    "la12",
    "la2",
    "tr11",
    "tr23",
    "tr41",
    "tr45",
)
"""The document sets, in the order of the paper's first table."""

IMAGES = ("moffett", "samson", "jasper")
"""The hyperspectral scenes, in the order of the paper's second table."""

CELLS = (
    "zheng_facs10",
    "hash_4lines",
    "sc_celseq2",
    "sc_dropseq",
    "worm_neuron",
    "worm_embryo",
    "marques_oligo",
    "pbmc4k_top2000",
    "hmp_site18",
)
"""The sets of labelled cells, and one of a microbiome. The paper has none of them."""

HOST = "https://raw.githubusercontent.com"
"""Server of the files of public repositories; ``$ONMF_MIRROR`` replaces it."""


@dataclass(frozen=True)
class RemoteFile:
    """A public file at a commit of its repository, with its hashes and its length, as far as they are known."""

    repository: str
    commit: str
    path: str
    git_blob_sha1: str | None = None
    sha256: str | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        """File name, without folders."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def url(self) -> str:
        """Address to download it from."""
        owner = self.repository.removeprefix("github.com/")
        return f"{os.environ.get('ONMF_MIRROR', HOST).rstrip('/')}/{owner}/{self.commit}/{quote(self.path)}"


@dataclass(frozen=True)
class DatasetInfo:
    """A data set.

    Attributes
    ----------
    name : str
        Its name; for a set of the paper, its name there.
    kind : {"documents", "hyperspectral", "cells"}
        Kind of data.
    path : Path
        Path on this machine, once it is downloaded.
    """

    name: str
    kind: str
    path: Path

    @property
    def available(self) -> bool:
        """Whether it is on this machine."""
        return self.path.exists()

    @property
    def in_paper(self) -> bool:
        """Whether the paper uses it."""
        return self.kind != "cells"


def data_home() -> Path:
    """Return the folder of the data sets: ``$ONMF_DATA`` if set, else a folder in the user's cache."""
    if home := os.environ.get("ONMF_DATA"):
        return Path(home).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onmf"


def list_datasets() -> list[DatasetInfo]:
    """List the data sets, and whether each is on this machine: the paper's first, then those of cells.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> from onmf.datasets import list_datasets
    >>> [info.name for info in list_datasets()][:3]
    ['NG20', 'ng3sim', 'classic']
    """
    return [info_of(name) for name in members("all")]


def members(name: str) -> tuple[str, ...]:
    """Return the names of a group of data sets: a kind, ``"paper"`` or ``"all"``. Another name stands for itself."""
    groups = {"documents": DOCUMENTS, "hyperspectral": IMAGES, "cells": CELLS}
    groups |= {"paper": (*DOCUMENTS, *IMAGES), "all": (*DOCUMENTS, *IMAGES, *CELLS)}
    return groups.get(name, (name,))


def info_of(name: str) -> DatasetInfo:
    """Return the data set of this name; upper and lower case are the same."""
    for kind in ("documents", "hyperspectral", "cells"):
        for known in members(kind):
            if known.lower() == str(name).lower():
                return DatasetInfo(known, kind, data_home() / kind / f"{known}.npz")
    raise ValueError(
        f"{name!r} is not a data set: choose one of {', '.join(members('all'))}; or fetch 'documents', "
        "'hyperspectral', 'cells', 'paper' or 'all'."
    )


def remote_files(info: DatasetInfo) -> list[RemoteFile]:
    """Return the public files that a data set is made from; none if it is a part of another set."""
    return [RemoteFile(**entry) for entry in facts_of(info).get("files", [])]


def facts_of(info: DatasetInfo) -> dict[str, Any]:
    """Return what is recorded of a data set: its public files and, for cells, the numbers that they must give."""
    sources = json.loads(files("onmf.datasets").joinpath("sources.json").read_text(encoding="utf-8"))
    return sources[info.kind][info.name]
