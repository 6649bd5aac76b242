"""Files and folders that are written whole or not at all.

A file or folder is written under a temporary name beside its target, ``.NAME.onmf-`` and 16 random hexadecimal digits,
and then renamed in one step. If the process is killed at any moment, the target holds the old contents or the new,
never a mixture. Contents are flushed to disk before the rename, which also covers most power cuts.

The process that writes holds a lock (``flock``) on the temporary name, which the system releases when the process dies.
So the next process that writes to the same target can remove what killed processes left behind. On a system without
such locks, nothing is removed.
"""

import atexit
import ctypes
import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from fnmatch import fnmatchcase
from hashlib import file_digest, sha256
from itertools import count
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MARK = ".onmf-"  # follows the name of the target in a temporary name
TEMPORARY = re.compile(rf"\..+{re.escape(MARK)}\w+(\.old)?")  # temporary names, of any target
HAS_LOCKS = fcntl is not None


def write_whole(path: Path, write: Callable[[IO[bytes]], object], *, replace: bool = True) -> None:
    """Write a file whole or not at all; ``write`` is called with the open file.

    A symbolic link stays a link, and the file that it points to is replaced. A new file keeps the permissions of the
    old one. Pipes and devices are written to directly. Without ``replace``, a file that exists when the new one is
    complete is left as it is. The new one gets another name, and the error says which.
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
        Path(path).write_bytes(content.getvalue())
        return
    path = Path(os.path.realpath(path))
    if TEMPORARY.fullmatch(path.parent.name):  # the folder is renamed as a whole, and this file with it
        with path.open("wb") as file:
            write(file)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    with _Unfinished(path) as new:
        new.create(lambda name: name.touch(exist_ok=False))
        with new.path.open("wb") as file:
            write(file)
            file.flush()
            _flush(file.fileno())
        if mode is not None:
            os.chmod(new.path, stat.S_IMODE(mode) & 0o777)
        if replace:
            os.replace(new.path, path)
        else:
            _rename_new(new.path, path)


def checksum_of(paths: Sequence[str]) -> str | None:
    """A digest of files, and of folders with the names of all that is in them; None if one is standard input."""
    found = sha256()
    for path in map(Path, paths):
        if str(path) == "-":
            return None
        inside = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in inside:
            with file.open("rb") as content:
                digest = file_digest(content, "sha256").hexdigest()
            found.update(f"{file.relative_to(path)}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()


@contextmanager
def whole_folder(path: Path, *, force: bool = False, ours: Collection[str] = ()) -> Iterator[Path]:
    """Write a folder whole or not at all: it gets its name if the block succeeds and is removed if it fails.

    The folder must not exist, or must be empty. With ``force``, an old folder is replaced if it holds only files that
    match the names in ``ours``, which are patterns as in a shell; ``*/NAME`` is a file in a folder inside. A symbolic
    link stays a link that points to the folder. If another program creates or changes the folder meanwhile, that folder
    is left as it is. The new one gets another name, and the error says which.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(f"{path} is a link that points to itself: name another folder.")
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file: name a folder.")
    if path.exists() and (path.is_mount() or path.samefile(".")):
        raise FileExistsError(f"{path} is a mount point or the working folder: give a new folder in it.")
    busy = FileExistsError(f"Another run is writing to {path}: wait until it ends, or name another folder.")
    if _remove_leftovers(path, ours):
        raise busy
    filled = path.exists() and bool(os.listdir(path))
    if filled and not force:
        raise FileExistsError(f"{path} exists and is not empty: name another folder, or use --force to replace it.")
    if filled and (others := _entries_of_others(path, ours)):
        raise FileExistsError(
            f"{path} holds {others[0]!r}, which was not written by this command: --force replaces only its own files."
        )
    with _Unfinished(path, ours) as new:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.create(os.mkdir)
        except OSError as error:
            raise OSError(f"{path}: nothing can be written there ({error.strerror}). Name another folder.") from error
        if filled and (inode := new.lock(path)) is None:
            raise busy
        new.old_inode = inode if filled else None
        yield new.path
        for entry in filter(Path.is_file, new.path.rglob("*")):
            with entry.open("rb+") as file:
                _flush(file.fileno())
        new.rename_folder()


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside a target, on the same disk; removed at the end of the block."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path, ["*"])
    with _Unfinished(path) as new:
        new.create(os.mkdir)
        yield new.path


