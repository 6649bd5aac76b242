"""The public data sets: their catalogue, downloads, and loaders; and a real corpus that needs no download.

A download is verified and converted, and its file is written completely or not at all.
"""

import hashlib
import inspect
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from math import ceil
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, overload
from urllib.parse import quote

import numpy as np
import scipy
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

from onmf.divergence import Array, FloatArray
from onmf.io.files import scratch_folder, write_whole
from onmf.io.rules import require

from .readers import CellSet, Documents, Scene, naming, open_npz, read_documents, read_scene, stored_csr

SOURCES = json.loads(files("onmf.datasets").joinpath("sources.json").read_text(encoding="utf-8"))
"""The public files of each data set, by kind; in the order of the paper's tables."""

DOCUMENTS, IMAGES, CELLS = (tuple(SOURCES[kind]) for kind in ("documents", "hyperspectral", "cells"))

HOST = "https://raw.githubusercontent.com"  # server of the files of public repositories; $ONMF_MIRROR replaces it
RETRIES = 2  # of a download
SECONDS = 30  # that a server may stay silent; also added to the time that the length of a file allows
SLOWEST = 10_000  # lowest average speed of a server, in bytes per second
LARGEST = 100_000_000  # bytes of a file of unknown length: the host of the files takes no larger ones
BLOCK = 1 << 10  # bytes that are received before the limits are checked again

NG3SIM = (16, 17, 18)
"""The classes of NG20 that make up ng3sim: the newsgroups on guns, the Middle East and general politics."""

SAMSON_NANOMETRES = (400.938721, 899.074585)
"""First and last of Samson's 156 equally spaced bands, from the header of its ENVI file."""


class DownloadError(OSError):
    """A data set could not be downloaded; the message says why and what to do."""


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

    @property
    def remedy(self) -> str:
        """How to get it."""
        if self.in_paper:
            return f"download it with onmf.datasets.fetch({self.name!r})"
        return f"run 'python -m benchmarks.cells.fetch {self.name}' in a clone of the repository"


def data_home() -> Path:
    """Return the folder of the data sets: ``$ONMF_DATA`` if set, else a folder in the user's cache."""
    if home := os.environ.get("ONMF_DATA"):
        return Path(home).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onmf"


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
    return [info_of(name) for name in (*DOCUMENTS, *IMAGES, *CELLS)]


def members(name: str) -> tuple[str, ...]:
    """Return the names of a group of data sets: a kind, or ``"paper"``. Another name stands for itself."""
    groups = {"documents": DOCUMENTS, "hyperspectral": IMAGES, "cells": CELLS, "paper": (*DOCUMENTS, *IMAGES)}
    return groups.get(name, (name,))


def info_of(name: str) -> DatasetInfo:
    """Return the data set of this name; upper and lower case are the same."""
    known = {own.lower(): (own, kind) for kind in SOURCES for own in SOURCES[kind]}
    require(
        str(name).lower() in known,
        f"{name!r} is not a data set: choose one of {', '.join((*DOCUMENTS, *IMAGES, *CELLS))}; or fetch 'documents', "
        "'hyperspectral' or 'paper'.",
    )
    own, kind = known[str(name).lower()]
    return DatasetInfo(own, kind, data_home() / kind / f"{own}.npz")


def remote_files(info: DatasetInfo) -> list[RemoteFile]:
    """Return the public files that a data set of the paper is made from; none if it is a part of another set."""
    return [RemoteFile(**entry) for entry in SOURCES[info.kind][info.name]]


