"""Data in pieces: reading returns the data that were written, and errors name broken files."""

import json
import os
import pickle
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix, save_npz, vstack
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

import onmf.cells
import onmf.image
from conftest import needs_posix
from onmf import ONMF, load
from onmf.datasets import count_shards, make_counts, open_h5ad, open_shards, open_zarr, read_documents, write_shards
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


def parts_of(X, **changes):
    """The parts of a CSR matrix, some of them replaced, or left out if they are None."""
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape} | changes
    return {name: value for name, value in parts.items() if value is not None}


def write_npz(X, path, **changes):
    np.savez(path, **parts_of(X, **changes))
    return path


def write_shard(X, path, **changes):
    """A second shard, after a good one."""
    write_npz(X, path.with_name("shard-000000.npz"))
    return write_npz(X, path.with_name("shard-000001.npz"), **changes).parent


def write_hdf5(X, path, **changes):
    """A file as AnnData writes it."""
    h5py = pytest.importorskip("h5py")
    parts = parts_of(X, **changes)
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"] = "csr_matrix"
        group.attrs["shape"] = parts.pop("shape")
        for name, value in parts.items():
            if callable(value):
                value(group, name)
            else:
                group.create_dataset(name, data=value)
    return path


def write_zarr(X, path, **changes):
    zarr = pytest.importorskip("zarr")
    parts = parts_of(X, **changes)
    group = zarr.open_group(path, mode="w").create_group("X")
    group.attrs["shape"] = np.array(parts.pop("shape")).tolist()
    for name, value in parts.items():
        group.create_array(name, data=np.asarray(value))
    return path


READERS = {  # what writes a CSR matrix, what reads it, and how its errors begin
    "npz": (write_npz, read_documents, r"x\.npz cannot be read as npz: "),
    "npz of SciPy": (
        lambda X, path, **changes: write_npz(X, path, **changes, format=np.array(b"csr")),
        read_documents,
        r"x\.npz cannot be read as npz: ",
    ),
    "shards": (
        write_shard,
        lambda path: ONMF(4).fit(open_shards(path)),
        r"shard-000001\.npz cannot be read as a shard: ",
    ),
    "hdf5": (write_hdf5, lambda path: ONMF(4).fit(open_h5ad(path, rows=77)), r"x\.npz, X, cannot be read: "),
    "zarr": (write_zarr, lambda path: ONMF(4).fit(open_zarr(path, "X", rows=77)), r"x\.npz, X, cannot be read: "),
}


def put(name, entry, value):
    """A change of one entry of an array of a matrix."""
    return lambda X: np.where(np.arange(len(getattr(X, name))) == entry, value, getattr(X, name).astype(np.int64))


