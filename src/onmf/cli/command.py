"""A command for each kind of data: the options that all share, and those of the kind.

All commands do the same: read, cluster, write, and print what was found.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer

from onmf.confidence import CONFIDENCE
from onmf.divergence import get_divergence
from onmf.door import Clusters, check_request, cluster_table
from onmf.door.kind import CLUSTERING, KNOWN, OUTPUT, SEEDS, Kind, Option
from onmf.door.known import check_parameters_of_given
from onmf.door.settle import check_shares
from onmf.door.write import FORMATS, MAPS, files_of, summary, write_files
from onmf.io.files import checksum_of, whole_folder
from onmf.kernels.jit import compiled_before
from onmf.naming import so_many
from onmf.select import AUTO, Range
from onmf.warn import warn

from .common import aligned, check_installed, command, fail, say, tell, tell_json, visible, working


def parse_clusters(k: str) -> int | str:
    """Parse ``-k``: a number of clusters, or the name of a level."""
    if k not in AUTO and (not k.isdecimal() or int(k) < 1):
        raise ValueError("is not a number of clusters: use a whole number, at least 1, or auto, coarse or fine.")
    return k if k in AUTO else int(k)


def parse_divergence(value: str) -> str | float:
    """Parse ``--divergence``: a name, or a number β."""
    divergence: str | float = value
    with suppress(ValueError):
        divergence = float(value)
    try:
        get_divergence(divergence)
    except ValueError as error:
        said = str(error).replace(f"beta_loss={divergence!r} ", "")
        in_python = ", a finite number β, or an onmf.divergence.Divergence object"
        raise ValueError(said.replace(in_python, " or a finite number β")) from error
    return divergence


HINT = " --quick runs once, from the paper's start."  # after the announcement of a vote

FORCE = Option("force", "Replace the files of an earlier run.", bool, False, group="")
QUIET = Option("quiet", "Print nothing but errors.", bool, False, group="", flags=("--quiet", "-q"))
JSON = Option("as_json", "Print the result as one JSON document.", bool, False, group="", flags=("--json",))

WRITTEN = partial(Option, group=OUTPUT)
FITTED = partial(Option, group=CLUSTERING)
NUMBER = partial(Option, type=int | None, metavar="NUMBER", group=CLUSTERING, least=1)
SHARE = partial(Option, type=float | None, metavar="SHARE", group=CLUSTERING, least=0.0)

UNASSIGNED = (
    SHARE(
        "unassigned",
        "Leave rows unassigned that fit nowhere: those as unusual as this share of the rows like them, such as 0.01.",
    ),
    SHARE("min_confidence", f"Leave rows of a lower confidence unassigned: {CONFIDENCE}."),
)
"""Options about rows that get no cluster."""

NO_TEXT = WRITTEN(
    "no_text",
    "Leave texts, and names of rows and files, out of all that is written. Rows are named by their number.",
    *(bool, False),
)

SHARED = (
    Option(
        "n_clusters",
        "Number of clusters; auto chooses the medium one of up to three levels, coarse and fine the others.",
        *(str, inspect.Parameter.empty, "NUMBER|auto|coarse|fine", "", ("-k", "--clusters"), parse_clusters),
    ),
    WRITTEN("out", "Write the files into this folder.", Path | None, None, "DIR"),
    FORCE,
    WRITTEN("format", "Format of the tables: csv or parquet.", str, "csv", "csv|parquet", choices=FORMATS),
    WRITTEN("report", "Write report.html, or leave it out.", bool, True, flags=("--report/--no-report",)),
    WRITTEN("title", "Title of the report.", metavar="TEXT"),
    NO_TEXT,
    WRITTEN(
        "map",
        "The map of the report: full, quick (a sample is placed, and the others beside it), or none; quick with "
        "--quick, otherwise full.",
        metavar="full|quick|none",
        choices=MAPS,
    ),
    NUMBER("k_min", "Smallest number that -k auto may choose."),
    NUMBER("k_max", "Largest number that -k auto may choose."),
    SHARE("false_alarms", "In which share of data without clusters -k auto may find some; 0.05 by default."),
    FITTED(
        "divergence",
        "How far a row is from a cluster: kullback-leibler (for counts), negative-binomial (for counts that vary "
        "more), frobenius, cosine, or a number β.",
        *(str, "kullback-leibler", "NAME"),
        parse=parse_divergence,
    ),
    FITTED("quick", "One run instead of many, from the start that the paper uses.", bool, False),
    FITTED(
        "init",
        "How the first clusters are found: snpa (without chance), ++, random, random-partition, bisection, or "
        "consensus (a vote of many runs).",
        metavar="NAME",
    ),
    NUMBER("n_init", "Number of random starts. The run with the lowest objective is kept."),
    FITTED("refine", "Improve the clusters afterwards while the objective falls.", metavar="local-search"),
    NUMBER("n_consensus", "Number of runs that vote."),
    NUMBER("max_iter", "Stop a run after this many iterations."),
    FITTED("tol", "Stop a run when the scales change by less than this.", float, 1e-6, "NUMBER", least=0.0),
    FITTED(
        "smoothing",
        "Added to every share of a cluster, so that none is zero (Kullback–Leibler); {smoothing} by default.",
        *(float | None, None, "NUMBER"),
        least=0.0,
    ),
    *UNASSIGNED,
    FITTED("seed", "Seed of the random numbers: the same seed gives the same clusters.", int, 0, "NUMBER", least=0),
    NUMBER("threads", "Number of threads; by default one for each core."),
    QUIET,
    JSON,
)
"""The options of every command, in the order of the help."""

OF_A_CALL = ("out", "force", "quiet", "as_json")  # Options that say nothing about the clusters or their files

FIT = {"init", "n_init", "refine", "n_consensus", "max_iter", "tol", "smoothing", "quick"}
"""Shared options that are parameters of the fit under the same name."""


def parameter(option: Option, **words: str) -> inspect.Parameter:
    """An option as a parameter that typer understands. ``words`` are put into its help."""
    info = typer.Option(
        *(option.flags or (option.flag,)),
        metavar=option.metavar,
        help=option.help.format(**words) if option in SHARED else option.help,
        rich_help_panel=option.group or None,
        min=option.least,
    )
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[option.type, info]
    )


def argument(name: str, annotation: Any) -> inspect.Parameter:
    """An argument without a flag."""
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation)


def parsed(option: Option, value: Any) -> Any:
    """The value of an option; one that cannot be parsed ends the command."""
    wrong = [one for one in (value if isinstance(value, list) else [value]) if one not in (None, *option.choices)]
    if option.choices and wrong:
        fail(f"{option.flag} {wrong[0]} is not known: use {' or '.join(option.choices)}.")
    try:
        return value if option.parse is None or value is None else option.parse(value)
    except ValueError as error:
        fail(f"{option.flag} {value}{' ' if str(error).startswith(('is ', 'has ')) else ': '}{error}")


def with_options(function: Callable[..., None], name: str, text: str, parameters: list[inspect.Parameter]) -> None:
    """Register a command whose options are known only when the program runs."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__doc__ = text
    command(name)(function)


