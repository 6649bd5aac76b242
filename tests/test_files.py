"""Files and folders are written whole or not at all, even if other programs interfere or the process is killed."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from conftest import needs_posix, until
from onmf.io import files
from onmf.io.files import discard_unfinished, scratch_folder, whole_folder, write_whole

needs_locks = pytest.mark.skipif(not files.HAS_LOCKS, reason="this system has no flock: leftovers are not removed")
both_renames = pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])


@pytest.fixture(autouse=True)
def no_temporary_files_are_left(tmp_path):
    yield
    assert [path.name for path in tmp_path.rglob(".*.onmf-*")] == []


@pytest.fixture
def set_exchange(monkeypatch):
    def switch(exchange):
        if not exchange:
            monkeypatch.setattr(files, "exchange", lambda one, other: False)  # as on file systems without it

    return switch


def fill(path, text, **options):
    with whole_folder(path, ours=["result-*.txt", "model"], **options) as new:
        (new / "result-1.txt").write_text(text)


def text_of(path):
    return (path / "result-1.txt").read_text()


def fill_while_another_writes(out, force):
    with whole_folder(out, force=force, ours=["result-1.txt"]) as new:
        (new / "result-1.txt").write_text("new")
        out.mkdir(exist_ok=True)
        (out / "result-1.txt").write_text("theirs")


class TestFolders:
    def test_a_folder_filled_by_another_program_is_left_alone(self, tmp_path):
        out = tmp_path / "out"
        for force, existed in ((False, False), (False, True), (True, False)):
            if existed:
                out.mkdir()
            with pytest.raises(
                FileExistsError, match=r"out was changed by another program while this ran.*is in .*out-2\."
            ):
                fill_while_another_writes(out, force)
            assert text_of(out) == "theirs"
            assert text_of(tmp_path / "out-2") == "new"
            for folder in (out, tmp_path / "out-2"):
                (folder / "result-1.txt").unlink()
                folder.rmdir()

    @both_renames
    @pytest.mark.parametrize("change", ["added", "replaced", "removed"])
    def test_force_replaces_only_the_folder_that_it_saw(self, tmp_path, exchange, change, set_exchange):
        set_exchange(exchange)
        out = tmp_path / "out"
        fill(out, "old")
        fill(out, "newer", force=True)
        assert text_of(out) == "newer"

        def run():
            with whole_folder(out, force=True, ours=["result-1.txt"]) as new:
                (new / "result-1.txt").write_text("newest")
                if change == "added":
                    (out / "letter.txt").write_text("theirs")
                else:
                    out.rename(tmp_path / "elsewhere")
                if change == "replaced":
                    fill(tmp_path / "other", "another run's")
                    (tmp_path / "other").rename(out)

        if change == "removed":
            run()
            assert text_of(out) == "newest"
            return
        with pytest.raises(FileExistsError, match="out was changed by another program while this ran"):
            run()
        assert text_of(out) == {"added": "newer", "replaced": "another run's"}[change]
        assert (out / "letter.txt").exists() == (change == "added")
        assert text_of(tmp_path / "out-2") == "newest"

    @both_renames
    def test_a_file_that_is_added_just_before_the_exchange_is_kept(self, tmp_path, monkeypatch, exchange):
        out, atomic = tmp_path / "out", files.exchange

        def late(one, other):
            (out / "letter.txt").write_text("theirs")
            return exchange and atomic(one, other)

        fill(out, "old")
        monkeypatch.setattr(files, "exchange", late)
        fill(out, "new", force=True)
        assert text_of(out) == "new"
        assert text_of(tmp_path / "out-2") == "old"
        assert (tmp_path / "out-2" / "letter.txt").read_text() == "theirs"

    def test_a_result_that_cannot_be_renamed_is_kept_under_another_name(self, tmp_path, monkeypatch):
        rename = os.rename

        def refuse(old, new, **options):
            if Path(new).name == "out":
                raise OSError(16, "Device or resource busy")
            rename(old, new, **options)

        monkeypatch.setattr(os, "rename", refuse)
        with pytest.raises(FileExistsError, match=r"out cannot be replaced \(Device or resource busy\). The result is"):
            fill(tmp_path / "out", "new")
        assert text_of(tmp_path / "out-2") == "new"

    def test_links_and_folders_that_cannot_be_replaced(self, tmp_path, monkeypatch):
        (tmp_path / "disk").mkdir()
        for name, target in (("link", "disk/out"), ("loop", "loop")):
            (tmp_path / name).symlink_to(target)
        fill(tmp_path / "link", "old")  # the link is still dangling
        fill(tmp_path / "link", "new", force=True)
        assert (tmp_path / "link").is_symlink()
        assert text_of(tmp_path / "disk" / "out") == "new"
        with pytest.raises(OSError, match="loop is a link that points to itself"):
            fill(tmp_path / "loop", "new")
        monkeypatch.chdir(tmp_path / "disk")
        with pytest.raises(FileExistsError, match="the working folder: give a new folder in it"):
            fill(Path("."), "new")
        assert [path.name for path in (tmp_path / "disk").iterdir()] == ["out"]

    def test_a_mount_point_is_refused_before_the_work(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", disk], capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip(f"mounting is not allowed here: {mounted.stderr.decode().strip()}")
        try:
            with pytest.raises(FileExistsError, match="disk is a mount point"), whole_folder(disk):
                raise AssertionError("the block was entered")
            fill(disk / "out", "new")
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_permissions_follow_the_umask_and_the_old_folder(self, tmp_path):
        before = os.umask(0o027)
        try:
            fill(tmp_path / "out", "old")
            assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
            (tmp_path / "out").chmod(0o700)
            fill(tmp_path / "out", "new", force=True)
            assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
        finally:
            os.umask(before)


@pytest.mark.short("needs a second process")
def test_files_added_while_a_command_runs_are_kept(tmp_path):
    """The command reads from a pipe, and so runs for as long as the pipe is open."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "onmf", "documents", "-", "-k", "2", "--quick", "--no-report", "--out", str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdin.write("tea\nmilk\n")
        running.stdin.flush()
        until(lambda: list(tmp_path.glob(".out.onmf-*")))
        out.mkdir()
        (out / "letter.txt").write_text("theirs")
        _, stderr = running.communicate()
    assert running.returncode == 2
    assert stderr == (
        f"onmf: {out} was changed by another program while this ran and was left as it is. The result is in {out}-2.\n"
    )
    assert [path.name for path in out.iterdir()] == ["letter.txt"]
    assert sorted(os.listdir(f"{out}-2")) == ["assignments.csv", "clusters.csv", "model.onmf", "summary.json"]