def fetch(name: str = "paper", *, progress: bool | None = None) -> list[Path]:
    """Download the paper's data sets that are not on this machine yet.

    If one set fails, the others are still downloaded; a :class:`DownloadError` then names those that failed.

    Files come from public repositories and are verified by their hash. They are stored in ``$ONMF_DATA`` if set, else
    in the user's cache. This needs pooch: ``pip install 'onmf[data]'``.

    Parameters
    ----------
    name : str, default="paper"
        A data set of the paper (see :func:`list_datasets`) or a group: ``"documents"``, ``"hyperspectral"``, or both
        of them as ``"paper"``.
    progress : bool, optional
        Whether to show progress bars; by default only on a terminal.

    Returns
    -------
    list of Path
        Paths of the data sets.
    """
    infos = [info_of(member) for member in members(str(name))]
    failed = []
    for info in infos:
        require(info.in_paper, f"{info.name} is not a set of the paper: {info.remedy}.")
        try:
            if info.name == "ng3sim" and not info.available:
                cut = cut_ng3sim(read_documents(fetch("NG20", progress=progress)[0]))
                save_counts(info.path, cut.X, y=cut.y)
            elif not info.available:
                obtain(info, remote_files(info), _convert, progress)
        except DownloadError as error:
            failed.append(str(error))
    if failed:
        raise DownloadError("\n".join(failed))
    return [info.path for info in infos]


def obtain(
    info: DatasetInfo,
    files: list[RemoteFile],
    convert: Callable[[DatasetInfo, list[Path]], None],
    progress: bool | None = None,
) -> None:
    """Download public files, and have them converted to the file of a data set."""
    show = sys.stderr.isatty() if progress is None else progress
    try:
        with scratch_folder(info.path) as folder:
            convert(info, [_download(file, folder, info, show) for file in files])
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{info.name} could not be written to {info.path}: {error}. "
            "Free some space, or set ONMF_DATA to a writable folder."
        ) from error


def _convert(info: DatasetInfo, originals: list[Path]) -> None:
    """Store the downloaded files of a set of the paper as npz."""
    if info.kind == "documents":
        documents = read_documents(originals[0])
        return save_counts(info.path, documents.X, y=documents.y)
    scene = vars(read_scene(*originals, name=info.name))
    arrays = {key: value for key, value in scene.items() if key != "name" and value is not None}
    write_whole(info.path, lambda file: np.savez_compressed(file, scale_num=1.0, scale_den=1.0, **arrays))


def by_hand(info: DatasetInfo) -> str:
    """How to add a data set that cannot be downloaded."""
    return f"put {info.name}.npz into a folder {info.kind}/ and set ONMF_DATA to the folder above it."


def _download(file: RemoteFile, folder: Path, info: DatasetInfo, show: bool) -> Path:
    """Download one file into ``folder`` and verify it."""
    try:
        import pooch
        import requests
    except ImportError as error:
        raise ImportError(
            f"Downloading {info.name} needs pooch: pip install 'onmf[data]'. Or set ONMF_DATA to a folder that has the "
            "data set."
        ) from error
    pooch.get_logger().setLevel(logging.WARNING)
    known = {"registry": {file.name: file.sha256 and f"sha256:{file.sha256}"}, "urls": {file.name: file.url}}
    source = pooch.create(path=folder, base_url="", retry_if_failed=RETRIES, **known)
    try:
        return Path(source.fetch(file.name, downloader=lambda url, target, _: _receive_in_time(file, target, show)))
    except (DownloadError, requests.RequestException, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", "with an error")
        reasons: dict[Any, str] = {
            DownloadError: str(error),
            (requests.exceptions.InvalidSchema, requests.TooManyRedirects): (
                f"{file.url} redirects to an address that is not followed, {str(error)[:200]!r}."
            ),
            requests.HTTPError: f"the server answered {status} for {file.url}.",
            requests.RequestException: (
                f"{file.url} could not be reached ({type(error).__name__}). Is this machine online?"
            ),
            ValueError: f"the file from {file.url} is not the expected one (its hash differs), and was deleted.",
        }
        reason = next(reason for kinds, reason in reasons.items() if isinstance(error, kinds))
        raise DownloadError(f"{info.name}: {reason} Try again later, or {by_hand(info)}") from error


def _receive_in_time(file: RemoteFile, target: str, show: bool) -> None:
    """Receive a file in a thread of its own, and abandon that if it is late: sockets have no limit for all reads."""
    seconds = SECONDS + (file.bytes or LARGEST) / SLOWEST
    stop, raised = Event(), list[BaseException]()

    def run() -> None:
        try:
            _receive(file, target, show, stop)
        except BaseException as error:
            raised.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        stop.set()
    if thread.is_alive():
        raise DownloadError(f"{file.url} did not arrive within {seconds:.0f} seconds.")
    if raised:
        raise raised[0]


def _receive(file: RemoteFile, target: str, show: bool, stop: Event) -> None:
    """Write the response of a server into a file while it arrives; refuse one that is too long, or has another hash."""
    import requests

    limit, received = file.bytes or LARGEST, 0
    too_long = DownloadError(f"{file.url} sends more than the expected {limit} bytes; the download was stopped.")
    plain = {"Accept-Encoding": "identity"}
    with requests.get(file.url, stream=True, timeout=SECONDS, headers=plain) as response, open(target, "wb") as sink:
        response.raise_for_status()
        response.raw.headers.pop("Content-Encoding", None)  # the bytes are the file, whatever the header says
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) > limit:
            raise too_long
        blocks: Iterable[bytes] = response.iter_content(BLOCK)
        for block in _with_bar(blocks, file) if show else blocks:
            received += sink.write(block)
            if received > limit:
                raise too_long
            if stop.is_set():
                return
    content = Path(target).read_bytes()
    digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)  # as git computes it
    if file.git_blob_sha1 not in (None, digest.hexdigest()):
        raise ValueError("its git hash differs")  # pooch tries again


