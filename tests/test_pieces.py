"""Data in pieces: reading returns the data that were written, and errors name broken files."""

import json
import os
import pickle
import sys

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix, save_npz, vstack
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from conftest import needs_posix
from onmf import ONMF, load
from onmf.datasets import count_shards, make_counts, open_h5ad, open_shards, open_zarr, write_shards
from onmf.text import count

pytest.importorskip("dask")

# Warnings of anndata and zarr about their next versions.
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


def test_invalid_batches(tmp_path):
    X = np.eye(3)
    with pytest.raises(TypeError, match=r"batches is a function: pass its result, batches\(\)"):
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
        assert [file.name for file in tmp_path.rglob(".*")] == [], "no partial file is left"

    def test_files_of_scipy(self, X, labels, tmp_path):
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
    def test_the_index_of_a_frame_is_not_a_feature(self, X, labels, tmp_path, name):
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        names = [f"RP11.{j}" for j in range(50)]
        frame = pd.DataFrame(X.toarray(), columns=names)
        for i in range(0, 300, 100):  # an index that is not a range becomes a column of the file
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

    def test_written_completely_or_not_at_all(self, X, tmp_path):
        def failing_batches():
            yield X[:100]
            raise OSError("the disk is gone")

        for batches, names, error, match in (
            (failing_batches(), None, OSError, "the disk is gone"),
            ([X[:100], X[100:, :20]], None, ValueError, "Batch 1 has 20 features, but batch 0 has 50"),
            (failing_batches(), ["a", "b"], ValueError, "names has 2 names, but batch 0 has 50 features"),
            ([np.ones(3)], None, ValueError, "Batch 0 has 1 dimension"),
        ):
            with pytest.raises(error, match=match):
                write_shards(batches, tmp_path / "shards", names)
            assert not list(tmp_path.iterdir())
        write_shards([X[:100], X[100:]], tmp_path / "shards", (f"gene{j}" for j in range(50)))
        assert open_shards(tmp_path / "shards").names[7] == "gene7"

    def test_folders_for_shards(self, X, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "here")
        write_shards([X], tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert open_shards(tmp_path / "here").shape == X.shape
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "mine.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"notes already contains files: give a new folder"):
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
        with pytest.raises(FileExistsError, match="already contains files"):
            write_shards([X], tmp_path)
        write_shards([X[:, :20]], tmp_path / "other")
        (tmp_path / "other" / "shard-000000.npz").rename(tmp_path / "shard-000001.npz")
        with pytest.raises(ValueError, match=r"shard-000001.npz has 20 features, but .*shard-000000.npz has 50"):
            open_shards(tmp_path)
        (tmp_path / "shard-000001.npz").write_bytes(b"PK\x03\x04 and then nothing")
        with pytest.raises(ValueError, match=r"shard-000001.npz cannot be read as a shard"):
            open_shards(tmp_path)

    def test_the_error_names_a_shard_that_breaks_between_two_passes(self, X, tmp_path):
        shards = write_shards([X[:150], X[150:]], tmp_path)
        shards.files[1].write_bytes(b"")
        with pytest.raises(ValueError, match=r"In partition 1.*shard-000001.npz cannot be read as a shard"):
            ONMF(4).fit(shards.to_dask())


class TestHostileShards:
    @pytest.fixture
    def folder(self, X, tmp_path):
        write_shards([X[:100], X[100:200], X[200:]], tmp_path / "shards", [f"g{j}" for j in range(50)])
        return tmp_path / "shards"

    @pytest.mark.parametrize("lazy", [False, True])
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda parts: parts["indices"].__setitem__(2, 10**9),
                r"indices\[2\] = 1000000000, in row 0, is outside a matrix",
            ),
            (lambda parts: parts["indices"].__setitem__(2, -1), r"indices\[2\] = -1"),
            (lambda parts: parts["indptr"].__setitem__(3, 10**8), r"indptr\[4\] = \d+; it must be at least 100000000"),
            (lambda parts: parts["indptr"].__setitem__(-1, 10**8), "cannot be read as a shard"),
            (
                lambda parts: parts.update(indices=parts["indices"] + 0.5),
                "its indices has 1 dimensions and type float64",
            ),
            (lambda parts: parts.update(data=parts["data"][:5]), "cannot be read as a shard"),
            (lambda parts: parts.update(data=parts["data"].astype(str)), "its data has 1 dimensions and type <U"),
            (lambda parts: parts.pop("indptr"), "it has no CSR matrix, but data, indices, shape"),
        ],
    )
    def test_invalid_shards(self, folder, lazy, change, message):
        file = folder / "shard-000001.npz"
        parts = dict(np.load(file))
        change(parts)
        np.savez(file, **parts)
        shards = open_shards(folder)
        with pytest.raises(
            ValueError,
            match=rf"In (batch|partition) 1.*shard-000001.npz cannot be read as a shard: .*{message}|"
            rf"In (batch|partition) 1.*shard-000001.npz {message}",
        ):
            ONMF(4).fit(shards.to_dask() if lazy else shards)

    @pytest.mark.parametrize("shape", [[100, 10**18], [10**12, 50], [-100, 50], [100.0, 50.0], [100], "100"])
    def test_the_shape_of_a_shard(self, folder, shape):
        file = folder / "shard-000001.npz"
        np.savez(file, **(dict(np.load(file)) | {"shape": np.array(shape)}))
        with pytest.raises(ValueError, match=r"shard-000001.npz cannot be read as a shard: it"):
            open_shards(folder)

    def test_growth(self, folder):
        file = folder / "shard-000001.npz"
        np.savez_compressed(file, **(dict(np.load(file)) | {"data": np.zeros(101_000_000, dtype=np.uint8)}))
        with pytest.raises(
            ValueError, match=r"shard-000001.npz cannot be read as a shard: it grows to more than 250 times"
        ):
            open_shards(folder)

    @pytest.mark.parametrize("missing", [0, 1])
    def test_a_gap(self, folder, missing):
        (folder / f"shard-{missing:06d}.npz").unlink()
        with pytest.raises(
            ValueError, match=rf"shard-00000{missing}.npz is missing: there are 2 shards, up to shard-000002"
        ):
            open_shards(folder)

    @needs_posix
    def test_a_name_that_is_not_a_file(self, folder):
        (folder / "shard-000002.npz").unlink()
        os.mkfifo(folder / "shard-000002.npz")
        with pytest.raises(ValueError, match=r"shard-000002.npz is not a file"):
            open_shards(folder)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is not a list of names: Expecting value"),
            (b'["a",', "is not a list of names: Expecting value"),
            (b"\xff\xfe", "is not a list of names: 'utf-8' codec"),
            (b"[" * 100_000, "is not a list of names: (maximum recursion depth|Stack overflow)"),
            (b'{"a": 1}', "is not a list of 50 names, one for each feature"),
            (json.dumps(["a"] * 49).encode(), "is not a list of 50 names, one for each feature"),
            (json.dumps(["a"] * 49 + [7]).encode(), "is not a list of names: entry 49 is 7"),
            (json.dumps(["a"] * 49 + [None]).encode(), "is not a list of names: entry 49 is None"),
            (json.dumps(["a"] * 49 + ["\ud800"]).encode(), r"is not a list of names: entry 49 is '\\ud800'"),
        ],
    )
    def test_names(self, folder, content, message):
        (folder / "names.json").write_bytes(content)
        with pytest.raises(ValueError, match=rf"names.json {message}"):
            open_shards(folder)

    def test_damaged_parquet(self, X, tmp_path):
        """Whatever Arrow raises, the error names the file."""
        pd = pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
        for i in range(2):
            frame = pd.DataFrame(X[i * 9 : i * 9 + 9, :5].toarray(), columns=list("abcde"))
            frame.to_parquet(tmp_path / f"part{i}.parquet")
        file = tmp_path / "part1.parquet"
        good = file.read_bytes()
        outcomes = set()
        for offset in range(0, len(good), 13):
            file.write_bytes(good[:offset] + bytes([good[offset] ^ 0xFF]) + good[offset + 1 :])
            try:
                outcomes.add(sum(len(block) for block in open_shards(tmp_path)()))
            except ValueError as error:
                outcomes.add("part1.parquet" in str(error))
        assert outcomes == {True, 18}
        file.write_bytes(b"PAR1")
        with pytest.raises(ValueError, match=r"part1.parquet cannot be read as a shard"):
            open_shards(tmp_path)

    def test_parquet_files_without_counts(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        file = tmp_path / "part0.parquet"
        parquet.write_table(pa.table({"a": [1, 2], "who": ["me", "you"]}), file)
        with pytest.raises(
            ValueError,
            match=r"part0.parquet .*its column 'who' has string values: leave out columns that are not numeric",
        ):
            open_shards(tmp_path)
        parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), file)
        with pytest.raises(ValueError, match=r"part0.parquet .*two of its columns have the same name"):
            open_shards(tmp_path)
        parquet.write_table(pa.table({name: np.zeros(1_000_000) for name in "abcdefghijklmn"}), file)
        assert file.stat().st_size < 500_000
        with pytest.raises(
            ValueError, match=r"part0.parquet .*1000000 × 14 numbers take more than 250 times its length"
        ):
            open_shards(tmp_path)


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
    def test_counts_in_shards_equal_counts_at_once(self, tmp_path, options):
        at_once = CountVectorizer(**options)
        expected = at_once.fit_transform(self.TEXTS)
        shards = count_shards(iter(self.TEXTS), tmp_path, CountVectorizer(**options), documents=5)
        assert len(shards.files) == 4
        assert shards.names.tolist() == at_once.get_feature_names_out().tolist()
        assert (vstack(list(shards())) != expected).nnz == 0

    @pytest.mark.parametrize("repeats", [1, 9])
    def test_by_default_the_words_of_documents_count(self, tmp_path, repeats):
        texts = [f"{text} the 42 isn't" for text in self.TEXTS * repeats] + ["ocelot"]
        expected = count(texts)
        shards = count_shards(iter(texts), tmp_path, documents=5)
        assert ("ocelot" in expected.features) == (repeats == 1), "rare words are removed from larger collections"
        assert shards.names.tolist() == expected.features.tolist()
        assert (vstack(list(shards())) != expected.X).nnz == 0

    def test_the_vectorizer_is_not_changed(self, tmp_path):
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
        with pytest.raises(ValueError, match="None of the 2 documents has a usable word"):
            count_shards(["a", "b"], tmp_path)
        with pytest.raises(TypeError, match="texts is one string: give a list of strings"):
            count_shards("red wine", tmp_path)
        for vectorizer in (TfidfVectorizer(), HashingVectorizer()):
            name = type(vectorizer).__name__
            with pytest.raises(TypeError, match=f"vectorizer is a {name}, which does not count: use a CountVectorizer"):
                count_shards(iter(self.TEXTS), tmp_path, vectorizer)
        assert not list(tmp_path.iterdir())

        def failing_batches():
            yield from self.TEXTS
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="the disk is gone"):
            count_shards(failing_batches(), tmp_path / "texts", documents=5)
        assert not list(tmp_path.iterdir())
        count_shards(iter(self.TEXTS), tmp_path)
        (tmp_path / "names.json").write_text("[]")
        with pytest.raises(ValueError, match=r"names.json is not a list of \d+ names"):
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

    def test_row_pointers_are_read_with_the_rows(self, tmp_path):
        anndata = pytest.importorskip("anndata")
        n = 50_000
        X = csr_matrix((np.ones(n), (np.arange(n), np.arange(n) % 3)))
        anndata.AnnData(X).write_h5ad(tmp_path / "cells.h5ad")
        lazy = open_h5ad(tmp_path / "cells.h5ad", rows=n // 2)
        assert len(pickle.dumps(dict(lazy.dask))) < 10_000, "the graph is sent in every pass"
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
        with pytest.raises(ValueError, match="it is not a matrix, but a group of X, layers"):
            open_zarr(adata_files / "cells.zarr")
        with pytest.raises(FileNotFoundError, match="give the path of an h5ad file"):
            open_h5ad(tmp_path / "no.h5ad")
        (tmp_path / "text.h5ad").write_text("no")
        with pytest.raises(ValueError, match="is not an HDF5 file"):
            open_h5ad(tmp_path / "text.h5ad")
        with pytest.raises(FileNotFoundError, match="does not exist"):
            open_zarr(tmp_path / "no.zarr")

    def test_errors_name_the_missing_package(self, adata_files, monkeypatch):
        monkeypatch.setitem(sys.modules, "h5py", None)
        with pytest.raises(ImportError, match=r"pip install 'onmf\[cells\]'"):
            open_h5ad(adata_files / "cells.h5ad")
        monkeypatch.setitem(sys.modules, "dask", None)
        with pytest.raises(ImportError, match=r"pip install 'onmf\[dask\]'"):
            open_zarr(adata_files / "cells.zarr", "X")


class TestHostileFiles:
    """HDF5 files and Zarr stores with wrong claims about their matrix."""

    @staticmethod
    def hdf5(X, path, **changes):
        """Write a file as AnnData does, with some of its parts replaced."""
        import h5py

        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr} | changes
        with h5py.File(path, "w") as file:
            group = file.create_group("X")
            group.attrs["encoding-type"] = "csr_matrix"
            group.attrs["shape"] = parts.pop("shape", X.shape)
            for name, value in parts.items():
                if callable(value):
                    value(group, name)
                else:
                    group.create_dataset(name, data=value)
        return path

    @staticmethod
    def zarr(X, path, **changes):
        import zarr

        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr} | changes
        group = zarr.open_group(path, mode="w").create_group("X")
        group.attrs["shape"] = np.array(parts.pop("shape", X.shape)).tolist()
        for name, value in parts.items():
            group.create_array(name, data=np.asarray(value))
        return path

    WRONG = (
        (
            "indices",
            lambda X: np.where(np.arange(X.nnz) == 700, 10**9, X.indices),
            r"indices\[\d+\] = 1000000000, in row",
        ),
        ("indices", lambda X: np.where(np.arange(X.nnz) == 700, 50, X.indices), r"indices\[\d+\] = 50, in row"),
        ("indices", lambda X: np.where(np.arange(X.nnz) == 700, -1, X.indices), r"indices\[\d+\] = -1, in row"),
        ("indices", lambda X: X.indices + 0.5, "its indices has 1 dimensions and type float64"),
        ("indices", lambda X: X.indices[:-900], "but there are only"),
        (
            "indptr",
            lambda X: np.where(np.arange(301) == 30, 10**12, X.indptr.astype(np.int64)),
            r"indptr\[\d+\] = \d+; it must be at least",
        ),
        ("indptr", lambda X: np.where(np.arange(301) == 30, -7, X.indptr.astype(np.int64)), r"indptr\[\d+\] = -7"),
        (
            "indptr",
            lambda X: np.where(np.arange(301) == 77, 10**12, X.indptr.astype(np.int64)),
            "1000000000000",
        ),
        (
            "indptr",
            lambda X: np.where(np.arange(301) == 300, 10**12, X.indptr.astype(np.int64)),
            "1000000000000",
        ),
        ("indptr", lambda X: X.indptr[:-5], "its shape has 300 rows, but its indptr has 296 entries"),
        ("indptr", lambda X: X.indptr.reshape(7, 43), "its indptr has 2 dimensions"),
        ("data", lambda X: X.data[:100], "but there are only"),
        ("data", lambda X: X.data * 1j, "its data has 1 dimensions and type complex128"),
        ("shape", lambda X: (10**12, 50), "1000000000000 rows and 50 columns, far more than its"),
        ("shape", lambda X: (300, 10**12), "300 rows and 1000000000000 columns, far more than its"),
        ("shape", lambda X: (300, 20), "is outside a matrix of 20 columns"),
        ("shape", lambda X: (299, 50), "its shape has 299 rows, but its indptr has 301 entries"),
        ("shape", lambda X: (-300, 50), "says that it has -300 rows"),
        ("shape", lambda X: (300.0, 50.0), "expected two integers"),
        ("shape", lambda X: (300, 50, 2), "expected two integers"),
    )

    @pytest.mark.parametrize("kind", ["hdf5", "zarr"])
    @pytest.mark.parametrize(("name", "change", "message"), WRONG)
    def test_invalid_structure(self, X, tmp_path, kind, name, change, message):
        pytest.importorskip("h5py" if kind == "hdf5" else "zarr")
        path = getattr(self, kind)(X, tmp_path / "cells", **{name: change(X)})
        with pytest.raises(ValueError, match=rf"cells, X, cannot be read: .*{message}"):
            ONMF(4).fit(open_h5ad(path, rows=77) if kind == "hdf5" else open_zarr(path, "X", rows=77))

    def test_no_other_file_is_read(self, X, tmp_path):
        h5py = pytest.importorskip("h5py")
        other = self.hdf5(X, tmp_path / "other.h5ad")
        dense = tmp_path / "dense.h5"
        with h5py.File(dense, "w") as file:
            file["x"] = X.toarray()
        X.toarray().astype("<i4").tofile(tmp_path / "raw")
        layout = h5py.VirtualLayout(X.shape, "i4")
        layout[:] = h5py.VirtualSource(dense, "x", shape=X.shape)
        raw = [(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)]
        path = tmp_path / "cells.h5ad"
        with h5py.File(path, "w") as file:
            file["X"] = h5py.ExternalLink(other, "X")
            layers = file.create_group("layers")
            layers["soft"] = h5py.SoftLink("/X")
            layers.create_virtual_dataset("virtual", layout)
            layers.create_dataset("external", X.shape, "i4", external=raw)
            layers["inner"] = np.ones((300, 50))
            inside = layers.create_group("inside")
            inside.attrs["shape"] = X.shape
            inside["data"], inside["indptr"] = X.data, X.indptr
            inside["indices"] = h5py.ExternalLink(other, "X/indices")
        assert np.array_equal(h5py.File(path)["layers/virtual"][:], X.toarray()), "HDF5 itself would read it"
        assert np.array_equal(h5py.File(path)["layers/external"][:], X.toarray())
        assert np.array_equal(h5py.File(path)["X/data"][:], X.data)
        for layer, message in (
            (None, "X, cannot be read: X is a link, and may lead to another file"),
            ("soft", "soft is a link, and may lead to another file"),
            ("inside", "indices is a link, and may lead to another file"),
            ("virtual", "has its entries in another file"),
            ("external", "has its entries in another file"),
        ):
            with pytest.raises(ValueError, match=message):
                open_h5ad(path, layer)
        assert open_h5ad(path, "inner").shape == (300, 50)

    def test_chunks_that_were_never_written(self, X, tmp_path):
        """They read as zeros, and a file can have any number of them."""
        h5py = pytest.importorskip("h5py")

        def empty(n, chunk):
            return lambda group, name: group.create_dataset(name, (n,), "i4", chunks=(chunk,))

        for changes, message in (
            (
                {"indptr": empty(10**12 + 1, 10**7), "shape": (10**12, 50)},
                "1000000000000 rows and 50 columns, far more",
            ),
            ({"data": empty(10**12, 10**8)}, "381 MB would be read at once"),
            ({"data": empty(10**9, 10)}, "it has more than 1000000 chunks"),
            (
                {"data": empty(10**9, 10**6), "indices": empty(10**9, 10**6), "indptr": [0] + [10**9] * 300},
                "7629 MB would be read at once",
            ),
        ):
            path = self.hdf5(X, tmp_path / "cells", **changes)
            with pytest.raises(ValueError, match=message):
                open_h5ad(path).compute(scheduler="sync")
        with h5py.File(path, "w") as file:
            file.create_dataset("X", (10**7, 10**6), "f8", chunks=(100, 100))
        with pytest.raises(ValueError, match="it has more than 1000000 chunks"):
            open_h5ad(path)
        with h5py.File(path, "w") as file:
            file.create_dataset("X", (10**6, 10**6), "f8", chunks=(1000, 10**4))
        with pytest.raises(ValueError, match=r"MB would be read at once from a file of \d+ bytes.*Ask for fewer rows"):
            open_h5ad(path)

    def test_damaged_hdf5(self, X, tmp_path):
        """Whatever HDF5 raises, the error names the file."""
        pytest.importorskip("h5py")
        path = self.hdf5(X[:20], tmp_path / "cells.h5ad")
        good = path.read_bytes()
        outcomes = set()
        for offset in range(0, len(good), 101):
            path.write_bytes(good[:offset] + bytes([good[offset] ^ 0xFF]) + good[offset + 1 :])
            try:
                outcomes.add(open_h5ad(path).compute(scheduler="sync").shape)
            except (ValueError, KeyError) as error:  # the damage may be in the name X
                outcomes.add("cells.h5ad" in str(error))
        assert outcomes == {True, (20, 50)}

    @pytest.mark.short("waits for a time limit")
    def test_a_file_on_which_hdf5_hangs(self, X, tmp_path, monkeypatch):
        """A length in the string heap points to zeros: version 2.0.0 of the library never returns."""
        pytest.importorskip("h5py")
        monkeypatch.setattr("onmf.datasets.pieces.NAMES_SECONDS", 5)
        path = self.hdf5(X, tmp_path / "cells.h5ad")
        content = bytearray(path.read_bytes())
        content[content.index(b"GCOL") + 25] = 10
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cells.h5ad.*(was not read within 5 s|cannot be read)"):
            open_h5ad(path)

    def test_a_killed_reader_is_restarted(self, X, tmp_path):
        pytest.importorskip("h5py")
        from onmf.datasets import pieces

        path = self.hdf5(X, tmp_path / "cells.h5ad")
        array = open_h5ad(path, rows=77)
        process = pieces._reader(path, path.stat().st_size)._process
        process.kill()
        process.wait()
        assert (array.compute(scheduler="sync") != X).nnz == 0

    def test_damaged_zarr(self, X, tmp_path):
        pytest.importorskip("zarr")
        path = self.zarr(X, tmp_path / "cells.zarr")
        file = path / "X" / "indices" / "zarr.json"
        good = json.loads(file.read_text())
        for content in (
            "",
            "{",
            "[]",
            json.dumps(good | {"shape": [10**12]}),
            json.dumps(good | {"shape": "all"}),
            json.dumps(good | {"data_type": "string"}),
            json.dumps(good | {"node_type": "group"}),
            json.dumps(good | {"codecs": [{"name": "unknown"}]}),
            json.dumps({**good, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}}),
        ):
            file.write_text(content)
            with pytest.raises(ValueError, match=r"cells.zarr, X, cannot be read: "):
                open_zarr(path, "X").compute(scheduler="sync")
        file.write_text(json.dumps(good))
        (path / "zarr.json").write_text("{")
        with pytest.raises(ValueError, match=r"cells.zarr, X, cannot be read: "):
            open_zarr(path, "X")

    def test_a_codec_that_runs_code(self, tmp_path):
        pytest.importorskip("zarr")

        class Evil:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "run"),)

        store = tmp_path / "cells.zarr"
        store.mkdir()
        filters = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
        metadata = {
            "zarr_format": 2,
            "shape": [4, 3],
            "chunks": [4, 3],
            "order": "C",
            "compressor": None,
            "filters": filters,
        }
        for kind, fill in (("|O", ""), ("<i4", 0)):
            (store / ".zarray").write_text(json.dumps(metadata | {"dtype": kind, "fill_value": fill}))
            (store / "0.0").write_bytes(pickle.dumps(Evil()))
            with pytest.raises(ValueError, match=r"cells.zarr, the store itself, cannot be read"):
                open_zarr(store).compute(scheduler="sync")
        assert not (tmp_path / "run").exists()
