"""Every writer against every fault that can occur while it writes.

Each case is a real run on small data, in a process that is forked from one that has imported everything. An audit hook
counts the steps of the run, the calls that change a file or a folder. The fault strikes before the n-th step, for every
n. Afterwards the old or the new result must be complete and in its place, files of others must still exist, and there
must be no leftovers, or the next run must remove them.
"""

import atexit
import csv
import gc
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, redirect_stdout
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf
from onmf import files
from onmf.datasets import open_shards, write_shards

FORK = hasattr(os, "fork")
pytestmark = pytest.mark.skipif(not FORK, reason="this system has no fork")

STEPS = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod", "fcntl.flock", "ctypes.dlsym", "open")
THEIRS = ("letter.txt", ".letter.txt.onmf-0123456789abcdef")
"""Files of others next to the results, which no writer may touch."""

DOCUMENTS = ["assignments.csv", "clusters.csv", "model.onmf"]
IMAGE = [
    *("map.hdr", "map.img", "map.png", "map.svg", "map.tif", "map.tif.aux.xml", "margins.tif", "model.onmf"),
    *("residuals.tif", "scales.tif", "spectra.csv", "spectra.hdr", "spectra.png", "spectra.sli", "spectra.svg"),
    "summary.json",
]


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_documents(out):
    assert sorted(os.listdir(out)) == DOCUMENTS
    k = len(onmf.load(out / "model.onmf").cluster_centers_)
    assert (len(rows(out / "clusters.csv")), len(rows(out / "assignments.csv"))) == (k, 10 + k)
    return k


def read_image(out):
    import rasterio

    assert sorted(os.listdir(out)) == IMAGE
    k = len(onmf.load(out / "model.onmf").cluster_centers_)
    assert len(json.loads((out / "summary.json").read_text())["clusters"]) == k
    assert (out / "spectra.sli").stat().st_size == 4 * 5 * k
    assert (out / "map.img").stat().st_size == 20 * 30
    assert (out / "spectra.svg").read_text().rstrip().endswith("</svg>")
    for name in ("map", "scales", "residuals", "margins"):
        with (
            pytest.warns(rasterio.errors.NotGeoreferencedWarning),
            rasterio.open(out / f"{name}.tif") as file,
        ):
            assert file.read(1).shape == (20, 30)
    return k


def read_shards(out):
    ids = (out / "ids.txt").read_text().split()
    assert open_shards(out).shape == (len(ids), 3 * (len(ids) - 10))
    return len(ids)


def read_reproduced(room):
    found = json.loads((room / "documents.json").read_text())
    assert len(rows(room / "documents.csv")) == len(found) == 1
    assert "tr23" in (room / "documents.md").read_text()


def read_fetched(path):
    with np.load(path) as file:
        assert file["indptr"][-1] == len(file["data"])


def fit(k):
    return onmf.ONMF(k, n_threads=1).fit(np.eye(4) + 1)


def command(*arguments):
    """Run the command line with these arguments, after filling in {k} and the folders."""

    def run(room, k, force):
        import onmf.cli

        filled = [argument.format(room=room, base=room.parent, k=k) for argument in arguments]
        sys.argv = ["onmf", *filled, *(["--force"] if force else [])]
        onmf.cli.main()

    return run


class Writer:
    """A command or function that writes.

    ``place`` is the target. ``run(room, k, force)`` writes a result with k clusters. ``read(path)`` checks a result and
    returns its k, or None if k does not matter. ``forces``: it has ``--force``. ``replaces``: it replaces an old
    result, with ``--force`` if it has that option. ``shares``: two may write at once, and the later one wins.
    ``library``: it is not a command, so SIGTERM kills it. ``fine``: its exit status on success. ``stride``: tests only
    every n-th step, for slow writers.
    """

    forces = replaces = True
    shares = library = False
    fine, stride = 0, 1

    def __init__(self, place, run, read, **options):
        self.place, self.run, self.read = place, run, read
        vars(self).update(options)


