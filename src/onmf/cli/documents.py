"""``onmf documents``: cluster texts, and write the clusters, the model and a report into a folder."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from onmf.io.files import whole_folder
from onmf.select import CRITERIA
from onmf.text import DocumentClusters, cluster_documents, make_vectorizer, read_texts, write_tables
from onmf.text.read import STRIP
from onmf.text.source import so_many
from onmf.text.write import FORMATS, clusters
from onmf.warn import warn

from .common import (
    check_installed,
    command,
    fail,
    print_selection,
    say,
    steps,
    tell,
    tell_json,
    tell_that_it_compiles,
    tell_written,
    visible,
    warnings_as_sentences,
)
from .options import (
    OUTPUT,
    READING,
    WORDS,
    Clusters,
    Criterion,
    DateColumn,
    Divergence,
    Force,
    IdColumn,
    Init,
    InputKind,
    Json,
    KMax,
    KMin,
    Labels,
    MaxIter,
    NConsensus,
    NInit,
    Quick,
    Quiet,
    Refine,
    Report,
    Seed,
    Smoothing,
    Strip,
    TextColumn,
    Threads,
    Title,
    Tol,
    check_shards,
    given_options,
    parse_choice,
    parse_clusters,
    parse_divergence,
    parse_frequency,
    parse_ngrams,
    parse_pattern,
    parse_stop_words,
)

OURS = ("assignments.csv", "assignments.parquet", "clusters.csv", "clusters.parquet", "model.onmf", "report.html")
"""Names of the files that this command writes."""

STEPS = {
    "counting": "Reading and counting",
    "writing": "Writing the counts",
    "choosing": "Choosing the number of clusters",
    "fitting": "Fitting",
    "measuring": "Measuring how sure the clusters are",
}
"""Names of the steps on the terminal; other steps are passes of the fit."""


@command("documents")
def documents_command(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A folder, zip, tar, csv, tsv, jsonl, parquet or text file; - for standard input."
        ),
    ],
    k: Clusters,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write tables, model and report into this folder.", rich_help_panel=OUTPUT
        ),
    ] = None,
    force: Force = False,
    format: Annotated[
        str,
        typer.Option(
            "--format", metavar="csv|parquet", help="Format of the tables: csv or parquet.", rich_help_panel=OUTPUT
        ),
    ] = "csv",
    report: Report = True,
    title: Title = None,
    labels: Labels = None,
    strip: Strip = None,
    text: TextColumn = None,
    id: IdColumn = None,
    date: DateColumn = None,
    input: InputKind = None,
    shards: Annotated[
        Path | None,
        typer.Option(
            "--shards",
            metavar="DIR",
            help="For a corpus larger than memory: store its counts in this folder, in pieces, and fit from there.",
            rich_help_panel=READING,
        ),
    ] = None,
    language: Annotated[
        str,
        typer.Option(
            "--language",
            metavar="NAME",
            help="Language of the stop words to remove; 'none' keeps all words.",
            rich_help_panel=WORDS,
        ),
    ] = "english",
    stop_words: Annotated[
        Path | None,
        typer.Option(
            "--stop-words", metavar="FILE", help="More stop words to remove, one per line.", rich_help_panel=WORDS
        ),
    ] = None,
    min_df: Annotated[
        str | None,
        typer.Option(
            "--min-df",
            metavar="NUMBER",
            help="Remove words that occur in fewer documents than this (with a decimal point: in a smaller share). "
            "By default 1 to 5, depending on the size of the corpus.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    max_df: Annotated[
        str,
        typer.Option(
            "--max-df",
            metavar="NUMBER",
            help="Remove words that occur in more documents than this, given like --min-df.",
            rich_help_panel=WORDS,
        ),
    ] = "1.0",
    max_features: Annotated[
        int | None,
        typer.Option(
            "--max-features",
            metavar="NUMBER",
            min=1,
            help="Keep only this many words, the most frequent ones.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    ngrams: Annotated[
        str,
        typer.Option(
            "--ngrams",
            metavar="FROM-TO",
            help="Lengths of the n-grams to count: 1-2 for words and pairs of words.",
            rich_help_panel=WORDS,
        ),
    ] = "1-1",
    token_pattern: Annotated[
        str | None,
        typer.Option(
            "--token-pattern",
            metavar="REGEX",
            help="Regular expression of a word; two or more letters by default.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    analyzer: Annotated[
        str,
        typer.Option(
            "--analyzer",
            metavar="word|char|char_wb",
            help="What to count: words, or runs of characters across words (char) or within words (char_wb).",
            rich_help_panel=WORDS,
        ),
    ] = "word",
    lowercase: Annotated[
        bool,
        typer.Option(
            "--lowercase/--keep-case",
            help="Convert words to lower case, or keep capital letters.",
            rich_help_panel=WORDS,
        ),
    ] = True,
    strip_accents: Annotated[
        str | None,
        typer.Option(
            "--strip-accents",
            metavar="ascii|unicode",
            help="Remove accents from letters: é becomes e.",
            rich_help_panel=WORDS,
        ),
    ] = None,
    binary: Annotated[
        bool, typer.Option("--binary", help="Count each word at most once per document.", rich_help_panel=WORDS)
    ] = False,
    k_min: KMin = None,
    k_max: KMax = None,
    criterion: Criterion = None,
    divergence: Divergence = "kullback-leibler",
    quick: Quick = False,
    init: Init = None,
    n_init: NInit = None,
    refine: Refine = None,
    n_consensus: NConsensus = None,
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
    n_clusters = parse_clusters(k)
    choice = parse_choice(n_clusters, k_min, k_max, criterion, CRITERIA)
    if format not in FORMATS:
        fail(f"--format {format} is not known: use {' or '.join(FORMATS)}.")
    check_strip(strip or [])
    fit_options: dict[str, Any] = {
        **given_options(quick, init=init, n_init=n_init, refine=refine, n_consensus=n_consensus),
        "beta_loss": parse_divergence(divergence),
        "max_iter": max_iter,
        "tol": tol,
        "smoothing": smoothing,
        "n_threads": threads,
    } | ({} if seed is None else {"random_state": seed})
    word_options: dict[str, Any] = {
        "max_df": parse_frequency("--max-df", max_df),
        "max_features": max_features,
        "ngram_range": parse_ngrams(ngrams),
        "analyzer": analyzer,
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "binary": binary,
    }
    if token_pattern is not None:
        word_options["token_pattern"] = parse_pattern(token_pattern)
    if min_df is not None:
        word_options["min_df"] = parse_frequency("--min-df", min_df)
    if analyzer != "word":
        word_options |= {"token_pattern": None, "stop_words": None}
    elif stop_words is not None:
        word_options["stop_words"] = parse_stop_words(language, stop_words)
    if shards is not None:
        check_shards(shards, out, n_clusters)
    if report and out is not None:
        check_installed("The report", "jinja2", extras="report", otherwise=", or use --no-report")
    with ExitStack() as stack:
        folder = None if out is None else stack.enter_context(whole_folder(out, force=force, ours=OURS))
        stack.enter_context(warnings_as_sentences(quiet))
        step = stack.enter_context(steps(quiet))
        tell_that_it_compiles(quiet)
        texts = read_texts(path, kind=input, text=text, id=id, labels=labels, date=date, strip=strip or ())
        texts.watch = lambda n, fraction: step(f"Reading and counting: {n:,} documents", fraction)
        result = cluster_documents(
            texts,
            n_clusters,
            vectorizer=make_vectorizer(language, **word_options),
            automatic=min_df is None,
            shards=shards,
            force=force and shards is not None,
            quick=quick,
            announce=lambda line: None if quiet else say(f"{line} --quick runs once, from the paper's start."),
            progress=lambda name, share: step(STEPS.get(name, f"Fitting: {name}"), share),
            **choice,
            **fit_options,
        )
        if labels is not None and result.comparison is None:
            warn(f"--labels {labels} gives no document a class: there is nothing to compare with.", UserWarning)
        if folder is not None:
            step("Writing")
            write_tables(folder, result, format)
            result.save(folder / "model.onmf")
            if report:
                from onmf.report import write_documents_report

                write_documents_report(
                    folder / "report.html",
                    result,
                    title=title,
                    progress=lambda name, share: step("Drawing the map", share),
                )
    if as_json:
        tell_json(summary(result) | {"out": None if out is None else str(out), "seconds": perf_counter() - began})
    elif not quiet:
        print_summary(result)
        tell_written(out, OURS)


def summary(result: DocumentClusters) -> dict[str, Any]:
    """Return the result as ``--json`` prints it."""
    model, comparison = result.model, result.comparison
    return {
        "n_documents": len(result.ids),
        "n_words": len(result.words),
        "n_clusters": result.n_clusters,
        "n_iter": int(model.n_iter_),
        "objective": float(model.reconstruction_err_),
        "stop_reason": model.stop_reason_,
        "set_aside": result.set_aside,
        "repaired": result.source.get("repaired", {}),
        "skipped": result.source.get("skipped", []),
        "clusters": list(clusters(result)),
        "selection": None if result.selection is None else result.selection.record(),
        "comparison": None
        if comparison is None
        else {
            "n_documents": comparison.n_documents,
            **comparison.numbers(),
            "classes": comparison.classes,
            "confusion": comparison.counts.tolist(),
        },
    }


def print_summary(result: DocumentClusters) -> None:
    """Print the result for people."""
    model, comparison = result.model, result.comparison
    tell(
        f"{so_many(len(result.ids), 'document')}, {so_many(len(result.words), 'word')}, "
        f"{so_many(result.n_clusters, 'cluster')}; {so_many(model.n_iter_, 'iteration')}, {model.stop_reason_}"
    )
    for note in result.notes():
        if note != result.source.get("fit"):  # announced before the fit
            tell(note)
    print_selection(result.selection)
    tell()
    print_clusters(list(clusters(result)))
    if comparison is not None:
        compared = f"{len(comparison.classes)} classes ({comparison.n_documents:,} documents)"
        tell()
        tell(f"Compared with {compared}: {comparison.sentence()}")


def print_clusters(rows: list[dict[str, Any]], features: str = "words", counted: str = "documents") -> None:
    """Print one line for each cluster, with its number, size and name, and its class if classes are known."""
    labels = [visible(f"{row['label']} {row['share']:.0%}") if row.get("label") else "" for row in rows]
    columns = [("name", [visible(row["name"]) for row in rows])]
    columns += [("mostly", labels)] if any(labels) else []
    widths = [max(map(len, [head, *texts])) for head, texts in columns]
    heads = [f"{head:{width}}" for (head, _), width in zip(columns, widths, strict=True)]
    tell("  ".join(["cluster", f"{counted:>9}", *heads, f"distinctive {features}"]))
    for i, row in enumerate(rows):
        texts = [f"{texts[i]:{width}}" for (_, texts), width in zip(columns, widths, strict=True)]
        tell("  ".join([f"{row['cluster']:7}", f"{row['size']:9,}", *texts, row["distinctive"]]))


def check_strip(names: list[str]) -> None:
    """Refuse a value of ``--strip`` that is not known."""
    for name in names:
        if name not in STRIP:
            fail(f"--strip {name} is not known: use {', '.join(STRIP)}.")