class _Unfinished(AbstractContextManager["_Unfinished"]):
    """A file or folder under its temporary name, from before it is created until it is renamed or removed.

    An interrupt may come between any two instructions. So :meth:`discard` needs only what is known before anything is
    created, and reads the rest from the disk. An old folder is replaced if all its files match a pattern in ``ours``.
    """

    def __init__(self, target: Path, ours: Collection[str] = ()) -> None:
        self.target, self.ours = target, ours
        self.process = os.getpid()
        self.handles: list[int] = []  # of what is locked; while they are open, no inode number is used again
        self.inode: int | None = None
        self.old_inode: int | None = None
        self._choose_name()
        _unfinished.add(self)

    def __exit__(self, *_: object) -> None:
        self.discard()

    def _choose_name(self) -> None:
        self.path = self.target.with_name(f".{self.target.name}{MARK}{secrets.token_hex(8)}")
        self.old_path = Path(f"{self.path}.old")  # for the old folder, if the system cannot exchange two names

    def create(self, make: Callable[[Path], object]) -> None:
        """Make the file or folder, and lock it."""
        for _ in range(20):  # before it is locked, another run may take it for a leftover and remove it
            make(self.path)
            self.inode = self.lock(self.path)
            if self.inode is not None:
                return
            self._release()
            self._choose_name()
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(self.path))

    def lock(self, path: Path) -> int | None:
        """Lock a file or folder. → its inode number; None if another process has locked or removed it"""
        with suppress(FileNotFoundError):
            if fcntl is not None:
                self.handles.append(os.open(path, os.O_RDONLY))
                if _try_lock(self.handles[-1]) is False or not _has_inode(path, os.fstat(self.handles[-1]).st_ino):
                    return None
            return os.stat(path).st_ino
        return None

    def _release(self) -> None:
        for handle in self.handles:  # an interrupt may come before they are closed, and a forked child may have copies
            fcntl.flock(handle, fcntl.LOCK_UN)
        while self.handles:
            os.close(self.handles.pop())

    def rename_folder(self) -> None:
        """Give the folder its final name, if that is free or names an empty folder or the old one; else another."""
        try:
            if self.old_inode is None or not self.target.exists():
                if os.name == "nt":  # Windows does not rename a folder onto another, not even onto an empty one
                    with suppress(OSError):
                        os.rmdir(self.target)
                os.rename(self.path, self.target)  # fails if the target is more than an empty folder
                return
            if not self._is_replaceable(self.target):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            os.chmod(self.path, stat.S_IMODE(os.stat(self.target).st_mode))
            if not exchange(self.path, self.target):
                os.rename(self.target, self.old_path)  # if the process is killed here, the next run undoes this
                os.rename(self.path, self.target)
        except OSError as error:
            why = f"cannot be replaced ({error.strerror})"
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                why = "was changed by another program while this ran and was left as it is"
            result = _rename_to_free_name(self.path, self.target)
            raise FileExistsError(f"{self.target} {why}. The result is in {result}.") from error

    def _is_replaceable(self, folder: Path) -> bool:
        """Whether this is the old folder, and nothing has been added to it since."""
        return _has_inode(folder, self.old_inode) and not _entries_of_others(folder, self.ours)

    def discard(self) -> None:
        """Remove what is left under the temporary names. Put the old folder back unless the new one has its name."""
        if self.process != os.getpid():
            return  # a copy in a forked child: the folder and the lock belong to the parent
        with suppress(OSError):  # the next run tries again
            if self.old_path.exists() and not self.target.exists():
                os.rename(self.old_path, self.target)
            for path in (self.path, self.old_path):
                if self.old_inode is None or _has_inode(path, self.inode) or self._is_replaceable(path):
                    _remove(path)
                elif path.exists():  # another program changed the old folder just before it was replaced
                    _rename_to_free_name(path, self.target)
        self._release()
        _unfinished.discard(self)