TEXTS = ("documents", "{base}/{k}.csv", "-k", "{k}", "--quiet", "--threads", "1", "--no-report")
LIKE = {"forces": False, "shares": True}
WRITERS = {
    "documents": Writer("out", command(*TEXTS, "--out", "{room}/out"), read_documents),
    "shards": Writer("out", command(*TEXTS, "--shards", "{room}/out"), lambda out: read_shards(out) - 10),
    "image": Writer(
        "out",
        command("image", "{base}/cube.npy", "-k", "{k}", "--quiet", "--no-report", "--out", "{room}/out"),
        read_image,
        stride=17,
    ),
    "predict": Writer(
        "out.csv",
        command("predict", "{base}/model.onmf", "{base}/{k}.csv", "--quiet", "--out", "{room}/out.csv"),
        lambda out: len(rows(out)) - 10,
    ),
    "reproduce": Writer(
        ".",
        command("reproduce", "documents", "--only", "tr23", "--out", "{room}"),
        read_reproduced,
        fine=1,  # these numbers are not the paper's
        **LIKE,
    ),
    "fetch": Writer(
        "data/documents/tr11.npz",
        command("fetch", "tr11"),
        read_fetched,
        replaces=False,
        **LIKE,
    ),
    "save": Writer(
        "model.onmf",
        lambda room, k, force: fit(k).save(room / "model.onmf"),
        lambda out: len(onmf.load(out).cluster_centers_),
        library=True,
        **LIKE,
    ),
    "write_shards": Writer(
        "out",
        lambda room, k, force: write_shards([np.eye(4)] * k, room / "out", names="abcd"),
        lambda out: len(open_shards(out).files),
        library=True,
        forces=False,
        replaces=False,
    ),
}


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


# The process from which the runs are forked. It reads a request per line and answers with a line.


