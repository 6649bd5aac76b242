"""Files and folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
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
def whole_folder(path: Path, *, force: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """A folder to write into that takes its place when all went well, and vanishes when not.

    Parameters
    ----------
    path : path
        Where the folder shall be. It must not exist, or be empty.
    force : bool, default=False
        Replace a folder that exists, if it holds nothing but files named in ``ours``.
    ours : collection of str
        Names of files that may be replaced.

    Yields
    ------
    path
        The folder under a temporary name, beside its place.
    """
    path = Path(os.path.abspath(path))
    if path.exists():
        if not path.is_dir():
            raise FileExistsError(f"{path} is a file: name a folder.")
        held = sorted(os.listdir(path))
        if held and not force:
            raise FileExistsError(f"{path} exists and is not empty: name another folder, or use --force to replace it.")
        if others := [name for name in held if name not in ours or (path / name).is_dir()]:
            raise FileExistsError(
                f"{path} holds {others[0]!r}, which was not written by this command: --force replaces only what was."
            )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise OSError(f"{path}: nothing can be written there ({error.strerror}). Name another folder.") from error
    try:
        partial.chmod(0o755)
        yield partial
        if path.exists():
            aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
            os.replace(path, aside)
            try:
                os.replace(partial, path)
            except BaseException:
                os.replace(aside, path)
                raise
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