_unfinished: set[_Unfinished] = set()


@atexit.register
def discard_unfinished() -> None:
    """Remove what this process has begun to write and will not finish."""
    for entry in tuple(_unfinished):
        entry.discard()


def _remove_leftovers(target: Path, ours: Collection[str] | None = None) -> bool:
    """Remove what killed processes left beside a target. → whether a live process is writing to the target

    A leftover folder goes if all its files match a pattern in ``ours``. Without patterns, the target is a file.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}{re.escape(MARK)}[0-9a-f]{{16}}(\.old)?")
    try:
        names = os.listdir(target.parent)
    except OSError:  # it does not exist, or may not be read
        return False
    busy = False
    for path in map(target.with_name, filter(pattern.fullmatch, names)):
        if path.is_symlink() or path.is_dir() != (ours is not None):
            continue
        handle = None
        with suppress(OSError):  # another user's, or just removed by another process
            try:
                handle = os.open(path, os.O_RDONLY) if HAS_LOCKS else None
                free = None if handle is None else _try_lock(handle)
                busy |= free is False
                if free is not False and path.suffix == ".old" and not target.exists():
                    os.rename(path, target)  # its process was killed between two renames
                elif free and (ours is None or not _entries_of_others(path, ours)):
                    _remove(path)
            finally:
                if handle is not None:
                    os.close(handle)
    return busy


def _entries_of_others(folder: Path, ours: Collection[str]) -> list[str]:
    """Names of the entries of a folder that no pattern in ``ours`` matches, temporary ones excepted."""
    return [
        name
        for name in sorted(os.listdir(folder))
        if not TEMPORARY.fullmatch(name) and not all(_is_ours(file, ours) for file in _files_of(folder, name))
    ]


def _files_of(folder: Path, name: str) -> list[str]:
    """The name of a file, or those in a folder as ``FOLDER/NAME``. An empty folder, or a link, is ``FOLDER/``."""
    path = folder / name
    if not path.is_dir():
        return [name]
    inside = [] if path.is_symlink() else sorted(path.iterdir())
    return [f"{name}/{file.name}{'/' * file.is_dir()}" for file in inside] or [f"{name}/"]


def _is_ours(file: str, ours: Collection[str]) -> bool:
    """Whether a pattern matches the name of a file. No ``*`` stands for a ``/``."""
    return any(file.count("/") == pattern.count("/") and fnmatchcase(file, pattern) for pattern in ours)


def _rename_new(source: Path, target: Path) -> None:
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
    raise FileExistsError(
        f"{target} was written by another program while this ran and was left as it is. The result is in "
        f"{_rename_to_free_name(source, target)}."
    )


def _rename_to_free_name(source: Path, target: Path) -> Path:
    """Rename to the first free one of ``NAME-2``, ``NAME-3``, …"""
    names = (target.with_name(f"{target.stem}-{number}{target.suffix}") for number in count(2))
    return source.rename(next(name for name in names if not os.path.lexists(name)))


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if the system or the file system cannot."""
    first, second = os.fsencode(one), os.fsencode(other)
    try:
        library = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return bool(library.renamex_np(first, second, 2) == 0)  # RENAME_SWAP
        return bool(library.renameat2(-100, first, -100, second, 2) == 0)  # AT_FDCWD twice, RENAME_EXCHANGE
    except (AttributeError, OSError, TypeError):
        return False


def _flush(handle: int) -> None:
    """Flush a file to disk. Some file systems report a full disk only here."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file system has no fsync
            raise


def _try_lock(handle: int) -> bool | None:
    """Lock an open file or folder; False if another process holds the lock, None if the system cannot tell."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if isinstance(error, BlockingIOError) else None
    return True


def _has_inode(path: Path, inode: int | None) -> bool:
    """Whether a file or folder exists and has this inode number."""
    try:
        return os.stat(path).st_ino == inode
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