def options_of(kind: Kind) -> dict[str, Option]:
    """The options of the command of a kind, by their names."""
    return {option.name: option for option in (*SHARED, *kind.options) if option.name not in kind.without}


def add_command(kind: Kind) -> None:
    """Add the command of a kind."""
    options = options_of(kind)
    each: Any = typer.Argument(metavar=f"{kind.argument}{' ...' * kind.several}", help=kind.argument_help)
    paths = argument("paths", Annotated[list[str] if kind.several else str, each])
    words = {"smoothing": f"{kind.smoothing:g}"}

    def run(paths: str | list[str], **given: Any) -> None:
        run_command(kind, paths, given)

    first = ("n_clusters", "out", "force")
    in_order = sorted(options.values(), key=lambda each: (each.name not in first, each not in kind.options))
    tables = ("assignments.csv",) * kind.assignments + ("clusters.csv",)
    written = ", ".join([*tables, "summary.json", "model.onmf", "report.html", *(kind.listed or kind.files)])
    files = f"Prints the clusters. With --out it also writes {written}: all of these files, or none."
    sure = f"In what is printed, sure is the median confidence of a cluster: {CONFIDENCE}."
    text = "\n\n".join([kind.about, files, sure, "For example:", *kind.examples])
    with_options(run, kind.command or "", text, [paths, *(parameter(each, **words) for each in in_order)])


