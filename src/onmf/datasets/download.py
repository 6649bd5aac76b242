"""Downloads the data sets, verifies and converts them, and writes each file completely or not at all."""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array
from onmf.io.files import scratch_folder, write_whole

from .catalogue import DatasetInfo, RemoteFile, facts_of, info_of, members, remote_files
from .cell_files import check_converter, convert_cells
from .cells import CellSet
from .documents import Documents
from .readers import read_documents, read_scene, smallest_indices
from .scene import Scene

NG3SIM = (16, 17, 18)
"""The classes of NG20 that make up ng3sim: the newsgroups on guns, the Middle East and general politics."""

RETRIES = 2
"""Number of retries of a download."""

SECONDS = 30
"""Seconds that a server may stay silent; also added to the time that the length of a file allows."""

SLOWEST = 10_000
"""Lowest average speed of a server, in bytes per second."""

LARGEST = 100_000_000
"""Largest file of unknown length, in bytes: the host of the files takes no larger ones."""


class DownloadError(OSError):
    """A data set could not be downloaded; the message says why and what to do."""


def fetch(name: str = "paper", *, progress: bool | None = None) -> list[Path]:
    """Download data sets that are not on this machine yet.

    If one set fails, the others are still downloaded; a :class:`DownloadError` then names those that failed.

    Files come from public repositories and are verified by their hash. They are stored in ``$ONMF_DATA`` if set, else
    in the user's cache. This needs pooch, and for cells also rdata and h5py: ``pip install 'onmf[data]'``.

    The files of cells are converted, and the result is verified, too: the numbers of rows, columns and entries, the sum
    of all counts, and the size of each class. For ``pbmc4k_top2000`` and the map of ``hmp_site18`` no hash is known, so
    that this is their only check.

    Parameters
    ----------
    name : str, default="paper"
        A data set (see :func:`list_datasets`) or a group: ``"documents"`` and ``"hyperspectral"``, both of them as
        ``"paper"``, ``"cells"``, or ``"all"``.
    progress : bool, optional
        Whether to show progress bars; by default only on a terminal.

    Returns
    -------
    list of Path
        Paths of the data sets.
    """
    infos = [info_of(member) for member in members(str(name))]
    if progress is None:
        progress = sys.stderr.isatty()
    failed = []
    for info in infos:
        try:
            if not info.available:
                _make(info, progress)
        except DownloadError as error:
            failed.append(str(error))
    if failed:
        raise DownloadError("\n".join(failed))
    return [info.path for info in infos]


def _make(info: DatasetInfo, progress: bool) -> None:
    """Download one data set, convert it and store it."""
    if info.name == "ng3sim":
        [ng20] = fetch("NG20", progress=progress)
        save_documents(cut_ng3sim(read_documents(ng20)), info.path)
        return
    if info.kind == "cells":
        check_converter(info.name)
    try:
        with scratch_folder(info.path) as folder:
            originals = [_download(file, folder, info, progress) for file in remote_files(info)]
            if info.kind == "documents":
                save_documents(read_documents(originals[0]), info.path)
            elif info.kind == "cells":
                save_cells(_converted(info, originals), info.path)
            else:
                save_scene(read_scene(*originals, name=info.name), info.path)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{info.name} could not be written to {info.path}: {error}. "
            "Free some space, or set ONMF_DATA to a writable folder."
        ) from error


def _converted(info: DatasetInfo, originals: list[Path]) -> CellSet:
    """Convert the downloaded files of a set of cells; if that fails, say where they are and what reads them."""
    facts = facts_of(info)
    try:
        return convert_cells(info.name, originals, facts)
    except ValueError as error:
        reason = str(error).rstrip(".")
        urls = " and ".join(file.url for file in remote_files(info))
        raise DownloadError(
            f"{info.name}: its files were downloaded, but could not be converted: {reason}. You can convert {urls} "
            f"yourself: {facts['read']}. Then {_by_hand(info)}"
        ) from error


def _by_hand(info: DatasetInfo) -> str:
    return f"put {info.name}.npz into a folder {info.kind}/ and set ONMF_DATA to the folder above it."


