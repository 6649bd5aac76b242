"""``onmf edit``: apply edits to the clusters in a folder, and write the whole folder again, report included.

The source is read and clustered again as the run recorded it. That gives the clusters of the run to the last bit, with
everything that a folder does not hold, such as the texts of the report; then the edits follow, those of earlier calls
first.
"""

import os
import re
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

import onmf
from onmf._version import __version__
from onmf.door.edits import EDITS, Edit, Numbering, read_edits
from onmf.door.kind import Kind
from onmf.door.write import write_files
from onmf.io.files import checksum_of
from onmf.io.limits import read_small
from onmf.io.model_file import parse_json
from onmf.io.rules import NULL, STRING, check, either, json_object, of_type, require, strings
from onmf.kinds import KINDS, get_kind
from onmf.naming import names_of_model

from .command import (
    FORCE,
    JSON,
    QUIET,
    cluster_files,
    files_of_seeds,
    of_writing,
    options_of,
    parsed,
    target_folder,
    tell_result,
)
from .common import command, fail, working

SUMMARY_MEGABYTES = 256
COMMAND = json_object(
    {
        "name": STRING,
        "paths": strings(),
        "options": of_type(dict, "a JSON object"),
        "folder": STRING,
        "checksum": either(NULL, STRING),
    }
)


@command("edit")
def edit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run, which has its summary.json.")],
    edits: Annotated[
        Path | None, typer.Argument(metavar="EDITS", help="A file edits.json, such as the report writes.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="NEW", help="Write the files into this folder.")] = None,
    merge: Annotated[
        list[str] | None, typer.Option(metavar="A+B", help="Merge clusters, such as 3+8. The smallest number stays.")
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="CLUSTER:PARTS", help="Split a cluster, such as 5:3. The largest part keeps the number."),
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar='CLUSTER="NAME"', help="Give a cluster another name.")
    ] = None,
    set_aside: Annotated[
        list[str] | None, typer.Option(metavar="CLUSTER", help="Leave the rows of a cluster unassigned.")
    ] = None,
    merge_to: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="Merge similar clusters until so many are left."),
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="What was clustered, if it is no longer where it was.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help=FORCE.help)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help=QUIET.help)] = False,
    as_json: Annotated[bool, typer.Option("--json", help=JSON.help)] = False,
) -> None:
    """Merge, split, rename and set aside clusters, and write the whole folder again, report and model included.

    The edits of the file come first, then merges, splits, new names and what is set aside, then --merge-to. Numbers are
    those of the folder, and clusters that are not edited keep theirs. The new model predicts with the edits. The source
    is read and clustered again as before, so this takes as long as the run did.

    For example:

    onmf edit clusters edits.json --out curated

    onmf edit clusters --merge 3+8 --split 5:3 --rename 2="space" --set-aside 9 --out curated
    """
    began = perf_counter()
    given = _parse("--merge", merge, r"\d+(\+\d+)+", "3+8", lambda text: {"merge": list(map(int, text.split("+")))})
    given += _parse("--split", split, r"\d+:\d+", "5:3", _as_split)
    given += _parse("--rename", rename, r"\d+=.*", '2="space"', lambda text: {"rename": dict([text.split("=", 1)])})
    given += _parse("--set-aside", set_aside, r"\d+", "9", lambda text: {"set aside": [int(text)]})
    if out is None:
        fail("Name the folder for the result: --out NEW.")
    if edits is None and not given and merge_to is None:
        fail("There is nothing to edit: name a file of edits, or use --merge, --split, --rename or --set-aside.")
    run = Recorded(folder)
    if edits is not None:
        made_for, listed = read_edits(edits, run.kind.name)
        if made_for != run.run:
            fail(f"{edits} was made for another result than {folder}: for the run {made_for}, and this is {run.run}.")
        given = listed + given
    given = run.renamed() + given
    numbering = Numbering(list(run.names), run.kind.first)
    for number, each in enumerate(given, 1):
        numbering.apply(each, number)
    left = len(numbering.there())
    require(merge_to is None or merge_to <= left, f"--merge-to {merge_to}: only {left} clusters are there.")
    paths, work = run.source(source)
    with chdir(work):
        options = run.options() | {"out": out.absolute(), "force": force, "quiet": quiet, "as_json": as_json}
    with chdir(work), target_folder(run.kind, options) as target, working(quiet) as step:
        assert target is not None
        original = cluster_files(run.kind, paths, options, step)
        if original.run_id != run.original:
            fail(
                f"The source gives other clusters than those of {folder}: it changed since, or onmf {__version__} "
                f"clusters otherwise than {run.summary['onmf']}, which wrote them. Cluster it again."
            )
        found = original.edit(run.earlier + given, progress=step)
        found = found if merge_to is None else found.merge_to(merge_to)
        folder_of_paths = os.path.relpath(work, out.absolute()) if work.anchor == out.absolute().anchor else str(work)
        found.command = run.command | {"paths": paths, "folder": folder_of_paths}
        write_files(found, target, **of_writing(options), progress=step)
    tell_result(found, options | {"out": out}, seconds=perf_counter() - began)


