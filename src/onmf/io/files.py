"""Files and folders that are written whole or not at all.

A file is written under a temporary name beside its target and then renamed in one step (see
:mod:`onmf.io.unfinished`). If the process is killed at any moment, the target holds the old contents or the new, never
a mixture. Contents are flushed to disk before the rename, which also covers most power cuts.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .system import flush
from .unfinished import TEMPORARY, Unfinished, other_entries, remove_leftovers, rename_new


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, replace: bool = True) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path
        The file. A symbolic link stays a link, and the file that it points to is replaced. Pipes and devices are
        written to directly.
    write : callable
        Called with the open file; writes the contents.
    replace : bool, default=True
        Replace an existing file; the new file keeps its permissions. If False and the file exists when the new one is
        complete, the new one gets another name, and the error says which.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder: name a file.")
    if mode is not None and not stat.S_ISREG(mode):
        content = io.BytesIO()
        write(content)
        with open(path, "wb") as sink:
            sink.write(content.getvalue())
        return
    path = Path(os.path.realpath(path))
    if TEMPORARY.fullmatch(path.parent.name):  # the folder is renamed as a whole, and this file with it
        with path.open("wb") as file:
            write(file)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    unfinished = Unfinished(path)
    try:
        with unfinished.open_file() as file:
            write(file)
            file.flush()
            flush(file.fileno())
        if mode is not None:
            os.chmod(unfinished.path, stat.S_IMODE(mode) & 0o777)
        if replace:
            os.replace(unfinished.path, path)
        else:
            rename_new(unfinished.path, path)
    finally:
        unfinished.discard()


@contextmanager
def whole_folder(path: Path, *, force: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """Write a folder whole or not at all: it gets its name if the block succeeds and is removed if it fails.

    If another program creates or changes the folder at ``path`` meanwhile, that folder is left as it is. The new one
    gets another name, and the error says which.

    Parameters
    ----------
    path : path
        The folder. It must not exist, or must be empty. A symbolic link stays a link that points to the folder.
    force : bool, default=False
        Replace an existing folder if it holds only files named in ``ours``.
    ours : collection of str
        Names of the files that may be replaced; patterns, as in a shell.

    Yields
    ------
    path
        The folder to write into, under a temporary name.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(f"{path} is a link that points to itself: name another folder.")
    if path.exists():
        if not path.is_dir():
            raise FileExistsError(f"{path} is a file: name a folder.")
        if path.is_mount() or path.samefile("."):
            raise FileExistsError(f"{path} is a mount point or the working folder: give a new folder in it.")
    if remove_leftovers(path, ours):
        raise _another_run(path)
    filled = path.exists() and bool(os.listdir(path))
    if filled and not force:
        raise FileExistsError(f"{path} exists and is not empty: name another folder, or use --force to replace it.")
    if others := other_entries(path, ours) if filled else []:
        raise FileExistsError(
            f"{path} holds {others[0]!r}, which was not written by this command: --force replaces only its own files."
        )
    unfinished = Unfinished(path, ours)
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.make_folder()
        except OSError as error:
            raise OSError(f"{path}: nothing can be written there ({error.strerror}). Name another folder.") from error
        if filled and not unfinished.lock_old():
            raise _another_run(path)
        yield unfinished.path
        for entry in unfinished.path.iterdir():
            if entry.is_file():
                with entry.open("rb+") as file:
                    flush(file.fileno())
        unfinished.rename_folder()
    finally:
        unfinished.discard()


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside a target, on the same disk; removed at the end of the block.

    Parameters
    ----------
    path : path
        The target.

    Yields
    ------
    path
        The folder.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path, ["*"])
    unfinished = Unfinished(path)
    try:
        unfinished.make_folder()
        yield unfinished.path
    finally:
        unfinished.discard()


def _another_run(path: Path) -> FileExistsError:
    return FileExistsError(f"Another run is writing to {path}: wait until it ends, or name another folder.")
