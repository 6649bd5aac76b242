"""Edits of a result by people: what follows from them, the file that holds them, and the command."""

import json
import re
import shutil
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import onmf
from conftest import command
from onmf.cli.command import parsed
from onmf.confidence import log_chances
from onmf.datasets import make_counts
from onmf.door import Table, cluster_table, predict_table
from onmf.door.edits import Numbering, read_edits, write_edits
from onmf.hierarchy import merge_clusters
from onmf.kinds import get_kind
from onmf.naming import listed
from onmf.table import TABLE
from test_door import DOORS, arguments, every_kind, read_csv
from test_report_edit import WIDE, choose, move, opened, rename, start, state

K = 5
MEASURES = ("labels", "templates", "scales", "margins", "confidence", "surprise", "runners_up")


@pytest.fixture(scope="module")
def open_door(tmp_path_factory):
    """The clusters of the file of a kind; what was done before is kept."""

    @cache
    def cluster(name):
        kind = get_kind(name)
        path, given = DOORS[name](tmp_path_factory.mktemp(name))
        options = {option.name: parsed(option, given.get(option.name, option.default)) for option in kind.options}
        reading = {option.name: options.pop(option.name) for option in kind.options if option.reading}
        return cluster_table(kind, kind.read(path, lambda step, share: None, **reading), K, options=options)

    return cluster


@pytest.fixture
def found(open_door, name):
    return open_door(name)


def same(one, other):
    """Two results say the same of each row, to the last bit, and have the same names."""
    assert one.names == other.names
    for measure in MEASURES:
        assert np.array_equal(getattr(one, measure), getattr(other, measure), equal_nan=True), measure
    assert one.run_id == other.run_id
    assert one.notes == other.notes


def predicted(found, model=None):
    """The rows of a result as new ones."""
    return predict_table(found.model if model is None else model, found.table, kind=found.kind)


@every_kind
class TestMerge:
    def test_labels_are_those_of_before_renamed(self, found):
        merged = found.merge(1, 3)
        assert np.array_equal(merged.labels, np.where(found.labels == 3, 1, found.labels))
        assert np.array_equal(merged.templates, found.templates)
        assert merged.numbers.tolist() == [0, 1, 2, 4]
        assert (merged.n_clusters, merged.names[3], merged.sizes[3]) == (4, "", 0)
        assert merged.sizes[1] == found.sizes[1] + found.sizes[3]
        kept = [0, 2, 4]
        assert [merged.names[k] for k in kept] == [found.names[k] for k in kept]
        assert merged.names[1]
        assert len({*merged.names}) == K
        assert [bool(top) for top in merged.distinctive(2)] == [True, True, True, False, True]
        assert [bool(top) for top in merged.frequent(2)] == [True, True, True, False, True]
        assert not np.isin(merged.runners_up[merged.labels == 1], [1, 3]).any(), "against the others"
        assert found.numbers.tolist() == [*range(K)], "a new result"
        assert found.edits == []
        first = found.kind.first
        assert merged.edits == [{"merge": [1 + first, 3 + first]}]
        assert merged.notes == [*found.notes, "1 edit by hand."]

    def test_predict_is_the_old_one_renamed(self, found):
        old, new = predicted(found), predicted(found, found.merge(3, 1).model)
        assert np.array_equal(new.labels, np.where(old.labels == 3, 1, old.labels))
        for measure in ("templates", "scales", "surprise"):
            assert np.array_equal(getattr(old, measure), getattr(new, measure), equal_nan=True), measure
        model = found.merge(1, 3).model
        assert np.array_equal(model.labels_, np.where(found.model.labels_ == 3, 1, found.model.labels_))

    def test_the_order_does_not_matter(self, found):
        one, other = found.merge(1, 3).merge(2, 4), found.merge(4, 2).merge(3, 1)
        same(one, other)
        same(one, found.edit(one.edits))
        assert found.merge(1, 2, 3).run_id == found.merge(2, 3).merge(1, 3 - 1).run_id

    def test_undo(self, found):
        merged = found.merge(1, 3)
        same(merged.set_aside(2).undo(), merged)
        same(merged.undo(), found)
        same(merged.set_aside(2).undo(2), found)
        with pytest.raises(ValueError, match="1 edit can be undone, not 2"):
            merged.undo(2)

    def test_files_show_no_number_that_is_gone(self, found, tmp_path):
        merged = found.merge(1, 3).rename({1: "both of them"})
        merged.save(tmp_path / "out")
        first = found.kind.first
        shown = [str(k + first) for k in (0, 1, 2, 4)]
        assert [row["cluster"] for row in read_csv(tmp_path / "out" / "clusters.csv")] == shown
        summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
        assert (summary["run"], summary["n_clusters"]) == (merged.run_id, 4)
        assert summary["edits"] == merged.edits
        if found.kind.assignments:
            known = {row["cluster"]: row["name"] for row in read_csv(tmp_path / "out" / "assignments.csv")}
            assert {*known} == {*shown, ""}
            assert known[str(1 + first)] == "both of them"
        ran = command("show", tmp_path / "out" / "model.onmf", "--json")
        assert [str(row["cluster"]) for row in json.loads(ran.stdout)["clusters"]] == shown
        page = (tmp_path / "out" / "report.html").read_text("utf-8")
        assert "both of them" in page
        assert found.names[3] not in page or found.names[3] in " ".join(merged.names)
        loaded = onmf.load(tmp_path / "out" / "model.onmf")
        assert np.array_equal(predicted(found, loaded).labels, predicted(found, merged.model).labels)
        assert predicted(found, loaded).names == merged.names
        same(found.edit(tmp_path / "out" / "edits.json"), merged)


