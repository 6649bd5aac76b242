"""Forks, threads, read-only installations, and packages that are not installed."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import onmf
import onmf.image
from conftest import command, make_counts
from onmf import ONMF
from onmf.cells.embed import map_of_cells
from onmf.datasets import open_h5ad
from onmf.plot import plot_confusion

PACKAGE = Path(onmf.__file__).parent
ONES = np.ones((2, 2, 2))


@pytest.fixture
def large():
    """Data large enough to give work to several threads."""
    return make_counts(np.random.default_rng(9), n=3000, p=200, k=5)[0]


def run(code, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_fit_after_fork(large):
    engine = onmf.data.get_engine("cpu", large, 2)
    expected = ONMF(5, engine=engine).fit(large).labels_  # starts the parent's thread pool before the fork
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert np.array_equal(pool.apply(fit_labels, (large, None)), expected)
    child = multiprocessing.get_context("fork").Process(target=fit_and_exit, args=(large, engine, expected))
    child.start()
    child.join()
    assert child.exitcode == 0, "an engine made before the fork works after it"


def fit_labels(X, engine):
    return ONMF(5, n_threads=2).fit(X).labels_


def fit_and_exit(X, engine, expected):
    sys.exit(0 if np.array_equal(ONMF(5, engine=engine).fit(X).labels_, expected) else 1)


def test_fits_in_two_python_threads_at_once(large):
    expected = ONMF(5, n_threads=1).fit(large)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(ONMF(5, n_threads=2).fit, large) for _ in range(6)]
        for model in (future.result() for future in futures):
            assert np.array_equal(model.labels_, expected.labels_)
            assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)


@pytest.mark.long("systems that lack something")
def test_read_only_install_without_a_home(tmp_path):
    """If no folder for compiled kernels is writable, they are compiled in each process, and fits still work."""
    install = tmp_path / "site"
    shutil.copytree(PACKAGE, install / "onmf", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [install / "onmf", *(f for f in (install / "onmf").rglob("*") if f.is_dir())]:
        (folder / "__pycache__").write_text("")  # a file in its place: not even root can create the folder
    environment = {"PATH": os.environ["PATH"], "HOME": "/dev/null", "PYTHONPATH": str(install)}
    done = run(
        """
        import onmf, numpy as np
        print(onmf.__file__)
        print(onmf.ONMF(2).fit(np.array([[3, 0], [0, 4], [5, 1]])).labels_.tolist())
        from onmf.kernels.steps import best_template_dense
        print(type(best_template_dense._cache).__name__)
        """,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    where, labels, cache = done.stdout.split("\n")[:3]
    assert where.startswith(str(install))
    assert labels == "[0, 1, 0]"
    assert cache == "NullCache"


def test_import_is_light():
    """Nothing heavy is imported before it is needed: numba at the first fit, scikit-learn with the estimator."""
    heavy = ["numba", "matplotlib", "dask", "distributed", "anndata", "zarr", "h5py", "cupy", "plotly", "rasterio"]
    late = [*heavy, "numpy", "scipy", "sklearn", "pandas"]
    helped = "sys.argv[1:] = ['--help']; from onmf.__main__ import main; main()"
    for code, names in (("import onmf", late), (helped, late), ("import onmf.plot; onmf.ONMF", heavy)):
        done = run(
            f"""
            import atexit, sys
            atexit.register(lambda: print([name for name in {names} if name in sys.modules]))
            {code}
            """
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.long("systems that lack something")
def test_parts_without_dask_and_pandas(tmp_path):
    done = run(
        f"""
        import sys
        class Missing:
            def find_spec(self, name, *where):
                if name.partition(".")[0] in ("dask", "distributed", "pandas", "anndata"):
                    raise ModuleNotFoundError(name, name=name)
        sys.meta_path.insert(0, Missing())
        import numpy as np
        from onmf import ONMF
        from onmf.datasets import write_shards
        from onmf.text import cluster
        shards = write_shards([np.eye(4), np.eye(4)], {str(tmp_path / "a")!r}, names=list("abcd"))
        print(ONMF(4).fit(shards).labels_.tolist())
        print(cluster(["tea", "milk", "tea"], 2, shards={str(tmp_path / "b")!r}).labels.tolist())
        try:
            shards.to_dask()
        except ImportError as error:
            print(error)
        """
    )
    assert done.stdout.splitlines() == [
        "[0, 1, 2, 3, 0, 1, 2, 3]",
        "[0, 1, 0]",
        "Dask arrays need dask: pip install 'onmf[dask]'.",
    ], done.stderr


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("spectral", lambda: onmf.image.read("x.hdr"), r"package spectral: pip install 'onmf\[image\]'"),
        ("rasterio", lambda: onmf.image.read("x.tif"), r"rasterio: pip install 'onmf\[image\]'"),
        ("h5py", lambda: onmf.image.read("x.mat"), r"h5py: pip install 'onmf\[image\]'"),
        ("xarray", lambda: onmf.image.cluster(ONES, 1).to_xarray(), r"xarray: pip install 'onmf\[image\]'"),
        ("matplotlib", lambda: onmf.image.cluster(ONES, 1).plot_map(), r"matplotlib: pip install 'onmf\[report\]'"),
        ("matplotlib", lambda: plot_confusion([0, 1], [0, 1]), r"matplotlib: pip install 'onmf\[report\]'"),
        ("openTSNE", lambda: map_of_cells(np.eye(20, dtype=int)), r"openTSNE: pip install 'onmf\[cells\]'"),
        ("h5py", lambda: open_h5ad("x.mat"), r"h5ad files need h5py: pip install 'onmf\[cells\]'"),
        ("dask", lambda: open_h5ad("x.mat"), r"Dask arrays need dask: pip install 'onmf\[dask\]'"),
    ],
)
def test_errors_name_the_missing_package(tmp_path, monkeypatch, package, call, message):
    (tmp_path / "x.hdr").write_text("ENVI\n")
    (tmp_path / "x.tif").write_bytes(b"II*\0")
    (tmp_path / "x.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n")
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch, package)
    with pytest.raises(ImportError, match=message):
        call()


@pytest.mark.parametrize(
    ("package", "kind", "refusal"),
    [
        ("rasterio", "image", "Writing the files needs rasterio: pip install 'onmf[image]'."),
        ("anndata", "cells", "Writing the files needs anndata: pip install 'onmf[cells]'."),
        ("jinja2", "documents", "The report needs jinja2: pip install 'onmf[report]', or use --no-report."),
    ],
)
def test_commands_refuse_a_missing_package_before_they_read(tmp_path, monkeypatch, package, kind, refusal):
    hide(monkeypatch, package)
    done = command(kind, "nothing.npy", "-k", "2", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr == f"onmf: {refusal}\n"
    assert not (tmp_path / "out").exists()


def hide(monkeypatch, package):
    """Let imports of a package fail, as if it were not installed."""
    for module in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
