"""System calls for safe writing: locks, the atomic exchange of two names, and flushing to disk."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None


def try_lock(handle: int) -> bool | None:
    """Lock an open file or folder; False if another process holds the lock, None if the system cannot tell."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def unlock(handle: int) -> None:
    """Release a lock without closing the file."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_UN)


def open_to_lock(path: Path) -> int | None:
    """Open a file or folder in order to lock it; None on a system without locks."""
    return None if fcntl is None else os.open(path, os.O_RDONLY)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    import ctypes

    names = os.fsencode(one), os.fsencode(other)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            failed = library.renameat2(here, names[0], here, names[1], swap)
        elif sys.platform == "darwin":
            failed = library.renamex_np(*names, 2)  # RENAME_SWAP
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


def has_inode(path: Path, inode: int | None) -> bool:
    """Whether a file or folder exists and has this inode number."""
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False


def flush(handle: int) -> None:
    """Flush a file to disk. Some file systems report a full disk only here."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system has no fsync
            raise


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