@every_kind
class TestSplit:
    def test_the_rule_decides_the_table(self, found):
        split = found.split(0, 2)
        assert split.numbers.tolist() == [0, 1, 2, 3, 4, 5]
        assert len(split.model.cluster_centers_) == 6
        assert split.sizes[0] >= split.sizes[5] > 0
        assert split.names[1:5] == found.names[1:]
        assert len({*split.names}) == 6
        away = found.labels != split.labels
        assert np.isin(split.labels[away & (found.labels != 0)], [0, 5]).all(), "others only join a part"
        assert np.array_equal(split.templates[split.templates >= 0], split.model.clustering_.labels)
        parts = np.isin(split.labels, [0, 5])
        assert np.array_equal(predicted(split).labels[parts], split.labels[parts])
        known = split.confidence[parts]
        assert ((known >= 0) & (known <= 1)).all()
        assert np.array_equal(split.surprise, found.surprise, equal_nan=True)

    def test_it_is_made_again_to_the_last_bit(self, found):
        one, other = (found.split(0, 3).merge(1, 2) for _ in range(2))
        same(one, other)
        assert one.model.cluster_centers_.tobytes() == other.model.cluster_centers_.tobytes()
        same(one.undo(), found.split(0, 3))
        assert one.numbers.tolist() == [0, 1, 3, 4, 5, 6]

    def test_a_merged_cluster_and_numbers_that_are_gone(self, found):
        split = found.merge(0, 4).split(0, 2)
        assert split.numbers.tolist() == [0, 1, 2, 3, 5], "4 is not given again"
        assert len(split.model.cluster_centers_) == K

    def test_it_is_saved(self, found, tmp_path):
        split = found.split(0, 2)
        split.save(tmp_path / "out")
        assert np.array_equal(
            predicted(found, onmf.load(tmp_path / "out" / "model.onmf")).labels, predicted(found, split.model).labels
        )
        assert len(read_csv(tmp_path / "out" / "clusters.csv")) == 6

    def test_refusals(self, found):
        first = found.kind.first
        n = int(np.count_nonzero(found.labels == 4))
        with pytest.raises(ValueError, match=f"Cluster {4 + first} has .*, too few for {n + 1} parts"):
            found.split(4, n + 1)
        with pytest.raises(ValueError, match="There is no cluster 9: those in labels are 0 to 4"):
            found.split(9)


