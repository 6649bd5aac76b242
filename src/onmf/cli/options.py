"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from onmf.datasets.vocabulary import make_vectorizer
from onmf.divergence import get_divergence
from onmf.io.limits import read_small
from onmf.text.kind import LONGEST_RUN

from .common import fail

READING, WORDS, FIT, OUTPUT = "Reading", "Words", "Clustering", "Output"
"""Panels of the help texts."""

Clusters = Annotated[
    str, typer.Option("-k", "--clusters", metavar="NUMBER|auto", help="Number of clusters, or auto to have it chosen.")
]

KMin = Annotated[
    int | None,
    typer.Option(
        "--k-min", metavar="NUMBER", min=1, help="Smallest number that -k auto may choose.", rich_help_panel=FIT
    ),
]
KMax = Annotated[
    int | None,
    typer.Option(
        "--k-max", metavar="NUMBER", min=1, help="Largest number that -k auto may choose.", rich_help_panel=FIT
    ),
]
Criterion = Annotated[
    str | None,
    typer.Option(
        "--criterion",
        metavar="NAME",
        help="What -k auto chooses by: information (what two halves of the data agree on), held-out (likelihood), "
        "stability; for documents also bic, for images objective (how fast it falls). All are shown.",
        rich_help_panel=FIT,
    ),
]

TextColumn = Annotated[
    str | None,
    typer.Option("--text", metavar="COLUMN", help="Column of a table that holds the text.", rich_help_panel=READING),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column of a table that names the documents.", rich_help_panel=READING),
]
DateColumn = Annotated[
    str | None,
    typer.Option(
        "--date",
        metavar="COLUMN",
        help="Table column with the dates. The report then shows the clusters over time.",
        rich_help_panel=READING,
    ),
]
InputKind = Annotated[
    str | None,
    typer.Option(
        "--input",
        metavar="KIND",
        help="Format of PATH, if its name does not show it: csv, tsv, jsonl or lines (one document per line).",
        rich_help_panel=READING,
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="folder|COLUMN",
        help="Compare the clusters with known classes: the folder of each file, or a column of a table.",
        rich_help_panel=READING,
    ),
]
Strip = Annotated[
    list[str] | None,
    typer.Option(
        "--strip",
        metavar="headers",
        help="Leave out the headers of mail and news.",
        rich_help_panel=READING,
    ),
]

Divergence = Annotated[
    str,
    typer.Option(
        "--divergence",
        metavar="NAME",
        help="How far a row is from a cluster: kullback-leibler (for counts), negative-binomial (for counts that vary "
        "more), frobenius, cosine, or a number β.",
        rich_help_panel=FIT,
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        "--init",
        metavar="NAME",
        help="How the first clusters are found: snpa (without chance), ++, random, random-partition, bisection, or "
        "consensus (a vote of many runs).",
        rich_help_panel=FIT,
    ),
]
NInit = Annotated[
    int | None,
    typer.Option(
        "--n-init",
        metavar="NUMBER",
        min=1,
        help="Number of random starts. The run with the lowest objective is kept.",
        rich_help_panel=FIT,
    ),
]
NConsensus = Annotated[
    int | None,
    typer.Option(
        "--n-consensus", metavar="NUMBER", min=1, help="Number of runs that vote on the clusters.", rich_help_panel=FIT
    ),
]
Refine = Annotated[
    str | None,
    typer.Option(
        "--refine",
        metavar="local-search",
        help="Improve the clusters afterwards by moving single rows.",
        rich_help_panel=FIT,
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="One run from a fixed start, as in the paper. By default many runs vote on the clusters, as many as the "
        "size of the corpus allows.",
        rich_help_panel=FIT,
    ),
]
MaxIter = Annotated[
    int,
    typer.Option(
        "--max-iter", metavar="NUMBER", min=1, help="Stop a run after this many iterations.", rich_help_panel=FIT
    ),
]
Tol = Annotated[
    float,
    typer.Option(
        "--tol",
        metavar="NUMBER",
        min=0.0,
        help="Stop a run when the scales change by less than this.",
        rich_help_panel=FIT,
    ),
]
SMOOTHING = typer.Option(
    "--smoothing",
    metavar="NUMBER",
    min=0.0,
    help="Added to every share of a cluster, so that none is zero (Kullback–Leibler).",
    rich_help_panel=FIT,
)
Smoothing = Annotated[float, SMOOTHING]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="NUMBER",
        min=0,
        help="Seed of the random numbers: the same seed gives the same clusters.",
        rich_help_panel=FIT,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="NUMBER",
        min=1,
        help="Number of threads; by default one for each core.",
        rich_help_panel=FIT,
    ),
]

Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html, or leave it out.", rich_help_panel=OUTPUT)
]
Orientation = Annotated[
    str | None,
    typer.Option(
        "--orientation",
        metavar="cells-in-rows|genes-in-rows",
        help="Orientation of a table or matrix of cells; by default it is guessed from the names.",
        rich_help_panel=READING,
    ),
]
Title = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="Title of the report.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files of an earlier run.")]


