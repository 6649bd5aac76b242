"""Data in pieces: what is read back is what was written, and broken files are named."""

import pickle
import sys

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_array, csr_matrix, save_npz, vstack
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from onmf import ONMF, load
from onmf.datasets import count_shards, make_counts, open_h5ad, open_shards, open_zarr, write_shards

pytest.importorskip("dask")

# What anndata and zarr say of their own next versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*zarr.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def X():
    return make_counts(300, 50, 4, random_state=0).X


@pytest.fixture(scope="module")
def labels(X):
    return ONMF(4).fit(X).labels_


@pytest.fixture(scope="module")
def adata_files(X, tmp_path_factory):
    anndata = pytest.importorskip("anndata")
    folder = tmp_path_factory.mktemp("cells")
    adata = anndata.AnnData(csr_matrix(X))
    adata.layers["dense"], adata.layers["columns"] = X.toarray(), csc_matrix(X)
    adata.write_h5ad(folder / "cells.h5ad")
    adata.write_zarr(folder / "cells.zarr")
    return folder


def test_what_batches_are_not(tmp_path):
    X = np.eye(3)
    with pytest.raises(TypeError, match=r"batches is a function: pass what it returns, batches\(\)"):
        write_shards(lambda: iter([X]), tmp_path / "new")
    with pytest.raises(TypeError, match="batches is one matrix: pass a list of batches"):
        write_shards(X, tmp_path / "new")
    assert not (tmp_path / "new").exists()


