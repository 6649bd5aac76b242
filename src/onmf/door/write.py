"""The folder of a result: the rows, the clusters, a summary, the model and the report; and what the kind adds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from onmf._version import __version__
from onmf.io.csv_file import csv_line
from onmf.io.files import write_whole
from onmf.kinds import resolve
from onmf.warn import import_optional

from .edits import EDITS, write_edits
from .groups import FILES as GROUP_FILES
from .groups import composition_table, group_features_table
from .outcome import FILE as UPDATE_FILE
from .outcome import summary_of_update, update_columns
from .time import FILES as TIME_FILES
from .time import changes_table, over_time_table

if TYPE_CHECKING:
    from .clusters import Clusters, Progress
    from .kind import Kind

MAPS = ("full", "quick", "none")  # How the map of a report is drawn
FORMATS = ("csv", "parquet")  # Formats of the tables
BATCH = 10_000  # Rows of a table that are put together at a time
Columns = dict[str, Sequence[Any]]  # A table, or a part of one: its columns by name


def files_of(kind: Kind) -> tuple[str, ...]:
    """Names of the files that are written for this kind; ``force`` replaces a folder only if it has no others."""
    tables = (f"{name}.{format}" for name in ("assignments", "clusters") for format in FORMATS)
    return (
        *tables,
        "summary.json",
        EDITS,
        "model.onmf",
        "report.html",
        UPDATE_FILE,
        *GROUP_FILES,
        *TIME_FILES,
        *kind.files,
    )


def write_files(
    clusters: Clusters,
    folder: Path,
    *,
    report: bool = True,
    title: str | None = None,
    map: str | None = None,
    format: str = "csv",
    progress: Progress | None = None,
) -> None:
    """Write the files of a result into a folder that exists."""
    dense = clusters.dense
    dense.complete()
    if report:
        write_report(clusters, folder / "report.html", title, map, progress)
    if progress is not None:
        progress("Writing", None)
    write_tables(clusters, folder, format)
    if dense.composition.any():
        for name, columns in zip(GROUP_FILES, (composition_table, group_features_table), strict=True):
            write_table(folder / name, [columns(clusters)])
    if dense.over_time is not None:
        for name, columns in zip(TIME_FILES, (over_time_table, changes_table), strict=True):
            write_table(folder / name, [columns(clusters)])
    if clusters.updated is not None:
        write_table(folder / UPDATE_FILE, [update_columns(clusters)])
    text = json.dumps(summary(clusters), indent=1, ensure_ascii=False) + "\n"
    (folder / "summary.json").write_text(text, "utf-8", errors="replace")
    clusters.model.save(folder / "model.onmf", extra=clusters.entries())
    if clusters.history is not None:
        write_edits(folder / EDITS, clusters.kind.name, clusters.history.original.run_id, clusters.edits)
    clusters.kind.write(dense, folder)


def write_tables(clusters: Clusters, folder: Path, format: str = "csv") -> None:
    """Write the table of the clusters, and that of the rows if the kind has one."""
    if format not in FORMATS:
        raise ValueError(f"format={format!r} is not known: use one of {', '.join(map(repr, FORMATS))}.")
    if clusters.kind.assignments:
        write_table(folder / f"assignments.{format}", assignments(clusters))
    write_table(folder / f"clusters.{format}", [clusters_table(clusters)])


def write_report(
    clusters: Clusters,
    path: Path,
    title: str | None = None,
    map: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the report of a result, completely or not at all."""
    clusters = clusters.dense
    clusters.complete()
    page: str = resolve(clusters.kind.page)(clusters, title=title, map=map, progress=progress)
    write_whole(path, lambda file: file.write(page.encode("utf-8", errors="replace")))


def assignments(clusters: Clusters, top: int | None = None) -> Iterator[Columns]:
    """Yield the table of rows in parts. Rows that are unassigned have no cluster.

    The ``top`` most likely clusters of each row have two columns each: ``cluster_1``, ``probability_1`` and so on.
    """
    clusters = clusters.dense
    kind, table, n, shown = clusters.kind, clusters.table, len(clusters.labels), clusters.shown_numbers
    best, probabilities = (np.empty((n, 0)),) * 2 if top is None else clusters.most_likely(top)
    for start in range(0, max(n, 1), BATCH):
        part = slice(start, min(start + BATCH, n))
        labels = clusters.labels[part].tolist()
        yield {
            "id": table.rows[part],
            "cluster": [None if k < 0 else shown[k] for k in labels],
            "name": [None if k < 0 else clusters.names[k] for k in labels],
            "confidence": _rounded(clusters.confidence[part], 4),
            "runner_up": [None if k < 0 else shown[k] for k in clusters.runners_up[part].tolist()],
            "scale": _rounded(clusters.scales[part], 6),
            "margin": _rounded(clusters.margins[part], 6),
            "surprise": _rounded(clusters.surprise[part], 4),
            **{
                name: values
                for place in range(best.shape[1])
                for name, values in (
                    (f"cluster_{place + 1}", [None if k < 0 else shown[k] for k in best[part, place].tolist()]),
                    (f"probability_{place + 1}", _rounded(probabilities[part, place], 4)),
                )
            },
            **kind.row_columns(clusters, part),
            **({} if table.groups is None else {"group": table.groups[part]}),
            **({} if table.classes is None else {"label": table.classes[part]}),
        }


