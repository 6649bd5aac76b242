"""Unfinished files and folders: written under a temporary name beside their target, then renamed.

The temporary name is ``.NAME.onmf-`` and 16 random hexadecimal digits. The process that writes holds a lock (``flock``)
on it, which the system releases when the process dies. So the next process that writes to the same target can remove
what killed processes left behind. On a system without such locks, nothing is removed.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from .system import HAS_LOCKS, exchange, has_inode, open_to_lock, remove, try_lock, unlock

MARK = ".onmf-"
"""Follows the name of the target in a temporary name."""

TEMPORARY = re.compile(rf"\..+{re.escape(MARK)}\w+(\.old)?")
"""Temporary names, of any target."""


def discard_unfinished() -> None:
    """Remove what this process has begun to write and will not finish."""
    for entry in tuple(_unfinished):
        entry.discard()


class Unfinished:
    """A file or folder under its temporary name, from before it is created until it is renamed or removed.

    An interrupt may come between any two instructions. So :meth:`discard` needs only what is known before anything is
    created, and reads the rest from the disk.

    Parameters
    ----------
    target : path
        The final name.
    ours : collection of str
        Names of the files that an old folder may hold if it is to be replaced; patterns, as in a shell.
    """

    def __init__(self, target: Path, ours: Collection[str] = ()) -> None:
        self.target, self.ours = target, ours
        self.process = os.getpid()
        self.lock: int | None = None
        self.old: int | None = None  # an open handle of the old folder: its inode number is not reused meanwhile
        self.old_inode: int | None = None
        self.inode: int | None = None
        self._name()
        _unfinished.append(self)

    def _name(self) -> None:
        self.path = self.target.with_name(f".{self.target.name}{MARK}{secrets.token_hex(8)}")
        self.aside = Path(f"{self.path}.old")  # for the old folder, if the system cannot exchange two names

    def open_file(self) -> IO[bytes]:
        """Create the file and open it. The lock outlives the file object."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._create(lambda: os.open(self.path, flags, 0o666))
        assert self.lock is not None
        if not HAS_LOCKS:  # Windows can neither rename nor remove an open file
            handle, self.lock = self.lock, None
            return os.fdopen(handle, "wb")
        return os.fdopen(os.dup(self.lock), "wb")

    def make_folder(self) -> None:
        """Create the folder."""

        def create() -> int | None:
            os.mkdir(self.path)
            return open_to_lock(self.path)

        self._create(create)

    def _create(self, create: Callable[[], int | None]) -> None:
        for _ in range(20):  # before it is locked, another run may take it for a leftover and remove it
            self.lock = create()
            if self.lock is None or (
                try_lock(self.lock) is not False and has_inode(self.path, os.fstat(self.lock).st_ino)
            ):
                self.inode = os.stat(self.path).st_ino
                return
            self._release()
            self._name()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(self.path))

    def _release(self) -> None:
        for handle in (self.lock, self.old):
            if handle is not None:
                unlock(handle)  # an interrupt may come before the handle is closed
        handles, self.lock, self.old = (self.lock, self.old), None, None
        for handle in handles:
            if handle is not None:
                os.close(handle)

    def lock_old(self) -> bool:
        """Lock the old folder, which may be replaced; False if another run is about to replace it."""
        self.old = open_to_lock(self.target)
        self.old_inode = os.stat(self.target).st_ino
        return self.old is None or try_lock(self.old) is not False

    def rename_folder(self) -> None:
        """Give the folder its final name, which is free or belongs to an empty folder or to the old folder.

        Otherwise the folder gets another name, and the error says which.
        """
        try:
            self._rename_folder()
        except OSError as error:
            if not has_inode(self.path, self.inode):
                raise
            try:
                kept = keep(self.path, self.target)
            except OSError:
                raise error from None
            if isinstance(error, _Changed) or error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                why = "was changed by another program while this ran and was left as it is"
            else:
                why = f"cannot be replaced ({error.strerror})"
            raise FileExistsError(f"{self.target} {why}. The result is in {kept}.") from error

    def _rename_folder(self) -> None:
        if os.name == "nt":  # Windows does not rename a folder onto another, not even onto an empty one
            with suppress(OSError):
                os.rmdir(self.target)
        try:
            os.rename(self.path, self.target)  # fails if the target is more than an empty folder
            return
        except OSError:
            if self.old_inode is None:
                raise
        os.chmod(self.path, stat.S_IMODE(os.stat(self.target).st_mode))
        if exchange(self.path, self.target):
            if not self._replaceable(self.path):
                exchange(self.path, self.target)
                raise _Changed
            return
        os.rename(self.target, self.aside)  # if the process is killed here, the next run undoes this
        if not self._replaceable(self.aside):
            os.rename(self.aside, self.target)
            raise _Changed
        os.rename(self.path, self.target)

    def _replaceable(self, folder: Path) -> bool:
        """Whether this is the old folder that may be replaced, and nothing has been added to it since."""
        return has_inode(folder, self.old_inode) and not other_entries(folder, self.ours)

    def discard(self) -> None:
        """Remove what is left under the temporary names. Put the old folder back unless the new one has its name."""
        if self.process != os.getpid():
            return  # a copy in a forked child: the folder and the lock belong to the parent
        with suppress(OSError):  # the next run tries again
            self._discard()
        self._release()
        if self in _unfinished:
            _unfinished.remove(self)

    def _discard(self) -> None:
        if self.aside.exists():
            if not self.target.exists():
                os.rename(self.aside, self.target)
            elif has_inode(self.target, self.inode) and self._replaceable(self.aside):
                remove(self.aside)
            else:
                keep(self.aside, self.target)
        exchanged = self.old_inode is not None and self.path.exists() and has_inode(self.target, self.inode)
        if exchanged and not self._replaceable(self.path):
            exchange(self.path, self.target)
        remove(self.path)


