"""``onmf documents``: from texts to a folder with clusters, a model and a report."""

from __future__ import annotations

import math
import re
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from onmf.divergence import get_divergence
from onmf.io.files import whole_folder
from onmf.io.schema import LONGEST_RUN
from onmf.text import DocumentClusters, cluster_documents, make_vectorizer, read_texts, write_tables
from onmf.text.cluster import so_many
from onmf.text.read import STRIP
from onmf.text.write import FORMATS, clusters
from onmf.warn import warn

from .common import (
    FIT,
    Divergence,
    Force,
    Init,
    Json,
    MaxIter,
    NInit,
    Quiet,
    Seed,
    Smoothing,
    Threads,
    Tol,
    app,
    fail,
    steps,
    tell,
    tell_json,
    visible,
    warnings_as_sentences,
)

OURS = ("assignments.csv", "assignments.parquet", "clusters.csv", "clusters.parquet", "model.onmf", "report.html")
"""What a folder of ours may hold."""

IN, WORDS, OUT = "Reading", "Words", "Output"
Column = Annotated[
    str | None, typer.Option("--text", metavar="COLUMN", help="Column of a table with the text.", rich_help_panel=IN)
]
Id = Annotated[
    str | None, typer.Option("--id", metavar="COLUMN", help="Column of a table with identifiers.", rich_help_panel=IN)
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="KIND",
        help="What PATH is, where its name does not tell: csv, tsv, jsonl, lines.",
        rich_help_panel=IN,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="folder|COLUMN",
        help="Compare with known classes: the folders, or a column.",
        rich_help_panel=IN,
    ),
]
Format = Annotated[str, typer.Option("--format", help="Format of the tables: csv or parquet.", rich_help_panel=OUT)]
Strip = Annotated[
    list[str] | None,
    typer.Option("--strip", help="Drop this from each document: headers (of mail and news).", rich_help_panel=IN),
]


