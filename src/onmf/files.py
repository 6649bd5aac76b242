"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name beside its place, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


@contextmanager
def whole_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A new folder to write into, which takes its place when all is written; nothing is left of it if that fails.

    Parameters
    ----------
    path : path
        Where the folder will be. It must not exist, or be empty, unless ``overwrite``.
    overwrite : bool, default=False
        Whether a folder that is there is replaced, with all it holds.

    Yields
    ------
    Path
        The folder to write into.
    """
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file: name another folder.")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise FileExistsError(f"{path} is there and not empty: name another folder, or ask to overwrite it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield partial
        partial.chmod(0o755)
        if path.exists():
            # The old folder keeps its content until the new one is complete.
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
            os.replace(path, old)
            os.replace(partial, path)
            shutil.rmtree(old)
        else:
            os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
