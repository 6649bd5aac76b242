"""Everything that writes, against everything that can go wrong meanwhile.

Each case is a real run on small data, in a separate process (see fault_server.py). A fault strikes before the n-th
step of the run, for every n. Afterwards the old result or the new one is there, whole, under its name. No other files
are lost. Nothing temporary is left, or the next run removes it.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import fault_server
from fault_server import WRITERS, remove

pytestmark = [
    pytest.mark.long("faults at every step of writing"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

OTHER_FILES = ("letter.txt", ".letter.txt.onmf-0123456789abcdef")
"""Files beside the results that no writer may touch."""


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self):
        self.path = "/" + self.path.rsplit("/", 1)[-1]
        super().do_GET()

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def run_writer(tmp_path_factory):
    """A function that runs a writer with a fault; its attribute ``folder`` is where the writers write."""
    base = tmp_path_factory.mktemp("faults").resolve()
    folder = base / "folder"
    for path in (folder, base / "served", base / "data" / "documents"):
        path.mkdir(parents=True)
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
            [sys.executable, fault_server.__file__, str(folder)],
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
                request = {"writer": writer, "k": k, "fault": fault, "step": step, "force": force, "limit": limit}
                process.stdin.write(json.dumps({**request, "exchange": exchange}) + "\n")
                process.stdin.flush()
                outcomes = json.loads(process.stdout.readline())
                return outcomes if fault == "pause" else outcomes[0]

            run.folder = folder
            yield run
            process.stdin.close()
            assert process.wait(60) == 0
        server.shutdown()


class Case:
    """A writer in a folder with other files and, if the writer replaces one, an old result."""

    def __init__(self, run_writer, name):
        self.run_writer, self.name, self.writer = run_writer, name, WRITERS[name]
        self.folder, self.target = run_writer.folder, run_writer.folder / self.writer.target
        self.k = None  # of the result that is there: 2 and 3 in turn
        for path in self.folder.iterdir():
            remove(path)
        for name in OTHER_FILES:
            (self.folder / name).write_text("theirs")
        if self.writer.replaces:
            self.run_undisturbed()

    def run(self, fault=None, step=0, *, exchange=True, limit=None):
        """Run once. The old or the new result is there afterwards."""
        if not self.writer.replaces:
            remove(self.target)
        new_k = 5 - (self.k or 2)
        outcome = self.run_writer(self.name, new_k, fault, step, exchange=exchange, limit=limit)
        if not exchange and not self.target.exists():  # killed between two renames
            next_outcome = self.run_writer(self.name, new_k, force=False)
            assert next_outcome["status"] == 2, "the next run puts the old result back"
        self.check(outcome, new_k)
        return outcome

    def check(self, outcome, new_k):
        # Python 3.11 tells of a zip file that could not be closed on a full disk when it is collected.
        old = sys.version_info < (3, 12) and "Exception ignored in: <function ZipFile.__del__" in outcome["stderr"]
        assert outcome["stderr"].count("Traceback") == old
        for name in OTHER_FILES:
            assert (self.folder / name).read_text() == "theirs"
        success = outcome["status"] == self.writer.success
        if success or self.writer.replaces or self.target.exists():
            k = self.writer.read(self.target)
            assert k == new_k if success and k else k in (self.k, new_k, None)
            self.k = k

    def run_undisturbed(self):
        """Run without a fault, which removes what earlier runs left."""
        outcome = self.run()
        assert outcome["status"] == self.writer.success, outcome
        assert self.leftovers() == []

    def leftovers(self):
        return [path.name for path in self.folder.rglob(".*") if path.name not in OTHER_FILES]

    def run_at_each_step(self, fault, **options):
        """Run once for each step before which the fault can strike."""
        step = self.writer.stride - 1
        while (outcome := self.run(fault, step, **options))["fired"]:
            yield outcome
            step += self.writer.stride
        assert outcome["status"] == self.writer.success
        assert step > 3


@pytest.mark.parametrize(
    ("name", "exchange", "fault"),
    [(name, True, fault) for name in WRITERS for fault in ("SIGINT", "SIGKILL", "SIGTERM")]
    + [("documents", False, fault) for fault in ("SIGINT", "SIGKILL")],
)
def test_a_signal_at_every_step(run_writer, name, exchange, fault):
    case = Case(run_writer, name)
    for outcome in case.run_at_each_step(fault, exchange=exchange):
        if fault == "SIGKILL" or (fault == "SIGTERM" and case.writer.library):
            assert outcome["status"] == -getattr(signal, fault)
            case.run_undisturbed()
        else:
            assert outcome["status"] == 128 + getattr(signal, fault)
            assert outcome["stderr"] == ("" if case.writer.library else "onmf: interrupted.\n")
            assert case.leftovers() == []


@pytest.mark.parametrize(
    ("name", "old"),
    [(name, True) for name in WRITERS if WRITERS[name].replaces]
    + [(name, False) for name in WRITERS if WRITERS[name].target != "."],
)
def test_two_runs_at_once(run_writer, name, old):
    """The first run pauses before a step, for every step, while the second runs from beginning to end."""
    case = Case(run_writer, name)
    writer, step = case.writer, case.writer.stride - 1
    while True:
        if not old:
            remove(case.target)
        k = 5 - (case.k or 2)
        outcomes = run_writer(name, k, "pause", step, force=old and writer.forces)
        if not outcomes[0]["fired"]:
            break
        first, second = outcomes
        for outcome in outcomes:
            assert "Traceback" not in outcome["stderr"]
        for other in OTHER_FILES:
            assert (case.folder / other).read_text() == "theirs"
        case.k = writer.read(case.target)
        assert case.leftovers() == []
        succeeded = [outcome["status"] == writer.success for outcome in outcomes]
        if writer.shares or (name == "predict" and old):
            assert all(succeeded)
        elif old and step < 3:  # the first has written nothing yet, and replaces the result of the second
            assert all(succeeded)
            assert case.k == k
        else:
            assert sum(succeeded) == 1, (step, outcomes)
            assert case.k == (k if succeeded[0] else 5 - k)
            if succeeded[0]:
                assert re.search("Another run is writing to|exists|already", second["stderr"])
            else:
                [kept] = re.findall(
                    r"another program while this ran and was left as it is. The result is in (.*)\.\n", first["stderr"]
                )
                assert writer.read(Path(kept)) == k
                remove(Path(kept))
        step += writer.stride
    assert step > 3


@contextmanager
def small_disk(folder):
    """Mount a disk at the folder. Yields a function that changes its options, or None if mounting is not allowed."""

    def mount(*options):
        done = subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, check=False)
        return done.returncode == 0

    if not shutil.which("mount") or not mount("-o", "size=64m"):
        yield None
        return
    try:
        yield lambda options: mount("-o", f"remount,{options}") or pytest.fail(f"the disk cannot be {options}")
    finally:
        subprocess.run(["umount", folder], check=True)


def run_in_space(case, disk, unit, amount):
    """Run with space for ``amount`` more kilobytes or files; without a disk, limit the length of files instead."""
    if disk is None:
        return case.run(limit=amount)
    if not case.writer.replaces:
        remove(case.target)
    now = os.statvfs(case.folder)
    if unit == "files":
        disk(f"size=64m,nr_inodes={now.f_files - now.f_ffree + amount}")
    else:
        disk(f"size={(now.f_blocks - now.f_bfree) * now.f_bsize // 1024 + amount}k,nr_inodes=10000")
    return case.run()


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(run_writer, name):
    """A disk that runs out of space, then one that runs out of inodes. If mounting is not allowed, short files."""
    with small_disk(run_writer.folder) as disk:
        case = Case(run_writer, name)
        for unit in ("kilobytes", "files") if disk else ("limit",):
            amount = 0
            while (outcome := run_in_space(case, disk, unit, amount))["status"] != case.writer.success:
                assert outcome["status"] == 2
                assert ("No space left on device" if disk else "File too large") in outcome["stderr"]
                assert case.leftovers() == []
                amount = 2 * amount or (4 if unit == "kilobytes" else 1)
            assert amount > 0


@pytest.mark.parametrize("name", WRITERS)
def test_a_read_only_folder(run_writer, name):
    with small_disk(run_writer.folder) as disk:
        if not disk and os.geteuid() == 0:
            pytest.skip("root may write anywhere, and no disk can be mounted here")
        case = Case(run_writer, name)
        if not case.writer.replaces:
            remove(case.target)
        disk("ro") if disk else case.folder.chmod(0o555)
        outcome = case.run()
        disk("rw") if disk else case.folder.chmod(0o755)
        assert outcome["status"] == 2
        assert re.search("Read-only file system|Permission denied", outcome["stderr"])
        assert case.leftovers() == []
        case.run_undisturbed()