@app.command("documents")
def documents_command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A folder, zip, tar, csv, tsv, jsonl, parquet or text file; - for standard input."
        ),
    ],
    k: Annotated[str, typer.Option("-k", "--clusters", metavar="NUMBER|auto", help="Number of clusters, or auto.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write tables, model and report into this folder.", rich_help_panel=OUT
        ),
    ] = None,
    force: Force = False,
    format: Format = "csv",
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Whether to write report.html.", rich_help_panel=OUT)
    ] = True,
    title: Annotated[str | None, typer.Option("--title", help="Title of the report.", rich_help_panel=OUT)] = None,
    labels: Labels = None,
    strip: Strip = None,
    text: Column = None,
    id: Id = None,
    input: Input = None,
    shards: Annotated[
        Path | None,
        typer.Option(
            "--shards",
            metavar="DIR",
            help="For a corpus larger than memory: keep its counts in this folder, in pieces, and fit from there.",
            rich_help_panel=IN,
        ),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="Whose stop words to leave out; none for nobody's.", rich_help_panel=WORDS)
    ] = "english",
    stop_words: Annotated[
        Path | None,
        typer.Option(
            "--stop-words", metavar="FILE", help="More words to leave out, one a line.", rich_help_panel=WORDS
        ),
    ] = None,
    min_df: Annotated[
        str | None,
        typer.Option(
            "--min-df",
            metavar="NUMBER",
            help="Leave out words of fewer documents (a share, with a point); 1 to 5 by default, by the corpus.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    max_df: Annotated[
        str,
        typer.Option("--max-df", metavar="NUMBER", help="Leave out words of more documents.", rich_help_panel=WORDS),
    ] = "1.0",
    max_features: Annotated[
        int | None,
        typer.Option(
            "--max-features", min=1, help="Keep only so many words, the most frequent.", rich_help_panel=WORDS
        ),
    ] = None,
    ngrams: Annotated[
        str,
        typer.Option(
            "--ngrams", metavar="FROM-TO", help="Count runs of so many words, too: 1-2.", rich_help_panel=WORDS
        ),
    ] = "1-1",
    token_pattern: Annotated[
        str | None,
        typer.Option(
            "--token-pattern",
            metavar="REGEX",
            help="What a word is; two letters or more by default.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    analyzer: Annotated[str, typer.Option("--analyzer", help="word, char or char_wb.", rich_help_panel=WORDS)] = "word",
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--keep-case", help="Whether Tea is tea.", rich_help_panel=WORDS)
    ] = True,
    strip_accents: Annotated[
        str | None,
        typer.Option("--strip-accents", metavar="ascii|unicode", help="Drop accents.", rich_help_panel=WORDS),
    ] = None,
    binary: Annotated[
        bool, typer.Option("--binary", help="A word is in a document or not; never twice.", rich_help_panel=WORDS)
    ] = False,
    divergence: Divergence = "kullback-leibler",
    init: Init = "snpa",
    n_init: NInit = 1,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine",
            metavar="local-search",
            help="Move single documents afterwards, for better clusters.",
            rich_help_panel=FIT,
        ),
    ] = None,
    n_consensus: Annotated[
        int, typer.Option("--n-consensus", min=1, help="Runs that vote with --init consensus.", rich_help_panel=FIT)
    ] = 30,
    max_iter: MaxIter = 100,
    tol: Tol = 1e-6,
    smoothing: Smoothing = 1e-3,
    seed: Seed = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cluster documents by their words.

    Prints the clusters. With --out it also writes assignments.csv, clusters.csv, model.onmf and report.html.

    For example:

    onmf documents letters/ -k 12 --out clusters

    onmf documents mail.tar.xz -k 20 --strip headers --labels folder --out clusters

    onmf documents reviews.csv --text body --id number -k auto --seed 0 --out clusters

    zcat lines.gz | onmf documents - -k 5

    onmf documents huge.jsonl.zst -k 50 --shards counts --out clusters
    """  # fmt: skip
    began = perf_counter()
    number = _clusters(k)
    if format not in FORMATS:
        fail(f"--format {format} is not known: use {' or '.join(FORMATS)}.")
    for name in strip or []:
        if name not in STRIP:
            fail(f"--strip {name} is not known: use {', '.join(STRIP)}.")
    options: dict[str, Any] = {
        "beta_loss": _divergence(divergence),
        "init": init,
        "n_init": n_init,
        "refine": refine,
        "n_consensus": n_consensus,
        "max_iter": max_iter,
        "tol": tol,
        "smoothing": smoothing,
        "random_state": seed,
        "n_threads": threads,
    }
    chosen: dict[str, Any] = {
        "max_df": _number("--max-df", max_df),
        "max_features": max_features,
        "ngram_range": _ngrams(ngrams),
        "analyzer": analyzer,
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "binary": binary,
    }
    if token_pattern is not None:
        try:
            re.compile(token_pattern)
        except re.error as error:
            fail(f"--token-pattern {token_pattern} is not a regular expression: {error}.")
        chosen["token_pattern"] = token_pattern
    if min_df is not None:
        chosen["min_df"] = _number("--min-df", min_df)
    if analyzer != "word":
        chosen |= {"token_pattern": None, "stop_words": None}
    elif stop_words is not None:
        try:
            more = stop_words.read_text(encoding="utf-8").split()
        except UnicodeDecodeError:
            fail(f"--stop-words {stop_words} is no text in UTF-8.")
        chosen["stop_words"] = sorted({*(make_vectorizer(language).stop_words or ()), *(word.lower() for word in more)})
    if shards is not None:
        _check_shards(shards, out, number)
    if report and out is not None:
        from onmf.report.page import plotly_script

        plotly_script()  # what is missing is said before the work, not after it
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(whole_folder(out, force=force, ours=OURS))
        stack.enter_context(warnings_as_sentences(quiet))
        step = stack.enter_context(steps(quiet))
        texts = read_texts(path, kind=input, text=text, id=id, labels=labels, strip=strip or ())
        texts.watch = lambda n, fraction: step(f"Reading and counting: {n:,} documents", fraction)
        names = {
            "counting": "Reading and counting",
            "writing": "Writing the counts",
            "choosing": "Choosing the number of clusters",
            "fitting": "Fitting",
        }
        found = cluster_documents(
            texts,
            number,
            vectorizer=make_vectorizer(language, **chosen),
            automatic=min_df is None,
            shards=shards,
            force=force and shards is not None,
            progress=lambda name, share: step(names.get(name, f"Fitting: {name}"), share),
            **options,
        )
        if labels is not None and found.comparison is None:
            warn(f"No document has a class by --labels {labels}: there is nothing to compare with.", UserWarning)
        if folder is not None:
            step("Writing")
            write_tables(folder, found, format)
            found.save(folder / "model.onmf")
            if report:
                from onmf.report import write_documents_report

                write_documents_report(folder / "report.html", found, title=title)
    if as_json:
        tell_json(summary(found) | {"out": None if out is None else str(out), "seconds": perf_counter() - began})
    elif not quiet:
        print_summary(found)
        if out is not None:
            tell()
            tell(f"Written to {out}: {', '.join(sorted(file.name for file in out.iterdir() if file.name in OURS))}")


def summary(found: DocumentClusters) -> dict[str, Any]:
    """What was found, for machines."""
    model, comparison = found.model, found.comparison
    return {
        "n_documents": len(found.ids),
        "n_words": len(found.words),
        "n_clusters": found.n_clusters,
        "n_iter": int(model.n_iter_),
        "objective": float(model.reconstruction_err_),
        "stop_reason": model.stop_reason_,
        "set_aside": found.set_aside,
        "repaired": found.source.get("repaired", {}),
        "skipped": found.source.get("skipped", []),
        "clusters": list(clusters(found)),
        "selection": None if found.selection is None else found.selection.table(),
        "comparison": None
        if comparison is None
        else {
            "n_documents": comparison.n_documents,
            "accuracy": comparison.accuracy,
            "nmi": comparison.nmi,
            "classes": comparison.classes,
            "confusion": comparison.counts.tolist(),
        },
    }


def print_summary(found: DocumentClusters) -> None:
    """What was found, for people."""
    model, comparison = found.model, found.comparison
    tell(
        f"{so_many(len(found.ids), 'document')}, {so_many(len(found.words), 'word')}, "
        f"{so_many(found.n_clusters, 'cluster')}; {so_many(model.n_iter_, 'iteration')}, {model.stop_reason_}"
    )
    for note in found.notes():
        tell(note)
    tell()
    print_clusters(list(clusters(found)))
    if comparison is not None:
        tell()
        tell(
            f"Beside {len(comparison.classes)} classes ({comparison.n_documents:,} documents): accuracy "
            f"{comparison.accuracy:.1%}, NMI {comparison.nmi:.3f}"
        )


def print_clusters(rows: list[dict[str, Any]]) -> None:
    """One line for each cluster."""
    labelled = any(row.get("label") for row in rows)
    names = [visible(f"{row['label']} {row['share']:.0%}") if row.get("label") else "" for row in rows]
    width = max(map(len, [*names, "mostly"]))
    head = f"{'mostly':{width}}  " if labelled else ""
    tell(f"cluster    size  {head}distinctive words")
    for row, name in zip(rows, names, strict=True):
        label = f"{name:{width}}  " if labelled else ""
        tell(f"{row['cluster']:7}  {row['size']:6,}  {label}{row['distinctive']}")


def _clusters(k: str) -> int | str:
    if k == "auto":
        return k
    if not k.isdecimal() or int(k) < 1:
        fail(f"-k {k} is not a number of clusters: give a whole number, at least 1, or auto.")
    return int(k)


def _check_shards(shards: Path, out: Path | None, k: int | str) -> None:
    if k == "auto":
        fail("-k auto needs all counts in memory: say a number of clusters with --shards.")
    if out is not None:
        one, other = shards.resolve(), out.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            fail(f"--shards {shards} and --out {out} lie in one another: name two folders side by side.")


def _number(option: str, value: str) -> int | float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        fail(f"{option} {value} is not a number.")
    if "." in value:
        if not 0 <= number <= 1:
            fail(f"{option} {value}: a number with a point is a share of the documents, from 0.0 to 1.0.")
        return number
    if number < 1 or number != int(number):
        fail(f"{option} {value}: give a whole number of documents, at least 1, or a share with a point, like 0.01.")
    return int(number)


def _ngrams(value: str) -> tuple[int, int]:
    first, _, last = value.partition("-")
    if not (first.isdecimal() and (last or first).isdecimal() and 1 <= int(first) <= int(last or first)):
        fail(f"--ngrams {value} is not a range: write 1-2 for words and pairs of words.")
    if int(last or first) > LONGEST_RUN:
        fail(f"--ngrams {value}: a run has at most {LONGEST_RUN} words or letters.")
    return int(first), int(last or first)


def _divergence(value: str) -> str | float:
    try:
        number = float(value)
    except ValueError:
        get_divergence(value)  # says what there is
        return value
    get_divergence(number)
    return number
