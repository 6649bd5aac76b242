"""A server that forks processes in which files are written and a fault strikes; see test_fault_matrix.py.

Each run is a separate process, forked from one that has imported everything. An audit hook counts its steps, which
are the calls that change a file or a folder. The fault strikes before the n-th step.
"""

import atexit
import csv
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import onmf
from onmf.datasets import open_shards, write_shards
from onmf.io import files

STEPS = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod", "fcntl.flock", "ctypes.dlsym", "open")
"""Audit events that count as steps."""

DOCUMENTS = ["assignments.csv", "clusters.csv", "model.onmf", "summary.json"]
IMAGE = [
    "clusters.csv",
    "confidence.tif",
    "map.hdr",
    "map.img",
    "map.png",
    "map.svg",
    "map.tif",
    "map.tif.aux.xml",
    "margins.tif",
    "model.onmf",
    "residuals.tif",
    "runner_up.tif",
    "runner_up.tif.aux.xml",
    "scales.tif",
    "spectra.csv",
    "spectra.hdr",
    "spectra.png",
    "spectra.sli",
    "spectra.svg",
    "summary.json",
    "surprise.tif",
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


def read_reproduced(folder):
    results = json.loads((folder / "documents.json").read_text())
    assert len(rows(folder / "documents.csv")) == len(results) == 1
    assert "tr23" in (folder / "documents.md").read_text()


def read_fetched(path):
    with np.load(path) as file:
        assert file["indptr"][-1] == len(file["data"])


def fit(k):
    return onmf.ONMF(k, n_threads=1).fit(np.eye(4) + 1)


def command(*arguments):
    """A writer that runs the command line; {k}, {folder} and {base} in the arguments are filled in."""

    def run(folder, k, force):
        import onmf.cli

        formatted = [argument.format(folder=folder, base=folder.parent, k=k) for argument in arguments]
        sys.argv = ["onmf", *formatted, *(["--force"] if force else [])]
        onmf.cli.main()

    return run


class Writer:
    """A command or function that writes a result of k clusters.

    Attributes
    ----------
    target : str
        Where it writes, relative to the folder of the run.
    run : callable
        ``run(folder, k, force)`` writes the result.
    read : callable
        ``read(path)`` checks a result and returns its k, or None if k does not matter.
    forces : bool
        It has the option ``--force``.
    replaces : bool
        It replaces an old result, with ``--force`` if it has that.
    shares : bool
        Two may write at once, and the later one wins.
    library : bool
        It is a function, not a command, so SIGTERM kills it.
    success : int
        Its exit status on success.
    stride : int
        Every how many steps a fault is tried; above 1 for slow writers.
    """

    forces = replaces = True
    shares = library = False
    success, stride = 0, 1

    def __init__(self, target, run, read, **options):
        self.target, self.run, self.read = target, run, read
        vars(self).update(options)


TEXTS = ("documents", "{base}/{k}.csv", "-k", "{k}", "--quick", "--quiet", "--threads", "1", "--no-report")
OVERWRITES = {"forces": False, "shares": True}
WRITERS = {
    "documents": Writer("out", command(*TEXTS, "--out", "{folder}/out"), read_documents),
    "shards": Writer("out", command(*TEXTS, "--shards", "{folder}/out"), lambda out: read_shards(out) - 10),
    "image": Writer(
        "out",
        command("image", "{base}/cube.npy", "-k", "{k}", "--quiet", "--no-report", "--out", "{folder}/out"),
        read_image,
        stride=17,
    ),
    "predict": Writer(
        "out.csv",
        command("predict", "{base}/model.onmf", "{base}/{k}.csv", "--quiet", "--out", "{folder}/out.csv"),
        lambda out: len(rows(out)) - 10,
    ),
    "reproduce": Writer(
        ".",
        command("reproduce", "documents", "--only", "tr23", "--out", "{folder}"),
        read_reproduced,
        success=1,  # the numbers differ from the paper's
        **OVERWRITES,
    ),
    "fetch": Writer(
        "data/documents/tr11.npz",
        command("fetch", "tr11"),
        read_fetched,
        replaces=False,
        **OVERWRITES,
    ),
    "save": Writer(
        "model.onmf",
        lambda folder, k, force: fit(k).save(folder / "model.onmf"),
        lambda out: len(onmf.load(out).cluster_centers_),
        library=True,
        **OVERWRITES,
    ),
    "write_shards": Writer(
        "out",
        lambda folder, k, force: write_shards([np.eye(4)] * k, folder / "out", names="abcd"),
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


def serve(folder):
    """Answer requests: each line of input asks for a run, and each line of output describes how it ended."""
    import onmf.datasets.load
    from onmf.datasets.load import RemoteFile

    content = (folder.parent / "served" / "tr11.npz").read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    file = RemoteFile("github.com/o/r", "c" * 40, "tr11.npz", blob, hashlib.sha256(content).hexdigest())
    onmf.datasets.load.remote_files = lambda info: [file]
    onmf.datasets.load.RETRIES = 0
    run_writer(folder, "documents", 2)
    shutil.copy(folder / "out" / "model.onmf", folder.parent)
    remove(folder / "out")
    for name in WRITERS:  # import and compile everything before the first fork
        run_writer(folder, name, 2)
        for path in folder.iterdir():
            remove(path)
    assert threading.active_count() == 1, "a process with threads must not fork"
    gc.freeze()  # pages that the collector does not touch are not copied
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        for name in ("fired", "resume"):
            (folder.parent / name).unlink(missing_ok=True)
        first = begin(folder, request)
        others = []
        if request["fault"] == "pause":
            while os.waitid(os.P_PID, first[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if (folder.parent / "fired").exists():
                    others = [end(folder, *begin(folder, {**request, "k": 5 - request["k"], "fault": None}))]
                    (folder.parent / "resume").touch()
                    break
                time.sleep(0.001)
        print(json.dumps([end(folder, *first), *others]), flush=True)


def begin(folder, request):
    """Fork a process that runs a writer. → its id, and a pipe with its standard error"""
    reading_end, writing_end = os.pipe()
    process = os.fork()
    if process:
        os.close(writing_end)
        return process, reading_end
    status = 70
    try:
        os.dup2(writing_end, 2)
        if not request["exchange"]:
            files.exchange = lambda one, other: False  # as on file systems without it
        if request["limit"] is not None:
            import resource  # not on Windows

            resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], request["limit"]))
        sys.addaudithook(Fault(folder, request["fault"], request["step"]).strike)
        status = run_writer(folder, request["writer"], request["k"], request["force"])
        atexit._run_exitfuncs()
        sys.stderr.flush()
    finally:
        os._exit(status)


def run_writer(folder, name, k, force=False):
    """Run a writer as if it were the only thing that the process does. → its exit status"""
    os.environ["ONMF_DATA"] = str((folder if name == "fetch" else folder.parent) / "data")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with open(os.devnull, "w", encoding="utf-8") as sink, redirect_stdout(sink):
            WRITERS[name].run(folder, k, force)
    except SystemExit as ended:
        return ended.code or 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def end(folder, process, stderr):
    """Wait for the end of a run. → its status, its standard error, and whether the fault struck"""
    _, status = os.waitpid(process, 0)
    with open(stderr, encoding="utf-8") as file:
        text = file.read()
    return {"status": os.waitstatus_to_exitcode(status), "stderr": text, "fired": (folder.parent / "fired").exists()}


class Fault:
    """An audit hook that sends a signal, or pauses, before the n-th step."""

    def __init__(self, folder, kind, step):
        self.folder, self.kind, self.step, self.steps, self.busy = folder, kind, step, 0, False

    def strike(self, event, args):
        if self.kind is None or self.busy or event not in STEPS or not self.counts(event, *args):
            return
        self.steps += 1
        if self.steps - 1 != self.step:
            return
        self.busy = True
        (self.folder.parent / "fired").touch()
        if self.kind == "pause":
            while not (self.folder.parent / "resume").exists():
                time.sleep(0.001)
        else:
            os.kill(os.getpid(), getattr(signal, self.kind))

    def counts(self, event, first=None, second=None, third=None, *_):
        """Whether an audit event changes the folder or a lock."""
        if event == "open":
            return isinstance(first, str) and first.startswith(str(self.folder)) and third & (os.O_WRONLY | os.O_RDWR)
        if event == "ctypes.dlsym":
            return second in ("renameat2", "renamex_np")
        if event == "fcntl.flock":
            return second != files.fcntl.LOCK_UN
        return str(first).startswith(str(self.folder)) or event in ("os.remove", "os.rmdir")


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