@every_kind
class TestRows:
    def test_set_aside(self, found):
        aside = found.set_aside(1)
        assert np.array_equal(aside.labels, np.where(found.labels == 1, -1, found.labels))
        old = predicted(found).labels
        assert np.array_equal(predicted(found, aside.model).labels, np.where(old == 1, -1, old))
        assert not (aside.runners_up == 1).any()
        assert aside.numbers.tolist() == [0, 2, 3, 4]
        gone = (found.labels == 1) & (aside.labels < 0)
        assert np.isnan(aside.margins[gone]).all()
        assert (aside.runners_up[gone] >= 0).all(), "the best cluster that is left"

    def test_moved_rows_are_exceptions(self, found):
        place = int(np.flatnonzero(found.labels.ravel() == 0)[0])
        name = str(found.table.rows[place])
        moved = found.move(name, 2)
        assert moved.labels.flat[place] == 2
        assert np.count_nonzero(moved.labels != found.labels) == 1
        assert moved.confidence.flat[place] < found.confidence.flat[place]
        assert moved.runners_up.flat[place] == 0, "the model would put it back"
        assert moved.margins.flat[place] < 0
        assert moved.model.cluster_centers_.tobytes() == found.model.cluster_centers_.tobytes()
        same_rows = predicted(found).labels
        assert np.array_equal(predicted(found, moved.model).labels, same_rows), "predict ignores it"
        same(moved, found.move(place, 2))
        assert moved.names == found.names
        none = moved.move([name], None)
        assert none.labels.flat[place] == -1
        assert none.runners_up.flat[place] == 0
        assert none.edits[-1] == {"move": [name], "to": None}
        assert moved.merge(2, 4).labels.flat[place] == 2
        assert moved.merge(1, 2).labels.flat[place] == 1, "it follows its cluster"
        assert moved.set_aside(2).labels.flat[place] == -1
        same(none.undo(), moved)

    def test_rows_that_cannot_be_moved(self, found):
        last = str(found.table.rows[found.labels.size - 1])
        assert found.labels.flat[-1] == -1
        with pytest.raises(ValueError, match=f"{last!r} took no part in the clustering, so it cannot be moved"):
            found.move(last, 0)
        with pytest.raises(ValueError, match=f"There is no {found.kind.row} called 'nobody'"):
            found.move(["nobody"], 0)
        with pytest.raises(ValueError, match="There is no cluster"):
            found.move(0, 77)

    def test_only_a_fit_is_edited(self, found):
        with pytest.raises(ValueError, match="Only the clusters of a fit can be edited"):
            predicted(found).merge(0, 1)


@every_kind
def test_merge_to_takes_the_merges_of_the_report(found, name):
    tree = merge_clusters(found.cluster_sums)
    merged = found.merge_to(3)
    assert merged.n_clusters == 3
    owners = tree.labels(3)
    for pair in np.ndindex(K, K):
        together = owners[pair[0]] == owners[pair[1]]
        one, other = (np.unique(merged.labels[found.labels == k]).tolist() for k in pair)
        assert (one == other) == together
    with pytest.raises(ValueError, match="n_clusters=6 is not allowed: there are 5 clusters"):
        found.merge_to(6)


def test_numbers_after_merges_follow_from_the_best_other_cluster(open_door):
    found = open_door("table")
    merged = found.merge(1, 3)
    chances = log_chances(merged.model, found.fitted_rows.X)
    shares = np.exp((chances - chances.max(axis=1, keepdims=True)) / found.calibration.temperature)
    shares /= shares.sum(axis=1, keepdims=True)
    of, own = np.array([0, 1, 2, 1, 4]), found.model.clustering_.labels
    p = np.where(of == of[own][:, None], shares, 0).sum(axis=1)
    low, high = found.calibration.low[own], found.calibration.high[own]
    assert merged.confidence[:-1] == pytest.approx(low + (high - low) * p)
    others = np.where(of == of[own][:, None], -np.inf, chances)
    assert np.array_equal(merged.runners_up[:-1], of[others.argmax(axis=1)])
    best = np.take_along_axis(chances, own[:, None], axis=1)[:, 0]
    sizes = np.asarray(found.fitted_rows.X.sum(axis=1)).ravel()
    assert merged.margins[:-1] == pytest.approx((best - others.max(axis=1)) / sizes)