def serve(room):
    import onmf.datasets.download
    from onmf.datasets.catalogue import RemoteFile

    content = (room.parent / "served" / "tr11.npz").read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    file = RemoteFile("github.com/o/r", "c" * 40, "tr11.npz", blob, hashlib.sha256(content).hexdigest())
    onmf.datasets.download.remote_files = lambda info: [file]
    onmf.datasets.download.RETRIES = 0
    work(room, "documents", 2)
    shutil.copy(room / "out" / "model.onmf", room.parent)
    remove(room / "out")
    for name in WRITERS:  # import and compile everything before the first fork
        work(room, name, 2)
        for path in room.iterdir():
            remove(path)
    assert threading.active_count() == 1, "only then may a process fork"
    gc.freeze()  # keeps the garbage collector from touching, and so copying, shared pages
    print("ready", flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        for name in ("fired", "resume"):
            (room.parent / name).unlink(missing_ok=True)
        first = begin(room, ask)
        answers = []
        if ask["fault"] == "pause":
            while os.waitid(os.P_PID, first[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if (room.parent / "fired").exists():
                    answers = [end(room, *begin(room, {**ask, "k": 5 - ask["k"], "fault": None}))]
                    (room.parent / "resume").touch()
                    break
                time.sleep(0.001)
        print(json.dumps([end(room, *first), *answers]), flush=True)


def begin(room, ask):
    heard, said = os.pipe()
    process = os.fork()
    if process:
        os.close(said)
        return process, heard
    status = 70
    try:
        os.dup2(said, 2)
        if not ask["exchange"]:
            files._exchange = lambda one, other: False  # as on file systems without exchange
        if ask["limit"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (ask["limit"], ask["limit"]))
        sys.addaudithook(Fault(room, ask["fault"], ask["step"]).strike)
        status = work(room, ask["writer"], ask["k"], ask["force"])
        atexit._run_exitfuncs()
        sys.stderr.flush()
    finally:
        os._exit(status)


def work(room, name, k, force=False):
    """Run a writer as the only task of a process. → exit status"""
    os.environ["ONMF_DATA"] = str((room if name == "fetch" else room.parent) / "data")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with open(os.devnull, "w") as sink, redirect_stdout(sink):
            WRITERS[name].run(room, k, force)
    except SystemExit as ended:
        return ended.code or 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def end(room, process, heard):
    _, status = os.waitpid(process, 0)
    with open(heard) as said:
        text = said.read()
    return {"status": os.waitstatus_to_exitcode(status), "said": text, "fired": (room.parent / "fired").exists()}


class Fault:
    def __init__(self, room, kind, step):
        self.room, self.kind, self.step, self.steps, self.busy = room, kind, step, 0, False

    def strike(self, event, args):
        if self.kind is None or self.busy or event not in STEPS or not self.counts(event, *args):
            return
        self.steps += 1
        if self.steps - 1 != self.step:
            return
        self.busy = True
        (self.room.parent / "fired").touch()
        if self.kind == "pause":
            while not (self.room.parent / "resume").exists():
                time.sleep(0.001)
        else:
            os.kill(os.getpid(), getattr(signal, self.kind))

    def counts(self, event, first=None, second=None, third=None, *_):
        if event == "open":
            return isinstance(first, str) and first.startswith(str(self.room)) and third & (os.O_WRONLY | os.O_RDWR)
        if event == "ctypes.dlsym":
            return second in ("renameat2", "renamex_np")
        if event == "fcntl.flock":
            return second != files.fcntl.LOCK_UN
        return str(first).startswith(str(self.room)) or event in ("os.remove", "os.rmdir")


# The tests


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self):
        self.path = "/" + self.path.rsplit("/", 1)[-1]
        super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    """Runs writers with faults in a folder, the room."""
    base = tmp_path_factory.mktemp("faults").resolve()
    room = base / "room"
    for folder in (room, base / "served", base / "data" / "documents"):
        folder.mkdir(parents=True)
    words = ["green tea leaves", "cold milk of cows", "red wine cellar"]
    for k in (2, 3):
        lines = [f"{i},{words[i % k]} {words[i % k]}" for i in range(10 + k)]
        (base / f"{k}.csv").write_text("\n".join(["id,text", *lines]))
    X = csr_array(np.array([[4.0, 2, 0, 0], [3, 1, 0, 0], [0, 0, 5, 2], [0, 1, 4, 3]] * 3))
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "y": np.arange(12) // 2 % 2}
    for path in (base / "served" / "tr11.npz", base / "data" / "documents" / "tr23.npz"):
        np.savez(path, **parts)
    np.save(base / "cube.npy", np.random.default_rng(0).random((20, 30, 5)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=base / "served")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://127.0.0.1:{server.server_address[1]}"
        with subprocess.Popen(
            [sys.executable, __file__, str(room)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "MPLBACKEND": "agg",
                "ONMF_MIRROR": mirror,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
        ) as process:
            assert process.stdout.readline() == "ready\n"

            def run(writer, k, fault=None, step=0, *, force=None, limit=None, exchange=True):
                force = WRITERS[writer].forces if force is None else force
                ask = {"writer": writer, "k": k, "fault": fault, "step": step, "force": force, "limit": limit}
                process.stdin.write(json.dumps({**ask, "exchange": exchange}) + "\n")
                process.stdin.flush()
                answers = json.loads(process.stdout.readline())
                return answers if fault == "pause" else answers[0]

            run.room = room
            yield run
            process.stdin.close()
            assert process.wait(60) == 0
        server.shutdown()


class Case:
    """A writer in a room that also contains files of others, and an old result if the writer replaces one."""

    def __init__(self, forge, name):
        self.forge, self.name, self.writer = forge, name, WRITERS[name]
        self.room, self.place = forge.room, forge.room / self.writer.place
        self.k = None
        for path in self.room.iterdir():
            remove(path)
        for name in THEIRS:
            (self.room / name).write_text("theirs")
        if self.writer.replaces:
            self.again()

    def run(self, fault=None, step=0, *, exchange=True, limit=None):
        """Run once. Afterwards the old or the new result must be complete."""
        if not self.writer.replaces:
            remove(self.place)
        new = 5 - (self.k or 2)
        found = self.forge(self.name, new, fault, step, exchange=exchange, limit=limit)
        if not exchange and not self.place.exists():  # killed between two renames
            assert self.forge(self.name, new, force=False)["status"] == 2, "the next run puts the old result back"
        self.check(found, new)
        return found

    def check(self, found, *new):
        assert "Traceback" not in found["said"]
        for name in THEIRS:
            assert (self.room / name).read_text() == "theirs"
        fine = found["status"] == self.writer.fine
        if fine or self.writer.replaces or self.place.exists():
            k = self.writer.read(self.place)
            assert k in new if fine and k else k in (self.k, *new, None)
            self.k = k

    def again(self):
        """Run again. This run must remove the leftovers of others."""
        found = self.run()
        assert found["status"] == self.writer.fine, found
        assert self.left() == []

    def left(self):
        return [path.name for path in self.room.rglob(".*") if path.name not in THEIRS]

    def steps(self, fault, **options):
        """Run once for each step at which the fault can strike."""
        step = self.writer.stride - 1
        while (found := self.run(fault, step, **options))["fired"]:
            yield found
            step += self.writer.stride
        assert found["status"] == self.writer.fine
        assert step > 3


@pytest.mark.parametrize("fault", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize(("name", "exchange"), [*((name, True) for name in WRITERS), ("documents", False)])
def test_a_signal_at_every_step(forge, name, exchange, fault):
    case = Case(forge, name)
    for found in case.steps(fault, exchange=exchange):
        if fault == "SIGKILL" or (fault == "SIGTERM" and case.writer.library):
            assert found["status"] == -getattr(signal, fault)
            case.again()
        else:
            assert found["status"] == 128 + getattr(signal, fault)
            assert found["said"] == ("" if case.writer.library else "onmf: interrupted.\n")
            assert case.left() == []


@pytest.mark.parametrize(
    ("name", "old"),
    [(name, True) for name in WRITERS if WRITERS[name].replaces]
    + [(name, False) for name in WRITERS if WRITERS[name].place != "."],
)
def test_two_runs_at_once(forge, name, old):
    """For every step, one run pauses before it while the other runs from beginning to end."""
    case = Case(forge, name)
    writer, step = case.writer, case.writer.stride - 1
    while True:
        if not old:
            remove(case.place)
        k = 5 - (case.k or 2)
        found = forge(name, k, "pause", step, force=old and writer.forces)
        if not found[0]["fired"]:
            break
        first, second = found
        for each in found:
            assert "Traceback" not in each["said"]
        for theirs in THEIRS:
            assert (case.room / theirs).read_text() == "theirs"
        case.k = writer.read(case.place)
        assert case.left() == []
        won = [each["status"] == writer.fine for each in (first, second)]
        if writer.shares or (name == "predict" and old):
            assert all(won)
        elif old and step < 3:  # the paused run has not begun, so it runs after the other
            assert all(won)
            assert case.k == k
        else:
            assert sum(won) == 1, (step, found)
            assert case.k == (k if won[0] else 5 - k)
            if won[0]:
                assert re.search("Another run is writing to|exists|already", second["said"])
            else:
                [kept] = re.findall(
                    r"somebody else while this ran, and was left as it is. The result is in (.*)\.\n", first["said"]
                )
                assert writer.read(Path(kept)) == k
                remove(Path(kept))
        step += writer.stride
    assert step > 3


@contextmanager
def small_disk(room):
    """Mount a disk at the room. Yields a function that changes its options, or None if mounting is not permitted."""

    def mount(*options):
        done = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", room], capture_output=True, check=False)
        return done.returncode == 0

    if not shutil.which("mount") or not mount("-o", "size=64m"):
        yield None
        return
    try:
        yield lambda options: mount("-o", f"remount,{options}") or pytest.fail(f"the disk cannot be {options}")
    finally:
        subprocess.run(["umount", room], check=True)


def squeezed(case, disk, kind, extra):
    """A run with limited disk space."""
    if disk is None:
        return case.run(limit=extra)
    if not case.writer.replaces:
        remove(case.place)
    now = os.statvfs(case.room)
    if kind == "files":
        disk(f"size=64m,nr_inodes={now.f_files - now.f_ffree + extra}")
    else:
        disk(f"size={(now.f_blocks - now.f_bfree) * now.f_bsize // 1024 + extra}k,nr_inodes=10000")
    return case.run()


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(forge, name):
    """Limit the disk in kilobytes, then in number of files. If no disk can be mounted, limit the size of files."""
    with small_disk(forge.room) as disk:
        case = Case(forge, name)
        for kind in ("kilobytes", "files") if disk else ("limit",):
            extra = 0
            while (found := squeezed(case, disk, kind, extra))["status"] != case.writer.fine:
                assert found["status"] == 2
                assert ("No space left on device" if disk else "File too large") in found["said"]
                assert case.left() == []
                extra = 2 * extra or (4 if kind == "kilobytes" else 1)
            assert extra > 0


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_may_not_be_written(forge, name):
    with small_disk(forge.room) as disk:
        if not disk and os.geteuid() == 0:
            pytest.skip("root may write anywhere, and no disk can be mounted here")
        case = Case(forge, name)
        if not case.writer.replaces:
            remove(case.place)
        disk("ro") if disk else case.room.chmod(0o555)
        found = case.run()
        disk("rw") if disk else case.room.chmod(0o755)
        assert found["status"] == 2
        assert re.search("Read-only file system|Permission denied", found["said"])
        assert case.left() == []
        case.again()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
