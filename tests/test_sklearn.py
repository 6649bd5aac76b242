"""ONMF as a scikit-learn estimator: scikit-learn's checks, and use with pipelines, searches and callbacks."""

import subprocess
import sys

import numpy as np
import pytest
import sklearn
from scipy.sparse import csr_array, csr_matrix, issparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from onmf import ONMF

FEEDS_NEGATIVE = "feeds standardised, so negative, data whatever the positive_only tag says"
ASKS_CLASSIFIERS = "asks every estimator that has predict_proba for its classifier tags, which a clusterer has not"
SHUFFLES = "shuffles the rows, and a random start or a local search draws rows by their position"


def expected_failures(estimator):
    reasons = {}
    if get_tags(estimator).input_tags.sparse:
        reasons["check_estimator_sparse_array"] = reasons["check_estimator_sparse_matrix"] = ASKS_CLASSIFIERS
    if get_tags(estimator).input_tags.positive_only:
        reasons["check_clustering"] = FEEDS_NEGATIVE
    if estimator.init != "auto" or estimator.refine is not None:
        reasons["check_sample_weight_equivalence_on_dense_data"] = SHUFFLES
        reasons["check_sample_weight_equivalence_on_sparse_data"] = SHUFFLES
    return reasons


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*are zero everywhere:UserWarning")
@parametrize_with_checks(
    [
        ONMF(),
        ONMF(beta_loss="frobenius"),
        ONMF(beta_loss="cosine"),
        ONMF(beta_loss=1.5),
        ONMF(beta_loss=0.5),
        ONMF(init="++", n_init=2, random_state=0),
        ONMF(init="random-partition", random_state=0),
        ONMF(init="bisection", random_state=0),
        ONMF(init="consensus", n_consensus=3, refine="local-search", random_state=0),
        ONMF(beta_loss="cosine", refine="local-search", random_state=0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("refine", [None, "local-search"])
@pytest.mark.parametrize("container", [csr_array, csr_matrix])
def test_sparse_input_as_scikit_learn_checks_it(container, refine):
    """Repeat check_estimator_sparse_* up to the line that fails."""
    X = container(np.random.RandomState(0).poisson(1.0, size=(40, 3)) + 1)
    model = ONMF(2, refine=refine, random_state=0).fit(X)
    assert model.predict(X).shape == (40,)
    assert model.predict_proba(X).shape == (40, 2)


@pytest.mark.parametrize(
    ("beta_loss", "sparse", "positive"),
    [("kullback-leibler", True, True), ("frobenius", True, False), ("cosine", True, False), (0, False, True)],
)
def test_tags_follow_the_divergence(beta_loss, sparse, positive):
    tags = get_tags(ONMF(beta_loss=beta_loss)).input_tags
    assert (tags.sparse, tags.positive_only) == (sparse, positive)
    assert get_tags(ONMF(beta_loss="nonsense")).input_tags.sparse, "an unknown divergence is fit's to refuse"


@pytest.mark.short("many fits, as scikit-learn's users run them")
def test_grid_search_uses_the_score(counts):
    X, _ = counts
    search = GridSearchCV(ONMF(), {"n_clusters": [1, 3]}, cv=3, n_jobs=2).fit(X)
    assert search.best_params_ == {"n_clusters": 3}


def test_pipeline_after_count_vectorizer():
    texts = ["red tea green tea", "tea tea", "cow milk", "milk of a cow", "black tea", "fresh milk"]
    pipeline = make_pipeline(CountVectorizer(), ONMF(2)).fit(texts)
    labels = pipeline.predict(texts)
    assert labels.tolist() == [labels[0]] * 2 + [1 - labels[0]] * 2 + [labels[0], 1 - labels[0]]
    assert pipeline.transform(texts).shape == (6, 2)
    words = pipeline[-1].top_features(1, pipeline[0].get_feature_names_out())
    assert {next(iter(w)) for w in words} == {"tea", "milk"}


def test_a_grid_search_warns_of_zero_rows_once(counts):
    X = counts[0].copy()
    X[::7] = 0
    search = GridSearchCV(make_pipeline(ONMF()), {"onmf__n_clusters": [2, 3]}, cv=3)
    with pytest.warns(UserWarning, match="9 of 60 rows of X are zero everywhere") as warned:
        search.fit(X)
    assert [warning.filename for warning in warned] == [__file__]
    with pytest.warns(UserWarning, match="9 of 60 rows of X are zero everywhere") as warned:
        search.predict(X)
    assert [warning.filename for warning in warned] == [__file__]
    search.score(X)


def test_routes_metadata(counts):
    X, _ = counts
    w = np.arange(len(X)) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(ONMF(3).set_fit_request(sample_weight=True)).fit(X, sample_weight=w)
    direct = ONMF(3).fit(X, sample_weight=w)
    assert np.array_equal(pipeline[-1].cluster_centers_, direct.cluster_centers_)


@pytest.mark.parametrize("sparse_output", [True, False])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_bring_names_and_get_them_back(counts, library, sparse_output):
    frames = pytest.importorskip(library)
    X, _ = counts
    names = [f"word{j}" for j in range(X.shape[1])]
    frame = frames.DataFrame(dict(zip(names, X.T, strict=True)))
    model = ONMF(3, sparse_output=sparse_output).set_output(transform=library)
    for H, expected in (
        (model.fit_transform(frame), ONMF(3).fit_transform(X)),
        (model.transform(frame), ONMF(3).fit(X).transform(X)),
    ):
        assert isinstance(H, frames.DataFrame)
        assert list(H.columns) == ["onmf0", "onmf1", "onmf2"] == model.get_feature_names_out().tolist()
        assert np.array_equal(H.to_numpy(), expected.toarray())
    with sklearn.config_context(transform_output=library):
        assert isinstance(ONMF(3).fit(frame).transform(frame), frames.DataFrame)
    assert model.feature_names_in_.tolist() == names
    assert np.array_equal(model.labels_, ONMF(3).fit(X).labels_)
    assert all(set(top) <= set(names) for top in model.top_features())
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[names[::-1]])


@pytest.mark.parametrize("container", [csr_array, csr_matrix, np.asarray])
def test_transform_is_sparse_unless_told_otherwise(counts, container):
    X, _ = counts
    X = container(X)
    H = ONMF(3).fit_transform(X)
    assert issparse(H)
    assert H.format == "csr"
    assert np.array_equal(ONMF(3, sparse_output=False).fit_transform(X), H.toarray())


class Recorder:
    """A callback that records its calls and stops the fit after some iterations."""

    def __init__(self, stop_after=None):
        self.stop_after = stop_after
        self.tasks, self.scores, self.events = [], [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, X=None, fitted_estimator=None):
        if context.task_name == "iteration":
            self.scores.append(fitted_estimator.score(X))
            return self.stop_after == len(self.scores)
        return False


needs_callbacks = pytest.mark.skipif(
    not hasattr(ONMF, "set_callbacks"), reason="this version of scikit-learn has no callbacks"
)


@needs_callbacks
def test_callbacks_see_every_iteration(counts):
    X, _ = counts
    recorder = Recorder()
    model = ONMF(3, smoothing=0.01).set_callbacks(recorder).fit(X)
    assert recorder.tasks == ["fit"] + ["iteration"] * model.n_iter_
    assert recorder.events == ["setup", "teardown"]
    assert recorder.scores[-1] == pytest.approx(model.score(X))
    assert len(model.history_["objective"]) == model.n_iter_


@needs_callbacks
def test_callbacks_see_every_run(counts):
    X, _ = counts
    recorder = Recorder()
    ONMF(3, init="++", n_init=3, random_state=0).set_callbacks(recorder).fit(X)
    assert recorder.tasks.count("run") == 3


@needs_callbacks
def test_a_callback_can_stop_the_fit(counts):
    X, _ = counts
    model = ONMF(3, tol=0).set_callbacks(Recorder(stop_after=2)).fit(X)
    assert (model.n_iter_, model.stop_reason_) == (2, "callback")
    assert len(model.labels_) == len(X)


@needs_callbacks
def test_progress_bar(counts, capsys):
    from sklearn.callback import ProgressBar

    X, _ = counts
    ONMF(3).set_callbacks(ProgressBar()).fit(X)
    assert "ONMF - fit" in capsys.readouterr().out


@pytest.mark.long("systems that lack something")
def test_scikit_learn_without_callbacks():
    """In versions before 1.9 there is no set_callbacks, and fit still works."""
    code = """
import sys
import sklearn.base, sklearn.cluster, sklearn.metrics.cluster
sys.modules["sklearn.callback"] = None
from onmf import ONMF
assert not hasattr(ONMF, "set_callbacks")
print(ONMF(2, verbose=1).fit([[3, 0], [0, 4], [5, 1]]).labels_.tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 1, 0]"
