"""Steps that run ahead of the host: the same results, and no step is used that the loop did not ask for."""

import numpy as np
import pytest

from conftest import assert_same_bits
from onmf import ONMF
from onmf.backend import ReferenceBackend, Run, StepsAhead
from onmf.data import InMemory
from onmf.divergence import KullbackLeibler
from onmf.fit.loop import alternate


class AheadBackend(ReferenceBackend):
    """A backend whose steps run ahead, and which counts them."""

    def __init__(self):
        self.steps_taken = 0

    def start_run(self, block):
        return CountingRun(block)

    def steps(self, run, centroids):
        return StepsAhead(run, centroids)


class CountingRun(Run):
    def step(self, templates):
        self.block.backend.steps_taken += 1
        return super().step(templates)


@pytest.fixture
def X(counts):
    return counts[0].astype(float)


@pytest.mark.parametrize("loss", ["kullback-leibler", "frobenius", "cosine", 1.5, 0.5])
@pytest.mark.parametrize("max_iter", [1, 2, 100])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_results_are_those_of_steps_in_turn(X, loss, max_iter):
    options = {"beta_loss": loss, "max_iter": max_iter}
    backend = AheadBackend()
    ahead = ONMF(4, engine=backend, **options).fit(X)
    assert_same_bits(ahead, ONMF(4, engine="reference", **options).fit(X))
    wasted = backend.steps_taken - ahead.n_iter_
    assert wasted == (0 if ahead.n_iter_ == max_iter else 1), "one step is dropped if the loop ends early"


def test_a_new_centroid_drops_the_step_ahead(X):
    init = np.vstack([X[:2], X[0] * 2, np.full(X.shape[1], 1e-9) + np.eye(X.shape[1])[0]])
    models = [ONMF(4, init=init, engine=engine).fit(X) for engine in (AheadBackend(), "reference")]
    assert_same_bits(*models)
    assert len(np.unique(models[0].labels_)) == 4


def test_a_callback_that_stops_sees_the_labels_of_its_iteration(X):
    ended = []
    for backend in (AheadBackend(), ReferenceBackend()):
        data = InMemory(backend.make_block(X, KullbackLeibler()))
        result = alternate(data, X[:4] + 0.5, watch=lambda iteration, W: iteration.number == 2)
        assert result.stop_reason == "callback"
        ended.append((data.part.run.collect(), result))
    (ahead, first), (plain, second) = ended
    assert np.array_equal(ahead[0], plain[0])
    assert np.array_equal(ahead[1], plain[1])
    assert np.array_equal(first.centroids, second.centroids)