def run_command(kind: Kind, paths: str | list[str], typed: dict[str, Any]) -> None:
    """Read, cluster, write and print."""
    began = perf_counter()
    given = {name: parsed(option, typed[name]) for name, option in options_of(kind).items()}
    fit_options(kind, given)
    with target_folder(kind, given) as folder, working(given["quiet"]) as step:
        clusters = cluster_files(kind, paths, given, step)
        if folder is not None:
            clusters.command = recorded(kind, paths, typed)
            write_files(clusters, folder, **of_writing(given), progress=step)
    tell_result(clusters, given, seconds=perf_counter() - began)


def of_writing(given: dict[str, Any]) -> dict[str, Any]:
    """The options about how files are written."""
    return {name: given.get(name) for name in ("report", "title", "map", "format")}


def recorded(kind: Kind, paths: str | list[str], typed: dict[str, Any]) -> dict[str, Any] | None:
    """What ``summary.json`` keeps of a command, so that ``onmf edit`` can repeat it: nothing with ``--no-text``."""
    if typed["no_text"]:
        return None
    known, several = options_of(kind), [paths] if isinstance(paths, str) else list(paths)
    options = {
        name: os.fspath(value) if isinstance(value, Path) else value
        for name, value in typed.items()
        if name not in OF_A_CALL and value != known[name].default
    }
    # The working folder of the call, seen from the folder that it wrote: paths are meant from there.
    out, here = Path(os.path.realpath(typed["out"])), Path.cwd().resolve()
    folder = os.path.relpath(here, out) if here.anchor == out.anchor else str(here)
    about = {"name": kind.command, "paths": several, "options": options, "folder": folder}
    return about | {"checksum": checksum_of([*several, *files_of_seeds(kind, options)])}


def files_of_seeds(kind: Kind, options: Mapping[str, Any]) -> list[str]:
    """The file of seeds among the options of a recorded command: it decides on the clusters as the source does."""
    return [options[SEEDS.name]] if SEEDS.name in options and SEEDS.name in options_of(kind) else []


def fit_options(kind: Kind, given: dict[str, Any]) -> tuple[Range, dict[str, Any]]:
    """The numbers to choose from, and the parameters of the fit; refused if they cannot be right."""
    n_clusters, span = given["n_clusters"], Range(*(given[name] for name in Range._fields))
    _check_range(n_clusters, span)
    for name in ("init", "n_init", "refine", "n_consensus") if given.get("quick") else ():
        if given.get(name) is not None:
            fail(f"--quick means one run: leave out --{name.replace('_', '-')}, or --quick.")
    parameters = {name: given[name] for name in FIT if given.get(name) not in (None, False)}
    parameters |= {"beta_loss": given["divergence"], "random_state": given["seed"]}
    parameters |= {} if given["threads"] is None else {"n_threads": given["threads"]}
    check_request(kind, n_clusters, span, parameters)
    check_shares(**{option.name: given[option.name] for option in UNASSIGNED})
    own = {option.name: given[option.name] for option in kind.options}
    if own.get(SEEDS.name) is not None or own.get(KNOWN.name) is not None:
        check_parameters_of_given(parameters)
    kind.check_options(own | {"no_text": given["no_text"]}, given["out"], n_clusters, parameters)
    return span, parameters


