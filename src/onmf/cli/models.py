"""``onmf predict``, ``onmf show`` and ``onmf rename``: use, print and name the clusters of a model file.

The kind of the model decides how.
"""

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf.door import Clusters, Kind, Option, predict_table
from onmf.door.write import assignments, csv_lines, files_of, records, summary, write_files, write_table
from onmf.io.files import whole_folder
from onmf.kinds import KINDS, get_kind
from onmf.naming import names_of_model, numbers, read_names, rename_clusters, so_many

from .command import (
    FORCE,
    JSON,
    QUIET,
    parameter,
    parsed,
    tell_clusters,
    tell_table,
    tell_written,
    with_options,
)
from .common import (
    check_installed,
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

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")]

ARTICLES = {"image": "of an image", "matrix": "of a matrix", "table": "of a table"}
"""How to say what a model is of, where its kind alone does not read well."""

PREDICT = """Assign new data to the clusters of a model.

Prints a table in CSV with a line for each row: the number and the name of its cluster, how sure that is, and the
runner-up. A row that has none of the model's words or genes gets no cluster. With known classes (--labels), the
clusters are compared with them. An image is mapped into the folder of --out instead.

For example:

onmf predict clusters/model.onmf new-letters/ > assigned.csv

onmf predict clusters/model.onmf new.jsonl --text body --out assigned.parquet

onmf predict materials/model.onmf other.hdr --out other-materials

onmf predict cells/model.onmf new.h5ad --out assigned.csv"""

OWN = (
    Option(
        "out",
        "Write to this .csv or .parquet file; for an image, into this folder.",
        Path | None,
        None,
        "FILE",
        "",
    ),
    FORCE,
    QUIET,
    Option("as_json", "Print one JSON document instead of CSV.", bool, False, None, "", ("--json",)),
    Option(
        "as_lines",
        "Print JSON Lines: one JSON object per line, each as soon as it is known.",
        bool,
        False,
        None,
        "",
        ("--jsonl",),
    ),
)


def reading_options() -> dict[str, Option]:
    """Options of all kinds that are about reading new data, by their names."""
    found: dict[str, Option] = {}
    for name in KINDS:
        kind = get_kind(name)
        found = kind.predict_options | found
    return found


def predict(model: Path, path: str, **given: Any) -> None:
    """Run ``onmf predict``."""
    if given["as_json"] and given["as_lines"]:
        fail("--json prints one JSON document, --jsonl one for each line: use one of them.")
    fitted = onmf.load(model)
    name = fitted.extra_["kind"]
    if name not in KINDS:
        fail(f"{model} is a model of kind {name!r}: this command knows {', '.join(KINDS)}.")
    kind = get_kind(name)
    reading = {}
    for key, option in reading_options().items():
        if key in kind.predict_options:
            reading[key] = parsed(kind.predict_options[key], given[key])
        elif given[key] != option.default:
            fail(f"--{key.replace('_', '-')} means nothing for {kind.rows_of(2)}: leave it out.")
    if kind.assignments:
        _print_table(kind, fitted, path, reading, given)
    else:
        _write_folder(kind, fitted, path, reading, given)


def _assign(kind: Kind, model: onmf.ONMF, path: str, reading: dict[str, Any], step: Any) -> Clusters:
    step("Reading")
    table = kind.read_new(model, path, step, **reading)
    step("Assigning")
    return predict_table(model, table, kind=kind, progress=step)


def _print_table(kind: Kind, model: onmf.ONMF, path: str, reading: dict[str, Any], given: dict[str, Any]) -> None:
    """Print the clusters of the rows, or write them to a file."""
    out, quiet = given["out"], given["quiet"]
    if out is not None:
        if out.suffix not in (".csv", ".parquet"):
            fail(f"--out {out}: the name must end with .csv or .parquet.")
        if out.is_dir():
            fail(f"--out {out} is a folder: name a file.")
        if out.exists() and not given["force"]:
            fail(f"--out {out} exists: name another file, or use --force to replace it.")
        checked_folder(out.parent)
    with warnings_as_sentences(quiet), steps(quiet) as step:
        found = _assign(kind, model, path, reading, step)
    if not quiet:
        for note in found.notes:
            say(note)
        if found.comparison is not None:
            say(f"Compared with {found.comparison.against(kind)}: {found.comparison.sentence()}.")
    if out is not None:
        write_table(out, assignments(found), replace=given["force"])
        if not quiet:
            say(f"Written to {out}.")
    elif given["as_lines"]:
        for row in records(assignments(found)):
            tell_json(row)
    elif given["as_json"]:
        tell_json_list(records(assignments(found)))
    else:
        lines = csv_lines(assignments(found))
        if sys.stdout.isatty():  # files and programs get the names unchanged
            lines = (visible(line[:-1]) + "\n" for line in lines)
        sys.stdout.writelines(lines)


def _write_folder(kind: Kind, model: onmf.ONMF, path: str, reading: dict[str, Any], given: dict[str, Any]) -> None:
    """Map an image into a folder, and print what was found."""
    out, quiet = given["out"], given["quiet"]
    if out is not None:
        check_installed("Writing the files", kind.packages)
        check_installed("The report", kind.report_packages)
    with warnings_as_sentences(quiet), steps(quiet) as step:
        if out is None:
            found = _assign(kind, model, path, reading, step)
        else:
            with whole_folder(out, force=given["force"], ours=files_of(kind)) as folder:
                found = _assign(kind, model, path, reading, step)
                write_files(found, folder, progress=step)
    if given["as_json"]:
        tell_json(summary(found) | {"out": None if out is None else str(out)})
    elif not quiet:
        tell_clusters(found)
        tell_written(out, kind)


def add_predict() -> None:
    """Add ``onmf predict``, with the reading options of all kinds."""
    path = Annotated[
        str, typer.Argument(metavar="PATH", help="New data, in any format that the model could have been fitted on.")
    ]
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [
        inspect.Parameter("model", positional, annotation=ModelFile),
        inspect.Parameter("path", positional, annotation=path),
    ]
    with_options(predict, "predict", PREDICT, [*first, *map(parameter, (*OWN, *reading_options().values()))])


@command("show")
def show(
    model: ModelFile,
    top: Annotated[
        int,
        typer.Option(
            "--top", "--words", min=1, metavar="NUMBER", help="How many words, bands or genes to print per cluster."
        ),
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help=JSON.help)] = False,
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
    tell(f"A model {of}: {so_many(k, kind.cluster)} in {kind.so_many(n)}, described by {so_many(p, kind.feature)}")
    if fitted.stop_reason_ == "batch":
        tell(f"{fitted.n_iter_} batches, objective of the last one {objective:.6g}")
    else:
        tell(f"{so_many(fitted.n_iter_, 'iteration')}, {fitted.stop_reason_}, objective {objective:.6g}")
    created, version = provenance.get("created", "at an unknown time"), provenance.get("onmf", "of unknown version")
    tell(f"Written {created} by onmf {version}")
    tell()
    tell_table(rows, kind, shown=("distinctive",))


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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET.help)] = False,
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
