"""``onmf predict``, ``onmf show`` and ``onmf rename``: use, print and name the clusters of a model file.

The kind of the model decides how.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import onmf
from onmf.kinds import KINDS, get_kind, resolve
from onmf.naming import names_of_model, numbers, read_names, rename_clusters
from onmf.text import assign_documents, read_texts
from onmf.text.restore import options_of, vectorizer_of
from onmf.text.source import no_documents
from onmf.text.write import COLUMNS, assignments, csv_lines, write_rows

from .common import (
    checked_folder,
    command,
    fail,
    say,
    steps,
    tell,
    tell_json,
    tell_json_list,
    visible,
    warnings_as_sentences,
)
from .documents import check_strip, print_clusters
from .options import (
    READING,
    WORDS,
    Force,
    IdColumn,
    InputKind,
    Json,
    Labels,
    Orientation,
    Quiet,
    Request,
    Strip,
    TextColumn,
)


class Table(NamedTuple):
    """Rows of a table, its columns, and notes for the user."""

    rows: Iterator[dict[str, Any]]
    columns: list[str]
    notes: list[str]


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")]

ARTICLES = {"image": "of an image", "matrix": "of a matrix"}
"""How to say what a model is of, where its kind alone does not read well."""


@command("predict")
def predict(
    model: ModelFile,
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
    orientation: Orientation = None,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of CSV.")] = False,
    as_lines: Annotated[
        bool, typer.Option("--jsonl", help="Print JSON Lines: one JSON object per line, each as soon as it is known.")
    ] = False,
) -> None:
    """Assign new data to the clusters of a model.

    Prints a table in CSV with a line for each document or cell: the number and the name of its cluster, how sure that
    is, and the runner-up. A document or cell that has none of the model's words or genes gets no cluster. An image is
    mapped into the folder of --out instead.

    For example:

    onmf predict clusters/model.onmf new-letters/ > assigned.csv

    onmf predict clusters/model.onmf new.jsonl --text body --out assigned.parquet

    onmf predict materials/model.onmf other.hdr --out other-materials

    onmf predict cells/model.onmf new.h5ad --out assigned.csv
    """
    if as_json and as_lines:
        fail("--json prints one JSON document, --jsonl one for each line: use one of them.")
    fitted = onmf.load(model)
    name = fitted.extra_["kind"]
    kind = get_kind(name)
    if kind.predict is None:
        fail(f"{model} is a model of kind {name!r}: this command knows {', '.join(KINDS)}.")
    request = Request(
        path, out, force, labels, strip, text, id, input, layer, orientation, token_pattern, quiet, as_json, as_lines
    )
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
            raise ValueError(no_documents(texts))
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
        names = names_of_model(model)
        rows = (
            {"id": i, "cluster": int(k), "name": names[k], "scale": float(scales[i]), "margin": float(margins[i])}
            for i, k in enumerate(labels)
        )
        return Table(rows, COLUMNS, [])

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
        if not request.quiet:
            say(f"Written to {out}.")
    elif request.as_lines:
        for row in table.rows:
            tell_json(row)
    elif request.as_json:
        tell_json_list(table.rows)
    else:
        lines = csv_lines(table.rows, table.columns)
        if sys.stdout.isatty():  # files and programs get the names unchanged
            lines = (visible(line[:-1]) + "\n" for line in lines)
        sys.stdout.writelines(lines)


@command("show")
def show(
    model: ModelFile,
    top: Annotated[
        int,
        typer.Option(
            "--top", "--words", min=1, metavar="NUMBER", help="How many words, bands or genes to print per cluster."
        ),
    ] = 10,
    as_json: Json = False,
) -> None:
    """Print the clusters of a model: their numbers, names and sizes, and what sets each apart.

    For a model of documents, that is its words; for one of an image, bands of the spectrum; for one of cells, genes.

    For example:

    onmf show clusters/model.onmf

    onmf show materials/model.onmf --top 5
    """
    fitted = onmf.load(model)
    extra, provenance = fitted.extra_, fitted.provenance_
    kind, k = get_kind(extra["kind"]), len(fitted.cluster_centers_)
    sizes = np.bincount(fitted.labels_, minlength=k)
    described = zip(numbers(kind, k), names_of_model(fitted), sizes, kind.distinctive(fitted, top), strict=True)
    rows = [
        {"cluster": number, "name": name, "size": int(size), "distinctive": text}
        for number, name, size, text in described
    ]
    n, p = len(fitted.labels_), fitted.n_features_in_
    objective = fitted.clustering_.objective
    if as_json:
        facts = {"kind": extra["kind"], "n_rows": n, "n_features": p, "n_iter": int(fitted.n_iter_)}
        facts |= {"objective": objective, "stop_reason": fitted.stop_reason_}
        tell_json(facts | {"provenance": provenance, "clusters": rows})
        return
    of = ARTICLES.get(extra["kind"], f"of {extra['kind']}")
    tell(f"A model {of}: {k} {kind.clusters} in {n:,} {kind.rows}, described by {p:,} {kind.features}")
    if fitted.stop_reason_ == "batch":
        tell(f"{fitted.n_iter_} batches, objective of the last one {objective:.6g}")
    else:
        tell(f"{fitted.n_iter_} iterations, {fitted.stop_reason_}, objective {objective:.6g}")
    created, version = provenance.get("created", "at an unknown time"), provenance.get("onmf", "of unknown version")
    tell(f"Written {created} by onmf {version}")
    tell()
    print_clusters(rows, kind.features, kind.rows)


@command("rename")
def rename(
    model: ModelFile,
    cluster: Annotated[
        int | None, typer.Argument(metavar="CLUSTER", help="The number of a cluster, as onmf show prints it.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Its new name.")] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Take the names from a csv file with the columns cluster and name."
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Give the clusters of a model other names.

    The model file is replaced as a whole, or not at all. onmf show and onmf predict use the new names. Tables and
    reports that were written before keep the old ones.

    For example:

    onmf rename clusters/model.onmf 3 "letters to the editor"

    onmf rename clusters/model.onmf --from names.csv
    """
    if (table is None) == (cluster is None) or (cluster is None) != (name is None):
        fail("Give the number of a cluster and its new name, or a table of names with --from.")
    changes = read_names(table) if table is not None else {cluster or 0: name or ""}
    kind = get_kind(onmf.load(model).extra_["kind"])
    names = rename_clusters(model, changes)
    if not quiet:
        for number, new in zip(numbers(kind, len(names)), names, strict=True):
            tell(f"{number:7}  {new}")