def _download(file: RemoteFile, folder: Path, info: DatasetInfo, progress: bool) -> Path:
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
    source = pooch.create(
        path=folder,
        base_url="",
        registry={file.name: file.sha256 and f"sha256:{file.sha256}"},
        urls={file.name: file.url},
        retry_if_failed=RETRIES,
    )
    remedy = f"Try again later, or {_by_hand(info)}"

    def downloader(url: str, target: str, _: Any) -> None:
        limit = file.bytes or LARGEST
        seconds = SECONDS + limit / SLOWEST
        bar = _Bar(file.name) if progress else None
        if not _in_time(seconds, lambda stop: _receive(url, target, limit, bar, stop)):
            raise DownloadError(f"{info.name}: {url} did not arrive within {seconds:.0f} seconds. {remedy}")

    try:
        path = Path(source.fetch(file.name, downloader=downloader))
    except DownloadError:
        raise
    except _TooLongError as error:
        raise DownloadError(
            f"{info.name}: {file.url} sends more than the expected {file.bytes or LARGEST} bytes; the download was "
            f"stopped. {remedy}"
        ) from error
    except (requests.exceptions.InvalidSchema, requests.TooManyRedirects) as error:
        raise DownloadError(
            f"{info.name}: {file.url} redirects to an address that is not followed, {str(error)[:200]!r}. {remedy}"
        ) from error
    except requests.HTTPError as error:
        status = error.response.status_code if error.response is not None else "an error"
        raise DownloadError(f"{info.name}: the server answered {status} for {file.url}. {remedy}") from error
    except requests.RequestException as error:
        raise DownloadError(
            f"{info.name}: {file.url} could not be reached ({type(error).__name__}). Is this machine online? {remedy}"
        ) from error
    except OSError as error:
        raise DownloadError(
            f"{info.name}: {file.url} could not be written to {folder}: {error}. Free some space, or set ONMF_DATA to "
            "a writable folder."
        ) from error
    except ValueError as error:
        raise DownloadError(
            f"{info.name}: the file from {file.url} is not the expected one (its hash differs), and was deleted. "
            f"{remedy}"
        ) from error
    if file.git_blob_sha1 is not None and git_blob_sha1(path) != file.git_blob_sha1:
        path.unlink()
        raise DownloadError(
            f"{info.name}: the file from {file.url} is not the expected one (its git hash differs), and was deleted. "
            f"{remedy}"
        )
    return path


class _TooLongError(OSError):
    """A server sends more bytes than expected."""


def _in_time(seconds: float, task: Callable[[threading.Event], None]) -> bool:
    """Run a task in a thread, and return whether it ended in time. Its exceptions are raised here.

    A socket timeout applies to each read, so a server that sends a byte now and then never exceeds it. A task that is
    late gets the signal to stop and is abandoned; it ends with its next read.
    """
    stop, raised = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            task(stop)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        stop.set()
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True


def _receive(url: str, target: str, limit: int, bar: _Bar | None, stop: threading.Event) -> None:
    """Write the response of a server into a file while it arrives; raise an error after ``limit`` bytes."""
    import requests

    plain = {"Accept-Encoding": "identity"}
    with requests.get(url, stream=True, timeout=SECONDS, headers=plain) as response, open(target, "wb") as file:
        response.raise_for_status()
        announced = response.headers.get("Content-Length", "")
        length = int(announced) if announced.isascii() and announced.isdigit() else 0
        if length > limit:
            raise _TooLongError
        received = 0
        with nullcontext() if bar is None else closing(bar):
            while not stop.is_set() and (block := _block(response)):
                received += len(block)
                if received > limit:
                    raise _TooLongError
                file.write(block)
                if bar is not None:
                    bar.update(len(block), length)


def _block(response: Any) -> bytes:
    """Read the next bytes as sent; they are not decompressed, whatever the headers say."""
    import requests
    from urllib3.exceptions import HTTPError

    try:
        block: bytes = response.raw.read(1 << 14, decode_content=False)
    except HTTPError as error:
        raise requests.ConnectionError(error) from error
    return block


def git_blob_sha1(path: Path) -> str:
    """Return git's hash of the content of a file."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cut_ng3sim(ng20: Documents) -> Documents:
    """Select three similar newsgroups of NG20, and the words that occur in at least three of their messages."""
    assert ng20.y is not None
    rows = np.flatnonzero(np.isin(ng20.y, NG3SIM))
    X = ng20.X[rows]
    X = X[:, np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]) >= 3)]
    return Documents(X=X, y=ng20.y[rows] - min(NG3SIM), name="ng3sim", source=f"cut from {ng20.source}")


def save_documents(documents: Documents, path: Path) -> None:
    """Write counts and classes as npz, completely or not at all."""
    _save_counts(path, documents.X, documents.y)


def save_cells(cells: CellSet, path: Path) -> None:
    """Write counts, classes and genes as npz, completely or not at all."""
    names = {"classes": cells.classes, "genes": cells.genes}
    _save_counts(path, cells.X, cells.y, **{key: value for key, value in names.items() if value is not None})


def _save_counts(path: Path, X: csr_array, y: Array | None, **names: Array) -> None:
    indices, indptr = smallest_indices(X)
    arrays = {"data": X.data, "indices": indices, "indptr": indptr, "shape": np.array(X.shape), **names}
    if y is not None:
        arrays["y"] = y.astype(np.uint8)
    write_whole(path, lambda file: np.savez_compressed(file, **arrays))


def save_scene(scene: Scene, path: Path) -> None:
    """Write a scene as npz, completely or not at all."""
    arrays: dict[str, Any] = {key: getattr(scene, key) for key in ("X", "height", "width", "order", "source")}
    for key in ("endmembers", "abundances", "names"):
        if (value := getattr(scene, key)) is not None:
            arrays[key] = value
    write_whole(path, lambda file: np.savez_compressed(file, scale_num=1.0, scale_den=1.0, **arrays))


class _Bar:
    """A progress bar, if rich is installed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._bar: Any = None
        self._task: Any = None

    def update(self, amount: int, total: int) -> None:
        """Advance by ``amount`` bytes; ``total`` is 0 if it is not known."""
        if self._bar is None:
            try:
                from rich.console import Console
                from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
            except ImportError:
                return
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.name, total=total or None)
        self._bar.update(self._task, advance=amount)

    def close(self) -> None:
        """Stop the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
