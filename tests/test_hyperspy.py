"""ONMF as the algorithm of hyperspy's decomposition and cluster analysis."""

import numpy as np
import pytest

from onmf import ONMF
from onmf.datasets import make_scene
from onmf.metrics import clustering_accuracy

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:hyperspy"),
]


@pytest.fixture
def signal():
    signals = pytest.importorskip("hyperspy.api", reason="hyperspy is not installed").signals
    scene = make_scene(20, 30, 50, 3, random_state=0)
    return signals.Signal1D(scene.X.reshape(20, 30, 50)), scene


def test_decomposition(signal):
    s, scene = signal
    model = ONMF(3, sparse_output=False)
    s.decomposition(algorithm=model, output_dimension=3, print_info=False)
    expected = ONMF(3, sparse_output=False).fit(scene.X)
    assert pytest.approx(expected.cluster_centers_) == s.learning_results.factors.T
    assert s.learning_results.loadings == pytest.approx(expected.transform(scene.X))
    assert s.get_decomposition_model(3).data.reshape(-1, 50) == pytest.approx(
        expected.inverse_transform(expected.transform(scene.X))
    )


def test_cluster_analysis(signal):
    s, scene = signal
    s.cluster_analysis(cluster_source="signal", algorithm=ONMF(3), n_clusters=3, preprocessing=None)
    labels = s.get_cluster_labels(merged=True).data.ravel()
    assert clustering_accuracy(ONMF(3).fit(scene.X).labels_, labels) == 1
    assert np.unique(labels).tolist() == [0, 1, 2]