def test_a_part_is_as_sure_as_its_cluster_times_the_part(open_door):
    """The confidence of rows of an arbitrary split is far lower than that of their cluster; of a real one it is not."""
    found = open_door("table")
    arbitrary = found.split(2, 3)
    rows = np.isin(arbitrary.labels, [2, 5, 6]) & (found.labels == 2)
    assert arbitrary.confidence[rows].mean() < found.confidence[rows].mean()
    two = found.merge(0, 2)
    real = two.split(0, 2)
    back = (real.labels == 0) | (real.labels == 5)
    assert real.confidence[back].mean() > arbitrary.confidence[rows].mean()


def test_rows_join_a_part_that_is_closer():
    """As predict puts them there."""
    data = make_counts(300, 60, 8, length=25, overlap=0.5, random_state=2)
    table = Table(data.X, [f"r{i}" for i in range(300)], [f"f{j}" for j in range(60)])
    found = cluster_table(TABLE, table, 3, quick=True)
    split = found.split(0, 3)
    joined = np.count_nonzero((found.labels != 0) & (split.labels != found.labels))
    assert joined > 1
    assert f"{joined} rows of other clusters are closer to parts of cluster 1." in split.notes
    assert np.array_equal(predicted(split).labels, split.labels)
    assert split.move(0, 1).notes[-1] == split.notes[-1], "the note stays"


def test_numbers_in_python(open_door, tmp_path):
    """They are those of labels, of NumPy or not, and nothing else is taken for one."""
    found = open_door("table")
    of_numpy = found.move(np.arange(2), np.int64(3)).split(np.int64(4), np.int64(2)).merge(*np.array([0, 1]))
    same(of_numpy, found.move([0, 1], 3).split(4, 2).merge(0, 1))
    of_numpy.save(tmp_path / "out", report=False)
    same(found.edit(tmp_path / "out" / "edits.json"), of_numpy)
    for number in (5, -1, 1.5, True, "1", [0, 1]):
        message = rf"There is no cluster {re.escape(repr(number))}: those in labels are 0 to 4\."
        for edit in (lambda n: found.merge(0, n), found.set_aside, found.split, lambda n: found.move(0, n)):
            with pytest.raises(ValueError, match=message):
                edit(number)
    with pytest.raises(ValueError, match="There is no cluster 2: those in labels are 0 to 1 and 3 to 4"):
        found.merge(0, 2).rename({2: "tea"})
    for row in (61, -1, 1.5, True):
        with pytest.raises(ValueError, match=f"There is no row at place {row}: places are 0 to 60"):
            found.move([0, row], 1)


def test_names_that_were_given_stay(open_door):
    found = open_door("table").rename({3: "space", 1: "tea"})
    assert found.names[1::2] == ["tea", "space"]
    assert found.merge(1, 3).names[1] == "tea"
    assert found.merge(0, 3).names[0] == "space"
    assert found.split(3, 2).names[3] == "space"
    assert found.merge(3, 4).rename({3: "both"}).names[3] == "both"
    with pytest.raises(ValueError, match="Clusters 2 and 3 would both be named 'tea'"):
        found.rename({2: "tea"})


def test_rows_left_unassigned_by_the_standards(open_door):
    table = open_door("table").table
    found = cluster_table(TABLE, table, K, min_confidence=0.8)
    left = found.labels < 0
    assert left.sum() > 5
    merged = found.merge(0, 1, 2, 3)
    assert (merged.labels < 0).sum() < left.sum(), "surer, since fewer clusters are left"
    row = int(np.flatnonzero(left)[0])
    moved = found.move(row, 1)
    assert moved.labels[row] == 1
    assert np.isfinite(moved.margins[row])
    (note,) = [note for note in found.notes if "left unassigned" in note]
    (other,) = [note for note in moved.notes if "left unassigned" in note]
    assert int(note.split()[0]) == int(other.split()[0]) + 1