def _rounded(values: Any, digits: int) -> list[float | None]:
    """Numbers with a few digits; None for those that are not known."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.tolist()]


def clusters_table(clusters: Clusters) -> Columns:
    """The table of clusters; if classes are known, with the most frequent class of each and its share."""
    clusters = clusters.dense
    columns: Columns = {
        "cluster": clusters.shown_numbers,
        "name": clusters.names,
        "size": clusters.sizes.tolist(),
        **(
            {"given": [clusters.given.get(n - clusters.kind.first) for n in clusters.shown_numbers]}
            if clusters.given
            else {}
        ),
        **({} if clusters.selection is None else {"found": _rounded(clusters.finding(), 3)}),
        **clusters.kind.cluster_columns(clusters),
    }
    table = getattr(clusters.comparison, "table", None)
    if table is None:
        return columns
    totals, largest = table.sum(axis=0), table.max(axis=0)
    classes = [clusters.comparison.classes[i] for i in table.argmax(axis=0)]
    return columns | {
        "label": [name if total else None for name, total in zip(classes, totals, strict=True)],
        "share": [float(top / total) if total else None for top, total in zip(largest, totals, strict=True)],
    }


def summary(clusters: Clusters) -> dict[str, Any]:
    """The result in numbers, for ``summary.json`` and ``--json``."""
    clusters = clusters.dense
    model, kind = clusters.model, clusters.kind
    return {
        "onmf": __version__,
        "kind": kind.name,
        "run": clusters.run_id,
        "source": clusters.table.source,
        "command": clusters.command,
        f"n_{kind.row}s": int(clusters.labels.size),
        f"n_{kind.feature}s": len(clusters.features),
        "n_clusters": clusters.n_clusters,
        "unassigned": int(np.count_nonzero(clusters.labels < 0)),
        "fit": clusters.fitted,
        "n_iter": int(model.n_iter_),
        "stop_reason": model.stop_reason_,
        "objective": float(model.clustering_.objective),
        "moved_without_smoothing": clusters.moved_without_smoothing,
        **kind.summary(clusters),
        **({"groups": clusters.groups} if clusters.groups else {}),
        "clusters": list(records([clusters_table(clusters)])),
        "notes": clusters.notes,
        **({"edits": clusters.edits} if clusters.edits else {}),
        **({} if clusters.updated is None else {"update": summary_of_update(clusters)}),
        "selection": None if clusters.selection is None else clusters.selection.record(),
        "comparison": None if clusters.comparison is None else clusters.comparison.record(),
    }


def write_table(path: Path, parts: Iterable[Columns], *, replace: bool = True) -> None:
    """Write a table that comes in parts as a CSV or Parquet file, by its suffix, completely or not at all."""
    write = _write_parquet if path.suffix == ".parquet" else _write_csv
    write_whole(path, lambda file: write(file, parts), replace=replace)


def csv_lines(parts: Iterable[Columns]) -> Iterator[str]:
    """Yield the lines of a table in CSV, starting with the names of its columns."""
    for number, part in enumerate(parts):
        rows = zip(*part.values(), strict=True)
        yield from map(csv_line, rows if number else chain([part], rows))


def records(parts: Iterable[Columns]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dicts."""
    for part in parts:
        yield from (dict(zip(part, row, strict=True)) for row in zip(*part.values(), strict=True))


def _write_csv(file: IO[bytes], parts: Iterable[Columns]) -> None:
    file.writelines(line.encode("utf-8", errors="replace") for line in csv_lines(parts))


def _write_parquet(file: IO[bytes], parts: Iterable[Columns]) -> None:
    pyarrow = import_optional("pyarrow", "Parquet files need pyarrow", "text")
    from pyarrow import parquet

    whole: dict[str, list[Any]] = {}
    for name, values in chain.from_iterable(part.items() for part in parts):
        whole.setdefault(name, []).extend(values)
    parquet.write_table(pyarrow.Table.from_pydict(whole), file)