def _with_bar(blocks: Iterable[bytes], file: RemoteFile) -> Iterable[bytes]:
    """Show a progress bar, if rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return blocks
    return track(blocks, file.name, ceil(file.bytes / BLOCK) if file.bytes else None, console=Console(stderr=True))


def cut_ng3sim(ng20: Documents) -> Documents:
    """Select three similar newsgroups of NG20, and the words that occur in at least three of their messages."""
    assert ng20.y is not None
    rows = np.flatnonzero(np.isin(ng20.y, NG3SIM))
    X = ng20.X[rows]
    X = X[:, np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]) >= 3)]
    return Documents(X=X, y=ng20.y[rows] - min(NG3SIM), name="ng3sim", source=f"cut from {ng20.source}")


def save_counts(path: Path, X: csr_array, **others: Array | None) -> None:
    """Write counts, with indices in the smallest types that hold them, and other arrays as npz; ``y`` are classes."""
    arrays = {"data": X.data, "indices": X.indices.astype(np.min_scalar_type(max(X.shape[1] - 1, 0)))}
    arrays |= {"indptr": X.indptr.astype(np.min_scalar_type(X.nnz)), "shape": np.array(X.shape)}
    arrays |= {key: value for key, value in others.items() if value is not None}
    if "y" in arrays:
        arrays["y"] = arrays["y"].astype(np.uint8)
    write_whole(path, lambda file: np.savez_compressed(file, **arrays))


@overload
def load_documents(name: str, *, return_X_y: Literal[False] = False, download_if_missing: bool = True) -> Documents: ...
@overload
def load_documents(
    name: str, *, return_X_y: Literal[True], download_if_missing: bool = True
) -> tuple[csr_array, Array]: ...
def load_documents(
    name: str, *, return_X_y: bool = False, download_if_missing: bool = True
) -> Documents | tuple[csr_array, Array]:
    """Load one of the paper's 15 document collections.

    Parameters
    ----------
    name : str
        NG20, ng3sim, classic, ohscal, k1b, hitech, reviews, sports, la1, la12, la2, tr11, tr23, tr41 or tr45.
    return_X_y : bool, default=False
        Whether to return ``(X, y)`` instead, as scikit-learn's loaders do.
    download_if_missing : bool, default=True
        Whether to download the data set if it is not on this machine.

    Returns
    -------
    Documents, or tuple (X, y)
    """
    info = _find(name, "documents", download_if_missing)
    with _intact():
        documents = read_documents(info.path)
        require(documents.y is not None, f"{info.path} has no classes.")
    if return_X_y:
        return documents.X, documents.y  # type: ignore[return-value]
    return Documents(X=documents.X, y=documents.y, name=info.name, source=documents.source)


def load_hyperspectral(name: str, *, download_if_missing: bool = True) -> Scene:
    """Load one of the paper's three hyperspectral scenes.

    The ground truth of Moffett, if the file has one, was transferred from another release of the same scene. Its
    spectra can be compared, but not with the paper's MRSA.

    Parameters
    ----------
    name : str
        samson, jasper or moffett.
    download_if_missing : bool, default=True
        Whether to download the data set if it is not on this machine.

    Returns
    -------
    Scene
    """
    info = _find(name, "hyperspectral", download_if_missing)
    with _intact(), naming(info.path, "npz"), open_npz(info.path) as file:
        X: FloatArray = np.asarray(file["X"] * file["scale_num"] / file["scale_den"], dtype=np.float64)
        truth: dict[str, Any] = {key: file[key] for key in ("endmembers", "abundances", "names") if key in file}
        if "abundances_partial" in file:
            truth["abundances"] = file["abundances_partial"]
        if info.name == "samson":
            truth["wavelengths"] = np.linspace(*SAMSON_NANOMETRES, X.shape[1])
        height, width, order = int(file["height"]), int(file["width"]), str(file["order"])
        wrong = X.ndim != 2 or min(height, width) < 1 or height * width != len(X) or order not in ("C", "F")
        require(not wrong, f"it is not an image of {height} × {width} pixels in order C or F.")
        return Scene(X, height, width, order, info.name, str(file["source"]), **truth)  # type: ignore[arg-type]


@overload
def load_cells(name: str, *, return_X_y: Literal[False] = False) -> CellSet: ...
@overload
def load_cells(name: str, *, return_X_y: Literal[True]) -> tuple[csr_array, Array]: ...
def load_cells(name: str, *, return_X_y: bool = False) -> CellSet | tuple[csr_array, Array]:
    """Load one of nine sets of counts whose classes are known: eight of cells, and one of a microbiome.

    The guide on cells describes them. If a set is not on this machine, the error says how to get it.

    Parameters
    ----------
    name : str
        zheng_facs10, hash_4lines, sc_celseq2, sc_dropseq, worm_neuron, worm_embryo, marques_oligo, pbmc4k_top2000 or
        hmp_site18.
    return_X_y : bool, default=False
        Whether to return ``(X, y)`` instead, as scikit-learn's loaders do.

    Returns
    -------
    CellSet, or tuple (X, y)

    Notes
    -----
    The sets were made from public repositories of these studies: Zheng et al. 2017 (zheng_facs10), Stoeckius et al.
    2018 (hash_4lines), Tian et al. 2019 (sc_celseq2 and sc_dropseq), Cao et al. 2017 (worm_neuron), Packer et al. 2019
    (worm_embryo), Marques et al. 2016 (marques_oligo), 10x Genomics (pbmc4k_top2000), and the Human Microbiome Project
    Consortium 2012 (hmp_site18). Cells without a class, and genes without a count, were removed; sc_celseq2 still has
    131 such genes.

    Examples
    --------
    >>> from onmf.datasets import load_cells
    >>> load_cells("sc_dropseq")  # doctest: +SKIP
    <CellSet sc_dropseq: 225 × 15127 counts, 1290921 nonzeros, 3 classes>
    """
    info = _find(name, "cells", False)
    with _intact(), naming(info.path, "npz"), open_npz(info.path) as file:
        missing = {"data", "indices", "indptr", "shape", "y", "classes"} - set(file)
        require(not missing, f"it has no {' and no '.join(sorted(missing))}.")
        X = stored_csr(file, info.path.stat().st_size)
        n, p = X.shape
        y, classes, genes = file["y"], file["classes"], file.get("genes")
        no_counts = X.data.dtype.kind not in "iu" or X.data.min(initial=0) < 0
        require(not no_counts, "its data are not counts: expected whole numbers that are not negative.")
        for what, texts, shape in (("classes", classes, classes.shape[:1]), ("genes", genes, (p,))):
            if texts is not None and (texts.shape != shape or texts.dtype.kind != "U"):
                about = f"shape {texts.shape} and type {texts.dtype}"
                raise ValueError(f"its {what} have {about}: expected a list of texts.")
        wrong = y.shape != (n,) or y.dtype.kind not in "iu" or not np.isin(y, np.arange(len(classes))).all()
        require(not wrong, f"its y is not a list of {n} numbers of the {len(classes)} classes.")
    y = y.astype(np.int64)
    return (X, y) if return_X_y else CellSet(X, y, classes, info.name, str(info.path), genes)


@contextmanager
def _intact() -> Iterator[None]:
    """Say in errors of reading what to do about a damaged file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} Delete the file if it is damaged, and download it again.") from error