class TestShards:
    def test_written_and_read(self, X, labels, tmp_path):
        shards = write_shards((X[i : i + 80] for i in range(0, 300, 80)), tmp_path / "shards")
        assert (shards.shape, shards.sizes) == ((300, 50), (80, 80, 80, 60))
        assert "300 × 50 in 4 files" in repr(shards)
        assert np.array_equal(ONMF(4).fit(open_shards(tmp_path / "shards")).labels_, labels)
        lazy = shards.to_dask()
        assert lazy.chunks == ((80, 80, 80, 60), (50,))
        assert np.array_equal(ONMF(4).fit(lazy).labels_.compute(), labels)
        assert [file.name for file in tmp_path.rglob(".*")] == [], "nothing half-written stays"

    def test_scipys_own_files(self, X, labels, tmp_path):
        for i in range(0, 300, 100):
            save_npz(tmp_path / f"part{i}.npz", csr_matrix(X[i : i + 100]))
        assert np.array_equal(ONMF(4).fit(open_shards(tmp_path)).labels_, labels)

    def test_parquet_has_names(self, X, labels, tmp_path):
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        names = [f"gene{j}" for j in range(50)]
        for i in range(0, 300, 100):
            pd.DataFrame(X[i : i + 100].toarray(), columns=names).to_parquet(tmp_path / f"part{i}.parquet")
        model = ONMF(4).fit(open_shards(tmp_path))
        assert np.array_equal(model.labels_, labels)
        assert model.feature_names_in_.tolist() == names
        pd.DataFrame(np.ones((5, 50)), columns=names[::-1]).to_parquet(tmp_path / "part9.parquet")
        with pytest.raises(ValueError, match=r"part9.parquet has other columns than .*part0.parquet"):
            open_shards(tmp_path)

    @pytest.mark.parametrize("name", [None, "cell"])
    def test_the_index_of_a_frame_is_no_feature(self, X, labels, tmp_path, name):
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        names = [f"RP11.{j}" for j in range(50)]
        frame = pd.DataFrame(X.toarray(), columns=names)
        for i in range(0, 300, 100):  # an index that is no range becomes a column of the file
            part = frame.iloc[i : i + 100].set_axis(pd.Index([f"c{299 - j}" for j in range(i, i + 100)], name=name))
            part.to_parquet(tmp_path / f"part{i}.parquet")
        shards = open_shards(tmp_path)
        assert shards.shape == (300, 50)
        model = ONMF(4).fit(shards)
        assert (model.n_features_in_, model.feature_names_in_.tolist()) == (50, names)
        assert np.array_equal(model.labels_, labels)
        assert np.array_equal(model.predict(frame), labels)
        assert set(model.top_features(1)[0]) <= set(names)
        assert np.array_equal(ONMF(4).fit(shards.to_dask()).labels_.compute(), labels)
        model.save(tmp_path / "model.onmf")
        assert load(tmp_path / "model.onmf").feature_names_in_.tolist() == names

    def test_written_as_a_whole_or_not_at_all(self, X, tmp_path):
        def breaks_off():
            yield X[:100]
            raise OSError("the disk is gone")

        for batches, names, error, match in (
            (breaks_off(), None, OSError, "the disk is gone"),
            ([X[:100], X[100:, :20]], None, ValueError, "Batch 1 has 20 features, but batch 0 has 50"),
            (breaks_off(), ["a", "b"], ValueError, "names has 2 names, but batch 0 has 50 features"),
            ([np.ones(3)], None, ValueError, "Batch 0 has 1 dimension"),
        ):
            with pytest.raises(error, match=match):
                write_shards(batches, tmp_path / "shards", names)
            assert not list(tmp_path.iterdir())
        write_shards([X[:100], X[100:]], tmp_path / "shards", (f"gene{j}" for j in range(50)))
        assert open_shards(tmp_path / "shards").names[7] == "gene7"

    def test_where_shards_may_be_written(self, X, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "here")
        write_shards([X], tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert open_shards(tmp_path / "here").shape == X.shape
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "mine.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"notes holds 'mine.txt' already: give a new folder"):
            write_shards([X], tmp_path / "notes")
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        with pytest.raises(FileExistsError, match="the working folder: give a new folder in it"):
            write_shards([X], ".")

    def test_refusals(self, X, tmp_path):
        with pytest.raises(FileNotFoundError, match="is not a folder"):
            open_shards(tmp_path / "nowhere")
        with pytest.raises(ValueError, match=r"neither \.npz nor \.parquet"):
            open_shards(tmp_path)
        with pytest.raises(ValueError, match="batches is empty"):
            write_shards([], tmp_path / "empty")
        write_shards([X], tmp_path)
        with pytest.raises(FileExistsError, match="holds shards already"):
            write_shards([X], tmp_path)
        write_shards([X[:, :20]], tmp_path / "other")
        (tmp_path / "other" / "shard-000000.npz").rename(tmp_path / "shard-000001.npz")
        with pytest.raises(ValueError, match=r"shard-000001.npz has 20 features, but .*shard-000000.npz has 50"):
            open_shards(tmp_path)
        (tmp_path / "shard-000001.npz").write_bytes(b"PK\x03\x04 and then nothing")
        with pytest.raises(ValueError, match=r"shard-000001.npz cannot be read as a shard"):
            open_shards(tmp_path)

    def test_a_shard_that_breaks_between_two_passes_is_named(self, X, tmp_path):
        shards = write_shards([X[:150], X[150:]], tmp_path)
        shards.files[1].write_bytes(b"")
        with pytest.raises(ValueError, match=r"In partition 1.*shard-000001.npz cannot be read as a shard"):
            ONMF(4).fit(shards.to_dask())


class TestTexts:
    TEXTS = ("red wine, white wine", "green tea and black tea", "red tea", "wine from grapes", "a green grape", "") * 3

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"min_df": 4},
            {"max_df": 0.4, "stop_words": "english"},
            {"max_features": 4},
            {"vocabulary": ["tea"]},
            {"vocabulary": ["beer"]},
            {"dtype": np.float64},
        ],
    )
    def test_counted_in_shards_as_at_once(self, tmp_path, options):
        at_once = CountVectorizer(**options)
        expected = at_once.fit_transform(self.TEXTS)
        shards = count_shards(iter(self.TEXTS), tmp_path, CountVectorizer(**options), documents=5)
        assert len(shards.files) == 4
        assert shards.names.tolist() == at_once.get_feature_names_out().tolist()
        assert (vstack(list(shards())) != expected).nnz == 0

    def test_a_vectorizer_is_left_as_it_is(self, tmp_path):
        vectorizer = CountVectorizer(vocabulary=["tea", "wine"])
        before = dict(vars(vectorizer))
        count_shards(iter(self.TEXTS), tmp_path, vectorizer)
        assert vars(vectorizer) == before

    def test_words_are_the_names_of_features(self, tmp_path):
        with pytest.warns(UserWarning, match="3 of 18 rows of X are zero"):
            model = ONMF(2).fit(count_shards(iter(self.TEXTS), tmp_path, documents=7))
        assert {"wine", "tea"} <= set(model.feature_names_in_)
        assert all(isinstance(word, str) for words in model.top_features(2) for word in words)

    def test_refusals(self, tmp_path):
        with pytest.raises(ValueError, match="There are no texts"):
            count_shards([], tmp_path)
        with pytest.raises(ValueError, match="None of the 2 texts has a word that counts"):
            count_shards(["a", "b"], tmp_path)
        with pytest.raises(TypeError, match="texts is one string: give a list of strings"):
            count_shards("red wine", tmp_path)
        for vectorizer in (TfidfVectorizer(), HashingVectorizer()):
            name = type(vectorizer).__name__
            with pytest.raises(TypeError, match=f"vectorizer is a {name}, which does not count: use a CountVectorizer"):
                count_shards(iter(self.TEXTS), tmp_path, vectorizer)
        assert not list(tmp_path.iterdir())

        def breaks_off():
            yield from self.TEXTS
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            count_shards(breaks_off(), tmp_path / "texts", documents=5)
        assert not list(tmp_path.iterdir())
        count_shards(iter(self.TEXTS), tmp_path)
        (tmp_path / "names.json").write_text("[]")
        with pytest.raises(ValueError, match=r"names.json is no list of \d+ names"):
            open_shards(tmp_path)


