"""Names of version 0.1.0: they work, and warn with the new name."""

import copy
import importlib
import json
import pickle
import re
from functools import reduce

import anndata
import numpy as np
import pytest

import onmf
from cell_clusterings import small_clustering
from onmf import old_names
from onmf.datasets import make_counts, make_scene

TEXTS = ["tea cup tea", "green tea", "tea", "cow milk", "..."]

NAMES = [(module, old) for module, names in old_names.MODULES.items() for old in names]


@pytest.fixture(scope="module")
def results():
    """A result of each kind that version 0.1.0 had."""
    texts = [onmf.text.Text(str(i), text, str(i // 3), "2024-03-01") for i, text in enumerate(TEXTS)]
    scene = make_scene(6, 8, 20, 3, random_state=0).X.reshape(6, 8, 20)
    return [onmf.text.cluster(texts, 2), onmf.image.cluster(scene, 3), small_clustering()]


def test_the_modules_have_only_new_names():
    for module in old_names.MODULES:
        imported = importlib.import_module(module)
        assert not set(old_names.MODULES[module]) & {*imported.__all__, *vars(imported)}
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nonsense'"):
            _ = imported.nonsense


@pytest.mark.parametrize(("module", "old"), NAMES, ids=[".".join(names) for names in NAMES])
def test_a_name_of_a_module(module, old):
    new = old_names.MODULES[module][old]
    named = new if new.startswith("onmf.") else f"{module}.{new}"
    said = re.escape(f"{module}.{old} is now {named}. The old name will go with version 1.0.")
    with pytest.warns(DeprecationWarning, match=said):
        found = getattr(importlib.import_module(module), old)
    owner, _, last = named.rpartition(".")
    if last in ("save", "report"):
        assert callable(found)
    else:
        assert found is getattr(importlib.import_module(owner), last)


def test_a_warning_points_to_the_line_that_uses_the_name():
    with pytest.warns(DeprecationWarning, match=r"onmf\.text\.read_texts is now onmf\.text\.read") as caught:
        from onmf.text import read_texts  # noqa: F401
    assert caught[0].filename == __file__


@pytest.mark.parametrize("old", old_names.ATTRIBUTES)
def test_an_attribute_of_a_result(old, results):
    """At least one kind of result has it, and those that never had it still do not."""
    new = old_names.ATTRIBUTES[old]
    having = []
    for result in results:
        if old in vars(result) or hasattr(type(result), old):
            continue  # a name that this kind still has
        try:
            expected = reduce(getattr, new.split("."), result)
        except AttributeError:
            with pytest.raises(AttributeError):
                getattr(result, old)
            continue
        with pytest.warns(DeprecationWarning, match=rf"{type(result).__name__}\.{old} is now {new}\."):
            found = getattr(result, old)
        having.append(type(result).__name__)
        assert found is expected or np.all(found == expected)
    assert having, f"no result has {old}"


def test_attributes_of_tables_and_comparisons(results):
    table, comparison = results[0].table, results[0].comparison
    pairs = [(table, old_names.TABLE_ATTRIBUTES), (comparison, old_names.COMPARISON_ATTRIBUTES)]
    for owner, names in pairs:
        for old, new in names.items():
            with pytest.warns(DeprecationWarning, match=rf"{type(owner).__name__}\.{old} is now {new}\."):
                found = getattr(owner, old)
            assert np.array_equal(found, getattr(owner, new))
        with pytest.raises(AttributeError, match=f"'{type(owner).__name__}' object has no attribute 'nonsense'"):
            _ = owner.nonsense


def test_what_never_was_a_name(results):
    for result in results:
        for name in ("nonsense", "nonsense_", "_private", "__array__"):
            with pytest.raises(AttributeError, match=name):
                getattr(result, name)


def test_results_can_be_copied_and_pickled(results):
    """Both ask for attributes of an object that has none yet."""
    for result in (*results, results[0].table, results[0].comparison):
        assert type(copy.copy(result)) is type(result)
        again = pickle.loads(pickle.dumps(result))
        assert type(again) is type(result)
    assert copy.deepcopy(results[0]).labels.tolist() == results[0].labels.tolist()


def test_notes_of_documents_were_a_method(results):
    assert results[0].notes == ["1 document without a usable word, unassigned: 4."]
    with pytest.warns(DeprecationWarning, match=r"notes\(\) is now notes\."):
        assert results[0].notes() == results[0].notes


def test_documents_saved_a_model(results, tmp_path):
    found = results[0]
    with pytest.warns(DeprecationWarning, match=r"save\('….onmf'\) is now save\(folder\), and model\.save\(path\)"):
        found.save(tmp_path / "model.onmf")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onmf"]
    loaded = onmf.load(tmp_path / "model.onmf")
    again = onmf.text.predict(loaded, TEXTS)
    assert again.names == found.names
    np.testing.assert_array_equal(again.labels, found.labels)
    assert again.confidence == pytest.approx(found.confidence, nan_ok=True)


def test_clusters_of_an_anndata_object_were_a_model(tmp_path):
    adata = anndata.AnnData(make_counts(80, 40, 3, random_state=0).X)
    found = onmf.cells.cluster(adata, 3)
    for name in ("labels_", "cluster_centers_", "n_iter_"):
        with pytest.warns(DeprecationWarning, match=rf"CellClusters\.{name} is now model\.{name}\."):
            assert np.array_equal(getattr(found, name), getattr(found.model, name))
    with pytest.warns(DeprecationWarning, match="model.save"):
        found.save(tmp_path / "model.onmf")
    assert onmf.load(tmp_path / "model.onmf").extra_["kind"] == "cells"


def test_functions_that_wrote_files(results, tmp_path):
    with pytest.warns(DeprecationWarning, match=r"onmf\.text\.write_tables is now onmf\.text\.DocumentClusters\.save"):
        write = onmf.text.write_tables
    write(tmp_path, results[0], "csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["assignments.csv", "clusters.csv"]
    for result, old in zip(
        results, ("write_documents_report", "write_image_report", "write_cells_report"), strict=True
    ):
        with pytest.warns(DeprecationWarning, match=rf"onmf\.report\.{old} is now"):
            write = getattr(onmf.report, old)
        write(tmp_path / f"{old}.html", result, title="Mine")
        assert "<title>Mine</title>" in (tmp_path / f"{old}.html").read_text("utf-8")


@pytest.mark.filterwarnings("ignore:.*The old name will go with version 1.0:DeprecationWarning")
def test_scripts_of_the_first_version_run(tmp_path):
    """Calls as the guides of version 0.1.0 had them."""
    from onmf.text import assign_documents, cluster_documents, count_words, read_texts

    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in TEXTS))
    counts = count_words(read_texts(tmp_path / "a.jsonl"))
    assert list(counts.words) == ["cow", "cup", "green", "milk", "tea"]
    result = cluster_documents(read_texts(tmp_path / "a.jsonl"), 2)
    assert result.clusters.tolist() == [0, 0, 0, 1, -1]
    new = assign_documents(result.model, ["black tea", "goat milk"])
    assert new.clusters.tolist() == [0, 1]
