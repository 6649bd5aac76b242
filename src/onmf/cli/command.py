"""A command for each kind of data: the options that all share, and those of the kind.

All commands do the same: read, cluster, write, and print what was found.
"""

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

from onmf.divergence import get_divergence
from onmf.door import Clusters, check_request, cluster_table
from onmf.door.kind import CLUSTERING, OUTPUT, Kind, Option
from onmf.door.write import FORMATS, files_of, summary, write_files
from onmf.io.files import whole_folder
from onmf.naming import so_many
from onmf.select import Range
from onmf.warn import warn

from .common import (
    check_installed,
    command,
    fail,
    say,
    steps,
    tell,
    tell_json,
    tell_that_it_compiles,
    visible,
    warnings_as_sentences,
)


def parse_clusters(k: str) -> int | str:
    """Parse ``-k``: a number of clusters, or ``"auto"``."""
    if k == "auto":
        return k
    if not k.isdecimal() or int(k) < 1:
        raise ValueError("is not a number of clusters: use a whole number, at least 1, or auto.")
    return int(k)


def parse_divergence(value: str) -> str | float:
    """Parse ``--divergence``: a name, or a number β."""
    try:
        divergence: str | float = float(value)
    except ValueError:
        divergence = value
    try:
        get_divergence(divergence)
    except ValueError as error:
        said = str(error).replace(f"beta_loss={divergence!r} ", "")
        raise ValueError(
            said.replace(", a finite number β, or an onmf.divergence.Divergence object", " or a finite number β")
        ) from error
    return divergence


def parse_format(value: str) -> str:
    """Parse ``--format``."""
    if value not in FORMATS:
        raise ValueError(f"is not known: use {' or '.join(FORMATS)}.")
    return value


HINT = " --quick runs once, from the paper's start."  # after the announcement of a vote

FORCE = Option("force", "Replace the files of an earlier run.", bool, False, group="")
QUIET = Option("quiet", "Print nothing but errors.", bool, False, group="", flags=("--quiet", "-q"))
JSON = Option("as_json", "Print the result as one JSON document.", bool, False, group="", flags=("--json",))

SHARED = (
    Option(
        "n_clusters",
        "Number of clusters, or auto to have it chosen.",
        str,
        inspect.Parameter.empty,
        "NUMBER|auto",
        "",
        ("-k", "--clusters"),
        parse_clusters,
    ),
    Option("out", "Write the files into this folder.", Path | None, None, "DIR", OUTPUT),
    FORCE,
    Option("format", "Format of the tables: csv or parquet.", str, "csv", "csv|parquet", OUTPUT, parse=parse_format),
    Option("report", "Write report.html, or leave it out.", bool, True, None, OUTPUT, ("--report/--no-report",)),
    Option("title", "Title of the report.", metavar="TEXT", group=OUTPUT),
    Option("k_min", "Smallest number that -k auto may choose.", int | None, None, "NUMBER", CLUSTERING, least=1),
    Option("k_max", "Largest number that -k auto may choose.", int | None, None, "NUMBER", CLUSTERING, least=1),
    Option("criterion", "What -k auto chooses by: {criteria}. All are shown.", metavar="NAME", group=CLUSTERING),
    Option(
        "divergence",
        "How far a row is from a cluster: kullback-leibler (for counts), negative-binomial (for counts that vary "
        "more), frobenius, cosine, or a number β.",
        str,
        "kullback-leibler",
        "NAME",
        CLUSTERING,
        parse=parse_divergence,
    ),
    Option(
        "quick",
        "One run instead of many, from the start that the paper uses.",
        bool,
        False,
        None,
        CLUSTERING,
    ),
    Option(
        "init",
        "How the first clusters are found: snpa (without chance), ++, random, random-partition, bisection, or "
        "consensus (a vote of many runs).",
        metavar="NAME",
        group=CLUSTERING,
    ),
    Option(
        "n_init",
        "Number of random starts. The run with the lowest objective is kept.",
        int | None,
        None,
        "NUMBER",
        CLUSTERING,
        least=1,
    ),
    Option(
        "refine",
        "Improve the clusters afterwards by moving single rows.",
        metavar="local-search",
        group=CLUSTERING,
    ),
    Option("n_consensus", "Number of runs that vote.", int | None, None, "NUMBER", CLUSTERING, least=1),
    Option("max_iter", "Stop a run after this many iterations.", int | None, None, "NUMBER", CLUSTERING, least=1),
    Option("tol", "Stop a run when the scales change by less than this.", float, 1e-6, "NUMBER", CLUSTERING, least=0.0),
    Option(
        "smoothing",
        "Added to every share of a cluster, so that none is zero (Kullback–Leibler); {smoothing} by default.",
        float | None,
        None,
        "NUMBER",
        CLUSTERING,
        least=0.0,
    ),
    Option(
        "seed",
        "Seed of the random numbers: the same seed gives the same clusters.",
        int,
        0,
        "NUMBER",
        CLUSTERING,
        least=0,
    ),
    Option(
        "threads", "Number of threads; by default one for each core.", int | None, None, "NUMBER", CLUSTERING, least=1
    ),
    QUIET,
    JSON,
)
"""The options of every command, in the order of the help."""

