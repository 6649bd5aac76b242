"""Files and folders are complete or absent, whatever else happens at their path and whenever the process ends."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from conftest import until
from onmf import files
from onmf.files import discard_unfinished, scratch_folder, whole_folder, write_whole

needs_locks = pytest.mark.skipif(files.fcntl is None, reason="this system has no flock: strays are left alone")
both = pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])


@pytest.fixture(autouse=True)
def nothing_hidden_is_left(tmp_path):
    yield
    assert [path.name for path in tmp_path.rglob(".*.onmf-*")] == []


@pytest.fixture
def without_exchange(monkeypatch):
    def switch(exchange):
        if not exchange:
            monkeypatch.setattr(files, "_exchange", lambda one, other: False)  # as on file systems without exchange

    return switch


def fill(path, text, **options):
    with whole_folder(path, ours=["result-*.txt", "model"], **options) as new:
        (new / "result-1.txt").write_text(text)


def text_of(path):
    return (path / "result-1.txt").read_text()


def meanwhile(out, force):
    with whole_folder(out, force=force, ours=["result-1.txt"]) as new:
        (new / "result-1.txt").write_text("new")
        out.mkdir(exist_ok=True)
        (out / "result-1.txt").write_text("theirs")


class TestFolders:
    def test_a_folder_that_is_filled_meanwhile_is_left_alone(self, tmp_path):
        out = tmp_path / "out"
        for force, existed in ((False, False), (False, True), (True, False)):
            if existed:
                out.mkdir()
            with pytest.raises(
                FileExistsError, match=r"out was filled by somebody else while this ran.*is in .*out-2\."
            ):
                meanwhile(out, force)
            assert text_of(out) == "theirs"
            assert text_of(tmp_path / "out-2") == "new"
            for folder in (out, tmp_path / "out-2"):
                (folder / "result-1.txt").unlink()
                folder.rmdir()

    @both
    @pytest.mark.parametrize("change", ["added", "replaced", "removed"])
    def test_force_replaces_nothing_but_what_it_saw(self, tmp_path, exchange, change, without_exchange):
        without_exchange(exchange)
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
        with pytest.raises(FileExistsError, match="out was filled by somebody else while this ran"):
            run()
        assert text_of(out) == {"added": "newer", "replaced": "another run's"}[change]
        assert (out / "letter.txt").exists() == (change == "added")
        assert text_of(tmp_path / "out-2") == "newest"

    def test_what_stops_at_the_swap_is_kept_beside(self, tmp_path, monkeypatch):
        rename = os.rename

        def refuse(old, new, **options):
            if Path(new).name == "out":
                raise OSError(16, "Device or resource busy")
            rename(old, new, **options)

        monkeypatch.setattr(os, "rename", refuse)
        with pytest.raises(FileExistsError, match=r"out cannot be replaced \(Device or resource busy\). The result is"):
            fill(tmp_path / "out", "new")
        assert text_of(tmp_path / "out-2") == "new"

    def test_links_and_places_that_cannot_be_replaced(self, tmp_path, monkeypatch):
        (tmp_path / "disk").mkdir()
        for name, target in (("link", "disk/out"), ("loop", "loop")):
            (tmp_path / name).symlink_to(target)
        fill(tmp_path / "link", "old")  # the link still dangles
        fill(tmp_path / "link", "new", force=True)
        assert (tmp_path / "link").is_symlink()
        assert text_of(tmp_path / "disk" / "out") == "new"
        with pytest.raises(OSError, match="loop is a link that leads to itself"):
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
            pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
        try:
            with pytest.raises(FileExistsError, match="disk is a mount point"), whole_folder(disk):
                raise AssertionError("it began to work")
            fill(disk / "out", "new")
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_permissions_are_those_of_the_user(self, tmp_path):
        before = os.umask(0o027)
        try:
            fill(tmp_path / "out", "old")
            assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
            (tmp_path / "out").chmod(0o700)
            fill(tmp_path / "out", "new", force=True)
            assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
        finally:
            os.umask(before)


def test_what_somebody_puts_there_while_a_command_runs_stays(tmp_path):
    """Run the real command, which reads from a pipe until the pipe is closed."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "onmf", "documents", "-", "-k", "2", "--no-report", "--out", str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdin.write("tea\nmilk\n")
        running.stdin.flush()
        until(lambda: list(tmp_path.glob(".out.onmf-*")))
        out.mkdir()
        (out / "letter.txt").write_text("theirs")
        _, said = running.communicate()
    assert running.returncode == 2
    assert said == (
        f"onmf: {out} was filled by somebody else while this ran, and was left as it is. The result is in {out}-2.\n"
    )
    assert [path.name for path in out.iterdir()] == ["letter.txt"]
    assert sorted(os.listdir(f"{out}-2")) == ["assignments.csv", "clusters.csv", "model.onmf"]


HOLDS = """
import os, sys
from pathlib import Path
from onmf.files import scratch_folder, whole_folder, write_whole
place = Path(sys.argv[2])
def wait(file):
    print("begun", flush=True)
    sys.stdin.read()
if sys.argv[1] == "folder":
    with whole_folder(place, force=True, ours=["result-*.txt"]) as new:
        (new / "result-1.txt").write_text("first")
        if os.fork() == 0:
            sys.exit()  # a child takes neither folder nor lock with it
        os.wait()
        wait(None)
elif sys.argv[1] == "scratch":
    with scratch_folder(place) as new:
        (new / "download").write_text("half")
        wait(None)
else:
    write_whole(place, wait)
"""


