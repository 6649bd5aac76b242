"""``onmf predict`` and ``onmf show``: use and print a model file. The kind of the model decides how."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import onmf
from onmf.kinds import KINDS, get_kind, resolve
from onmf.text import assign_documents, read_texts
from onmf.text.cluster import options_of, vectorizer_of
from onmf.text.write import COLUMNS, assignments, csv_lines, write_rows

from .common import app, checked_folder, fail, say, steps, tell, tell_json, visible, warnings_as_sentences
from .documents import check_strip, print_clusters
from .options import READING, WORDS, Force, IdColumn, InputKind, Json, Labels, Quiet, Request, Strip, TextColumn


class Table(NamedTuple):
    """Rows of a table, its columns, and notes for the user."""

    rows: Iterator[dict[str, Any]]
    columns: list[str]
    notes: list[str]


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")],
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="New data, in any format that the model could have been fitted on.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write to this .csv or .parquet file; for an image, into this folder."
        ),
    ] = None,
    force: Force = False,
    labels: Labels = None,
    strip: Strip = None,
    text: TextColumn = None,
    id: IdColumn = None,
    input: InputKind = None,
    layer: Annotated[
        str | None,
        typer.Option(
            "--layer", metavar="NAME", help="Layer of a file of cells that holds the counts.", rich_help_panel=READING
        ),
    ] = None,
    token_pattern: Annotated[
        str | None,
        typer.Option(
            "--token-pattern",
            metavar="REGEX",
            help="The model's regular expression of a word. Needed only if it is not a simple one: "
            "such a pattern from a file is not trusted.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Assign new data to the clusters of a model.

    Prints a table in CSV: id, cluster, how sure it is, the runner-up, scale, margin; for cells also the name of the
    cluster. A document or cell that has none of the model's words or genes gets no cluster.

    For example:

    onmf predict clusters/model.onmf new-letters/ > assigned.csv

    onmf predict clusters/model.onmf new.jsonl --text body --out assigned.parquet

    onmf predict materials/model.onmf other.hdr --out other-materials

    onmf predict cells/model.onmf new.h5ad --out assigned.csv
    """
    fitted = onmf.load(model)
    name = fitted.extra_["kind"]
    kind = get_kind(name)
    if kind.predict is None:
        fail(f"{model} is a model of kind {name!r}: this command knows {', '.join(KINDS)}.")
    request = Request(path, out, force, labels, strip, text, id, input, layer, token_pattern, quiet, as_json)
    resolve(kind.predict)(fitted, request)


def predict_documents(model: onmf.ONMF, request: Request) -> None:
    """Assign new documents, counted with the vocabulary of the model."""

    def assign() -> Table:
        strip = options_of(model)["strip"] if request.strip is None else request.strip
        check_strip(strip)
        vectorizer_of(model, request.token_pattern)  # refuses the pattern before any document is read
        with steps(request.quiet) as step:
            texts = read_texts(
                request.path, kind=request.input, text=request.text, id=request.id, labels=request.labels, strip=strip
            )
            texts.watch = lambda n, fraction: step(f"Reading and counting: {n:,} documents", fraction)
            result = assign_documents(model, texts, token_pattern=request.token_pattern)
        if not result.ids:
            raise ValueError(f"{request.path} contains no documents.")
        label = ["label"] if any(label is not None for label in result.classes) else []
        notes = result.notes()
        if result.comparison is not None:
            notes.append(f"Compared with the classes: {result.comparison.sentence()}.")
        return Table(assignments(result), [*COLUMNS, *label], notes)

    predict_table(request, assign)


def predict_matrix(model: onmf.ONMF, request: Request) -> None:
    """Assign the rows of a matrix, in any format that :func:`onmf.datasets.read_documents` reads."""

    def assign() -> Table:
        from onmf.datasets import read_documents

        X = read_documents(request.path).X
        labels, scales, margins = model.assign(X)
        rows = (
            {"id": i, "cluster": int(labels[i]), "scale": float(scales[i]), "margin": float(margins[i])}
            for i in range(len(labels))
        )
        return Table(rows, ["id", "cluster", "scale", "margin"], [])

    predict_table(request, assign)


def predict_table(request: Request, assign: Callable[[], Table]) -> None:
    """Print the table that ``assign`` returns, or write it to a file."""
    out = request.out
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            fail(f"--out {out}: the name must end with .csv or .parquet.")
        if out.is_dir():
            fail(f"--out {out} is a folder: name a file.")
        if out.exists() and not request.force:
            fail(f"--out {out} exists: name another file, or use --force to replace it.")
        checked_folder(out.parent)
    with warnings_as_sentences(request.quiet):
        table = assign()
    if not request.quiet:
        for note in table.notes:
            say(note)
    if out is not None:
        write_rows(out, table.rows, table.columns, replace=request.force)
    elif request.as_json:
        for row in table.rows:
            tell_json(row)
    else:
        lines = csv_lines(table.rows, table.columns)
        if sys.stdout.isatty():  # files and programs get the names unchanged
            lines = (visible(line[:-1]) + "\n" for line in lines)
        sys.stdout.writelines(lines)


@app.command()
def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")],
    words: Annotated[int, typer.Option("--words", min=1, help="Number of words for each cluster.")] = 10,
    as_json: Json = False,
) -> None:
    """Print the clusters of a model.

    Example: onmf show clusters/model.onmf
    """
    fitted = onmf.load(model)
    extra, provenance = fitted.extra_, fitted.provenance_
    sizes = np.bincount(fitted.labels_, minlength=len(fitted.cluster_centers_))
    kind = get_kind(extra["kind"])
    top_words = fitted.top_features(words, kind.feature_names(extra))
    rows = [
        {"cluster": k, "size": int(size), "distinctive": ", ".join(top)}
        for k, (size, top) in enumerate(zip(sizes, top_words, strict=True))
    ]
    n, p = len(fitted.labels_), fitted.n_features_in_
    objective = fitted.clustering_.objective
    if as_json:
        facts = {"kind": extra["kind"], "n_rows": n, "n_features": p, "n_iter": int(fitted.n_iter_)}
        facts |= {"objective": objective, "stop_reason": fitted.stop_reason_}
        tell_json(facts | {"provenance": provenance, "clusters": rows})
        return
    tell(f"A model of {extra['kind']}: {len(rows)} clusters of {n:,} rows and {p:,} features")
    if fitted.stop_reason_ == "batch":
        tell(f"{fitted.n_iter_} batches, objective of the last one {objective:.6g}")
    else:
        tell(f"{fitted.n_iter_} iterations, {fitted.stop_reason_}, objective {objective:.6g}")
    created, version = provenance.get("created", "at an unknown time"), provenance.get("onmf", "of unknown version")
    tell(f"Written {created} by onmf {version}")
    tell()
    print_clusters(rows, kind.features)
