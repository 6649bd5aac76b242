"""Write clusters of documents as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from onmf.io.csv_file import csv_line
from onmf.io.files import write_whole

from .cluster import DocumentClusters
from .kind import DOCUMENTS
from .views import NOBODY

FORMATS = ("csv", "parquet")
WORDS = 10
COLUMNS = ["id", "cluster", "name", "confidence", "runner_up", "scale", "margin"]
"""Columns of the table of documents, before their classes."""


def assignments(result: DocumentClusters) -> Iterator[dict[str, Any]]:
    """Yield a row for each document, in their order. Documents that are set aside have no cluster."""
    labelled = any(label is not None for label in result.classes)
    for i, name in enumerate(result.ids):
        k, following = int(result.clusters[i]), int(result.runners_up[i])
        aside, sure = k == NOBODY, float(result.confidence[i])
        row = {
            "id": name,
            "cluster": None if aside else k + DOCUMENTS.first,
            "name": None if aside else result.names[k],
            "confidence": round(sure, 4) if np.isfinite(sure) else None,
            "runner_up": None if following == NOBODY else following + DOCUMENTS.first,
            "scale": None if aside else float(result.scales[i]),
            "margin": None if aside else float(result.margins[i]),
        }
        yield row | {"label": result.classes[i]} if labelled else row


def clusters(result: DocumentClusters) -> Iterator[dict[str, Any]]:
    """Yield a row for each cluster; if classes are known, with its most frequent class and the share of that class."""
    rows = zip(result.sizes, result.frequent(WORDS), result.distinctive(WORDS), strict=True)
    for k, (size, frequent, distinctive) in enumerate(rows):
        row = {"cluster": k + DOCUMENTS.first, "name": result.names[k], "size": int(size)}
        row |= {"frequent": ", ".join(frequent), "distinctive": ", ".join(distinctive)}
        if result.comparison is not None:
            counts = result.comparison.counts[:, k]
            top = int(np.argmax(counts))
            known = bool(counts[top])
            row["label"] = result.comparison.classes[top] if known else None
            row["share"] = float(counts[top] / counts.sum()) if known else None
        yield row


def frame(result: DocumentClusters) -> Any:
    """The table of documents as a pandas DataFrame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install pandas") from error
    label = ["label"] if any(label is not None for label in result.classes) else []
    table = pd.DataFrame(list(assignments(result)), columns=[*COLUMNS, *label])
    return table.astype({"cluster": "Int64", "scale": "float64", "margin": "float64"})


def write_rows(path: Path, rows: Iterator[dict[str, Any]], columns: list[str], *, replace: bool = True) -> None:
    """Write a table as a CSV or Parquet file, depending on its suffix. The file is written completely or not at all."""
    if path.suffix == ".parquet":
        write_whole(path, lambda file: _write_parquet(file, list(rows), columns), replace=replace)
    else:
        write_whole(path, lambda file: _write_csv(file, rows, columns), replace=replace)


def write_tables(folder: Path, found: DocumentClusters, format: str = "csv") -> list[Path]:
    """Write ``assignments`` and ``clusters`` into a folder.

    Parameters
    ----------
    folder : path
        Folder to write into.
    found : DocumentClusters
        The clusters.
    format : {"csv", "parquet"}
        Format of the files.

    Returns
    -------
    list of path
        The files.
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is not known: use one of {', '.join(map(repr, FORMATS))}.")
    label = ["label"] if any(label is not None for label in found.classes) else []
    of_cluster = ["cluster", "name", "size", "frequent", "distinctive", *label, *(["share"] if label else [])]
    paths = [folder / f"{name}.{format}" for name in ("assignments", "clusters")]
    write_rows(paths[0], assignments(found), [*COLUMNS, *label])
    write_rows(paths[1], clusters(found), of_cluster)
    return paths


def csv_lines(rows: Iterable[dict[str, Any]], columns: list[str]) -> Iterator[str]:
    """Yield the lines of a table in CSV, starting with the names of its columns."""
    yield csv_line(columns)
    for row in rows:
        yield csv_line(row.get(column) for column in columns)


def _write_csv(file: IO[bytes], rows: Iterator[dict[str, Any]], columns: list[str]) -> None:
    file.writelines(line.encode("utf-8", errors="replace") for line in csv_lines(rows, columns))


def _write_parquet(file: IO[bytes], rows: list[dict[str, Any]], columns: list[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'onmf[text]'.") from error
    table = pyarrow.Table.from_pydict({column: [row.get(column) for row in rows] for column in columns})
    parquet.write_table(table, file)
