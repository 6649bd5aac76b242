"""The benchmarks run and print at reduced size. Their times are not checked."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import measure  # noqa: E402
from benchmarks.__main__ import main  # noqa: E402
from benchmarks.plain import plain_fit, plain_snpa, project  # noqa: E402
from benchmarks.scale import corpus, estimate, other_draw, simulate  # noqa: E402

from onmf import ONMF, snpa  # noqa: E402
from onmf.datasets import make_counts  # noqa: E402


def test_every_part_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "QUICK", measure.QUICK)  # undo what --quick sets
    main(["--quick", "--repeats", "1", "--out", str(tmp_path)])
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    parts = {row["part"] for row in rows}
    assert parts == {"iteration", "peers", "fit", "image", "threads", "growth", "floor", "memory", "start"}
    assert all(np.isfinite(row["value"]) for row in rows)
    for name in ("performance.md", "performance.png"):
        assert (tmp_path / name).stat().st_size > 500
    assert "against KMeans" in capsys.readouterr().out


def test_the_plain_version_is_the_same_algorithm():
    """The plain version that onmf is compared with has the same seeds and the same number of iterations."""
    X = make_counts(300, 80, 4, random_state=0).X.astype(float)
    assert plain_snpa(X, 4) == snpa(X, 4).tolist()
    assert plain_fit(X, 4) == ONMF(4).fit(X).n_iter_


def test_projection_of_the_plain_version():
    H = np.random.default_rng(0).normal(size=(50, 4))
    P = project(H)
    assert P.min() >= 0
    assert P.sum(axis=1).max() <= 1 + 1e-12
    inside = (H >= 0).all(axis=1) & (H.sum(axis=1) <= 1)
    assert P[inside] == pytest.approx(H[inside])
    assert csr_array(P).shape == (50, 4)


def test_the_estimate_of_scale_adds_up():
    """Without compute time the simulation matches values by hand. It never beats the workers or the scheduler."""
    assert simulate(1, 1, compute=0.0, overhead=2.0, broadcast=3.0, sending=0.0) == 3.0
    assert simulate(3, 9, compute=0.0, overhead=2.0, broadcast=3.0, sending=0.5) == 6.0 + 2 * 0.5
    for row in estimate(rate=1e7, overhead=1e-3)["rows"]:
        assert row["sum"] == pytest.approx(sum(row[name] for name in ("compute", "scheduler", "broadcast", "tree")))
        assert row["simulated"] > max(0.9 * row["compute"], row["scheduler"])


def test_what_scale_generates():
    X = corpus(30_000, words=500)
    assert 0.5 < X.nnz / 30_000 < 2
    other = other_draw(X, 1)
    assert (other.shape, other.nnz, other.dtype) == (X.shape, X.nnz, np.float32)
    assert other.data.min() == 1
