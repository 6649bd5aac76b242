"""Clusters of documents as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from onmf.io.csv_file import csv_line
from onmf.io.files import write_whole

from .cluster import NOBODY, DocumentClusters

FORMATS = ("csv", "parquet")
WORDS = 10


def assignments(found: DocumentClusters) -> Iterator[dict[str, Any]]:
    """One row for each document, in their order; no cluster where a document is set aside."""
    labelled = any(label is not None for label in found.classes)
    for i, name in enumerate(found.ids):
        aside = found.clusters[i] == NOBODY
        row = {
            "id": name,
            "cluster": None if aside else int(found.clusters[i]),
            "scale": None if aside else float(found.scales[i]),
            "margin": None if aside else float(found.margins[i]),
        }
        yield row | {"label": found.classes[i]} if labelled else row


def clusters(found: DocumentClusters) -> Iterator[dict[str, Any]]:
    """One row for each cluster, with the class that most of its documents have and their share, where known."""
    rows = zip(found.sizes, found.frequent(WORDS), found.distinctive(WORDS), strict=True)
    for k, (size, frequent, distinctive) in enumerate(rows):
        row = {"cluster": k, "size": int(size), "frequent": ", ".join(frequent), "distinctive": ", ".join(distinctive)}
        if found.comparison is not None:
            inside = found.comparison.counts[:, k]
            most = int(np.argmax(inside))
            some = bool(inside[most])
            row["label"] = found.comparison.classes[most] if some else None
            row["share"] = float(inside[most] / inside.sum()) if some else None
        yield row


def write_rows(path: Path, rows: Iterator[dict[str, Any]], columns: list[str], *, replace: bool = True) -> None:
    """A table as a CSV or Parquet file, by the ending of its name, whole or not at all."""
    if path.suffix == ".parquet":
        write_whole(path, lambda file: _write_parquet(file, list(rows), columns), replace=replace)
    else:
        write_whole(path, lambda file: _write_csv(file, rows, columns), replace=replace)


def write_tables(folder: Path, found: DocumentClusters, format: str = "csv") -> list[Path]:
    """Write ``assignments`` and ``clusters`` into a folder.

    Parameters
    ----------
    folder : path
        Where to.
    found : DocumentClusters
        What to write.
    format : {"csv", "parquet"}
        As what.

    Returns
    -------
    list of path
    """
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is not known: use one of {', '.join(map(repr, FORMATS))}.")
    label = ["label"] if any(label is not None for label in found.classes) else []
    paths = [folder / f"{name}.{format}" for name in ("assignments", "clusters")]
    write_rows(paths[0], assignments(found), ["id", "cluster", "scale", "margin", *label])
    write_rows(
        paths[1], clusters(found), ["cluster", "size", "frequent", "distinctive", *label, *(["share"] if label else [])]
    )
    return paths


def csv_lines(rows: Iterable[dict[str, Any]], columns: list[str]) -> Iterator[str]:
    """The lines of a table in CSV, the names of its columns first."""
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
