"""Shared fixtures and helpers: data, in-process commands, waiting for a condition, a browser, and skip reasons."""

import io
import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf.arrays import import_cupy
from onmf.data import get_engine
from onmf.datasets import load_cells

DATA = os.environ.get("ONMF_DATA")
EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())

if find_spec("hypothesis"):  # only the tests that use it need it
    import hypothesis

    # On a busy machine, generating and running an example can take arbitrarily long.
    hypothesis.settings.register_profile(
        "any-speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("any-speed")

# A shell that runs a job in the background lets it ignore Ctrl-C, which many tests send to themselves and to commands.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def make_block(engine, X, divergence, weights=None, n_threads=None):
    """Rows as a block of the backend of this engine."""
    return get_engine(engine, X, n_threads).backend.make_block(X, divergence, weights)


def prepare(block, templates):
    """Templates in the form that the backend of a block reads."""
    return block.backend.prepare(block.rows, block.backend.to_device(templates))


def assert_same_bits(one, *others):
    """Fitted models are the same to the last bit."""
    for other in others:
        for name in ("labels_", "scales_", "cluster_centers_", "margins_"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
        assert np.array_equal(one.init_rows_, other.init_rows_)
        assert np.array_equal(one.history_["moved"], other.history_["moved"])
        for name in ("n_iter_", "stop_reason_", "reconstruction_err_"):
            assert getattr(one, name) == getattr(other, name), name


def pytest_addoption(parser):
    parser.addoption("--short", action="store_true", help="leave out the tests that are marked as long")


@pytest.hookimpl(trylast=True)  # after the items were put into a random order
def pytest_collection_modifyitems(config, items):
    """Leave out what is long, if asked to, and run the fuzzer last: it uses every kernel on every type of number."""
    left_out = {item: what for item in items if (what := _why_long(item))} if config.getoption("short") else {}
    config.left_out = Counter(left_out.values())
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = sorted(
        (item for item in items if item not in left_out), key=lambda item: item.path.name == "test_fuzz.py"
    )


def _why_long(item):
    """What a test is a part of, if that takes long: what its file or it is marked with, or a page in a browser."""
    if item.get_closest_marker("short"):
        return None
    mark = item.get_closest_marker("long")
    return mark.args[0] if mark else "pages in a browser" if "browser" in item.fixturenames else None


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist
        session.config.workeroutput["left_out"] = dict(session.config.left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.left_out = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter, config):
    """Print each reason for skipped tests once, and what was left out."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    titled = {"skipped, and why": reasons, "left out: make test-all runs all tests": getattr(config, "left_out", {})}
    for title, counted in titled.items():
        if counted:
            terminalreporter.section(title)
            for reason, number in Counter(counted).most_common():
                terminalreporter.line(f"{number:5}  {reason}")


def until(condition, seconds=300):
    """Wait for a condition. The limit is long, for slow machines, and only catches conditions that never hold."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not so after {seconds} seconds"
        time.sleep(0.02)


def command(*arguments):
    """Run ``onmf ARGUMENTS`` in this process, since a new one takes seconds to start. Returns exit code and output."""
    from onmf.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True) for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            patch.object(sys, "argv", ["onmf", *map(str, arguments)]),
            patch.dict(os.environ, COLUMNS="200"),
            patch("onmf.cli.command.compiled_before", return_value=True),  # or the first run says that it compiles
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    said = (stream.buffer.getvalue().decode() for stream in (out, err))
    return SimpleNamespace(**dict(zip(("stdout", "stderr"), said, strict=True)), returncode=ended.value.code or 0)


def forking():
    """A context of processes: forked, where that is possible, from one that has imported what most of them use.

    There is only one such process, with one list of modules, and Dask's workers are forked from it, too.
    """
    import dask
    from distributed.utils import get_mp_context

    method = "forkserver" if hasattr(os, "fork") else "spawn"
    dask.config.set({"distributed.worker.multiprocessing-method": method})
    context = get_mp_context()  # the first call makes a list of its own
    context.set_forkserver_preload(["onmf.cli.models", "dask.array", "distributed", "matplotlib.pyplot", "pandas"])
    return context


def _no_gpu():
    """Return why there is no GPU backend, or nothing if there is one."""
    try:
        import_cupy()
    except (ImportError, RuntimeError) as error:
        return str(error)
    return ""


needs_posix = pytest.mark.skipif(
    os.name != "posix", reason="Windows has no named pipes, file modes or SIGKILL, and fewer characters in names"
)
needs_gpu = pytest.mark.skipif(bool(_no_gpu()), reason=_no_gpu())


@pytest.fixture(scope="session")
def paper_set():
    """Load a data set of the paper by name: (X, classes or endmembers). Skips the test if it is not found."""
    folder = DATA
    loaded = {}

    def load(name):
        if name not in loaded:
            if not folder:
                pytest.skip("ONMF_DATA is not set: the paper's data are not at hand")
            found = [
                path for kind in ("documents", "hyperspectral") if (path := Path(folder, kind, f"{name}.npz")).exists()
            ]
            if not found:
                pytest.skip(f"{name}.npz is not in ONMF_DATA={folder}")
            with np.load(found[0]) as file:
                loaded[name] = _documents(file) if "indptr" in file else _image(file)
        return loaded[name]

    return load


@pytest.fixture(scope="session")
def cell_set():
    """Load a set of labelled cells by name. Skips the test if it is not found."""
    loaded = {}

    def load(name):
        if not DATA or not Path(DATA, "cells", f"{name}.npz").exists():
            pytest.skip(f"cells/{name}.npz is not in ONMF_DATA={DATA}")
        if name not in loaded:
            loaded[name] = load_cells(name)
        return loaded[name]

    return load


@pytest.fixture
def original():
    """Return the path of an original public file by name. Skips the test if it is not found."""
    folder = Path(DATA or ".")

    def path(name):
        found = folder / "original" / name
        if not found.exists():
            pytest.skip(f"original/{name} is not in ONMF_DATA={DATA}")
        return found

    path.folder = folder
    if not (folder / "original").is_dir():
        pytest.skip("ONMF_DATA is not set or has no originals: the public's own files are not at hand")
    return path


def _documents(file):
    index = np.int32
    X = csr_array(
        (file["data"], file["indices"].astype(index), file["indptr"].astype(index)), shape=tuple(file["shape"])
    )
    return X, file["y"]


def _image(file):
    return file["X"] * (file["scale_num"] / file["scale_den"]), file["endmembers"]


@pytest.fixture
def counts():
    """A small count matrix with three clear clusters and a few long and short rows: (X, y)."""
    return make_counts(np.random.default_rng(0))


def make_counts(rng, n=60, p=24, k=3):
    y = rng.integers(k, size=n)
    profiles = rng.dirichlet(np.full(p, 0.2), size=k)
    lengths = rng.integers(20, 200, size=n)
    return np.array([rng.multinomial(length, profiles[label]) for length, label in zip(lengths, y, strict=True)]), y


def make_nested_counts(seed=0):
    """Counts of 2 groups, each of 3 clusters, each of 3 parts, which differ little. → (360, 150), (360, 3) labels"""
    rng = np.random.default_rng(seed)
    profiles = [rng.dirichlet(np.full(150, 0.2), size=size) for size in (2, 6, 18)]
    part = np.repeat(np.arange(18), 20)
    levels = np.stack([part // 9, part // 3, part], axis=1)
    shares = sum(w * own[level] for w, own, level in zip((0.5, 0.38, 0.12), profiles, levels.T, strict=True))
    return np.array([rng.multinomial(200, share) for share in shares]), levels


PATIENCE = 300_000
"""Time limit of a browser action in milliseconds, generous for busy machines."""


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven over its DevTools protocol."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        options = {"args": ["--no-sandbox", "--disable-gpu"], "timeout": PATIENCE}
        opened = driver.chromium.launch(executable_path=path, **options)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page offline. At the end, check that it logged no errors, sent no requests and ran no injected code."""
    contexts, heard = [], []

    def open_page(html, **options):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(offline=True, reduced_motion="reduce", **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: None if request.url == path.as_uri() else heard.append(f"request: {request.url[:100]}"),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hacked") is None
        context.close()
    assert [line for line in heard if not line.startswith("request: data:")] == []
