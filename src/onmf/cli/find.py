"""``onmf find``: clusters and rows of a folder by words, genes, features or bands."""

import csv
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf.divergence import Array
from onmf.door import Progress, Table
from onmf.door.find import Hits, find_clusters, find_rows
from onmf.door.kind import Kind
from onmf.io.rules import require, some_names
from onmf.warn import import_optional

from .command import JSON
from .common import aligned, command, say, tell, tell_json, visible, working
from .edit import Recorded


@command("find")
def find(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, which has its summary.json.")],
    query: Annotated[str, typer.Argument(metavar="WORDS", help="One or more words, such as 'shortest path'.")],
    most: Annotated[
        int, typer.Option("--top", min=1, metavar="NUMBER", help="The most clusters, and the most rows, to print.")
    ] = 10,
    source: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="What was clustered, if it is no longer where it was.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no notes, and no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON.help)] = False,
) -> None:
    """Find clusters and rows by their words: the words of documents, the genes of cells, the features of a table.

    Clusters with all words in their name come first, then those in which the words are most frequent, compared with all
    rows. A word that is unknown stands for those that begin like it. Rows are read from the source that the run
    recorded; if it is gone or has changed, only clusters are found. The bands of an image are found by their number or
    wavelength.

    For example:

    onmf find clusters "shortest path"

    onmf find cells "CD3D CD8A" --top 5

    onmf find materials "640-680 nm"
    """
    run = Recorded(folder)
    kind, model = run.kind, onmf.load(folder / "model.onmf")
    hits = find_clusters(kind, model, run.names, query, most)
    if kind.found_elsewhere:
        hits.notes.append(kind.found_elsewhere)
    elif hits.words:
        try:
            with working(quiet) as step:
                table, labels = _rows_of(run, source, step)
                hits.rows.extend(find_rows(kind, model, table, hits, labels, most))
        except (ValueError, OSError) as error:
            if source is not None:
                raise
            hits.notes.append(f"Only clusters are found. {error}")
    sizes = {row["cluster"]: row["size"] for row in run.summary["clusters"]}
    if as_json:
        tell_json(_record(hits, kind, sizes))
        return
    _tell(hits, kind, sizes, run.names)
    for note in () if quiet else hits.notes:
        say(note)


def _rows_of(run: Recorded, source: list[str] | None, step: Progress) -> tuple[Table, Array]:
    """The rows that were clustered, and the cluster of each, from the source and the table of assignments."""
    paths, work = run.source(source)
    options, labels = run.options(), _labels(run)
    require(options.get("shards") is None, "The counts of a corpus in shards are not read again.")
    reading = {option.name: options[option.name] for option in run.kind.options if option.reading}
    step("Reading", None)
    with chdir(work):
        table = run.kind.read_all(paths, step, **reading)
    counted = f"The source has {run.kind.so_many(len(table.rows))}, and the table of {run.folder} {len(labels):,}."
    require(len(table.rows) == len(labels), counted)
    return table, labels


def _labels(run: Recorded) -> Array:
    """The cluster of each row in the table of assignments, as Python numbers it."""
    path = run.folder / "assignments.csv"
    if path.exists():
        with open(path, encoding="utf-8", newline="") as file:
            clusters: list[Any] = [row["cluster"] for row in csv.DictReader(file)]
    else:
        import_optional("pyarrow", "Parquet files need pyarrow", "text")
        from pyarrow import parquet

        clusters = parquet.read_table(path.with_suffix(".parquet"), columns=["cluster"])["cluster"].to_pylist()
    return np.array([int(number) - run.kind.first if number not in ("", None) else -1 for number in clusters])


def _record(hits: Hits, kind: Kind, sizes: dict[int, int]) -> dict[str, Any]:
    """What was found, as one JSON object."""
    clusters = [(hit.cluster + kind.first, hit) for hit in hits.clusters]
    return {
        "query": hits.query,
        "words": hits.words,
        "unknown": hits.unknown,
        "clusters": [
            {"cluster": number, "name": hit.name, "size": sizes[number], "times": round(hit.times, 4)}
            for number, hit in clusters
        ],
        "rows": [
            {
                "id": hit.name,
                "cluster": None if hit.cluster < 0 else hit.cluster + kind.first,
                "score": round(hit.score, 4),
            }
            for hit in hits.rows
        ],
        "notes": hits.notes,
    }


def _tell(hits: Hits, kind: Kind, sizes: dict[int, int], names: Sequence[str]) -> None:
    """Print what was found, for people to read."""
    for word, near in hits.unknown.items():
        meant = f"; did you mean {' or '.join(near)}?" if near else "."
        tell(f"No {kind.feature} {word!r} is known{meant}")
    for word, features in hits.words.items():
        if [feature.casefold() for feature in features] != [word.casefold()]:
            tell(f"{word!r} stands for {some_names(features)}.")
    if hits.clusters:
        numbers = [hit.cluster + kind.first for hit in hits.clusters]
        columns = [
            ["cluster", *map(str, numbers)],
            [f"{kind.row}s", *(f"{sizes[number]:,}" for number in numbers)],
            ["times as frequent", *(f"{hit.times:.1f}" for hit in hits.clusters)],
            ["name", *(visible(hit.name) for hit in hits.clusters)],
        ]
        tell(*(line.rstrip() for line in aligned(columns, range(3))))
    else:
        tell(f"No {kind.cluster} was found.")
    if hits.rows:
        of = [
            "unassigned" if hit.cluster < 0 else f"{hit.cluster + kind.first}: {names[hit.cluster]}"
            for hit in hits.rows
        ]
        columns = [[kind.row, *(visible(hit.name) for hit in hits.rows)], ["cluster", *map(visible, of)]]
        tell("", *(line.rstrip() for line in aligned(columns, range(0))))