FIT = {"init", "n_init", "refine", "n_consensus", "max_iter", "tol", "smoothing", "quick"}
"""Shared options that are parameters of the fit under the same name."""


def parameter(option: Option, **words: str) -> inspect.Parameter:
    """An option as a parameter that typer understands. ``words`` are put into its help."""
    flags = option.flags or (f"--{option.name.replace('_', '-')}",)
    info = typer.Option(
        *flags,
        metavar=option.metavar,
        help=option.help.format(**words) if words else option.help,
        rich_help_panel=option.group or None,
        min=option.least,
    )
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[option.type, info]
    )


def parsed(option: Option, value: Any) -> Any:
    """The value of an option; one that cannot be parsed ends the command."""
    if option.parse is None or value is None or value == option.default:
        return value if option.parse is None or value is None else option.parse(value)
    try:
        return option.parse(value)
    except ValueError as error:
        flag = option.flags[0] if option.flags else f"--{option.name.replace('_', '-')}"
        if isinstance(value, list):  # the error names the value that is wrong
            fail(f"{flag} {error}")
        fail(f"{flag} {value} {error}" if str(error).startswith(("is ", "has ")) else f"{flag} {value}: {error}")


def with_options(function: Callable[..., None], name: str, text: str, parameters: list[inspect.Parameter]) -> None:
    """Register a command whose options are known only when the program runs."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__doc__ = text
    command(name)(function)


def add_command(kind: Kind) -> None:
    """Add the command of a kind."""
    options = {option.name: option for option in (*SHARED, *kind.options) if option.name not in kind.without}
    first = inspect.Parameter(
        "path",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=Annotated[str, typer.Argument(metavar=kind.argument, help=kind.argument_help)],
    )
    words = {"criteria": ", ".join(kind.criteria), "smoothing": f"{kind.smoothing:g}"}
    own = {option.name for option in kind.options}

    def run(path: str, **given: Any) -> None:
        run_command(kind, path, {name: parsed(options[name], value) for name, value in given.items()})

    names = sorted(options, key=lambda name: (name not in ("n_clusters", "out", "force"), name not in own))
    parameters = [parameter(options[name], **(words if name in ("criterion", "smoothing") else {})) for name in names]
    tables = ["assignments.csv", "clusters.csv"] if kind.assignments else ["clusters.csv"]
    written = ", ".join([*tables, "summary.json", "model.onmf", "report.html", *(kind.listed or kind.files)])
    text = "\n\n".join(
        [
            kind.about,
            f"Prints the clusters. With --out it also writes {written}: all of these files, or none.",
            "For example:",
            *kind.examples,
        ]
    )
    assert kind.command is not None
    with_options(run, kind.command, text, [first, *parameters])


def run_command(kind: Kind, path: str, given: dict[str, Any]) -> None:
    """Read, cluster, write and print."""
    began = perf_counter()
    quiet, out, report = given["quiet"], given["out"], given["report"]
    span = Range(given["k_min"], given["k_max"], given["criterion"])
    _check_range(given["n_clusters"], span, kind)
    if given.get("quick"):
        for name in ("init", "n_init", "refine", "n_consensus"):
            if given.get(name) is not None:
                fail(f"--quick means one run: leave out --{name.replace('_', '-')}, or --quick.")
    parameters = {name: given[name] for name in FIT if given.get(name) not in (None, False)}
    parameters |= {"beta_loss": given["divergence"], "random_state": given["seed"]}
    parameters |= {} if given["threads"] is None else {"n_threads": given["threads"]}
    check_request(kind, given["n_clusters"], span, parameters)
    own = {option.name: given[option.name] for option in kind.options}
    kind.check_options(own, out, given["n_clusters"], parameters)
    if out is not None:
        check_installed("Writing the files", kind.packages)
        if report:
            check_installed("The report", kind.report_packages, ", or use --no-report")
    with ExitStack() as stack:
        folder = (
            None if out is None else stack.enter_context(whole_folder(out, force=given["force"], ours=files_of(kind)))
        )
        stack.enter_context(warnings_as_sentences(quiet))
        step = stack.enter_context(steps(quiet))
        tell_that_it_compiles(quiet)
        step("Reading")
        reading = {name: own.pop(name) for name in list(own) if _is_reading(kind, name)}
        table = kind.read(path, step, force=given["force"], **reading)
        clusters = cluster_table(
            kind,
            table,
            given["n_clusters"],
            **span._asdict(),
            options=own,
            announce=lambda line: None if quiet else say(line + (HINT if "vote" in line else "")),
            progress=step,
            **parameters,
        )
        if reading.get("labels") is not None and clusters.comparison is None:
            rows = kind.rows_of(2)
            warn(f"--labels {reading['labels']} gives none of the {rows} a class: nothing is compared.", UserWarning)
        if folder is not None:
            write_files(clusters, folder, report=report, title=given["title"], format=given["format"], progress=step)
    if given["as_json"]:
        tell_json(summary(clusters) | {"out": None if out is None else str(out), "seconds": perf_counter() - began})
    elif not quiet:
        tell_clusters(clusters)
        tell_written(out, kind)


def _is_reading(kind: Kind, name: str) -> bool:
    return next(option.reading for option in kind.options if option.name == name)


def _check_range(n_clusters: int | str, span: Range, kind: Kind) -> None:
    """Refuse ``--k-min``, ``--k-max`` and ``--criterion`` that cannot be right."""
    for name, value in span._asdict().items():
        if value is not None and n_clusters != "auto":
            fail(
                f"--{name.replace('_', '-')} {value} is about choosing the number of clusters, but -k {n_clusters} "
                "gives it: use -k auto."
            )
    if span.criterion is not None and span.criterion not in kind.criteria:
        fail(f"--criterion {span.criterion} is not known: use {', '.join(kind.criteria[:-1])} or {kind.criteria[-1]}.")
    if span.k_min is not None and span.k_max is not None and span.k_max < span.k_min:
        fail(f"--k-max {span.k_max} is less than --k-min {span.k_min}: nothing is left to choose from.")


def tell_clusters(clusters: Clusters) -> None:
    """Print a result for people."""
    kind, record = clusters.kind, summary(clusters)
    tell(f"{kind.headline(clusters)}, {so_many(clusters.n_clusters, kind.cluster)}: {clusters.fitted}")
    for note in clusters.notes:
        tell(note)
    if clusters.selection is not None:
        tell()
        for line in clusters.selection.lines():
            tell(line)
    tell()
    labels, sure = clusters.labels.ravel(), clusters.confidence.ravel()
    medians = [
        float(np.median(sure[own])) if (own := labels == k).any() else np.nan for k in range(clusters.n_clusters)
    ]
    tell_table(record["clusters"], kind, medians if np.isfinite(medians).any() else None)
    if clusters.comparison is not None:
        tell()
        tell(f"Compared with {clusters.comparison.against(kind)}: {clusters.comparison.sentence()}")


def tell_table(
    rows: list[dict[str, Any]],
    kind: Kind,
    sure: list[float] | None = None,
    shown: tuple[str, ...] | None = None,
) -> None:
    """Print one line for each cluster: its number, size, confidence, name, known class, and what sets it apart."""
    total = max(sum(row["size"] for row in rows), 1)
    columns: list[tuple[str, list[str]]] = [
        ("cluster", [f"{row['cluster']:7}" for row in rows]),
        (f"{kind.row}s", [f"{row['size']:,}" for row in rows]),
        ("share", [f"{row['size'] / total:.1%}" for row in rows]),
    ]
    if sure is not None:
        columns.append(("sure", ["" if np.isnan(value) else f"{value:.2f}" for value in sure]))
    n_right = len(columns)
    columns.append(("name", [visible(row["name"]) for row in rows]))
    if any(row.get("label") for row in rows):
        columns.append(
            ("mostly", [visible(f"{row['label']} {row['share']:.0%}") if row["label"] else "" for row in rows])
        )
    heads = {"distinctive": f"distinctive {kind.feature}s"}
    columns += [
        (heads.get(name, name), [_cell(row[name]) for row in rows]) for name in shown or kind.shown if name in rows[0]
    ]
    widths = [max(map(len, [head, *texts])) for head, texts in columns]
    for line in zip(*([head, *texts] for head, texts in columns), strict=True):
        cells = [
            f"{text:>{width}}" if i < n_right else f"{text:{width}}"
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        tell("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else visible(str(value))


def tell_written(out: Path | None, kind: Kind) -> None:
    """Print which files a command wrote into the folder of ``--out``."""
    if out is None:
        say("nothing was saved: --out DIR writes tables, a model and a report.")
        return
    ours = files_of(kind)
    names = sorted(file.name for file in out.iterdir() if file.name in ours)
    tell()
    tell(f"Written to {out}: {', '.join(names)}")