ANY = [  # the changed part of a matrix, the change, and the error of every reader
    ("indices", put("indices", 700, 10**9), r"indices\[\d+\] = 1000000000, in row \d+, is outside a matrix of 50"),
    ("indices", put("indices", 700, 50), r"indices\[\d+\] = 50, in row"),
    ("indices", put("indices", 700, -1), r"indices\[\d+\] = -1, in row"),
    ("indices", put("indices", 700, 2**32), r"indices\[\d+\] = 4294967296, in row"),
    (
        "indices",
        lambda X: X.indices + 0.5,
        "its indices has 1 dimensions and type float64: expected a list of integers",
    ),
    ("indices", lambda X: X.indices[None], "its indices has 2 dimensions"),
    ("indptr", put("indptr", 30, 10**12), r"indptr\[\d+\] = \d+; it must be at least 1000000000000"),
    ("indptr", put("indptr", 30, -7), r"indptr\[\d+\] = -7"),
    ("indptr", lambda X: np.full(301, np.nan), "its indptr has 1 dimensions and type float64"),
    ("indptr", lambda X: X.indptr.reshape(7, 43), "its indptr has 2 dimensions"),
    ("shape", lambda X: (10**12, 50), r"1000000000000 rows and 50 columns, far more than its \d+ bytes can fill"),
    ("shape", lambda X: (300, 10**18), "300 rows and 1000000000000000000 columns, far more than its"),
    ("shape", lambda X: (-300, 50), "says that it has -300 rows and 50 columns"),
    ("shape", lambda X: (300.0, 50.0), "expected two integers, rows and columns"),
    ("shape", lambda X: (300, 50, 2), "expected two integers"),
    ("shape", lambda X: "300", "expected two integers"),
]
NPZ = [  # of the readers of npz files
    ("indices", lambda X: X.indices.astype(str), "its indices has 1 dimensions and type <U"),
    ("indices", lambda X: X.indices[:-900], ""),
    ("indptr", put("indptr", 300, 10**8), ""),
    ("indptr", put("indptr", 0, 1), ""),
    ("indptr", lambda X: X.indptr[:-5], ""),
    ("data", lambda X: X.data.astype(str), "<U"),
    ("data", lambda X: X.data * 1j, "complex128"),
    ("data", lambda X: X.data[:100], ""),
]
STORES = [  # of the readers of HDF5 files and Zarr stores
    ("indices", lambda X: X.indices[:-900], "but there are only"),
    ("indptr", put("indptr", 77, 10**12), "1000000000000"),
    ("indptr", put("indptr", 300, 10**12), "1000000000000"),
    ("indptr", lambda X: X.indptr[:-5], "its shape has 300 rows, but its indptr has 296 entries"),
    ("data", lambda X: X.data[:100], "but there are only"),
    ("data", lambda X: X.data * 1j, "its data has 1 dimensions and type complex128"),
    ("shape", lambda X: (300, 20), "is outside a matrix of 20 columns"),
    ("shape", lambda X: (299, 50), "its shape has 299 rows, but its indptr has 301 entries"),
]


@pytest.mark.parametrize(
    ("reader", "wrong"),
    [
        *product(READERS, ANY),
        *product(("npz", "npz of SciPy", "shards"), NPZ),
        *product(("hdf5", "zarr"), STORES),
        *product(("npz", "npz of SciPy"), [("data", lambda X: np.array([{}] * X.nnz), "")]),
        ("shards", ("indptr", lambda X: None, "it has no CSR matrix, but data, indices, shape")),
    ],
)
def test_a_matrix_that_contradicts_itself_is_refused(X, tmp_path, reader, wrong):
    write, read, begins = READERS[reader]
    name, change, message = wrong
    path = write(X, tmp_path / "x.npz", **{name: change(X)})
    in_batch = "In batch 1.*" if reader == "shards" and name != "shape" else ""
    with pytest.raises(ValueError, match=f"{in_batch}{begins}.*{message}"):
        read(path)


@pytest.mark.parametrize("form", ["link", "link by way of another", "raw", "virtual"])
def test_no_other_file_is_read(tmp_path, form):
    """HDF5 itself would follow links, and read the entries of an array from other files."""
    h5py = pytest.importorskip("h5py")
    sentence = "X is a link, and may lead to another file" if "link" in form else "X has its entries in another file"
    for number, (read, shape) in enumerate(
        ((open_h5ad, (4, 5)), (onmf.cells.read, (4, 5)), (onmf.image.read, (4, 5, 3)))
    ):
        secret = np.arange(100, 100 + np.prod(shape), dtype=np.uint8).reshape(shape)
        other, raw = tmp_path / f"other{number}.h5", tmp_path / f"other{number}.raw"
        secret.tofile(raw)
        with h5py.File(other, "w") as file:
            file["X"] = secret
        with h5py.File(path := tmp_path / f"{number}.mat", "w") as file:
            if form == "link":
                file["X"] = h5py.ExternalLink(other, "X")
            elif form == "link by way of another":
                file.create_group("group")["away"] = h5py.ExternalLink(other, "/")
                file["X"] = h5py.SoftLink("/group/away/X")
            elif form == "raw":
                file.create_dataset("X", shape, "u1", external=[(str(raw), 0, secret.nbytes)])
            else:
                layout = h5py.VirtualLayout(shape, "u1")
                layout[:] = h5py.VirtualSource(other, "X", shape)
                file.create_virtual_dataset("X", layout)
        with h5py.File(path) as file:
            assert np.array_equal(file["X"][()], secret), "h5py follows it"
        with pytest.raises(ValueError, match=rf"{number}\.mat.* cannot be read: .*{sentence}"):
            read(path)


