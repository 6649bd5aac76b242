"""``onmf predict``, ``onmf show`` and ``onmf rename``: use, print and name the clusters of a model file.

The kind of the model decides how.
"""

import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import onmf
from onmf.confidence import CONFIDENCE
from onmf.door import Clusters, Option, predict_table
from onmf.door.kind import Kind
from onmf.door.write import assignments, csv_lines, records, write_files, write_table
from onmf.kinds import KINDS, get_kind
from onmf.naming import names_of_model, read_names, rename_clusters, so_many

from .command import (
    FORCE,
    JSON,
    NO_TEXT,
    QUIET,
    UNASSIGNED,
    argument,
    parameter,
    parsed,
    target_folder,
    tell_result,
    tell_table,
    with_options,
    without_texts,
)
from .common import check_folder, command, fail, say, tell, tell_json, tell_json_list, visible, working

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, such as DIR/model.onmf.")]
NewData = Annotated[
    str, typer.Argument(metavar="PATH", help="New data, in any format that the model could have been fitted on.")
]

ARTICLES = {"image": "of an image", "matrix": "of a matrix", "table": "of a table"}
"""How to say what a model is of, where its kind alone does not read well."""

PREDICT = f"""Assign new data to the clusters of a model.

Prints a table in CSV with a line for each row: the number and the name of its cluster, the confidence, the runner-up,
and how unusual the row is. The confidence is {CONFIDENCE}. A row that has none of the model's words or genes gets no
cluster. With --top 3, the three most likely clusters follow, with their probabilities. With known classes (--labels),
the clusters are compared with them. An image is mapped into the folder of --out instead.

For example:

onmf predict clusters/model.onmf new-letters/ > assigned.csv

onmf predict clusters/model.onmf new.jsonl --text body --out assigned.parquet

onmf predict materials/model.onmf other.hdr --out other-materials

onmf predict cells/model.onmf new.h5ad --out assigned.csv"""

OWN = (
    Option(
        "out", "Write to this .csv or .parquet file; for an image, into this folder.", Path | None, None, "FILE", ""
    ),
    FORCE,
    Option(
        "top",
        "Add this many most likely clusters of each row, and their probabilities.",
        *(int | None, None, "NUMBER", ""),
        least=1,
    ),
    replace(NO_TEXT, group=""),
    *(replace(option, group="", help=f"{option.help} By default as for the model.") for option in UNASSIGNED),
    Option(
        "estimate_groups",
        "Estimate the factors of groups that the model does not know, from their rows. By default they are 1.",
        bool,
        False,
        group="",
    ),
    QUIET,
    replace(JSON, help="Print one JSON document instead of CSV."),
    replace(
        JSON,
        name="as_lines",
        help="Print JSON Lines: one JSON object per line, each as soon as it is known.",
        flags=("--jsonl",),
    ),
)


def reading_options() -> dict[str, Option]:
    """Options of all kinds that are about reading new data, by their names."""
    return reduce(lambda found, name: get_kind(name).predict_options | found, KINDS, {})


def model_and_kind(path: Path) -> tuple[onmf.ONMF, Kind]:
    """Load a model, and find its kind."""
    fitted = onmf.load(path)
    name = fitted.extra_["kind"]
    if name not in KINDS:
        fail(f"{path} is a model of kind {name!r}: this command knows {', '.join(KINDS)}.")
    return fitted, get_kind(name)


