"""Files and folders that are written whole or not at all.

What is written lies beside its place, under a name that no other file has: ``.NAME.onmf-`` and random digits. It takes
its place in one step, so that there is the old or the new, whole, at any moment at which the process may be killed.
Contents are flushed to the disk before they get their name, which is as much as can be done about a power cut.

A killed process leaves its unfinished work behind. The next one that writes to the same place removes it: who is alive
holds a lock (``flock``), and the system takes that from the dead. Where there are no such locks, nothing is removed.
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MARK = ".onmf-"
"""Follows the name of a place in the name of what is being written for it."""

UNFINISHED = re.compile(rf"\..+{re.escape(MARK)}\w+(\.old)?")
"""Names of what is being written."""


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, replace: bool = True) -> None:
    """Write a file under a name of its own beside its place, then put it there.

    Parameters
    ----------
    path : path
        Where the file shall be. A link stays a link, and the file that it leads to is replaced. A pipe or a device is
        written to.
    write : callable
        Writes into the file that it is given.
    replace : bool, default=True
        Replace a file that exists; it lends the new one its permissions. If not, and one is there by the time this one
        is written, this one gets another name, which the error tells.
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
    if UNFINISHED.fullmatch(path.parent.name):  # the folder is there as a whole or not at all, and so is this file
        with path.open("wb") as file:
            write(file)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path)
    partial = _Partial(path)
    try:
        with partial.open_file() as file:
            write(file)
            file.flush()
            _flush(file.fileno())
        if mode is not None:
            os.chmod(partial.path, stat.S_IMODE(mode) & 0o777)
        if replace:
            os.replace(partial.path, path)
        else:
            _put(partial.path, path)
    finally:
        partial.discard()


