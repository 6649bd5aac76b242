"""The paper's data sets: their names, and where the public keeps them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
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

HOST = "https://raw.githubusercontent.com"
"""Serves the files of public repositories; ``$ONMF_MIRROR`` takes its place."""


@dataclass(frozen=True)
class RemoteFile:
    """A public file, at a commit of its repository, with the hash that proves it and, where known, its length."""

    repository: str
    commit: str
    path: str
    git_blob_sha1: str
    sha256: str | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def url(self) -> str:
        """Where it is downloaded from."""
        owner = self.repository.removeprefix("github.com/")
        return f"{os.environ.get('ONMF_MIRROR', HOST).rstrip('/')}/{owner}/{self.commit}/{quote(self.path)}"


@dataclass(frozen=True)
class DatasetInfo:
    """A data set of the paper.

    Attributes
    ----------
    name : str
        Its name in the paper.
    kind : {"documents", "hyperspectral"}
        What it holds.
    path : Path
        Where it lies on this machine, once fetched.
    """

    name: str
    kind: str
    path: Path

    @property
    def available(self) -> bool:
        """Whether it lies there now."""
        return self.path.exists()


def data_home() -> Path:
    """The folder of the data sets: ``$ONMF_DATA`` if set, else one in the user's cache."""
    if home := os.environ.get("ONMF_DATA"):
        return Path(home).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "onmf"


def list_datasets() -> list[DatasetInfo]:
    """The paper's data sets, and which of them are on this machine.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> from onmf.datasets import list_datasets
    >>> [info.name for info in list_datasets()][:3]
    ['NG20', 'ng3sim', 'classic']
    """
    return [info_of(name) for name in (*DOCUMENTS, *IMAGES)]


def info_of(name: str) -> DatasetInfo:
    """The data set of that name, in any case."""
    for kind, names in (("documents", DOCUMENTS), ("hyperspectral", IMAGES)):
        for known in names:
            if known.lower() == str(name).lower():
                return DatasetInfo(known, kind, data_home() / kind / f"{known}.npz")
    raise ValueError(
        f"{name!r} is not a data set: choose one of {', '.join((*DOCUMENTS, *IMAGES))}; or fetch 'documents', "
        "'hyperspectral' or 'all'."
    )


def remote_files(info: DatasetInfo) -> list[RemoteFile]:
    """The public files that a data set is made from; none for one that is cut from another."""
    sources = json.loads(files("onmf.datasets").joinpath("sources.json").read_text())
    return [RemoteFile(**entry) for entry in sources[info.kind][info.name].get("files", [])]
