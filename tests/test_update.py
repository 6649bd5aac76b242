"""Updates: clusters keep their numbers, new ones are found, and the model learns from the new rows."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import onmf
from conftest import command
from onmf.datasets import make_counts, make_scene
from onmf.door import Table, cluster_table, predict_table
from onmf.door.memory import MOST, Memory, memory_of
from onmf.door.update import sums_of
from onmf.image import Cube
from onmf.image.kind import IMAGE
from onmf.kinds import get_kind
from onmf.naming import listed
from onmf.table import TABLE
from test_door import arguments, every_kind, read_csv

WORDS, TOPICS, NEW = 300, 5, 4
MADE = make_counts(1800, WORDS, TOPICS, length=100, random_state=0)
FIRST, SECOND = np.arange(900), np.arange(900, 1800)
OLD_FIRST, OLD_SECOND = (rows[MADE.y[rows] != NEW] for rows in (FIRST, SECOND))


def counts(rows, X=MADE.X):
    return Table(X[rows], [f"row {i}" for i in rows], [f"f{j}" for j in range(WORDS)])


@pytest.fixture(scope="module")
def found():
    """Clusters of all topics but one."""
    return cluster_table(TABLE, counts(OLD_FIRST), TOPICS - 1)


@pytest.fixture(scope="module")
def updated(found):
    """The same after an update with the topic that is new."""
    return found.update(counts(SECOND))


class TestNothingNew:
    def test_numbers_and_names_stay(self, found):
        again = found.update(counts(OLD_SECOND))
        assert again.names == found.names
        assert again.updated.status == ["kept"] * (TOPICS - 1)
        assert not any(again.updated.changed)
        assert again.updated.features_before == [list(top) for top in found.distinctive(10)]
        for cluster in range(TOPICS - 1):
            topics = [MADE.y[rows[one.labels == cluster]] for rows, one in ((OLD_FIRST, found), (OLD_SECOND, again))]
            assert np.bincount(topics[0]).argmax() == np.bincount(topics[1]).argmax()

    def test_sums_are_those_of_all_rows(self, found):
        again = found.update(counts(OLD_SECOND))
        whole = MADE.X[OLD_FIRST].sum(axis=0) + MADE.X[OLD_SECOND].sum(axis=0)
        np.testing.assert_allclose(sums_of(again.model).sum(axis=0), whole, rtol=1e-9)
        np.testing.assert_allclose(sums_of(found.model).sum(axis=0), MADE.X[OLD_FIRST].sum(axis=0), rtol=1e-9)

    def test_the_first_result_stays_as_it_is(self, found):
        before = found.model.cluster_centers_.copy(), dict(found.model.extra_)
        found.update(counts(SECOND))
        assert np.array_equal(found.model.cluster_centers_, before[0])
        assert found.model.extra_.keys() == before[1].keys()

    def test_shares(self, found):
        """Clusters that have grown, that have shrunk, and that no row is in."""
        labels = predict_table(found.model, counts(OLD_SECOND), kind=TABLE).labels
        some = np.concatenate([OLD_SECOND[labels == 0], OLD_SECOND[labels == 1][:20], OLD_SECOND[labels == 2][:10]])
        again = found.update(counts(some))
        assert again.updated.status == ["grown", "shrunk", "shrunk", "empty"]
        assert again.updated.now[3] == 0 < again.updated.before[3]

    def test_a_topic_that_has_grown_is_not_new(self, found):
        """Even one that has no cluster of its own: two topics share a cluster, and one of them comes twice as often."""
        model = cluster_table(TABLE, counts(OLD_FIRST), TOPICS - 2)
        topics, of = MADE.y[OLD_SECOND], [set(MADE.y[OLD_FIRST][model.labels == c]) for c in range(TOPICS - 2)]
        shared = max(of, key=len)
        others = OLD_SECOND[(topics == min(shared)) | (np.arange(len(topics)) % 2 == 0)]
        again = model.update(counts(others))
        assert len(shared) == 2
        assert "new" not in again.updated.status

    @pytest.mark.parametrize(("kept", "changed"), [(7, False), (4, True)])
    def test_features_that_changed(self, found, kept, changed):
        """Rows of a cluster with other features than before, but for those that set it apart most."""
        X, centroid = MADE.X[OLD_SECOND].toarray(), found.model.cluster_centers_[0]
        own = predict_table(found.model, counts(OLD_SECOND), kind=TABLE).labels == 0
        tops = [list(names).index(name) for names in [counts(FIRST).features] for name in found.distinctive(40)[0]]
        others = np.setdiff1d(np.argsort(centroid), tops)[: 40 - kept]
        X[np.ix_(own, others)] += X[np.ix_(own, tops[kept:])]
        X[np.ix_(own, tops[kept:])] = 0
        found.model.extra_, before = (
            {k: v for k, v in found.model.extra_.items() if "memory" not in k},
            found.model.extra_,
        )
        again = found.update(Table(csr_array(X), [str(i) for i in OLD_SECOND], counts(FIRST).features))
        found.model.extra_ = before
        assert again.updated.status == ["kept"] * (TOPICS - 1)
        assert again.updated.changed == [changed] + [False] * (TOPICS - 2)
        assert again.updated.features_now[0] != again.updated.features_before[0]


class TestNew:
    def test_a_topic_that_was_not_there(self, found, updated):
        assert updated.updated.status == ["kept", "kept", "kept", "kept", "new"]
        inside = updated.labels == TOPICS - 1
        assert inside[MADE.y[SECOND] == NEW].mean() > 0.95
        assert (MADE.y[SECOND][inside] == NEW).mean() > 0.95
        assert updated.names[:-1] == found.names
        assert updated.names[-1]
        assert "1 new cluster: 5." in updated.notes
        assert np.isfinite(updated.confidence[inside]).all()
        assert np.isfinite(updated.surprise[inside]).all()

    def test_two_topics_that_were_not_there(self):
        old = FIRST[MADE.y[FIRST] < 3]
        again = cluster_table(TABLE, counts(old), 3).update(counts(SECOND))
        assert again.updated.status == ["kept", "kept", "kept", "new", "new"]
        for topic in (3, 4):
            number = np.bincount(again.labels[MADE.y[SECOND] == topic]).argmax()
            assert number >= 3
            assert (MADE.y[SECOND][again.labels == number] == topic).mean() > 0.9

    def test_beside_one_cluster(self):
        """It says nothing about how far clusters are apart, so what is new is not divided."""
        one = FIRST[MADE.y[FIRST] == 0]
        again = cluster_table(TABLE, counts(one), 1).update(counts(SECOND[np.isin(MADE.y[SECOND], [0, 3, 4])]))
        assert again.updated.status == ["kept", "new"]

    def test_predict_says_what_the_table_says(self, updated, tmp_path):
        updated.model.save(tmp_path / "model.onmf", extra=updated.entries())
        for model in (updated.model, onmf.load(tmp_path / "model.onmf")):
            again = predict_table(model, counts(SECOND), kind=TABLE)
            for measure in ("labels", "scales", "margins", "confidence", "surprise", "runners_up"):
                assert np.array_equal(getattr(again, measure), getattr(updated, measure), equal_nan=True), measure
            assert np.array_equal(model.labels_, updated.labels)

    def test_it_is_not_new_the_next_time(self, updated):
        again = updated.update(counts(FIRST))
        assert "new" not in again.updated.status
        assert again.numbers.tolist() == [*range(TOPICS)]

    def test_the_same_bits(self, found, updated):
        again = found.update(counts(SECOND))
        assert np.array_equal(again.model.cluster_centers_, updated.model.cluster_centers_)
        assert np.array_equal(again.labels, updated.labels)

    def test_after_edits(self, found):
        """Merged clusters stay merged, and a new one gets a number that none ever had."""
        merged = found.merge(0, 2).rename({1: "mine"})
        again = merged.update(counts(SECOND))
        assert again.numbers.tolist() == [0, 1, 3, 4]
        assert again.updated.status == ["kept", "kept", "", "kept", "new"]
        assert again.names[1] == "mine"
        assert np.array_equal(predict_table(again.model, counts(SECOND), kind=TABLE).labels, again.labels)

    def test_a_material_that_was_not_there(self):
        scene = make_scene(40, 40, 30, 4, random_state=1)
        X = scene.X.reshape(40, 40, -1)
        truth = scene.abundances.argmax(axis=0).reshape(40, 40)
        first = X.copy()
        first[truth == 3] = X[truth == 0][: np.count_nonzero(truth == 3)]
        found = cluster_table(IMAGE, Cube(first), 3, options={"negatives": "refuse", "blocks": False})
        later = X.copy()
        later[3, 5:25] = 0  # no data: the pixels after these keep their places
        again = found.update(Cube(later, ignore_value=0.0))
        assert (again.labels[3, 5:25] == -1).all()
        truth[3, 5:25] = -1
        new = [number for number, status in enumerate(again.updated.status) if status == "new"]
        assert len(new) == 1
        inside = again.labels == new[0]
        assert inside[truth == 3].mean() > 0.8
        assert np.isfinite(again.spectra[new[0]]).all()


class TestMemory:
    def test_rows_stand_for_all(self):
        old = Memory(csr_array(np.tile([[1.0, 0.0]], (MOST, 1))), 3 * MOST)
        joined = old.joined(csr_array(np.tile([[0.0, 1.0]], (MOST, 1))), MOST)
        assert joined.n_rows == 4 * MOST
        assert joined.rows.sum(axis=0).tolist() == [0.75 * MOST, 0.25 * MOST]
        assert memory_of(joined.parts(), 2).rows.sum() == MOST

    def test_rows_that_are_private_are_not_kept(self):
        found = cluster_table(TABLE, counts(OLD_FIRST).without_texts(), TOPICS - 1)
        assert not [name for name in found.entries() if name.startswith("memory")]
        again = found.update(counts(SECOND))
        assert "new" not in again.updated.status
        assert any("keeps no rows" in note for note in again.notes)

    @pytest.mark.parametrize("name", ["indptr", "indices", "n_rows"])
    def test_damaged(self, found, name, tmp_path):
        extra = found.entries()
        extra[f"memory_{name}"] = -1 if name == "n_rows" else extra[f"memory_{name}"] + WORDS
        with pytest.raises(ValueError, match=r"memory_|rows that it keeps"):
            found.model.save(tmp_path / "model.onmf", extra=extra)


class TestRefused:
    @pytest.mark.parametrize(
        ("parameters", "message"), [({"beta_loss": "frobenius"}, "frobenius"), ({"groups": True}, "with groups")]
    )
    def test_models(self, parameters, message):
        table = counts(OLD_FIRST)
        if parameters.pop("groups", False):
            table = replace(table, groups=["a", "b"] * (len(OLD_FIRST) // 2) + ["a"] * (len(OLD_FIRST) % 2))
        found = cluster_table(TABLE, table, 3, quick=True, **parameters)
        with pytest.raises(ValueError, match=message):
            found.update(counts(SECOND))

    def test_few_rows(self, found):
        again = found.update(counts(SECOND[:3]))
        assert again.labels.shape == (3,)
        assert "new" not in again.updated.status


@every_kind
class TestCommand:
    def test_the_folder(self, name, tmp_path):
        kind = get_kind(name)
        path, *options = arguments(name, tmp_path)
        first = command(kind.command, path, *options, "-k", 3, "--out", tmp_path / "june", "--no-report")
        assert first.returncode == 0, first.stderr
        second = command("update", tmp_path / "june", path, "--out", tmp_path / "july")
        assert second.returncode == 0, second.stderr
        assert f"Since the last update: kept: {listed([kind.first, kind.first + 1, kind.first + 2])}." in second.stdout
        rows = read_csv(tmp_path / "july" / "update.csv")
        assert [row["status"] for row in rows] == ["kept"] * 3
        before, now = (json.loads((tmp_path / month / "summary.json").read_text()) for month in ("june", "july"))
        assert [row["name"] for row in before["clusters"]] == [row["name"] for row in now["clusters"]]
        assert list(now["update"]) == ["kept"]
        assert 'id="update-title"' in (tmp_path / "july" / "report.html").read_text("utf-8")
        third = command("update", tmp_path / "july" / "model.onmf", path, "--out", tmp_path / "august", "--no-report")
        assert third.returncode == 0, third.stderr


def test_a_folder_must_be_named(tmp_path):
    done = command("update", tmp_path, tmp_path)
    assert done.returncode == 2
    assert "--out NEW" in done.stderr


def test_numbers_with_gaps(found, tmp_path):
    """The table, the summary and the page have the numbers that people read."""
    again = found.merge(0, 2).update(counts(SECOND))
    again.save(tmp_path / "new")
    rows = read_csv(tmp_path / "new" / "update.csv")
    assert [(row["cluster"], row["status"]) for row in rows] == [
        ("1", "kept"),
        ("2", "kept"),
        ("4", "kept"),
        ("5", "new"),
    ]
    assert json.loads((tmp_path / "new" / "summary.json").read_text())["update"] == {"kept": [1, 2, 4], "new": [5]}