def test_groups():
    data = make_counts(240, 40, 6, length=150, random_state=3)
    X = data.X.toarray().astype(np.int64)
    groups = ["ab"[i % 2] for i in range(240)]
    X[1::2, :10] *= 3
    found = cluster_table(
        TABLE, Table(X, [f"r{i}" for i in range(240)], [f"f{j}" for j in range(40)], groups=groups), 4
    )
    assert found.groups == ["a", "b"]
    merged = found.merge(0, 3)
    assert np.array_equal(merged.labels, np.where(found.labels == 3, 0, found.labels))
    assert merged.composition.sum(axis=1).tolist() == merged.sizes.tolist()
    split = merged.split(0, 3)
    assert split.n_clusters == 5
    parts = np.isin(split.labels, [0, 4, 5])
    assert np.array_equal(predicted(split).labels[parts], split.labels[parts])
    # Under the multipliers of the groups, each part has the profile of its rows: their expected sums are the observed.
    model = split.model
    codes = np.array([i % 2 for i in range(240)])
    w = model.divergence_.normalise(model.cluster_centers_)
    for k in np.flatnonzero(model.clusters_ == 4):
        rows = split.templates == k
        lengths = X[rows].sum(axis=1)
        expected = w[k] * model.group_effects_[codes[rows]]
        expected *= (lengths / expected.sum(axis=1))[:, None]
        assert expected.sum(axis=0) == pytest.approx(X[rows].sum(axis=0), abs=0.1 * lengths.sum() / 40)


class TestNumbering:
    def test_a_cycle_of_merges(self):
        numbering = Numbering(["a", "b", "c"], 1)
        numbering.apply({"merge": [1, 3]})
        with pytest.raises(
            ValueError, match=r"no cluster 3 any more: it was merged or set aside. The clusters are 1 to 2"
        ):
            numbering.apply({"merge": [3, 1]})

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            ({"merge": [1, 7]}, r"There is no cluster 7. The clusters are 1 to 3\."),
            ({"merge": [0, 1]}, "There is no cluster 0"),
            ({"merge": [2, 2]}, "Cluster 2 cannot be merged with itself"),
            ({"merge": [2]}, "Edit 4 has .* for 'merge': use a list of at least two numbers"),
            ({"merge": [1, True]}, "use a list of at least two numbers"),
            ({"merge": "1+2"}, "use a list of at least two numbers"),
            ({"merge": [1, 2], "to": 1}, "it has to have 'merge'"),
            ({"split": 1}, "it has to have 'split' and 'into'"),
            ({"split": 1, "into": 1}, "use a number of parts from 2 to 10,000"),
            ({"split": 1, "into": 10**20}, "use a number of parts from 2 to 10,000"),
            ({"split": 8, "into": 2}, "There is no cluster 8"),
            ({"rename": {"x": "tea"}}, "use names by the numbers of clusters"),
            ({"rename": {"1": 7}}, "use names by the numbers of clusters"),
            ({"rename": {"1": ""}}, "The name of cluster 1 is empty"),
            ({"rename": {"9": "tea"}}, "There is no cluster 9"),
            ({"set aside": [1, 2, 3]}, "No cluster would be left"),
            ({"set aside": []}, "use a list of numbers"),
            ({"move": "a", "to": 1}, "use a list of names of rows"),
            ({"move": ["a"]}, "it has to have 'move' and 'to'"),
            ({"move": ["a"], "to": 12}, "There is no cluster 12"),
            ({"swap": [1, 2]}, "an edit is one of 'merge', 'split', 'rename', 'set aside', 'move'"),
            ([1, 2], "an edit is one of"),
        ],
    )
    def test_refusals(self, edit, message):
        with pytest.raises(ValueError, match=message):
            Numbering(["a", "b", "c"], 1).apply(edit, 4)

    def test_numbers_in_words(self):
        assert listed([1, 2, 3, 5, 7, 8]) == "1 to 3, 5 and 7 to 8"
        assert (listed([4]), listed([])) == ("4", "none")