class TestAnnDataFiles:
    @pytest.mark.parametrize("layer", [None, "dense"])
    def test_h5ad(self, adata_files, labels, layer):
        lazy = open_h5ad(adata_files / "cells.h5ad", layer, rows=77)
        assert lazy.chunks[0] == (77, 77, 77, 69)
        assert np.array_equal(ONMF(4).fit(lazy).labels_.compute(), labels)

    @pytest.mark.parametrize("name", ["X", "layers/dense"])
    def test_zarr(self, adata_files, labels, name):
        lazy = open_zarr(adata_files / "cells.zarr", name, rows=77)
        assert np.array_equal(ONMF(4).fit(lazy).labels_.compute(), labels)

    def test_where_rows_begin_is_read_with_the_rows(self, tmp_path):
        anndata = pytest.importorskip("anndata")
        n = 50_000
        X = csr_matrix((np.ones(n), (np.arange(n), np.arange(n) % 3)))
        anndata.AnnData(X).write_h5ad(tmp_path / "cells.h5ad")
        lazy = open_h5ad(tmp_path / "cells.h5ad", rows=n // 2)
        assert len(pickle.dumps(dict(lazy.dask))) < 10_000, "it travels in every pass"
        assert (vstack([block.compute() for block in lazy.blocks]) != X).nnz == 0

    def test_refusals(self, adata_files, tmp_path):
        with pytest.raises(KeyError, match="has no layers/nope: there are columns, dense"):
            open_h5ad(adata_files / "cells.h5ad", "nope")
        with pytest.raises(KeyError, match="has no layers/nope: there are columns, dense"):
            open_zarr(adata_files / "cells.zarr", "layers/nope")
        with pytest.raises(KeyError, match="has no nope: there are X, layers, obs"):
            open_zarr(adata_files / "cells.zarr", "nope")
        with pytest.raises(ValueError, match=r"is stored by columns .*tocsr"):
            open_h5ad(adata_files / "cells.h5ad", "columns")
        with pytest.raises(ValueError, match="holds no matrix"):
            open_zarr(adata_files / "cells.zarr")
        with pytest.raises(FileNotFoundError, match="give the path of an h5ad file"):
            open_h5ad(tmp_path / "no.h5ad")
        (tmp_path / "text.h5ad").write_text("no")
        with pytest.raises(ValueError, match="is no HDF5 file"):
            open_h5ad(tmp_path / "text.h5ad")
        with pytest.raises(FileNotFoundError, match="does not exist"):
            open_zarr(tmp_path / "no.zarr")

    def test_what_is_missing_is_said(self, adata_files, monkeypatch):
        monkeypatch.setitem(sys.modules, "h5py", None)
        with pytest.raises(ImportError, match=r"pip install 'onmf\[cells\]'"):
            open_h5ad(adata_files / "cells.h5ad")
        monkeypatch.setitem(sys.modules, "dask", None)
        with pytest.raises(ImportError, match=r"pip install 'onmf\[dask\]'"):
            open_zarr(adata_files / "cells.zarr", "X")


class TestCells:
    @pytest.mark.parametrize("how", ["memory", "backed", "dask", "layer"])
    def test_cluster(self, adata_files, X, labels, how):
        import anndata

        import onmf.cells

        file = adata_files / "cells.h5ad"
        if how == "dask":
            adata = anndata.AnnData(open_h5ad(file, rows=77))
        else:
            adata = anndata.read_h5ad(file, backed="r" if how == "backed" else None)
        layer = "dense" if how == "layer" else None
        model = onmf.cells.cluster(adata, 4, layer=layer, key_added="topic", rows=77, max_iter=50)
        assert adata.obs["topic"].cat.codes.tolist() == labels.tolist()
        assert adata.varm["topic"] == pytest.approx(model.cluster_centers_.T)
        assert (adata.obs["topic_margin"] >= 0).all()
        assert (adata.obs["topic_scale"] ** 2).sum() == pytest.approx(4)
        assert adata.uns["topic"]["params"] == {
            "n_clusters": 4,
            "layer": layer or "X",
            "beta_loss": "kullback-leibler",
            "max_iter": 50,
        }
        if how == "backed":
            adata.file.close()

    def test_what_is_written_can_be_saved(self, X, tmp_path):
        import anndata

        import onmf.cells

        adata = anndata.AnnData(csr_array(X))
        onmf.cells.cluster(adata, 3)
        adata.write_h5ad(tmp_path / "out.h5ad")
        again = anndata.read_h5ad(tmp_path / "out.h5ad")
        assert again.uns["onmf"]["n_iter"] == adata.uns["onmf"]["n_iter"]

    def test_refusals(self, X):
        import anndata

        import onmf.cells

        with pytest.raises(TypeError, match="not an AnnData object"):
            onmf.cells.cluster(X, 3)
        with pytest.raises(KeyError, match="adata has no layer 'raw'"):
            onmf.cells.cluster(anndata.AnnData(csr_array(X)), 3, layer="raw")
        with pytest.raises(ValueError, match="rows=0 is not allowed: a batch needs at least 1 cell"):
            onmf.cells.cluster(anndata.AnnData(csr_array(X)), 3, rows=0)

    def test_a_view_of_a_backed_object_is_refused(self, adata_files, X):
        import anndata

        import onmf.cells

        adata = anndata.read_h5ad(adata_files / "cells.h5ad", backed="r")
        with pytest.raises(ValueError, match=r"a view of a backed object.*adata.to_memory\(\)"):
            onmf.cells.cluster(adata[:200], 4)
        part = adata[:200].to_memory()
        assert np.array_equal(onmf.cells.cluster(part, 4).labels_, ONMF(4).fit(X[:200]).labels_)
        adata.file.close()
