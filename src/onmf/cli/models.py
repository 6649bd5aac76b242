"""``onmf predict`` and ``onmf show``: what a model file says. Each kind of model has a function of its own here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import onmf
from onmf.text import assign_documents, read_texts
from onmf.text.cluster import options_of, vectorizer_of
from onmf.text.read import STRIP
from onmf.text.write import assignments, csv_lines, write_rows

from .common import (
    Force,
    Json,
    Quiet,
    app,
    checked_folder,
    fail,
    say,
    steps,
    tell,
    tell_json,
    visible,
    warnings_as_sentences,
)
from .documents import WORDS, Column, Id, Input, Labels, Strip, print_clusters
from .image import map_image


class Request(NamedTuple):
    """What ``onmf predict`` was asked for, besides the model: the data, and how to read them."""

    path: str
    text: str | None
    id: str | None
    input: str | None
    labels: str | None
    strip: list[str] | None
    token_pattern: str | None
    quiet: bool


class Answer(NamedTuple):
    """Rows of a table with their columns, and sentences on what was met."""

    rows: Iterator[dict[str, Any]]
    columns: list[str]
    notes: list[str]


def predict_documents(model: onmf.ONMF, request: Request) -> Answer:
    """New documents, counted with the model's own vocabulary."""
    strip = options_of(model)["strip"] if request.strip is None else request.strip
    for name in strip:
        if name not in STRIP:
            fail(f"--strip {name} is not known: use {', '.join(STRIP)}.")
    vectorizer_of(model, request.token_pattern)  # what it refuses is said before anything is read
    with steps(request.quiet) as step:
        texts = read_texts(
            request.path, kind=request.input, text=request.text, id=request.id, labels=request.labels, strip=strip
        )
        texts.watch = lambda n, fraction: step(f"Reading and counting: {n:,} documents", fraction)
        found = assign_documents(model, texts, token_pattern=request.token_pattern)
    if not found.ids:
        raise ValueError(f"{request.path} holds no documents.")
    labelled = ["label"] if any(label is not None for label in found.classes) else []
    notes = found.notes()
    if found.comparison is not None:
        notes.append(f"Accuracy {found.comparison.accuracy:.1%}, NMI {found.comparison.nmi:.3f}.")
    return Answer(assignments(found), ["id", "cluster", "scale", "margin", *labelled], notes)


def predict_matrix(model: onmf.ONMF, request: Request) -> Answer:
    """Rows of a matrix in any format that :func:`onmf.datasets.read_documents` reads."""
    from onmf.datasets import read_documents

    X = read_documents(request.path).X
    labels, scales, margins = model.assign(X)
    rows = (
        {"id": i, "cluster": int(labels[i]), "scale": float(scales[i]), "margin": float(margins[i])}
        for i in range(len(labels))
    )
    return Answer(rows, ["id", "cluster", "scale", "margin"], [])


PREDICT: dict[str, Callable[[onmf.ONMF, Request], Answer]] = {
    "documents": predict_documents,
    "matrix": predict_matrix,
}
"""How each kind of model assigns new data."""


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="New data, in any form that made such a model.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write into this .csv or .parquet file; for an image, folder."),
    ] = None,
    force: Force = False,
    labels: Labels = None,
    strip: Strip = None,
    text: Column = None,
    id: Id = None,
    input: Input = None,
    token_pattern: Annotated[
        str | None,
        typer.Option(
            "--token-pattern",
            metavar="REGEX",
            help="The pattern of the model's words, where it is not a simple one: a file is not trusted with it.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Assign new data to the clusters of a model.

    Prints a table in CSV: id, cluster, scale, margin. A document that has none of the model's words gets no cluster.

    For example:

    onmf predict clusters/model.onmf new-letters/ > assigned.csv

    onmf predict clusters/model.onmf new.jsonl --text body --out assigned.parquet

    onmf predict materials/model.onmf other.hdr --out other-materials
    """
    fitted = onmf.load(model)
    kind = fitted.extra_["kind"]
    if kind == "image":
        map_image(fitted, path, out, force=force, quiet=quiet, as_json=as_json)
        return
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            fail(f"--out {out}: the name must end with .csv or .parquet.")
        if out.is_dir():
            fail(f"--out {out} is a folder: name a file.")
        if out.exists() and not force:
            fail(f"--out {out} exists: name another file, or use --force to replace it.")
        checked_folder(out.parent)
    if kind not in PREDICT:
        fail(f"{model} is a model of kind {kind!r}: this command knows {', '.join([*PREDICT, 'image'])}.")
    with warnings_as_sentences(quiet):
        answer = PREDICT[kind](fitted, Request(path, text, id, input, labels, strip, token_pattern, quiet))
    if not quiet:
        for note in answer.notes:
            say(note)
    if out is not None:
        write_rows(out, answer.rows, answer.columns, replace=force)
    elif as_json:
        for row in answer.rows:
            tell_json(row)
    else:
        lines = csv_lines(answer.rows, answer.columns)
        if sys.stdout.isatty():  # for people: a file or a program gets the names as they are
            lines = (visible(line[:-1]) + "\n" for line in lines)
        sys.stdout.writelines(lines)


@app.command()
def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")],
    words: Annotated[int, typer.Option("--words", min=1, help="Words for each cluster.")] = 10,
    as_json: Json = False,
) -> None:
    """Print the clusters of a model.

    Example: onmf show clusters/model.onmf
    """
    fitted = onmf.load(model)
    extra, written = fitted.extra_, fitted.provenance_
    names = None
    if extra["kind"] == "documents":
        names = extra["vocabulary"]
    elif extra["kind"] == "image":
        names = [f"band {band + 1}" for band in np.flatnonzero(extra["good_bands"])]
    sizes = np.bincount(fitted.labels_, minlength=len(fitted.cluster_centers_))
    tops = fitted.top_features(words, names)
    rows = [
        {"cluster": k, "size": int(size), "distinctive": ", ".join(top)}
        for k, (size, top) in enumerate(zip(sizes, tops, strict=True))
    ]
    n, p = len(fitted.labels_), fitted.n_features_in_
    if as_json:
        facts = {"kind": extra["kind"], "n_rows": n, "n_features": p, "n_iter": int(fitted.n_iter_)}
        facts |= {"objective": fitted.clustering_.objective, "stop_reason": fitted.stop_reason_}
        tell_json(facts | {"provenance": written, "clusters": rows})
        return
    tell(f"A model of {extra['kind']}: {len(rows)} clusters of {n:,} rows and {p:,} features")
    objective = fitted.clustering_.objective
    if fitted.stop_reason_ == "batch":
        tell(f"{fitted.n_iter_} batches, objective of the last one {objective:.6g}")
    else:
        tell(f"{fitted.n_iter_} iterations, {fitted.stop_reason_}, objective {objective:.6g}")
    tell(f"Written {written.get('created', 'at an unknown time')} by onmf {written.get('onmf', 'of unknown version')}")
    tell()
    print_clusters(rows)