class TestFile:
    EDITS = ({"merge": [3, 8]}, {"rename": {"2": 'größer, "so"'}}, {"move": ["a\nb"], "to": None})

    def test_round_trip(self, tmp_path):
        write_edits(tmp_path / "edits.json", "table", "abc", self.EDITS)
        assert read_edits(tmp_path / "edits.json", "table") == ("abc", list(self.EDITS))
        lines = (tmp_path / "edits.json").read_text("utf-8").splitlines()
        assert lines[2] == '  {"merge": [3, 8]},', "one edit a line"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"onmf": "a model"}, "it does not say that it holds edits"),
            ({"version": 2}, "it is of version 2, and this onmf knows version 1: upgrade onmf"),
            ({"version": "1"}, "it does not state its version"),
            ({"kind": "image"}, "its kind is 'image', not one of 'table'"),
            ({"run": None}, "its run is None, not a string"),
            ({"edits": {}}, "its edits is {}, not a list"),
            ({"edits": [{"merge": [1]}]}, "Edit 1 has"),
            ({"also": 1}, "its also is 1, not a known parameter"),
        ],
    )
    def test_refusals(self, tmp_path, changes, message):
        path = tmp_path / "edits.json"
        whole = {"onmf": "edits", "version": 1, "kind": "table", "run": "abc", "edits": []}
        path.write_text(json.dumps(whole | changes))
        with pytest.raises(ValueError, match=message) as caught:
            read_edits(path, "table")
        assert str(caught.value).startswith(f"{path} cannot be used as edits: ")

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"onmf": "edits", "onmf": "edits"}', "nan", "\udcff"])
    def test_damage(self, tmp_path, text):
        path = tmp_path / "edits.json"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ValueError, match="cannot be used as edits"):
            read_edits(path, "table")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Folders that commands wrote, with what was clustered beside them."""

    @cache
    def run(name):
        folder = tmp_path_factory.mktemp(name)
        ran = command(name, *arguments(name, folder), "-k", K, "--out", folder / "run", "--quiet")
        assert ran.returncode == 0, ran.stderr
        return folder

    return run


def contents(folder):
    """The files of a folder, but for times, and numbers that depend on them."""
    tables = sorted(path for path in folder.rglob("*") if path.suffix in (".csv", ".tif", ".html"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in tables if path.is_file()}


@every_kind
class TestCommand:
    def test_edits_add_up(self, ran, name, tmp_path):
        folder, first = ran(name), get_kind(name).first
        merge, named = f"{first}+{first + 2}", f"{first + 1}=space, and more"
        once = command("edit", folder / "run", "--merge", merge, "--rename", named, "--out", tmp_path / "one")
        assert once.returncode == 0, once.stderr
        assert "2 edits by hand." in once.stdout
        twice = command("edit", tmp_path / "one", "--split", f"{first}:2", "--out", tmp_path / "two", "--quiet")
        assert twice.returncode == 0, twice.stderr
        edits = json.loads((tmp_path / "two" / "edits.json").read_text("utf-8"))
        assert edits["run"] == json.loads((folder / "run" / "summary.json").read_text("utf-8"))["run"]
        assert len(edits["edits"]) == 3
        again = command("edit", folder / "run", tmp_path / "two" / "edits.json", "--out", tmp_path / "again", "-q")
        assert again.returncode == 0, again.stderr
        assert contents(tmp_path / "two") == contents(tmp_path / "again")
        numbers = [int(row["cluster"]) - first for row in read_csv(tmp_path / "two" / "clusters.csv")]
        assert numbers == [0, 1, 3, 4, 5]
        assert read_csv(tmp_path / "two" / "clusters.csv")[1]["name"] == "space, and more"
        original = onmf.load(folder / "run" / "model.onmf")
        one = onmf.load(tmp_path / "one" / "model.onmf")
        assert one.cluster_centers_.tobytes() == original.cluster_centers_.tobytes()
        assert np.array_equal(one.labels_, np.where(original.labels_ == 2, 0, original.labels_))

    def test_edits_in_the_page_come_back(self, ran, name, found, visit, tmp_path):
        """Edited in the report, downloaded, applied by the command: the new report shows them, twice the same."""
        run = ran(name) / "run"

        def shown(folder):
            return (folder / "report.html").read_text("utf-8")

        def applied(page, folder, out):
            with page.expect_download() as info:
                page.click("#edit-download")
            info.value.save_as(tmp_path / f"{out}.json")
            for target in (tmp_path / out, tmp_path / f"{out}-again"):
                edited = command("edit", folder, tmp_path / f"{out}.json", "--out", target, "--quiet")
                assert edited.returncode == 0, edited.stderr
            assert contents(tmp_path / out) == contents(tmp_path / f"{out}-again")
            return tmp_path / out

        page = start(visit(shown(run), viewport=WIDE))
        for places, button in (((0, 2), "#edit-merge"), ((3,), "#edit-aside")):
            choose(page, *places)
            page.click(button)
        rename(page, 0, "both of them")
        rename(page, 1, "a part & more")
        page.reload()
        before = state(start(page))
        first = applied(page, run, "first")
        page = opened(visit(shown(first), viewport=WIDE))
        after = state(page)
        assert [line[::2] for line in after] == [line[::2] for line in before], "numbers and sizes"
        assert [after[at][1] for at in (0, 1)] == ["both of them", "a part & more"]
        assert page.locator("#draft").is_hidden(), "the draft was of the other result"
        old, new = (predicted(found, onmf.load(folder / "model.onmf")) for folder in (run, first))
        assert np.array_equal(new.labels, np.array([0, 1, 0, -1, 4, -1])[old.labels])
        inside = new.labels >= 0
        for measure in ("templates", "scales", "surprise"):
            assert np.array_equal(getattr(old, measure)[inside], getattr(new, measure)[inside]), measure

        page.click("#edit")
        row, to = move(page)
        choose(page, 0)
        page.click("#edit-split")
        page = opened(visit(shown(applied(page, first, "second")), viewport=WIDE))
        kept = [number for number, *_ in before]
        assert [number for number, *_ in state(page)] == [*kept, kept[0] + K]
        place = "(name) => { const { rows, clusterOf, numberOf } = onmf.edit, c = clusterOf(rows().find(name));"
        assert page.evaluate(f"{place} return c < 0 ? null : numberOf(c); }}", row) == to


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--merge", "2+9"), "There is no cluster 9. The clusters are 1 to 5."),
            (("--merge", "3+3"), "Cluster 3 cannot be merged with itself."),
            (("--merge", "2+4", "--merge", "4+2"), "There is no cluster 4 any more: it was merged or set aside."),
            (("--merge", "2"), "--merge 2 is not understood: write it like --merge 3+8."),
            (("--split", "2:x"), "--split 2:x is not understood: write it like --split 5:3."),
            (("--split", "2:999"), "Cluster 2 has"),
            (("--split", f"2:{10**20}"), "use a number of parts from 2 to 10,000"),
            (("--rename", "space"), '--rename space is not understood: write it like --rename 2="space".'),
            (("--merge-to", "6"), "--merge-to 6: only 5 clusters are there."),
            ((), "There is nothing to edit"),
        ],
    )
    def test_of_options(self, ran, tmp_path, options, message):
        shown = command("edit", ran("table") / "run", *options, "--out", tmp_path / "out", "--quiet")
        assert shown.returncode == 2
        assert message in shown.stderr
        assert shown.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()

    def test_of_files_and_folders(self, ran, tmp_path):
        run, out = ran("table") / "run", tmp_path / "out"
        mine = json.loads((run / "summary.json").read_text("utf-8"))["run"]

        def refused(*given, out=out):
            shown = command("edit", *given, "--out", out)
            assert (shown.returncode, shown.stderr.count("\n")) == (2, 1), shown.stderr
            assert not out.exists()
            return shown.stderr

        write_edits(tmp_path / "other.json", "table", "0123", [{"merge": [1, 2]}])
        assert f"for the run 0123, and this is {mine}" in refused(run, tmp_path / "other.json")
        write_edits(tmp_path / "kind.json", "cells", mine, [{"merge": [1, 2]}])
        assert "its kind is 'cells', not one of 'table'" in refused(run, tmp_path / "kind.json")
        (tmp_path / "empty").mkdir()
        assert "has no summary.json" in refused(tmp_path / "empty", "--merge", "1+2")
        shutil.copytree(run, tmp_path / "moved")
        summary = json.loads((run / "summary.json").read_text("utf-8"))
        gone = summary | {"command": summary["command"] | {"paths": ["gone.csv"]}}
        (tmp_path / "moved" / "summary.json").write_text(json.dumps(gone))
        said = refused(tmp_path / "moved", "--merge", "1+2")
        assert "gone.csv, which was clustered, is not there any more: name it with --source PATH" in said
        piped = summary | {"command": summary["command"] | {"paths": ["-"]}}
        (tmp_path / "moved" / "summary.json").write_text(json.dumps(piped))
        said = refused(tmp_path / "moved", "--merge", "1+2")
        assert "Standard input was clustered, which is gone: save it as a file, and name that with --source" in said
        changed = tmp_path / "changed.csv"
        changed.write_bytes((ran("table") / "table.csv").read_bytes() + b"\n")
        assert "its checksum differs" in refused(run, "--merge", "1+2", "--source", changed)
        (tmp_path / "moved" / "summary.json").write_text(json.dumps(summary | {"run": "0123"}))
        said = refused(tmp_path / "moved", "--merge", "1+2", "--quiet")
        assert "The source gives other clusters than those of" in said
        (tmp_path / "moved" / "summary.json").write_text(json.dumps(summary | {"command": None}))
        assert "does not say how to cluster again" in refused(tmp_path / "moved", "--merge", "1+2")

    def test_names_that_rename_gave_are_kept(self, ran, tmp_path):
        shutil.copytree(ran("table"), tmp_path / "all")
        run = tmp_path / "all" / "run"
        assert command("rename", run / "model.onmf", 2, "my name").returncode == 0
        shown = command(
            "edit", run, "--merge-to", 4, "--out", tmp_path / "out", "--source", tmp_path / "all" / "table.csv"
        )
        assert shown.returncode == 0, shown.stderr
        edits = json.loads((tmp_path / "out" / "edits.json").read_text("utf-8"))["edits"]
        assert edits[0] == {"rename": {"2": "my name"}}
        assert "merge" in edits[1]


def test_edited_models_are_of_the_second_format(open_door, tmp_path):
    found = open_door("table")
    found.merge(0, 1).save(tmp_path / "out", report=False)
    model = onmf.load(tmp_path / "out" / "model.onmf")
    assert model.clusters_.tolist() == [0, 0, 2, 3, 4]
    with pytest.raises(ValueError, match=r"its part names is .'a'., not a name for each cluster"):
        found.merge(0, 1).model.save(tmp_path / "bad.onmf", extra={**model.extra_, "names": ["a"]})


def test_a_namer_names_only_what_edits_made(open_door):
    asked = []

    def namer(features, rows):
        asked.append(features)
        return f"name {len(asked)}"

    found = cluster_table(TABLE, open_door("table").table, K, namer=namer)
    assert len(asked) == K
    merged = found.merge(1, 2)
    assert len(asked) == K + 1
    assert merged.names == ["name 1", "name 6", "", "name 4", "name 5"]


def test_dates_classes_and_halves_follow(open_door):
    found = open_door("table")
    table = replace(found.table, dates=np.array(["2024-01-01"] * 30 + ["2025-06-01"] * 31, dtype="datetime64[D]"))
    chosen = cluster_table(TABLE, table, "auto", k_min=3, k_max=6)
    merged = chosen.merge(0, 1)
    assert merged.comparison.table.shape[1] == merged.n_clusters == chosen.n_clusters - 1
    assert set(merged.comparison.matched) <= set(merged.numbers.tolist())
    assert np.isnan(merged.finding()[1])
    assert np.isfinite(merged.finding()[merged.numbers]).all()