def _parse(flag: str, values: list[str] | None, pattern: str, example: str, make: Callable[[str], Edit]) -> list[Edit]:
    """The edits that an option stands for."""
    for value in values or ():
        if re.fullmatch(pattern, value, re.ASCII | re.DOTALL) is None:
            fail(f"{flag} {value} is not understood: write it like {flag} {example}.")
    return [make(value) for value in values or ()]


def _as_split(text: str) -> Edit:
    cluster, parts = map(int, text.split(":"))
    return {"split": cluster, "into": parts}


class Recorded:
    """What a folder says of the run that wrote it."""

    def __init__(self, folder: Path) -> None:
        self.folder, path = folder, folder / "summary.json"
        if not path.is_file():
            fail(f"{folder} has no summary.json: name a folder that onmf wrote, such as with --out.")
        try:
            self.summary = parse_json(read_small(path, SUMMARY_MEGABYTES, "a summary is short").encode())
            require(isinstance(self.summary, dict), "it is no JSON object")
            rules = {"onmf": STRING, "kind": STRING, "run": STRING, "clusters": of_type(list, "a list")}
            check(rules | {"command": either(NULL, COMMAND)}, self.summary)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not the summary of a run that can be edited: {error}.") from error
        if self.summary["kind"] not in KINDS:
            fail(f"{folder} is of kind {self.summary['kind']!r}: this command knows {', '.join(KINDS)}.")
        self.kind: Kind = get_kind(self.summary["kind"])
        self.run: str = self.summary["run"]
        self.original, self.earlier = self.run, list[Edit]()
        if (folder / EDITS).exists():
            self.original, self.earlier = read_edits(folder / EDITS, self.kind.name)
        self.command: dict[str, Any] = self.summary["command"] or {}
        self.names = names_of_model(onmf.load(folder / "model.onmf"))

    def renamed(self) -> list[Edit]:
        """The names that ``onmf rename`` gave since the folder was written."""
        shown = {str(row["cluster"]): row["name"] for row in self.summary["clusters"]}
        names = {str(number): name for number, name in enumerate(self.names, self.kind.first) if name}
        changes = {number: name for number, name in names.items() if shown.get(number) != name}
        return [{"rename": changes}] if changes else []

    def options(self) -> dict[str, Any]:
        """The options of the command, as it was called."""
        known, options = options_of(self.kind), {}
        for name in self.command["options"]:
            require(name in known, f"{self.folder} was written with an option {name!r} that this onmf does not know.")
        for name, option in known.items():
            value = self.command["options"].get(name, option.default)
            options[name] = parsed(option, Path(value) if option.is_path and value is not None else value)
        return options

    def source(self, given: list[str] | None) -> tuple[list[str], Path]:
        """The paths of the source, which must not have changed, and the folder from which they are meant."""
        require(
            self.command,
            f"{self.folder} does not say how to cluster again: it was written from Python, by another command, or with "
            "--no-text. Use the result in Python.",
        )
        work = (self.folder.absolute() / self.command["folder"]).resolve()
        named = self.command["paths"] if given is None else [os.path.abspath(path) for path in given]
        work = work if work.is_dir() else Path.cwd()
        with chdir(work):
            missing = [path for path in named if not os.path.exists(path)]
            if "-" in named:
                raise ValueError(
                    "Standard input was clustered, which is gone: save it as a file, and name that with --source PATH."
                )
            if missing:
                raise ValueError(
                    f"{missing[0]}, which was clustered, is not there any more: name it with --source PATH."
                )
            read = [*named, *files_of_seeds(self.kind, self.command["options"])]
            if self.command["checksum"] not in (None, checksum_of(read)):
                raise ValueError(
                    f"{', '.join(read)} changed since the run of {self.folder} read it: its checksum differs. Name "
                    "what was clustered then with --source PATH, or cluster again."
                )
        return named, work
