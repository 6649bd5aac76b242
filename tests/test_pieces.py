"""Data in pieces: what is read back is what was written, and broken files are named."""

import sys

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_array, csr_matrix, save_npz, vstack
from sklearn.feature_extraction.text import CountVectorizer

from onmf import ONMF
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


class TestShards:
    def test_written_and_read(self, X, labels, tmp_path):
        shards = write_shards((X[i : i + 80] for i in range(0, 300, 80)), tmp_path / "shards")
        assert (shards.shape, shards.sizes) == ((300, 50), (80, 80, 80, 60))
        assert "300 × 50 in 4 files" in repr(shards)
        assert np.array_equal(ONMF(4).fit(open_shards(tmp_path / "shards")).labels_, labels)
        lazy = shards.to_dask()
        assert lazy.chunks == ((80, 80, 80, 60), (50,))
        assert np.array_equal(ONMF(4).fit(lazy).labels_.compute(), labels)
        assert not list((tmp_path / "shards").glob(".*")), "nothing half-written stays"

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
        [{}, {"min_df": 4}, {"max_df": 0.4, "stop_words": "english"}, {"max_features": 4}, {"vocabulary": ["tea"]}],
    )
    def test_counted_in_shards_as_at_once(self, tmp_path, options):
        at_once = CountVectorizer(**options)
        expected = at_once.fit_transform(self.TEXTS)
        shards = count_shards(iter(self.TEXTS), tmp_path, CountVectorizer(**options), documents=5)
        assert len(shards.files) == 4
        assert shards.names.tolist() == at_once.get_feature_names_out().tolist()
        assert (vstack(list(shards())) != expected).nnz == 0

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

    def test_refusals(self, adata_files, tmp_path):
        with pytest.raises(KeyError, match="has no layers/nope"):
            open_h5ad(adata_files / "cells.h5ad", "nope")
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