@contextmanager
def whole_folder(path: Path, *, force: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """A folder to write into that takes its place when all went well, and vanishes when not.

    What is at its place by then is replaced only if it is an empty folder, or the one that ``force`` allows to replace.
    Otherwise it is left as it is, and the new folder gets another name, which the error tells.

    Parameters
    ----------
    path : path
        Where the folder shall be. It must not exist, or be empty. A link stays a link, and leads to the folder.
    force : bool, default=False
        Replace a folder that exists, if it holds nothing but files named in ``ours``.
    ours : collection of str
        Names of files that may be replaced; patterns, as in a shell.

    Yields
    ------
    path
        The folder under a name of its own, beside its place.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(f"{path} is a link that leads to itself: name another folder.")
    if path.exists():
        if not path.is_dir():
            raise FileExistsError(f"{path} is a file: name a folder.")
        if path.is_mount() or path.samefile("."):
            raise FileExistsError(f"{path} is a mount point or the working folder: give a new folder in it.")
    if _clear(path, ours):
        raise _another_run(path)
    held = sorted(os.listdir(path)) if path.exists() else []
    if held and not force:
        raise FileExistsError(f"{path} exists and is not empty: name another folder, or use --force to replace it.")
    if others := _others(path, ours) if held else []:
        raise FileExistsError(
            f"{path} holds {others[0]!r}, which was not written by this command: --force replaces only what was."
        )
    partial = _Partial(path, ours)
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.make_folder()
        except OSError as error:
            raise OSError(f"{path}: nothing can be written there ({error.strerror}). Name another folder.") from error
        if held and not partial.hold_old():
            raise _another_run(path)
        yield partial.path
        for entry in partial.path.iterdir():
            if entry.is_file():
                with entry.open("rb+") as file:
                    _flush(file.fileno())
        partial.take_place()
    finally:
        partial.discard()


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A folder beside a place, for what is needed to write it; it is gone afterwards.

    Parameters
    ----------
    path : path
        The place.

    Yields
    ------
    path
        The folder.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear(path, ["*"])
    partial = _Partial(path)
    try:
        partial.make_folder()
        yield partial.path
    finally:
        partial.discard()


def _another_run(path: Path) -> FileExistsError:
    return FileExistsError(f"Another run is writing to {path}: wait until it ends, or name another folder.")


def discard_unfinished() -> None:
    """Remove what this process has begun to write and will not finish."""
    for partial in tuple(_unfinished):
        partial.discard()


class _Partial:
    """What is being written, from before it is made until it has its place or is gone.

    All that :meth:`discard` needs is known before anything is made, and the rest is seen from what is there: an
    interrupt may come between any two instructions.
    """

    def __init__(self, target: Path, ours: Collection[str] = ()) -> None:
        self.target, self.ours = target, ours
        self.process = os.getpid()
        self.lock: int | None = None
        self.old: int | None = None  # keeps the folder that may be replaced, whose number then stays its own
        self.old_inode: int | None = None
        self.inode: int | None = None
        self._name()
        _unfinished.append(self)

    def _name(self) -> None:
        self.path = self.target.with_name(f".{self.target.name}{MARK}{secrets.token_hex(8)}")
        self.aside = Path(f"{self.path}.old")

    def open_file(self) -> IO[bytes]:
        """Make the file and open it; the lock outlives what is returned."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._make(lambda: os.open(self.path, flags, 0o666))
        assert self.lock is not None
        if fcntl is None:  # an open file can be neither renamed nor removed there
            lock, self.lock = self.lock, None
            return os.fdopen(lock, "wb")
        return os.fdopen(os.dup(self.lock), "wb")

    def make_folder(self) -> None:
        """Make the folder."""

        def make() -> int | None:
            os.mkdir(self.path)
            return _open_folder(self.path)

        self._make(make)

    def _make(self, make: Callable[[], int | None]) -> None:
        for _ in range(20):  # another run may clear strays between these lines, and take this for one
            self.lock = make()
            if self.lock is None or (_locked(self.lock) is not False and _is(self.path, os.fstat(self.lock).st_ino)):
                self.inode = os.stat(self.path).st_ino
                return
            self._release()
            self._name()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(self.path))

    def _release(self) -> None:
        for handle in (self.lock, self.old):
            if handle is not None and fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)  # an interrupt may come before the next line
        handles, self.lock, self.old = (self.lock, self.old), None, None
        for handle in handles:
            if handle is not None:
                os.close(handle)

    def hold_old(self) -> bool:
        """Note which folder may be replaced; False if another run is about to replace it."""
        self.old = _open_folder(self.target)
        self.old_inode = os.stat(self.target).st_ino
        return self.old is None or _locked(self.old) is not False

    def take_place(self) -> None:
        """Put the folder in its place, which is free, or holds an empty folder or the one that may be replaced."""
        try:
            self._take_place()
        except OSError as error:
            if not _is(self.path, self.inode):
                raise
            try:
                kept = _keep(self.path, self.target)
            except OSError:
                raise error from None
            if isinstance(error, _Filled) or error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                why = "was filled by somebody else while this ran, and was left as it is"
            else:
                why = f"cannot be replaced ({error.strerror})"
            raise FileExistsError(f"{self.target} {why}. The result is in {kept}.") from error

    def _take_place(self) -> None:
        if os.name == "nt":  # where a folder takes the place of no other, not even of an empty one
            with suppress(OSError):
                os.rmdir(self.target)
        try:
            os.rename(self.path, self.target)  # fails if there is more than an empty folder
            return
        except OSError:
            if self.old_inode is None:
                raise
        os.chmod(self.path, stat.S_IMODE(os.stat(self.target).st_mode))
        if _exchange(self.path, self.target):
            if not self._replaceable(self.path):
                _exchange(self.path, self.target)
                raise _Filled
            return
        os.rename(self.target, self.aside)  # from here to the next rename there is nothing: the next run puts it back
        if not self._replaceable(self.aside):
            os.rename(self.aside, self.target)
            raise _Filled
        os.rename(self.path, self.target)

    def _replaceable(self, found: Path) -> bool:
        """Whether a folder is the one that may be replaced, and nothing has come into it since."""
        return _is(found, self.old_inode) and not _others(found, self.ours)

    def discard(self) -> None:
        """Remove what is left under our names. The old folder goes back to its place unless the new one has it."""
        if self.process != os.getpid():
            return  # a forked child's copy: the folder is its parent's, and so is the lock
        with suppress(OSError):  # what cannot be removed is for the next run
            self._discard()
        self._release()
        if self in _unfinished:
            _unfinished.remove(self)

    def _discard(self) -> None:
        if self.aside.exists():
            if not self.target.exists():
                os.rename(self.aside, self.target)
            elif _is(self.target, self.inode) and self._replaceable(self.aside):
                _remove(self.aside)
            else:
                _keep(self.aside, self.target)
        exchanged = self.old_inode is not None and self.path.exists() and _is(self.target, self.inode)
        if exchanged and not self._replaceable(self.path):
            _exchange(self.path, self.target)
        _remove(self.path)


