"""Downloads from a local server: correct, wrong, truncated, endless, slow, redirected, dropped, and two at once."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csr_array

from cell_originals import fetch as cell_fetch
from cell_originals import small_set, write_originals
from onmf.datasets import DownloadError, fetch, list_datasets, load_cells, load_documents, load_hyperspectral
from onmf.datasets.load import HOST, RemoteFile, remote_files

pytest.importorskip("pooch", reason="pooch is not installed")

# When a connection is dropped, requests leaves its socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class Server(ThreadingHTTPServer):
    """Serves the given contents by file name, and misbehaves on demand."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = {}
        self.trouble = []  # each request uses one entry
        self.requests = []
        self.closing = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        trouble = self.server.trouble.pop(0) if self.server.trouble else None
        if trouble == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        if isinstance(trouble, int):
            self.send_error(trouble)
            return
        if trouble == "endless headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Patience: ")
            self.drip(b"a")
            return
        if isinstance(trouble, str) and trouble.startswith("go to "):
            self.send_response(302)
            self.send_header("Location", trouble.removeprefix("go to ") or self.path)
            self.end_headers()
            return
        content = self.server.contents[self.path.rsplit("/", 1)[-1]]
        if trouble == "wrong":
            content = content[:-1] + b"!"
        self.send_response(200)
        if trouble not in ("endless", "drip"):
            length = {"lie": 10**15, "nonsense": "much"}.get(trouble, len(content))
            self.send_header("Content-Length", str(length))
        if trouble == "gzip":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        if trouble == "drip":
            self.drip(b"a")
            return
        if trouble == "endless":
            self.pour(bytes(1 << 16))
            return
        self.wfile.write(content[: len(content) // 2] if trouble == "truncate" else content)

    def drip(self, data):
        """Send the data every 50 ms until the client disconnects."""
        while not self.server.closing.wait(0.05):
            try:
                self.wfile.write(data)
            except OSError:
                return

    def pour(self, data):
        """Send the data as fast as possible until the client disconnects, and count the bytes."""
        self.server.sent = 0
        try:
            while not self.server.closing.is_set() and self.server.sent < 10**9:
                self.wfile.write(data)
                self.server.sent += len(data)
        except OSError:
            pass

    def log_message(self, *args):
        pass


def blob_of(content):
    """The hash by which Git knows a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def server(monkeypatch, tmp_path):
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("ONMF_MIRROR", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("ONMF_DATA", str(tmp_path / "data"))
        monkeypatch.setattr("time.sleep", lambda _: None)  # pooch waits before a retry
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def small(server, monkeypatch, tmp_path):
    """A small replacement for tr11, with its own hashes: (X, y)."""
    X, y = csr_array(np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])), np.array([1, 2])
    savemat(tmp_path / "tr11.mat", {"dtm": X, "classid": y[:, None]})
    content = (tmp_path / "tr11.mat").read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    file = RemoteFile("github.com/o/r", "c" * 40, "some dir/tr11.mat", blob_of(content), sha256, len(content))
    monkeypatch.setattr("onmf.datasets.load.remote_files", lambda info: [file])
    server.contents["tr11.mat"] = content
    return X, y


def left_in_cache(tmp_path):
    folder = tmp_path / "data"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_good_download(server, small, tmp_path):
    X, _ = small
    docs = load_documents("tr11")
    assert (docs.X != X).nnz == 0
    assert docs.y.tolist() == [0, 1]
    assert server.requests == [f"/o/r/{'c' * 40}/some%20dir/tr11.mat"]
    assert left_in_cache(tmp_path) == ["documents/tr11.npz"]
    load_documents("tr11")
    assert len(server.requests) == 1, "an existing file is not downloaded again"


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("wrong", r"tr11: the file from http://127.0.0.1.* is not the expected one \(its hash differs\)"),
        ("truncate", "tr11: "),
        (404, "tr11: the server answered 404 for http://127.0.0.1"),
        (500, "tr11: the server answered 500"),
        ("drop", r"tr11: .* could not be reached \(ConnectionError\). Is this machine online\?"),
    ],
)
def test_permanent_trouble(server, small, tmp_path, trouble, message):
    server.trouble = [trouble] * 3
    with pytest.raises(DownloadError, match=message) as caught:
        fetch("tr11")
    assert "Try again later, or put tr11.npz into a folder documents/ and set ONMF_DATA" in str(caught.value)
    assert len(server.requests) == 3, "two retries"
    assert left_in_cache(tmp_path) == []


@pytest.mark.short("waits for servers that stall")
class TestLimits:
    @pytest.mark.parametrize("trouble", ["endless", "lie"])
    @pytest.mark.parametrize("known", [True, False])
    def test_a_download_that_is_too_long_is_stopped(self, server, small, tmp_path, monkeypatch, trouble, known):
        content = server.contents["tr11.mat"]
        if not known:
            file = RemoteFile("github.com/o/r", "c" * 40, "tr11.mat", blob_of(content))
            monkeypatch.setattr("onmf.datasets.load.remote_files", lambda info: [file])
        server.trouble = [trouble]
        limit = len(content) if known else 100_000_000
        with pytest.raises(
            DownloadError, match=rf"sends more than the expected {limit} bytes; the download was stopped"
        ):
            fetch("tr11")
        if trouble == "endless":
            server.closing.set()
            assert server.sent < limit + 50_000_000, "plus the bytes in the buffers between server and client"
        assert left_in_cache(tmp_path) == []
        assert fetch("tr11")[0].exists(), "the next download succeeds"

    @pytest.mark.parametrize("trouble", ["drip", "endless headers"])
    def test_a_server_that_never_ends(self, server, small, tmp_path, monkeypatch, trouble):
        monkeypatch.setattr("onmf.datasets.load.SECONDS", 2)
        server.trouble = [trouble]
        with pytest.raises(DownloadError, match=r"tr11: http://127.0.0.1.* did not arrive within 2 seconds. Try again"):
            fetch("tr11")
        assert left_in_cache(tmp_path) == []

    def test_silence(self, small, tmp_path, monkeypatch):
        monkeypatch.setattr("onmf.datasets.load.SECONDS", 1)
        monkeypatch.setattr("onmf.datasets.load.SLOWEST", 1)
        with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
            monkeypatch.setenv("ONMF_MIRROR", f"http://127.0.0.1:{silent.getsockname()[1]}")
            with pytest.raises(DownloadError, match=r"could not be reached \(ReadTimeout\)"):
                fetch("tr11")
        assert left_in_cache(tmp_path) == []

    @pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/tr11.mat", "data:text/plain,a", ""])
    def test_redirects_that_are_not_followed(self, server, small, tmp_path, where):
        server.trouble = [f"go to {where}"] * 100
        with pytest.raises(
            DownloadError, match=r"tr11: http://127.0.0.1.* redirects to an address that is not followed"
        ):
            fetch("tr11")
        assert left_in_cache(tmp_path) == []

    def test_a_mirror_that_is_not_a_server(self, small, tmp_path, monkeypatch):
        monkeypatch.setenv("ONMF_MIRROR", f"file://{tmp_path}")
        with pytest.raises(DownloadError, match="redirects to an address that is not followed"):
            fetch("tr11")

    @pytest.mark.parametrize("trouble", ["nonsense", "go to /elsewhere/tr11.mat", "gzip"])
    def test_harmless_trouble(self, server, small, trouble):
        """The bytes are the file, whatever the header says."""
        server.trouble = [trouble]
        assert fetch("tr11")[0].exists()

    def test_a_full_disk(self, small, tmp_path, monkeypatch):
        """Every write to /dev/full fails with "no space left"."""
        if not os.path.exists("/dev/full"):
            pytest.skip("this system has no /dev/full")
        from onmf.datasets import load

        receive = load._receive
        monkeypatch.setattr(load, "_receive", lambda file, target, *rest: receive(file, "/dev/full", *rest))
        with pytest.raises(
            DownloadError, match=r"could not be written to .*No space left.*Free some space, or set ONMF_DATA"
        ):
            fetch("tr11")


@pytest.mark.parametrize("trouble", ["wrong", "truncate", 500, "drop"])
def test_temporary_trouble(server, small, tmp_path, trouble):
    server.trouble = [trouble]
    [path] = fetch("tr11")
    assert path.exists()
    assert len(server.requests) == 2


def test_the_others_are_downloaded_if_one_fails(server, small, tmp_path, monkeypatch):
    server.trouble = [404] * 3
    monkeypatch.setattr("onmf.datasets.load.DOCUMENTS", ("tr23", "tr11"))
    with pytest.raises(DownloadError, match=r"^tr23: the server answered 404"):
        fetch("documents")
    assert left_in_cache(tmp_path) == ["documents/tr11.npz"]


def test_no_network(small, monkeypatch, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ONMF_MIRROR", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DownloadError, match="Is this machine online"):
            fetch("tr11")
    assert left_in_cache(tmp_path) == []


@pytest.mark.parametrize("right", [True, False])
def test_files_known_by_their_git_hash_alone(server, small, monkeypatch, tmp_path, right):
    blob = blob_of(server.contents["tr11.mat"]) if right else "0" * 40
    file = RemoteFile("github.com/o/r", "c" * 40, "tr11.mat", blob)
    monkeypatch.setattr("onmf.datasets.load.remote_files", lambda info: [file])
    if right:
        assert fetch("tr11")[0].exists()
    else:
        with pytest.raises(DownloadError, match="its hash differs"):
            fetch("tr11")
        assert left_in_cache(tmp_path) == []


def test_a_folder_that_cannot_be_written(small, monkeypatch, tmp_path):
    (tmp_path / "data").write_text("a file instead of the folder")
    with pytest.raises(DownloadError, match=r"tr11 could not be written to .*set ONMF_DATA"):
        fetch("tr11")


def test_without_pooch(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"Downloading tr11 needs pooch: pip install 'onmf\[data\]'"):
        fetch("tr11")


@pytest.mark.long("larger data")
def test_the_real_originals(server, original, tmp_path):
    """The public files, verified by the hashes in the catalogue, give exactly the stored data sets."""
    for name in ("tr11.mat", "tr23.mat", "samson_1.mat", "end3.mat", "jasperRidge2_R198.mat", "end4.mat"):
        server.contents[name] = original(name).read_bytes()
    for name in ("tr11", "tr23"):
        fetched, expected = load_documents(name), np.load(original.folder / "documents" / f"{name}.npz")
        assert np.array_equal(fetched.X.data, expected["data"])
        assert np.array_equal(fetched.X.indices, expected["indices"])
        assert np.array_equal(fetched.y, expected["y"])
    for name in ("samson", "jasper"):
        fetched, expected = load_hyperspectral(name), np.load(original.folder / "hyperspectral" / f"{name}.npz")
        assert np.array_equal(fetched.X, expected["X"] * expected["scale_num"] / expected["scale_den"])
        assert np.array_equal(fetched.endmembers, expected["endmembers"])
        assert np.array_equal(fetched.abundances, expected["abundances"])
    assert len(left_in_cache(tmp_path)) == 4


@pytest.mark.long("commands in a process of their own")
def test_two_processes_at_once(server, original, tmp_path):
    server.contents["tr23.mat"] = original("tr23.mat").read_bytes()
    code = "from onmf.datasets import load_documents; print(load_documents('tr23').X.sum())"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate()[0].strip() for process in running}
    assert len(answers) == 1
    assert answers.pop().isdigit()
    assert left_in_cache(tmp_path) == ["documents/tr23.npz"]


def test_ng3sim_is_cut_from_a_fetched_ng20(server, original, tmp_path):
    (tmp_path / "data" / "documents").mkdir(parents=True)
    (tmp_path / "data" / "documents" / "NG20.npz").symlink_to((original.folder / "documents" / "NG20.npz").resolve())
    cut, expected = load_documents("ng3sim"), np.load(original.folder / "documents" / "ng3sim.npz")
    assert server.requests == []
    assert np.array_equal(cut.X.data, expected["data"])
    assert np.array_equal(cut.X.indices, expected["indices"])
    assert np.array_equal(cut.y, expected["y"])


@pytest.fixture
def cells_server(server, monkeypatch, tmp_path):
    """Put small files in the layout of a set of cells on the server, with their own hashes and numbers."""

    def offer(name, change=lambda cells, facts: None):
        cells, facts = small_set(name)
        files = []
        (tmp_path / "originals").mkdir(exist_ok=True)
        for file, path in zip(
            cell_fetch.remote_files(name), write_originals(cells, tmp_path / "originals"), strict=True
        ):
            content = server.contents[file.name] = path.read_bytes()
            blob = blob_of(content) if file.git_blob_sha1 else None
            origin = {"repository": file.repository, "commit": file.commit, "path": file.path}
            files.append(origin | {"git_blob_sha1": blob})
        facts["files"] = files
        change(cells, facts)
        monkeypatch.setitem(cell_fetch.SOURCES, name, facts)
        return cells

    return offer


class TestCells:
    @pytest.mark.parametrize("name", ["zheng_facs10", "sc_dropseq", "worm_neuron", "worm_embryo", "hmp_site18"])
    def test_a_set_is_downloaded_and_converted(self, server, cells_server, tmp_path, name):
        expected = cells_server(name)
        cell_fetch.fetch_cells(name.upper())
        cells = load_cells(name)
        assert (cells.X != expected.X).nnz == 0
        assert np.array_equal(cells.y, expected.y)
        assert cells.classes.tolist() == expected.classes.tolist()
        assert (cells.genes is None) == (expected.genes is None)
        assert len(server.requests) == len(cell_fetch.remote_files(name))
        assert left_in_cache(tmp_path) == [f"cells/{name}.npz"]

    def test_a_wrong_hash(self, cells_server, server, tmp_path):
        cells_server("sc_celseq2")
        server.trouble = ["wrong"] * 3
        with pytest.raises(DownloadError, match=r"sc_celseq2: the file from .* .its hash differs"):
            cell_fetch.fetch_cells("sc_celseq2")
        assert left_in_cache(tmp_path) == []

    def test_other_numbers_than_the_recorded_ones(self, cells_server, tmp_path):
        cells_server("worm_embryo", lambda cells, facts: facts["classes"].update(ADL=999))
        with pytest.raises(
            DownloadError,
            match=r"worm_embryo: its files were downloaded, but could not be converted: the counts are not the "
            r"recorded ones: classes .* instead of .*'ADL': 999.* You can convert http.*_matrix.rds and "
            r"http.*coldata.rds yourself: in R, readRDS .* Then put worm_embryo.npz into a folder cells/",
        ):
            cell_fetch.fetch_cells("worm_embryo")
        assert left_in_cache(tmp_path) == []

    def test_a_file_of_another_layout(self, cells_server, server, tmp_path):
        def change(cells, facts):
            facts["files"] = [{**file, "git_blob_sha1": None} for file in facts["files"]]
            server.contents["sce_chcl.rda"] = b"not a file of R"

        cells_server("hash_4lines", change)
        with pytest.raises(
            DownloadError,
            match=r"hash_4lines: .* could not be converted: sce_chcl.rda cannot be read: ",
        ):
            cell_fetch.fetch_cells("hash_4lines")
        assert left_in_cache(tmp_path) == []

    def test_the_others_are_downloaded_if_one_fails(self, cells_server, tmp_path, server, capsys):
        cells_server("sc_dropseq")
        server.trouble = [404] * 3
        assert cell_fetch.main(["sc_celseq2", "sc_dropseq", "tr11"]) == 1
        printed = capsys.readouterr()
        assert printed.out.strip() == str(tmp_path / "data" / "cells" / "sc_dropseq.npz")
        failed, other = printed.err.splitlines()
        assert failed.startswith("sc_celseq2: the server answered 404")
        assert other.startswith("tr11 is a documents data set: download it with onmf.datasets.fetch")
        assert left_in_cache(tmp_path) == ["cells/sc_dropseq.npz"]

    def test_the_library_says_how_to_get_them(self, server):
        for name in ("cells", "worm_neuron"):
            with pytest.raises(
                ValueError, match=r"is not a set of the paper: run 'python -m benchmarks.cells.fetch \w"
            ):
                fetch(name)
        assert server.requests == []

    @pytest.mark.parametrize(("name", "package"), [("zheng_facs10", "rdata"), ("worm_neuron", "h5py")])
    def test_without_the_package_that_converts(self, server, monkeypatch, name, package):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=f"Converting {name} needs {package}: pip install {package}"):
            cell_fetch.fetch_cells(name)
        assert server.requests == [], "nothing is downloaded that cannot be converted"


def test_every_set_has_a_source(monkeypatch):
    monkeypatch.delenv("ONMF_MIRROR", raising=False)
    unhashed = []
    for info in list_datasets():
        files = remote_files(info) if info.in_paper else cell_fetch.remote_files(info.name)
        assert files or info.name == "ng3sim"
        for file in files:
            assert file.url.startswith(f"{HOST}/")
            assert len(file.commit) == 40
            assert file.git_blob_sha1 is None or len(file.git_blob_sha1) == 40
            unhashed += [file.name] if file.git_blob_sha1 is None else []
            assert file.bytes is None or 0 < file.bytes < 50_000_000
            assert " " not in file.url
    assert unhashed == ["10X_PBMC_top2000.h5", "ppAll_V35_map.txt"]