class _Changed(OSError):
    """The target is no longer what it was when writing began."""


_unfinished: list[Unfinished] = []
atexit.register(discard_unfinished)


def remove_leftovers(target: Path, ours: Collection[str] | None = None) -> bool:
    """Remove what killed processes left beside a target.

    Parameters
    ----------
    target : path
        The final name.
    ours : collection of str, optional
        Names of the files that a leftover folder may hold; a folder with other files is left alone. Without them, the
        target is a file.

    Returns
    -------
    bool
        Whether a live process is writing to the target.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}{re.escape(MARK)}[0-9a-f]{{16}}(\.old)?")
    try:
        candidates = [target.with_name(name) for name in os.listdir(target.parent) if pattern.fullmatch(name)]
    except OSError:
        return False
    busy = False
    for path in candidates:
        if path.is_symlink() or path.is_dir() != (ours is not None):
            continue
        with suppress(OSError):  # another user's, or just removed by another process
            handle = open_to_lock(path)
            try:
                free = None if handle is None else try_lock(handle)
                busy |= free is False
                if free is not False and path.suffix == ".old" and not target.exists():
                    os.rename(path, target)  # its process was killed between two renames
                elif free and (ours is None or not other_entries(path, ours)):
                    remove(path)
            finally:
                if handle is not None:
                    os.close(handle)
    return busy


def other_entries(folder: Path, ours: Collection[str]) -> list[str]:
    """Names of the entries of a folder that no pattern in ``ours`` matches, temporary ones excepted."""
    return [
        name
        for name in sorted(os.listdir(folder))
        if not TEMPORARY.fullmatch(name)
        and ((folder / name).is_dir() or not any(fnmatchcase(name, pattern) for pattern in ours))
    ]


def rename_new(source: Path, target: Path) -> None:
    """Give a file its final name if that is free. Otherwise it gets another name, and the error says which."""
    try:
        os.link(source, target)
        return
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not os.path.lexists(target):
            os.rename(source, target)
            return
    kept = keep(source, target)
    raise FileExistsError(
        f"{target} was written by another program while this ran and was left as it is. The result is in {kept}."
    )


def keep(source: Path, target: Path) -> Path:
    """Rename to the first free one of ``NAME-2``, ``NAME-3``, …"""
    number = 2
    while os.path.lexists(kept := target.with_name(f"{target.stem}-{number}{target.suffix}")):
        number += 1
    os.rename(source, kept)
    return kept