def how_to_read(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    """The options about reading new data; those of other kinds are refused."""
    for name, option in reading_options().items():
        if name not in kind.predict_options and given[name] != option.default:
            fail(f"{option.flag} means nothing for {kind.rows_of(2)}: leave it out.")
    return {name: parsed(option, given[name]) for name, option in kind.predict_options.items()}


def predict(model: Path, path: str, **given: Any) -> None:
    """Run ``onmf predict``."""
    if given["as_json"] and given["as_lines"]:
        fail("--json prints one JSON document, --jsonl one for each line: use one of them.")
    fitted, kind = model_and_kind(model)
    reading = how_to_read(kind, given)
    if given["out"] is not None and kind.assignments:
        _check_file(given["out"], given["force"])
    target = nullcontext() if kind.assignments else target_folder(kind, given)
    with target as folder, working(given["quiet"]) as step:
        step("Reading")
        table = kind.read_new(fitted, path, step, **reading)
        table = without_texts(table, given["quiet"]) if given["no_text"] else table
        step("Assigning")
        shares = {option.name: given[option.name] for option in UNASSIGNED}
        found = predict_table(
            fitted, table, kind=kind, estimate_groups=given["estimate_groups"], **shares, progress=step
        )
        if folder is not None:
            write_files(found, folder, progress=step)
            if given["top"] is not None:
                kind.write_most_likely(found, folder, given["top"])
    if kind.assignments:
        _tell_rows(found, given)
    else:
        tell_result(found, given)


def _check_file(out: Path, force: bool) -> None:
    """Refuse a file that cannot be written, before any work starts."""
    for wrong, message in (
        (out.suffix not in (".csv", ".parquet"), ": the name must end with .csv or .parquet."),
        (out.is_dir(), " is a folder: name a file."),
        (out.exists() and not force, " exists: name another file, or use --force to replace it."),
    ):
        if wrong:
            fail(f"--out {out}{message}")
    check_folder(out.parent)


def _tell_rows(found: Clusters, given: dict[str, Any]) -> None:
    """Print the clusters of the rows, or write them to a file."""
    parts, notes = assignments(found, given["top"]), found.notes
    if found.comparison is not None:
        notes = [*notes, f"Compared with {found.comparison.against(found.kind)}: {found.comparison.sentence()}."]
    for note in () if given["quiet"] else notes:
        say(note)
    if given["out"] is not None:
        write_table(given["out"], parts, replace=given["force"])
        if not given["quiet"]:
            say(f"Written to {given['out']}.")
    elif given["as_lines"]:
        for row in records(parts):
            tell_json(row)
    elif given["as_json"]:
        tell_json_list(records(parts))
    elif sys.stdout.isatty():
        sys.stdout.writelines(visible(line[:-1]) + "\n" for line in csv_lines(parts))
    else:  # files and programs get the names unchanged
        sys.stdout.writelines(csv_lines(parts))


def add_predict() -> None:
    """Add ``onmf predict``, with the reading options of all kinds."""
    arguments = [argument("model", ModelFile), argument("path", NewData)]
    with_options(predict, "predict", PREDICT, [*arguments, *map(parameter, (*OWN, *reading_options().values()))])


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
    kind, numbers = get_kind(extra["kind"]), fitted.clustering_.numbers
    k, names, distinctive = len(numbers), names_of_model(fitted), kind.distinctive(fitted, top)
    columns = {
        "cluster": (numbers + kind.first).tolist(),
        "name": [names[number] for number in numbers],
        "size": [int(np.count_nonzero(fitted.labels_ == number)) for number in numbers],
        "distinctive": [distinctive[number] for number in numbers],
    }
    rows = list(records([columns]))
    n, p, objective = len(fitted.labels_), fitted.n_features_in_, fitted.clustering_.objective
    if as_json:
        facts = {"kind": extra["kind"], "n_rows": n, "n_features": p, "n_iter": int(fitted.n_iter_)}
        facts |= {"objective": objective, "stop_reason": fitted.stop_reason_}
        tell_json(facts | {"provenance": provenance, "clusters": rows})
        return
    of = ARTICLES.get(extra["kind"], f"of {extra['kind']}")
    tell(f"A model {of}: {so_many(k, kind.cluster)} in {kind.so_many(n)}, described by {so_many(p, kind.feature)}")
    done = f"{so_many(fitted.n_iter_, 'iteration')}, {fitted.stop_reason_}, objective"
    if fitted.stop_reason_ == "batch":
        done = f"{fitted.n_iter_} batches, objective of the last one"
    created, version = provenance.get("created", "at an unknown time"), provenance.get("onmf", "of unknown version")
    tell(f"{done} {objective:.6g}", f"Written {created} by onmf {version}", "")
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
    names = rename_clusters(model, read_names(table) if table is not None else {cluster or 0: name or ""})
    if not quiet:
        numbered = enumerate(names, get_kind(onmf.load(model).extra_["kind"]).first)
        tell(*(f"{number:7}  {new}" for number, new in numbered if new))


add_predict()
