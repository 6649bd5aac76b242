"""``onmf fetch`` and ``onmf reproduce``: download data sets, and reproduce the paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from onmf.datasets import DownloadError
from onmf.datasets import fetch as fetch_data
from onmf.datasets.load import members

from .common import aligned, check_folder, command, fail, say, working


@command("fetch")
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Names of data sets, or 'documents', 'hyperspectral' or 'paper' (both, the default)."
        ),
    ] = None,
) -> None:
    """Download the paper's data sets into $ONMF_DATA or the user's cache, and verify them.

    Example: onmf fetch tr11 k1b
    """
    failed = False
    for name in (member for group in names or ["paper"] for member in members(group)):
        try:
            print(*fetch_data(name))
        except DownloadError as error:
            say(str(error))
            failed = True
    if failed:
        raise typer.Exit(2)


@command("reproduce")
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="'documents' (Table 1: accuracy, iterations and time), 'images' (Table 2 and the figures: spectra and "
            "maps of the scenes), 'all' (both), or 'family' (beyond the paper: accuracy and MRSA against β).",
        ),
    ],
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this data set; can be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables and figures into this folder.")
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", metavar="NUMBER", min=1, help="Runs of each fit; the median time is reported.")
    ] = 1,
) -> None:
    """Reproduce the paper's tables and figures, and compare every number.

    Example: onmf reproduce documents --only tr11 --only k1b
    """
    from onmf import reproduce as paper

    if what not in ("documents", "images", "all", "family"):
        fail(f"{what!r} is not a table: choose documents, images, all or family.")
    if out is not None:
        check_folder(out)
    tables = []
    for name in ("documents", "images") if what == "all" else (what,):
        make = getattr(paper, f"reproduce_{name}")
        options = {} if name == "family" else {"runs": runs}
        try:
            with working(quiet=False) as step:
                table = make(only, progress=lambda text, share, name=name: step(f"{name}: {text}", share), **options)
        except FileNotFoundError as error:
            say(str(error))
            continue
        tables.append(table)
        lines = aligned(zip(table.columns, *table.rows, strict=True), range(1, len(table.columns)))
        print(table.title, *lines, *table.notes, "", sep="\n")  # at its full width, so that no number is cut off
        if out is not None:
            from onmf.reproduce.figures import write_figures

            table.write(out)
            write_figures(out, table)
            print(f"Written to {out}")
    if not tables:
        raise typer.Exit(2)
    if not all(table.agrees for table in tables):
        say("some numbers differ from the paper's: see the cells marked with ✗.")
        raise typer.Exit(1)
