"""``onmf update``: new rows for the clusters in a folder. They keep their numbers, and what is new becomes new ones."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from onmf.door import update_table
from onmf.door.kind import Kind
from onmf.door.outcome import summary_of_update
from onmf.door.write import write_files
from onmf.naming import listed

from .command import (
    FORCE,
    JSON,
    NO_TEXT,
    QUIET,
    SHARED,
    UNASSIGNED,
    argument,
    of_writing,
    parameter,
    parsed,
    target_folder,
    tell_result,
    with_options,
    without_texts,
)
from .common import fail, tell, working
from .edit import Recorded
from .models import NewData, how_to_read, model_and_kind, reading_options

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a run or of an earlier update, or its model.onmf alone.")
]

UPDATE = """Assign new data to the clusters in a folder, find new clusters in them, and learn from them.

Clusters keep their numbers and names. Rows like none before become new clusters, if there are enough of them. The new
folder has the new rows, a model that has learnt from them for the next update, and update.csv, which says of each
cluster whether it was kept, has grown or shrunk, has changed, is empty, or is new. New data are read with the options
of the run, unless others are given. Only the model of the folder is needed, not what was clustered then.

For example:

onmf update clusters letters-of-june/ --out june

onmf update june letters-of-july/ --out july"""

WRITING = {option.name: option for option in SHARED if option.name in ("out", "format", "report", "title", "map")}
OWN = (
    replace(WRITING["out"], group=""),
    FORCE,
    *(WRITING[name] for name in ("format", "report", "title", "map")),
    NO_TEXT,
    *(replace(option, group="", help=f"{option.help} By default as for the model.") for option in UNASSIGNED),
    QUIET,
    JSON,
)


def update(folder: Path, path: str, **given: Any) -> None:
    """Run ``onmf update``."""
    began = perf_counter()
    if given["out"] is None:
        fail("Name the folder for the result: --out NEW.")
    given |= {option.name: parsed(option, given[option.name]) for option in OWN}
    fitted, kind = model_and_kind(folder / "model.onmf" if folder.is_dir() else folder)
    reading = how_to_read(kind, given | _as_before(folder, kind, given))
    with target_folder(kind, given) as target, working(given["quiet"]) as step:
        assert target is not None
        step("Reading")
        table = kind.read_new(fitted, path, step, **reading)
        table = without_texts(table, given["quiet"]) if given["no_text"] else table
        shares = {option.name: given[option.name] for option in UNASSIGNED}
        found = update_table(fitted, table, kind=kind, progress=step, **shares)
        write_files(found, target, **of_writing(given), progress=step)
    tell_result(found, given, seconds=perf_counter() - began)
    if not (given["quiet"] or given["as_json"]):
        what = (f"{status}: {listed(numbers)}" for status, numbers in summary_of_update(found).items())
        tell("", f"Since the last update: {'; '.join(what)}.")


def _as_before(folder: Path, kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    """How the run of a folder read its data, but for the options that are given now."""
    if not (folder / "summary.json").is_file():
        return {}
    recorded = Recorded(folder).command.get("options", {})
    return {
        name: recorded[name]
        for name, option in kind.predict_options.items()
        if name in recorded and given[name] == option.default and name not in ("labels", "shards")
    }


def add_update() -> None:
    """Add ``onmf update``, with the reading options of all kinds."""
    arguments = [argument("folder", Folder), argument("path", NewData)]
    with_options(update, "update", UPDATE, [*arguments, *map(parameter, (*OWN, *reading_options().values()))])


add_update()
