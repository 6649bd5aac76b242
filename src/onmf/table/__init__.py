"""Any table of counts: samples by their taxa, customers by what they buy, places by the species that live there."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array

from onmf.datasets.pieces import open_store
from onmf.datasets.readers import as_counts, as_csr, opened, read_market
from onmf.door import Clusters, Kind, Option, Progress, Table, cluster_table, predict_table
from onmf.door.files import (
    HDF5,
    Draft,
    add_columns,
    asked_for,
    check_columns,
    first_line,
    head_of,
    label_of,
    listed,
    names_of,
    read_npz,
    read_wide,
)
from onmf.door.join import join_tables
from onmf.door.kind import GROUPS, KNOWN, SEEDS
from onmf.estimator import ONMF
from onmf.io import isolated_readers
from onmf.io.limits import check_growth

__all__ = ["TABLE", "cluster", "predict", "read"]


def read(
    path: str | Path | Sequence[str | Path],
    *,
    row: str | None = None,
    column: str | None = None,
    count: str | None = None,
    labels: str | None = None,
    groups: str | None = None,
    known: str | None = None,
    transpose: bool = False,
) -> Table:
    """Read a table of counts. The format is recognised by the content.

    Parameters
    ----------
    path : path or list of paths
        A csv, tsv or parquet file; an npz file with a sparse matrix; a Matrix Market file; or a BIOM file (2.1 or 1.0).
        A wide table names its rows in the first column and has one column for each feature. Several files are joined by
        the features that all of them have, and each is a group unless ``groups`` is given.
    row, column : str, optional
        For a long table, with a line for each entry: the columns that name the row and the feature.
    count : str, optional
        For a long table: the column with the counts. By default every line counts 1.
    labels : str, optional
        Known classes: a column, a field of the metadata of BIOM, ``y`` in an npz file, or ``FILE.csv:COLUMN``.
    groups : str, optional
        The batch or source of each row, named like ``labels``.
    known : str, optional
        The name of the cluster of each row that is known, named like ``labels``; empty for free rows.
    transpose : bool, default=False
        Whether features are in rows.

    Returns
    -------
    Table
    """
    if isinstance(path, list | tuple):
        options: dict[str, Any] = {"row": row, "column": column, "count": count}
        options |= {"labels": labels, "groups": groups, "known": known}
        return join_tables([read(each, **options, transpose=transpose) for each in path], path, "feature")
    assert isinstance(path, str | Path)
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: give the path of a table of counts.")
    if (row is None) != (column is None) or (count is not None and row is None):
        raise ValueError("A long table needs row and column (--row and --column): the columns that name each entry.")
    head, asked = head_of(path), asked_for(labels, groups, known)
    if row is not None and column is not None:
        draft = _read_long(path, row, column, count, asked, head.startswith(b"PAR1"))
    elif head.lstrip().startswith(b"{"):
        draft = _read_biom_json(path, asked)
    else:
        draft = next((read for magic, read in READERS.items() if head.startswith(magic)), read_wide)(path, asked)
    if transpose:
        draft.X, draft.rows, draft.features = as_counts(draft.X.T), draft.features, draft.rows
    rows, features, notes = names_of(draft, path, "row", "feature")
    table = Table(draft.X, rows, features, source=str(path), notes=notes)
    add_columns(table, draft, path, rows, "row", labels, groups, known)
    return table


def _frame(path: Path, parquet: bool) -> Any:
    """A table as a DataFrame; texts stay as they are, also those that look like missing values."""
    try:
        import pandas as pd

        if not parquet:
            with opened(path) as file:
                header, delimiter = first_line(file)
                return pd.read_csv(file, sep=delimiter, names=header, keep_default_na=False)
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as stored:
            groups = [stored.metadata.row_group(i) for i in range(stored.metadata.num_row_groups)]
            check_growth(str(path), sum(group.total_byte_size for group in groups), path.stat().st_size)
            if len(set(stored.schema_arrow.names)) < len(stored.schema_arrow.names):
                raise ValueError("two of its columns have the same name.")
            return stored.read().to_pandas(ignore_metadata=True)  # an index of pandas is a column, too
    except ImportError as error:
        raise ImportError("Tables need pandas and pyarrow: pip install 'onmf[table]'.") from error
    except Exception as error:  # the libraries raise many kinds of errors for damaged files
        raise ValueError(f"{path} cannot be read as a table: {str(error).strip()}") from error


def _read_long(path: Path, row: str, column: str, count: str | None, asked: Sequence[str], parquet: bool) -> Draft:
    """Read a line for each entry. Entries of the same row and feature are added."""
    frame = _frame(path, parquet)
    if missing := [name for name in (row, column, count) if name is not None and name not in frame]:
        raise ValueError(f"{path} has no column {missing[0]!r}: it has {listed(list(map(str, frame)))}.")
    (i, rows), (j, features) = (frame[name].astype(str).factorize() for name in (row, column))
    values = np.ones(len(frame), np.int64) if count is None else frame[count].to_numpy()
    if values.dtype.kind not in "buif":
        raise ValueError(f"{path}: the column {count!r} holds {str(values[0])[:40]!r}, which is not a number.")
    X = coo_array((values, (i, j)), shape=(len(rows), len(features)))
    found = {}
    for name in asked:
        if name in frame:
            several = frame[name].map(label_of).astype(object).groupby(i).unique()
            if (wrong := np.flatnonzero(several.str.len() > 1)).size:
                values = listed(list(map(str, several[wrong[0]])))
                raise ValueError(
                    f"{path} has {values} in the column {name!r} for {rows[wrong[0]]!r}: a row needs one value."
                )
            found[name] = [label_of(each[0]) for each in several]
    others = [str(name) for name in frame if name not in (row, column, count)]
    return Draft(as_counts(X), rows.tolist(), features.tolist(), "the table", found, others)


def _read_parquet(path: Path, asked: Sequence[str]) -> Draft:
    """Read a wide table: the first column that is not of numbers names the rows."""
    frame = _frame(path, True)
    check_columns(path, asked, list(map(str, frame)))
    texts = [name for name in frame if frame[name].dtype.kind not in "buif"]
    found = {name: list(map(label_of, frame.pop(name))) for name in asked if name in frame}
    names = next((frame.pop(name).astype(str).tolist() for name in texts if name not in found), None)
    if others := [name for name in texts if name in frame]:
        raise ValueError(
            f"{path}: the column {others[0]!r} holds no numbers. Remove it, or name it as the labels or the groups."
        )
    return Draft(as_counts(frame.to_numpy()), names, [str(name) for name in frame], "the table", found)


def _read_biom(path: Path, asked: Sequence[str]) -> Draft:
    """Read BIOM 2.1: an HDF5 file whose sample/matrix is compressed by sample."""
    store = open_store("hdf5", path)
    with store.naming("sample"):
        samples = store.call(isolated_readers.read_columns, "sample", {"ids": ["ids"]})
        taxa = store.call(isolated_readers.read_columns, "observation", {"ids": ["ids"]})
        about = store.call(isolated_readers.read_columns, "sample/metadata", {name: [name] for name in asked})
        arrays = store.call(isolated_readers.describe, "sample/matrix")["arrays"]
        ends = [(f"sample/matrix/{key}", 0, arrays[key]["shape"][0]) for key in ("data", "indices", "indptr")]
        data, indices, indptr = store.call(isolated_readers.read, *ends)
        X = as_csr(data, indices, indptr, (len(samples["ids"] or []), len(taxa["ids"] or [])))
    found = {name: about[name] for name in asked if name in about["columns"]}
    return Draft(as_counts(X), samples["ids"], taxa["ids"], "sample/matrix", found, about["columns"])


def _read_biom_json(path: Path, asked: Sequence[str]) -> Draft:
    """Read BIOM 1.0: a JSON object whose rows are taxa and whose columns are samples."""
    try:
        with opened(path) as file:
            content = json.load(file)
        taxa, samples = ([str(item["id"]) for item in content[key]] for key in ("rows", "columns"))
        data = np.array(content["data"], dtype=np.float64)
        if content["matrix_type"] == "sparse":
            at = np.array([entry[:2] for entry in content["data"]], dtype=np.int64).reshape(-1, 2)  # refuses NaN
            X = coo_array((data.reshape(-1, 3)[:, 2], (at[:, 1], at[:, 0])), shape=(len(samples), len(taxa)))
        else:
            X = coo_array(data.reshape(len(taxa), len(samples)).T)
        metadata = [item.get("metadata") or {} for item in content["columns"]]
        columns = sorted({str(name) for item in metadata for name in item})
        found = {name: [item.get(name) for item in metadata] for name in asked if name in columns}
    except Exception as error:  # anything can be missing or of the wrong type
        raise ValueError(f"{path} cannot be read as BIOM 1.0 (JSON): {type(error).__name__}, {error}") from error
    return Draft(as_counts(X), samples, taxa, "data", found, columns)


def _read_matrix(path: Path, asked: Sequence[str]) -> Draft:
    """Read a Matrix Market file, which has no names."""
    return Draft(read_market(path), None, None, "the matrix")


READERS: dict[bytes, Any] = {b"PAR1": _read_parquet, HDF5: _read_biom, b"%%MatrixMarket": _read_matrix, b"PK": read_npz}
"""Readers by the first bytes of a file; other files are wide tables."""


class TableKind(Kind):
    """Any table of counts: all that a kind has to say beyond its reader."""

    name = command = "table"
    about = "Cluster the rows of any table of counts."
    examples = (
        "onmf table otu_table.biom -k 8 --labels body_site --out clusters",
        "onmf table visits.csv --row customer --column page --count n -k auto --out clusters",
        "onmf table visits.csv -k 8 --seeds seeds.json --out clusters",
    )
    argument_help = "A csv, tsv, parquet, npz, Matrix Market or BIOM file; several files are groups."
    several = True
    first = 1
    options = (
        Option("row", "Column of a long table that names the rows.", metavar="COLUMN", reading=True),
        Option("column", "Column of a long table that names the features.", metavar="COLUMN", reading=True),
        Option("count", "Column of a long table with the counts; 1 without it.", metavar="COLUMN", reading=True),
        Option("labels", "Compare with known classes: a column, or FILE.csv:COLUMN.", metavar="COLUMN", reading=True),
        GROUPS,
        KNOWN,
        SEEDS,
        Option("transpose", "Features are in rows.", bool, False, reading=True),
    )

    def read(self, path: str | Path, progress: Progress, *, force: bool = False, **options: Any) -> Table:
        return read(path, **options)


TABLE = TableKind()


def cluster(table: Table | str | Path, n_clusters: int | str, **options: Any) -> Clusters:
    """Cluster the rows of a table of counts, from :func:`read` or a path; see :func:`onmf.door.cluster_table`."""
    return cluster_table(TABLE, table if isinstance(table, Table) else read(table), n_clusters, **options)


def predict(model: ONMF | Clusters, table: Table, **options: Any) -> Clusters:
    """Assign the rows of another table to the clusters, with the options of :func:`onmf.door.predict_table`."""
    return predict_table(model.model if isinstance(model, Clusters) else model, table, kind=TABLE, **options)