@dataclass(frozen=True)
class Request:
    """Arguments of ``onmf predict``, except for the model."""

    path: str
    out: Path | None
    force: bool
    labels: str | None
    strip: list[str] | None
    text: str | None
    id: str | None
    input: str | None
    layer: str | None
    orientation: str | None
    token_pattern: str | None
    quiet: bool
    as_json: bool
    as_lines: bool


def parse_clusters(k: str) -> int | str:
    """Parse ``-k``: a number of clusters, or ``"auto"``."""
    if k == "auto":
        return k
    if not k.isdecimal() or int(k) < 1:
        fail(f"-k {k} is not a number of clusters: use a whole number, at least 1, or auto.")
    return int(k)


def parse_choice(
    k: int | str, k_min: int | None, k_max: int | None, criterion: str | None, criteria: tuple[str, ...]
) -> dict[str, Any]:
    """Check ``--k-min``, ``--k-max`` and ``--criterion``, and return them as keyword arguments."""
    given = {"--k-min": k_min, "--k-max": k_max, "--criterion": criterion}
    for option, value in given.items():
        if value is not None and k != "auto":
            fail(f"{option} {value} is about choosing the number of clusters, but -k {k} gives it: use -k auto.")
    if criterion is not None and criterion not in criteria:
        fail(f"--criterion {criterion} is not known: use {', '.join(criteria[:-1])} or {criteria[-1]}.")
    if k_min is not None and k_max is not None and k_max < k_min:
        fail(f"--k-max {k_max} is less than --k-min {k_min}: nothing is left to choose from.")
    return {"k_min": k_min, "k_max": k_max, "criterion": criterion}


def parse_stop_words(language: str, path: Path) -> list[str]:
    """Parse ``--stop-words``: the stop words of a language, and those in a file."""
    try:
        more = read_small(path, 16, "name a file with one stop word per line").split()
    except UnicodeDecodeError:
        fail(f"--stop-words {path} is not a text file in UTF-8.")
    return sorted({*(make_vectorizer(language).stop_words or ()), *(word.lower() for word in more)})


def check_shards(shards: Path, out: Path | None, n_clusters: int | str) -> None:
    """Refuse ``--shards`` with ``-k auto``, or with a folder that overlaps that of ``--out``."""
    if n_clusters == "auto":
        fail("-k auto needs all counts in memory: use a number of clusters with --shards.")
    if out is not None:
        one, other = shards.resolve(), out.resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            fail(f"--shards {shards} and --out {out}: one folder contains the other. Use two separate folders.")


def given_options(quick: bool, **options: Any) -> dict[str, Any]:
    """The options of a fit that were given. With ``--quick`` none of them may be."""
    given = {name: value for name, value in options.items() if value is not None}
    if quick and given:
        name = next(iter(given)).replace("_", "-")
        fail(f"--quick means one run from a fixed start: leave out --{name}, or --quick.")
    return given


def parse_divergence(value: str) -> str | float:
    """Parse ``--divergence``: a name, or a number β."""
    try:
        divergence: str | float = float(value)
    except ValueError:
        divergence = value
    try:
        get_divergence(divergence)
    except ValueError as error:
        said = str(error).replace(f"beta_loss={divergence!r}", f"--divergence {value}")
        fail(said.replace(", a finite number β, or an onmf.divergence.Divergence object", " or a finite number β"))
    return divergence


def parse_frequency(option: str, value: str) -> int | float:
    """Parse ``--min-df`` or ``--max-df``: a number of documents, or with a decimal point a share of them."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        fail(f"{option} {value} is not a number.")
    if "." in value:
        if not 0 <= number <= 1:
            fail(f"{option} {value}: a number with a decimal point is a share of the documents, from 0.0 to 1.0.")
        return number
    if number < 1 or number != int(number):
        fail(f"{option} {value}: use a whole number of documents, at least 1, or a share such as 0.01.")
    return int(number)


def parse_ngrams(value: str) -> tuple[int, int]:
    """Parse ``--ngrams``: the shortest and the longest n-gram."""
    bounds = _range(value)
    if bounds is None:
        fail(f"--ngrams {value} is not a range: use 1-2 for single words and pairs of words.")
    if bounds[1] > LONGEST_RUN:
        fail(f"--ngrams {value}: an n-gram has at most {LONGEST_RUN} words or letters.")
    return bounds


def parse_bands(value: str) -> list[int]:
    """Parse ``--drop-bands``: bands counted from 1, as in ``1-3,104-110``. Returns them counted from 0."""
    bands: list[int] = []
    for part in map(str.strip, value.split(",")):
        bounds = _range(part)
        if bounds is None:
            fail(f"--drop-bands {value}: {part!r} is not a band or a range of bands. Use for instance 1-3,104-110.")
        bands += range(bounds[0] - 1, bounds[1])
    return bands


def parse_pattern(value: str) -> str:
    """Parse ``--token-pattern``: a regular expression."""
    try:
        re.compile(value)
    except re.error as error:
        fail(f"--token-pattern {value} is not a regular expression: {error}.")
    return value


def _range(value: str) -> tuple[int, int] | None:
    """The bounds of ``FROM-TO`` or of a single number, from 1 on; None if it is neither."""
    first, _, last = value.partition("-")
    last = last or first
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        return None
    return int(first), int(last)