class _Filled(OSError):
    """Somebody else has put something at the place."""


_unfinished: list[_Partial] = []
atexit.register(discard_unfinished)


def _clear(path: Path, ours: Collection[str] | None = None) -> bool:
    """Remove what killed processes left beside a place; → whether somebody alive is writing to it.

    ``ours`` are the names that a folder may hold; without them the place is that of a file.
    """
    mine = re.compile(rf"\.{re.escape(path.name)}{re.escape(MARK)}[0-9a-f]{{16}}(\.old)?")
    try:
        found = [path.with_name(name) for name in os.listdir(path.parent) if mine.fullmatch(name)]
    except OSError:
        return False
    busy = False
    for stray in found:
        if stray.is_symlink() or stray.is_dir() != (ours is not None):
            continue
        with suppress(OSError):  # somebody else's, or removed by somebody else just now
            handle = os.open(stray, os.O_RDONLY) if fcntl is not None else None
            try:
                free = None if handle is None else _locked(handle)
                busy |= free is False
                if free is not False and stray.suffix == ".old" and not path.exists():
                    os.rename(stray, path)  # killed between two renames
                elif free and (ours is None or not _others(stray, ours)):
                    _remove(stray)
            finally:
                if handle is not None:
                    os.close(handle)
    return busy


def _others(folder: Path, ours: Collection[str]) -> list[str]:
    """What a folder holds that is not ours."""
    return [
        name
        for name in sorted(os.listdir(folder))
        if not UNFINISHED.fullmatch(name)
        and ((folder / name).is_dir() or not any(fnmatchcase(name, pattern) for pattern in ours))
    ]


def _put(found: Path, path: Path) -> None:
    """Give a file its name, which must be free."""
    try:
        os.link(found, path)
        return
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not os.path.lexists(path):
            os.rename(found, path)
            return
    kept = _keep(found, path)
    raise FileExistsError(
        f"{path} was written by somebody else while this ran, and was left as it is. The result is in {kept}."
    )


def _keep(found: Path, path: Path) -> Path:
    """Give what cannot have its place the first free name like it."""
    number = 2
    while os.path.lexists(kept := path.with_name(f"{path.stem}-{number}{path.suffix}")):
        number += 1
    os.rename(found, kept)
    return kept


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system has no such call."""
    import ctypes

    names = os.fsencode(one), os.fsencode(other)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            failed = system.renameat2(here, names[0], here, names[1], swap)
        elif sys.platform == "darwin":
            failed = system.renamex_np(*names, 2)  # RENAME_SWAP
        else:
            return False
    except (AttributeError, OSError, TypeError):
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _locked(handle: int) -> bool | None:
    """Lock an open file or folder; False if somebody else has, None where that cannot be told."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _open_folder(path: Path) -> int | None:
    return None if fcntl is None else os.open(path, os.O_RDONLY)


def _is(path: Path, inode: int | None) -> bool:
    """Whether a file or folder is the one with this number."""
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False


def _flush(handle: int) -> None:
    """Write a file to the disk; a full one may be noticed only now."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