WRITER = """
import os, sys
from pathlib import Path
from onmf.io.files import scratch_folder, whole_folder, write_whole
target = Path(sys.argv[2])
def wait(file):
    print("begun", flush=True)
    sys.stdin.read()
if sys.argv[1] == "folder":
    with whole_folder(target, force=True, ours=["result-*.txt"]) as new:
        (new / "result-1.txt").write_text("first")
        if os.fork() == 0:
            sys.exit()  # neither the folder nor the lock ends with the child
        os.wait()
        wait(None)
elif sys.argv[1] == "scratch":
    with scratch_folder(target) as new:
        (new / "download").write_text("half")
        wait(None)
else:
    write_whole(target, wait)
"""


def start_writer(kind, target):
    """Start a process that writes until its input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    return process


@needs_locks
@pytest.mark.short("needs processes that were killed")
class TestLeftovers:
    @pytest.mark.parametrize("old", [False, True], ids=["new", "--force"])
    def test_a_live_run_is_respected_and_a_killed_one_is_cleaned_up(self, tmp_path, old):
        out = tmp_path / "out"
        if old:
            fill(out, "old")
        with start_writer("folder", out) as other:
            with pytest.raises(FileExistsError, match=r"Another run is writing to .*out: wait until it ends"):
                fill(out, "second", force=True)
            other.kill()
        assert len(list(tmp_path.glob(".out.onmf-*"))) == 1
        assert not out.exists() or text_of(out) == "old"
        fill(out, "third", force=True)
        assert text_of(out) == "third"

    def test_a_forked_child_does_not_end_the_run(self, tmp_path):
        with start_writer("folder", tmp_path / "out") as other:
            other.communicate("")
        assert other.returncode == 0
        assert text_of(tmp_path / "out") == "first"

    @pytest.mark.parametrize("kind", ["file", "scratch"])
    def test_leftover_files(self, tmp_path, kind):
        target = tmp_path / "model"
        with start_writer(kind, target) as other:
            write_whole(target, lambda file: file.write(b"second"))
            assert len(list(tmp_path.glob(".model.onmf-*"))) == 1, "the file of a live process is left alone"
            other.kill()
        with scratch_folder(target):
            write_whole(target, lambda file: file.write(b"third"))
        assert target.read_bytes() == b"third"

    def test_a_leftover_with_other_files_is_left_alone(self, tmp_path):
        with start_writer("folder", tmp_path / "out") as other:
            [leftover] = tmp_path.glob(".out.onmf-*")
            (leftover / "letter.txt").write_text("theirs")
            other.kill()
        fill(tmp_path / "out", "new")
        assert (leftover / "letter.txt").read_text() == "theirs"
        (leftover / "letter.txt").unlink()
        (tmp_path / "out" / "result-1.txt").unlink()
        fill(tmp_path / "out", "new")

    def test_similar_names(self, tmp_path):
        """Leftovers of other targets are left alone."""
        names = [".out2.onmf-0123456789abcdef", ".out.onmf-notes", ".my.out.onmf-0123456789abcdef"]
        for name in names:
            (tmp_path / name).mkdir()
        fill(tmp_path / "out", "new")
        for name in names:
            (tmp_path / name).rmdir()


class TestOneFile:
    def write(self, path, text="new", **options):
        write_whole(path, lambda file: file.write(text.encode()), **options)

    @needs_posix
    def test_permissions_and_links(self, tmp_path):
        before = os.umask(0o027)
        try:
            self.write(tmp_path / "file", "old")
            assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
        finally:
            os.umask(before)
        (tmp_path / "file").chmod(0o604)
        (tmp_path / "link").symlink_to("file")
        (tmp_path / "dangling").symlink_to("later")
        self.write(tmp_path / "link")
        self.write(tmp_path / "dangling")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "dangling").is_symlink()
        assert (tmp_path / "file").read_text() == (tmp_path / "later").read_text() == "new"
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o604

    @needs_posix
    def test_folders_loops_pipes_and_devices(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="is a folder: name a file"):
            self.write(tmp_path)
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(OSError, match="symbolic links"):
            self.write(tmp_path / "loop")
        os.mkfifo(tmp_path / "pipe")
        read = []
        reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
        reader.start()
        self.write(tmp_path / "pipe")
        reader.join()
        assert read == ["new"]
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        code = "from onmf.io.files import write_whole; write_whole('/dev/stdout', lambda file: file.write(b'new'))"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"new"

    @pytest.mark.parametrize("links", [True, False])
    def test_without_replace_a_late_result_gets_another_name(self, tmp_path, monkeypatch, links):
        def refuse(*_):
            raise PermissionError(1, "Operation not permitted")

        if not links:
            monkeypatch.setattr(os, "link", refuse)  # as on file systems without hard links
        target = tmp_path / "table.csv"

        def write(file):
            file.write(b"second")
            target.write_text("first")

        with pytest.raises(
            FileExistsError, match=r"table.csv was written by another program.*result is in .*table-2.csv"
        ):
            write_whole(target, write, replace=False)
        assert target.read_text() == "first"
        assert (tmp_path / "table-2.csv").read_text() == "second"
        self.write(tmp_path / "other.csv", replace=False)
        assert (tmp_path / "other.csv").read_text() == "new"

    def test_an_interrupt_after_the_rename(self, tmp_path, monkeypatch):
        """The interrupt is raised, not an error from the clean-up."""
        replace = os.replace

        def interrupted(old, new):
            replace(old, new)
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            self.write(tmp_path / "file")
        assert (tmp_path / "file").read_text() == "new"


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # spectral's
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_for_every_file_of_an_image(tmp_path):
    """GDAL and spectral may truncate a file without an error."""
    image = pytest.importorskip("onmf.image")
    pytest.importorskip("rasterio")
    write = pytest.importorskip("onmf.image.write")
    clusters = image.cluster(np.random.default_rng(0).random((20, 30, 5)), 2)
    for name in ("map.tif", "map.img", "scales.tif", "residuals.tif", "margins.tif", "spectra.hdr", "spectra.sli"):
        folder = tmp_path / f"full {name}"
        folder.mkdir()
        (folder / name).symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left on device"):
            write.write_files(clusters, folder)


class Interrupt:
    """Raises KeyboardInterrupt before the n-th instruction of the modules that write files."""

    modules = (files.__file__,)

    def __init__(self, instruction):
        self.left = instruction

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename not in self.modules:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.short("an interrupt before each of many instructions")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kind", "exchange"), [("file", True), ("new folder", True), ("old folder", True), ("old folder", False)]
)
def test_an_interrupt_before_any_instruction(tmp_path, kind, exchange, set_exchange):
    """The old or the new contents are there, whole. What the interrupt left behind is removed at exit."""
    set_exchange(exchange)
    out = tmp_path / "out"
    instruction, ended = 0, False
    while not ended:
        instruction += 1
        old = "old" if kind != "new folder" else None
        if kind == "file":
            out.write_text("old")
        elif old and not (out.exists() and text_of(out) == old):
            fill(out, old, force=True)
        try:
            with Interrupt(instruction):
                if kind == "file":
                    write_whole(out, lambda file: file.write(b"new"))
                else:
                    fill(out, "new", force=True)
            ended = True
        except KeyboardInterrupt:
            pass
        discard_unfinished()
        assert [path.name for path in tmp_path.iterdir() if path != out] == []
        if old or out.exists():
            assert (out.read_text() if kind == "file" else text_of(out)) in ("new", old)
        if not old and out.exists():
            (out / "result-1.txt").unlink()
            out.rmdir()
    assert instruction > 100