def cluster_files(kind: Kind, paths: str | list[str], given: dict[str, Any], step: Callable[..., None]) -> Clusters:
    """Read and cluster."""
    (span, parameters), quiet = fit_options(kind, given), given["quiet"]
    own = {option.name: given[option.name] for option in kind.options}
    if not (quiet or compiled_before()):
        say("the first run compiles its kernels, which can take half a minute. Later runs start at once.")
    step("Reading")
    reading = {option.name: own.pop(option.name) for option in kind.options if option.reading}
    seeds = own.pop(SEEDS.name, None)
    table = kind.read_all(paths, step, force=given["force"], **reading)
    clusters = cluster_table(
        kind,
        without_texts(table, quiet) if given["no_text"] else table,
        given["n_clusters"],
        **span._asdict(),
        **{option.name: given[option.name] for option in UNASSIGNED},
        options=own,
        seeds=seeds,
        announce=lambda line: None if quiet else say(line + (HINT if "vote" in line else "")),
        progress=step,
        **parameters,
    )
    if reading.get("labels") is not None and clusters.comparison is None:
        labels = f"--labels {reading['labels']}"
        warn(f"{labels} gives none of the {kind.rows_of(2)} a class: nothing is compared.", UserWarning)
    return clusters


def without_texts(table: Any, quiet: bool) -> Any:
    """A table without texts and names. What was noted while reading is said, and written nowhere."""
    for note in () if quiet else table.notes:
        say(note)
    return table.without_texts()


def target_folder(kind: Kind, given: dict[str, Any]) -> AbstractContextManager[Path | None]:
    """The folder of ``--out``, or None. Refuse before any work starts, if a package that writing needs is missing."""
    if given["out"] is None:
        return nullcontext()
    check_installed("Writing the files", kind.packages)
    if given.get("report", True):
        check_installed("The report", kind.report_packages, ", or use --no-report" if "report" in given else "")
        if given.get("map") != "none":
            check_installed("The map", kind.map_packages, ", or use --map none")
    return whole_folder(given["out"], force=given["force"], ours=files_of(kind))


def _check_range(n_clusters: int | str, span: Range) -> None:
    """Refuse ``--k-min`` and ``--k-max`` that cannot be right."""
    for name, value in span._asdict().items():
        if value is not None and not isinstance(n_clusters, str):
            flag = f"--{name.replace('_', '-')} {value}"
            fail(f"{flag} is about choosing the number of clusters, but -k {n_clusters} gives it: use -k auto.")
    if span.k_min is not None and span.k_max is not None and span.k_max < span.k_min:
        fail(f"--k-max {span.k_max} is less than --k-min {span.k_min}: nothing is left to choose from.")


def tell_result(clusters: Clusters, given: dict[str, Any], **facts: Any) -> None:
    """Print a result, as JSON or for people, and which files were written into the folder of ``--out``."""
    kind, out = clusters.kind, given["out"]
    if given["as_json"]:
        tell_json(summary(clusters) | {"out": out and str(out), **facts})
    if given["as_json"] or given["quiet"]:
        return
    tell(f"{kind.headline(clusters)}, {so_many(clusters.n_clusters, kind.cluster)}: {clusters.fitted}", *clusters.notes)
    tell("")
    by_cluster = (clusters.confidence[clusters.labels == k] for k in clusters.numbers)
    medians = [float(np.median(sure)) if sure.size else np.nan for sure in by_cluster]
    tell_table(summary(clusters)["clusters"], kind, medians if np.isfinite(medians).any() else None)
    if clusters.comparison is not None:
        tell("", f"Compared with {clusters.comparison.against(kind)}: {clusters.comparison.sentence()}")
    if out is None:
        say("nothing was saved: --out DIR writes tables, a model and a report.")
    else:
        names = sorted(file.name + "/" * file.is_dir() for file in out.iterdir())
        tell("", f"Written to {out}: {', '.join(names)}")


def tell_table(
    rows: list[dict[str, Any]], kind: Kind, sure: list[float] | None = None, shown: tuple[str, ...] | None = None
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
        labels = [f"{row['label']} {row['share']:.0%}" if row["label"] else "" for row in rows]
        columns.append(("mostly", [visible(label) for label in labels]))
    heads = {"distinctive": f"distinctive {kind.feature}s"}
    others = [name for name in shown or kind.shown if name in rows[0]]
    columns += [(heads.get(name, name), [_cell(row[name]) for row in rows]) for name in others]
    tell(*(line.rstrip() for line in aligned([[head, *texts] for head, texts in columns], range(n_right))))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else visible(str(value))
