"""``onmf fetch`` and ``onmf reproduce``: download data sets, and reproduce the paper's tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from onmf.datasets import DownloadError, data_home, list_datasets
from onmf.datasets import fetch as fetch_data
from onmf.datasets.catalogue import members

from .common import PlainGroup, app, checked_folder, command, fail, progress_bar, say

reproduce = typer.Typer(
    cls=PlainGroup, help="Reproduce the paper's tables and figures, and compare every number.", no_args_is_help=True
)
app.add_typer(reproduce, name="reproduce")

Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this data set; can be repeated.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write tables and figures into this folder.")]
Runs = Annotated[
    int, typer.Option("--runs", metavar="NUMBER", min=1, help="Runs of each fit; the median time is reported.")
]


@command("fetch")
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Names of data sets, or 'documents', 'hyperspectral', 'paper' (both, the default), 'cells' or 'all'.",
        ),
    ] = None,
) -> None:
    """Download data sets, the paper's or those of cells, into $ONMF_DATA or the user's cache, and verify them.

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


@command("documents", reproduce)
def documents_command(only: Only = None, out: Out = None, runs: Runs = 1) -> None:
    """Table 1: accuracy, iterations and time on the document sets.

    Example: onmf reproduce documents --only tr11 --only k1b
    """
    _exit(_documents(_names(only, "documents"), checked_folder(out), runs))


@command("images", reproduce)
def images_command(only: Only = None, out: Out = None, runs: Runs = 1) -> None:
    """Table 2 and the figures: spectra and maps of the hyperspectral scenes.

    Example: onmf reproduce images --out results
    """
    _exit(_images(_names(only, "hyperspectral"), checked_folder(out), runs))


@command("all", reproduce)
def all_command(out: Out = None, runs: Runs = 1) -> None:
    """Both tables and all figures.

    Example: onmf reproduce all --out results
    """
    out = checked_folder(out)
    _names(None, None)  # fails if there is no data set at all
    kinds = {info.kind for info in list_datasets() if info.available and info.in_paper}
    agrees = []
    for kind, run in (("documents", _documents), ("hyperspectral", _images)):
        if kind in kinds:
            agrees.append(run(_names(None, kind), out, runs))
        else:
            say(f"No {kind} data set was found in {data_home()}: skipped. Run 'onmf fetch {kind}' to download them.")
    _exit(*agrees)


@command("family", reproduce)
def family_command(only: Only = None, out: Out = None) -> None:
    """Beyond the paper: accuracy and MRSA against β, over the same sets.

    Example: onmf reproduce family --out results
    """
    from onmf.reproduce import plot_family, reproduce_family, write_figure, write_table

    names, out = _names(only, None), checked_folder(out)
    with _progress("family", names) as step:
        report = reproduce_family(names, progress=step)
    _show(report.table())
    if out is not None:
        write_table(out, "family", report.table(), (point.record() for point in report.points))
        write_figure(out, "family", plot_family(report))
        print(f"Written to {out}")


def _documents(names: list[str], out: Path | None, runs: int) -> bool:
    from onmf.reproduce import reproduce_documents, write_table

    with _progress("documents", names) as step:
        report = reproduce_documents(names, runs=runs, progress=step)
    _show(report.table())
    if out is not None:
        write_table(out, "documents", report.table(), (row.record() for row in report.rows))
        print(f"Written to {out}")
    return report.agrees


def _images(names: list[str], out: Path | None, runs: int) -> bool:
    from onmf.reproduce import plot_maps, plot_spectra, reproduce_images, write_figure, write_table

    with _progress("images", names) as step:
        report = reproduce_images(names, runs=runs, progress=step)
    _show(report.table())
    if out is not None:
        write_table(out, "images", report.table(), (row.record() for row in report.rows))
        matched = [row for row in report.rows if row.matches]
        if matched:
            write_figure(out, "spectra", plot_spectra(report))
        for row in matched:
            write_figure(out, f"maps-{row.scene.name}", plot_maps(row))
        print(f"Written to {out}")
    return report.agrees


def _names(only: list[str] | None, kind: str | None) -> list[str]:
    """Names of the data sets to run: those in ``only``, or all of a kind.

    All of ``only`` must be available, or else at least one of the kind.
    """
    known = [info for info in list_datasets() if info.in_paper and kind in (None, info.kind)]
    by_name = {info.name.lower(): info for info in known}
    chosen = []
    for name in only or []:
        info = by_name.get(name.lower())
        if info is None:
            fail(f"--only {name}: there is no such data set. Choose from {', '.join(info.name for info in known)}.")
        elif not info.available:
            fail(f"--only {name}: {info.path} is missing. Run 'onmf fetch {info.name}', or set ONMF_DATA.")
        else:
            chosen.append(info.name)
    if not only:
        if not any(info.available for info in known):
            what = f"{kind} data set" if kind else "data set"
            fail(f"No {what} was found in {data_home()}. Run 'onmf fetch {kind or 'paper'}', or set ONMF_DATA.")
        chosen = [info.name for info in known]
    return chosen


@contextmanager
def _progress(title: str, names: list[str]) -> Iterator[Callable[[str], None]]:
    """Show a progress bar over the data sets; only on a terminal."""
    available = [info.name for info in list_datasets() if info.available and info.name in names]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress_bar(*columns) as bar:
        if bar is None:
            yield lambda name: None
            return
        task = bar.add_task(title, total=len(available))
        done = -1

        def step(name: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, description=f"{title}: {name}", completed=done)

        yield step


def _show(table: Any) -> None:
    """Print a table of results at its full width, so that no number is cut off."""
    rich_table = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(table.columns):
        rich_table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*row)
    console = Console()
    full_width = console.measure(rich_table, options=console.options.update(max_width=1000)).maximum
    console = Console(width=max(console.width, full_width))
    console.print(rich_table)
    for note in table.notes:
        console.print(note, style="dim", highlight=False)
    console.print()


def _exit(*agrees: bool) -> None:
    """Exit with status 1 if a number differs from the paper's."""
    if not all(agrees):
        Console(stderr=True).print("Some numbers differ from the paper's: see the cells marked with ✗.")
        raise typer.Exit(1)
