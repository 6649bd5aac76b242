"""Data for the tests: the paper's sets where they are found, and small ones made on the spot."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from onmf.engine.device import import_cupy

DATA = os.environ.get("ONMF_DATA")
EXPECTED = json.loads((Path(__file__).parent / "expected.json").read_text())


def _no_gpu():
    """Why there is no GPU engine here, or nothing."""
    try:
        import_cupy()
    except (ImportError, RuntimeError) as error:
        return str(error)
    return ""


needs_gpu = pytest.mark.skipif(bool(_no_gpu()), reason=_no_gpu())


@pytest.fixture(scope="session")
def paper_set():
    """Load a set of the paper by name: (X, truth), truth being classes or endmembers. Skips where it is not found."""
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


@pytest.fixture
def original():
    """Path of a file as the public serves it, by name. Skips where it is not found."""
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
    """A small count matrix with three clear clusters, a few of its rows long and a few short: (X, y)."""
    return make_counts(np.random.default_rng(0))


def make_counts(rng, n=60, p=24, k=3):
    y = rng.integers(k, size=n)
    profiles = rng.dirichlet(np.full(p, 0.2), size=k)
    lengths = rng.integers(20, 200, size=n)
    return np.array([rng.multinomial(length, profiles[label]) for length, label in zip(lengths, y, strict=True)]), y


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, driven over its DevTools protocol."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page offline; at the end, nothing may have been complained of, asked for or executed."""
    contexts, heard = [], []

    def open_page(html, **options):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(offline=True, reduced_motion="reduce", **options)
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
        page.wait_for_selector("[data-figure] .main-svg")
        return page

    yield open_page
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.hacked") is None
        context.close()
    assert [line for line in heard if not line.startswith("request: data:")] == []