def test_no_other_file_is_read_for_a_part_of_a_matrix(X, tmp_path):
    h5py = pytest.importorskip("h5py")
    write_hdf5(X, tmp_path / "other.h5ad")
    link = h5py.ExternalLink(tmp_path / "other.h5ad", "X/indices")
    path = write_hdf5(X, tmp_path / "x.h5ad", indices=lambda group, name: group.__setitem__(name, link))
    with pytest.raises(ValueError, match="indices is a link, and may lead to another file"):
        open_h5ad(path)


DAMAGED = {  # how a file is written and read, and every how many bytes one is changed
    "x.npz": (
        lambda X, path: np.savez_compressed(path, **parts_of(X)),
        lambda path: read_documents(path, format="npz").X,
        3,
    ),
    "x.parquet": (
        lambda X, path: pytest.importorskip("pandas").DataFrame(X.toarray()).rename(columns=str).to_parquet(path),
        lambda path: np.concatenate(list(open_shards(path.parent)())),
        13,
    ),
    "x.h5ad": (write_hdf5, lambda path: open_h5ad(path).compute(scheduler="sync"), 101),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_one_wrong_byte(X, tmp_path, name):
    """Whatever the libraries raise, the error names the file. Bytes of dates and the like do not matter."""
    write, read, step = DAMAGED[name]
    X, path = X[:9, :5], tmp_path / name
    write(X, path)
    good = path.read_bytes()
    outcomes = set()
    for offset in range(0, len(good), step):
        path.write_bytes(good[:offset] + bytes([good[offset] ^ 0xFF]) + good[offset + 1 :])
        try:
            outcomes.add(read(path).shape)
        except (ValueError, KeyError) as error:  # the damage may be in the name X of an HDF5 file
            outcomes.add(str(path) in str(error))
    assert outcomes == {True, X.shape}


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

    def test_parquet_files_without_counts(self, tmp_path):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        file = tmp_path / "part0.parquet"
        file.write_bytes(b"PAR1")
        with pytest.raises(ValueError, match=r"part0.parquet cannot be read as a shard"):
            open_shards(tmp_path)
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


class TestHostileFiles:
    """HDF5 files and Zarr stores with wrong claims about their matrix."""

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
            path = write_hdf5(X, tmp_path / "cells", **changes)
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

    @pytest.mark.short("waits for a time limit")
    def test_a_file_on_which_hdf5_hangs(self, X, tmp_path, monkeypatch):
        """A length in the string heap points to zeros: version 2.0.0 of the library never returns."""
        pytest.importorskip("h5py")
        monkeypatch.setattr("onmf.datasets.pieces.NAMES_SECONDS", 5)
        path = write_hdf5(X, tmp_path / "cells.h5ad")
        content = bytearray(path.read_bytes())
        content[content.index(b"GCOL") + 25] = 10
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cells.h5ad.*(was not read within 5 s|cannot be read)"):
            open_h5ad(path)

    def test_a_killed_reader_is_restarted(self, X, tmp_path):
        pytest.importorskip("h5py")
        from onmf.datasets import pieces

        path = write_hdf5(X, tmp_path / "cells.h5ad")
        array = open_h5ad(path, rows=77)
        process = pieces._reader(path, path.stat().st_size)._process
        process.kill()
        process.wait()
        assert (array.compute(scheduler="sync") != X).nnz == 0

    def test_damaged_zarr(self, X, tmp_path):
        pytest.importorskip("zarr")
        path = write_zarr(X, tmp_path / "cells.zarr")
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