def _find(name: str, kind: str, download: bool) -> DatasetInfo:
    """Return the data set, and download it if necessary."""
    info = info_of(name)
    require(info.kind == kind, f"{info.name} is a {info.kind} data set: load it with load_{info.kind}.")
    if not download and not info.available:
        raise FileNotFoundError(
            f"{info.path} does not exist: {info.remedy}, or set ONMF_DATA to the folder that has it."
        )
    if not info.available:
        fetch(info.name)
    return info


MODULES = (
    "cluster.vq", "cluster.hierarchy", "fft", "integrate", "interpolate", "io", "linalg", "ndimage", "optimize",
    "signal", "sparse", "spatial", "special", "stats",
)  # fmt: skip
"""Modules of SciPy with the public functions of each subpackage."""


def docstring_texts() -> list[tuple[str, str, str]]:
    """Return the docstrings of SciPy's public functions and classes as texts.

    Returns
    -------
    list of tuple (name, text, subpackage)

    Examples
    --------
    >>> from onmf.datasets import docstring_texts
    >>> subpackages = {name: subpackage for name, text, subpackage in docstring_texts()}
    >>> subpackages["scipy.cluster.vq.whiten"]
    'cluster'
    """
    texts: dict[tuple[str, str], str] = {}  # a function in two modules is one document
    for place in MODULES:
        module = import_module(f"scipy.{place}")
        for name in module.__all__:
            member = getattr(module, name, None)
            if callable(member) and (text := inspect.getdoc(member)):
                texts.setdefault((place.split(".")[0], text), f"{module.__name__}.{name}")
    if not texts:
        raise RuntimeError("SciPy's docstrings are missing: run Python without -OO.")
    return [(name, text, subpackage) for (subpackage, text), name in texts.items()]


def load_docstrings() -> Documents:
    """Count the words of the docstrings of SciPy's public functions and classes, labelled by subpackage.

    These are about 1,300 real documents in 13 classes, and need no download. Words have at least three letters, are
    not English stop words and occur in at least three documents. The result depends only on the version of SciPy.

    Returns
    -------
    Documents

    Examples
    --------
    >>> from onmf.datasets import load_docstrings
    >>> docs = load_docstrings()
    >>> len(docs.classes)
    13
    """
    ids, texts, subpackages = zip(*docstring_texts(), strict=True)
    vectorizer = CountVectorizer(stop_words="english", token_pattern=r"[a-z]{3,}", min_df=3)
    classes, y = np.unique(subpackages, return_inverse=True)
    return Documents(
        X=csr_array(vectorizer.fit_transform(texts)),
        y=y,
        name="docstrings",
        source=f"SciPy {scipy.__version__}, as installed",
        words=vectorizer.get_feature_names_out(),
        classes=classes,
        ids=np.array(ids),
    )