def holding(kind, place):
    """A process that is paused in the middle of writing."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, kind, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    return process


@needs_locks
class TestStrays:
    @pytest.mark.parametrize("old", [False, True], ids=["new", "--force"])
    def test_a_folder_of_a_living_run_is_refused_and_that_of_a_killed_one_removed(self, tmp_path, old):
        out = tmp_path / "out"
        if old:
            fill(out, "old")
        with holding("folder", out) as other:
            with pytest.raises(FileExistsError, match=r"Another run is writing to .*out: wait until it ends"):
                fill(out, "second", force=True)
            other.kill()
        assert len(list(tmp_path.glob(".out.onmf-*"))) == 1
        assert not out.exists() or text_of(out) == "old"
        fill(out, "third", force=True)
        assert text_of(out) == "third"

    def test_the_winner_of_two_is_not_replaced(self, tmp_path):
        with holding("folder", tmp_path / "out") as other:
            other.communicate("")
        assert other.returncode == 0
        assert text_of(tmp_path / "out") == "first"

    @pytest.mark.parametrize("kind", ["file", "scratch"])
    def test_strays_of_files(self, tmp_path, kind):
        place = tmp_path / "model"
        with holding(kind, place) as other:
            write_whole(place, lambda file: file.write(b"second"))
            assert len(list(tmp_path.glob(".model.onmf-*"))) == 1, "a living one's is left alone"
            other.kill()
        with scratch_folder(place):
            write_whole(place, lambda file: file.write(b"third"))
        assert place.read_bytes() == b"third"

    def test_what_is_not_ours_in_a_stray_is_left(self, tmp_path):
        with holding("folder", tmp_path / "out") as other:
            [stray] = tmp_path.glob(".out.onmf-*")
            (stray / "letter.txt").write_text("theirs")
            other.kill()
        fill(tmp_path / "out", "new")
        assert (stray / "letter.txt").read_text() == "theirs"
        (stray / "letter.txt").unlink()
        (tmp_path / "out" / "result-1.txt").unlink()
        fill(tmp_path / "out", "new")

    def test_names_alike(self, tmp_path):
        """Folders with similar names are not leftovers of this target and are not removed."""
        names = [".out2.onmf-0123456789abcdef", ".out.onmf-notes", ".my.out.onmf-0123456789abcdef"]
        for name in names:
            (tmp_path / name).mkdir()
        fill(tmp_path / "out", "new")
        for name in names:
            (tmp_path / name).rmdir()


class TestOneFile:
    def write(self, path, text="new", **options):
        write_whole(path, lambda file: file.write(text.encode()), **options)

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

    def test_places_that_are_no_files(self, tmp_path):
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
        code = "from onmf.files import write_whole; write_whole('/dev/stdout', lambda file: file.write(b'new'))"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"new"

    @pytest.mark.parametrize("links", [True, False])
    def test_without_replace_the_later_of_two_is_kept_beside(self, tmp_path, monkeypatch, links):
        def cannot(*_):
            raise PermissionError(1, "Operation not permitted")

        if not links:
            monkeypatch.setattr(os, "link", cannot)  # as on file systems without hard links
        place = tmp_path / "table.csv"

        def write(file):
            file.write(b"second")
            place.write_text("first")

        with pytest.raises(
            FileExistsError, match=r"table.csv was written by somebody else.*result is in .*table-2.csv"
        ):
            write_whole(place, write, replace=False)
        assert place.read_text() == "first"
        assert (tmp_path / "table-2.csv").read_text() == "second"
        self.write(tmp_path / "other.csv", replace=False)
        assert (tmp_path / "other.csv").read_text() == "new"

    def test_the_first_error_is_the_one_that_is_told(self, tmp_path, monkeypatch):
        """An interrupt arrives when the file is already in place."""
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
def test_a_full_disk_is_noticed_whichever_file_of_an_image_meets_it(tmp_path):
    """GDAL and spectral can truncate a file without an error."""
    image = pytest.importorskip("onmf.image")
    pytest.importorskip("rasterio")
    write = pytest.importorskip("onmf.image.write")
    found = image.cluster_image(np.random.default_rng(0).random((20, 30, 5)), 2)
    for name in ("map.tif", "map.img", "scales.tif", "residuals.tif", "margins.tif", "spectra.hdr", "spectra.sli"):
        folder = tmp_path / f"full {name}"
        folder.mkdir()
        (folder / name).symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left on device"):
            write.write_files(found, folder)


class Interrupt:
    """Raises KeyboardInterrupt before the n-th instruction of :mod:`onmf.files`."""

    def __init__(self, instruction):
        self.left = instruction

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename != files.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self.trace


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kind", "exchange"), [("file", True), ("new folder", True), ("old folder", True), ("old folder", False)]
)
def test_an_interrupt_before_any_instruction(tmp_path, kind, exchange, without_exchange):
    """Afterwards the old or the new file is complete. Leftovers are removed when the process ends."""
    without_exchange(exchange)
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
