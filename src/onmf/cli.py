"""The command line: arguments in, calls, and results for people. No mathematics."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from onmf._version import __version__
from onmf.datasets import DownloadError, data_home, list_datasets
from onmf.datasets import fetch as fetch_data
from onmf.datasets.catalogue import DOCUMENTS, IMAGES

app = typer.Typer(
    help="Cluster counts: orthogonal nonnegative matrix factorization.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
reproduce = typer.Typer(
    help="Make the paper's tables and figures again, and compare number by number.", no_args_is_help=True
)
app.add_typer(reproduce, name="reproduce")

Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME", help="Run this data set alone; may be repeated.")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write tables and figures into this folder.")]
Runs = Annotated[int, typer.Option("--runs", min=1, help="Runs of each fit; the time is their median.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"onmf {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets, 'documents', 'hyperspectral' or 'all', the default.")
    ] = None,
) -> None:
    """Download the paper's data sets, verified, into $ONMF_DATA or the user's cache.

    Example: onmf fetch tr11 k1b
    """
    groups = {"documents": DOCUMENTS, "hyperspectral": IMAGES, "all": (*DOCUMENTS, *IMAGES)}
    failed = False
    for name in (each for given in names or ["all"] for each in groups.get(given, (given,))):
        try:
            print(*fetch_data(name))
        except DownloadError as error:
            _say(str(error))
            failed = True
    if failed:
        raise typer.Exit(2)


@app.command()
def image(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="ENVI (.hdr or data), GeoTIFF, MATLAB, npy or npz.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write; as a whole or not at all.")],
    clusters: Annotated[
        str, typer.Option("-k", "--clusters", metavar="K", help="Number of clusters, or 'auto'.")
    ] = "auto",
    loss: Annotated[str, typer.Option(help="Divergence: a name, or a number β.")] = "kullback-leibler",
    negatives: Annotated[str, typer.Option(metavar="refuse|clip", help="What to do with negative values.")] = "refuse",
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Endmembers or a label map, to compare with.")
    ] = None,
    variable: Annotated[str | None, typer.Option(help="Variable of a MATLAB or npz file that is the cube.")] = None,
    mask: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Image of one band: pixels to use are not 0.")
    ] = None,
    ignore: Annotated[float | None, typer.Option(metavar="VALUE", help="Value of pixels without data.")] = None,
    drop_bands: Annotated[
        str | None, typer.Option(metavar="BANDS", help="Bands to leave out, counted from 1: 1-3,104-110.")
    ] = None,
    keep_bad_bands: Annotated[
        bool, typer.Option("--keep-bad-bands", help="Use bands that the file marks as bad.")
    ] = False,
    init: Annotated[str, typer.Option(help="Start: snpa, ++, random, random-partition or consensus.")] = "snpa",
    restarts: Annotated[int, typer.Option(min=1, help="Runs from random starts; the best is kept.")] = 1,
    refine: Annotated[bool, typer.Option("--refine", help="Follow with a local search (in memory only).")] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of random starts.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; by default all cores.")] = None,
    blocks: Annotated[
        bool | None,
        typer.Option("--blocks/--in-memory", help="Read by blocks or at once; by default blocks above 512 MB."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder if it is there.")] = False,
) -> None:
    """Cluster the pixels of a hyperspectral image: maps, spectra, a model and a report.

    Example: onmf image scene.hdr -k 4 --negatives clip --out result
    """
    from onmf.image import cluster_image, read_cube
    from onmf.image.write import write_folder

    if out.exists() and not overwrite and (not out.is_dir() or any(out.iterdir())):
        _fail(f"--out {out} is there already: name another folder, or say --overwrite.")
    if not (clusters == "auto" or (clusters.isdigit() and int(clusters) > 0)):
        _fail(f"-k {clusters}: give a number of clusters, at least 1, or 'auto'.")
    cube = read_cube(
        file,
        variable=variable,
        mask=mask,
        drop_bands=None if drop_bands is None else _band_numbers(drop_bands),
        keep_bad_bands=keep_bad_bands,
        ignore_value=ignore,
    )
    with _phases() as progress:
        found = cluster_image(
            cube,
            clusters if clusters == "auto" else int(clusters),
            negatives=negatives,  # type: ignore[arg-type]
            truth=truth,
            in_memory=None if blocks is None else not blocks,
            progress=progress,
            beta_loss=_number_or_name(loss),
            init=init,
            n_init=restarts,
            refine="local-search" if refine else None,
            random_state=seed,
            n_threads=threads,
        )
        progress("writing", 0.0)
        write_folder(found, out, overwrite=overwrite)
    _show_image(found)
    print(f"Written to {out}")


@reproduce.command("documents")
def documents_command(only: Only = None, out: Out = None, runs: Runs = 1) -> None:
    """Table 1: accuracy, iterations and time on the document sets.

    Example: onmf reproduce documents --only tr11 --only k1b
    """
    _exit(_documents(_names(only, "documents"), _folder(out), runs))


@reproduce.command("images")
def images_command(only: Only = None, out: Out = None, runs: Runs = 1) -> None:
    """Table 2 and the figures: spectra and maps of the hyperspectral scenes.

    Example: onmf reproduce images --out results
    """
    _exit(_images(_names(only, "hyperspectral"), _folder(out), runs))


@reproduce.command("all")
def all_command(out: Out = None, runs: Runs = 1) -> None:
    """Both tables and all figures.

    Example: onmf reproduce all --out results
    """
    out = _folder(out)
    _names(None, None)  # at least one set must be there
    kinds = {info.kind for info in list_datasets() if info.available}
    agree = []
    for kind, run in (("documents", _documents), ("hyperspectral", _images)):
        if kind in kinds:
            agree.append(run(_names(None, kind), out, runs))
        else:
            _say(f"No {kind} data set was found in {data_home()}: skipped. Run 'onmf fetch {kind}' to have them.")
    _exit(*agree)


@reproduce.command("family")
def family_command(only: Only = None, out: Out = None) -> None:
    """Beyond the paper: accuracy and MRSA against β, over the same sets.

    Example: onmf reproduce family --out results
    """
    from onmf.reproduce import plot_family, reproduce_family, write_figure, write_table

    names, out = _names(only, None), _folder(out)
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
        drawn = [row for row in report.rows if row.matches]
        if drawn:
            write_figure(out, "spectra", plot_spectra(report))
        for row in drawn:
            write_figure(out, f"maps-{row.scene.name}", plot_maps(row))
        print(f"Written to {out}")
    return report.agrees


def _names(only: list[str] | None, kind: str | None) -> list[str]:
    """The data sets to run: those asked for, which must be there, or all of the kind, of which one must be."""
    known = [info for info in list_datasets() if kind in (None, info.kind)]
    by_name = {info.name.lower(): info for info in known}
    chosen = []
    for name in only or []:
        info = by_name.get(name.lower())
        if info is None:
            _fail(f"--only {name}: no such data set. Choose from {', '.join(info.name for info in known)}.")
        elif not info.available:
            _fail(f"--only {name}: {info.path} is missing. Run 'onmf fetch {info.name}', or set ONMF_DATA.")
        else:
            chosen.append(info.name)
    if not only:
        if not any(info.available for info in known):
            what = f"{kind} data set" if kind else "data set"
            _fail(f"No {what} was found in {data_home()}. Run 'onmf fetch {kind or 'all'}', or set ONMF_DATA.")
        chosen = [info.name for info in known]
    return chosen


@contextmanager
def _progress(title: str, names: list[str]) -> Iterator[Callable[[str], None]]:
    """A progress bar over the data sets, on a terminal."""
    console = Console(stderr=True)
    available = [info.name for info in list_datasets() if info.available and info.name in names]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=len(available))
        done = -1

        def step(name: str) -> None:
            nonlocal done
            done += 1
            bar.update(task, description=f"{title}: {name}", completed=done)

        yield step


@contextmanager
def _phases() -> Iterator[Callable[[str, float], None]]:
    """A progress bar that starts again for each thing that is done, on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)

        def step(what: str, share: float) -> None:
            bar.update(task, description=what, completed=share)

        yield step


def _band_numbers(text: str) -> list[int]:
    """Bands counted from 1, as in ``1-3,104-110``, counted from 0."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()) or int(first) < 1 or int(last or first) < int(first):
            _fail(
                f"--drop-bands {text}: {part.strip()!r} is no band or range of bands. Write for instance 1-3,104-110."
            )
        numbers += range(int(first) - 1, int(last or first))
    return numbers


def _number_or_name(text: str) -> str | float:
    """A β as a number, or the name of a divergence."""
    try:
        return float(text)
    except ValueError:
        return text


def _show_image(found: Any) -> None:
    """The clusters of an image on the terminal, and what one should know about them."""
    angles = {}
    if found.comparison is not None and found.comparison.spectra is not None:
        match = found.comparison.spectra
        angles = dict(zip(match.permutation.tolist(), match.angles.tolist(), strict=True))
    shown = RichTable(
        title=f"{found.cube.name}: {len(found.names)} clusters", title_justify="left", box=None, pad_edge=False
    )
    for column in ("value in the map", "name", "pixels", "share", *(["MRSA"] if angles else [])):
        shown.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    sizes = found.sizes
    for k, name in enumerate(found.names):
        cells = [str(k + 1), name, f"{sizes[k]:,}", f"{sizes[k] / max(sizes.sum(), 1):.1%}"]
        shown.add_row(*cells, *([f"{angles[k]:.2f}" if k in angles else ""] if angles else []))
    console = Console()
    console.print(shown)
    if found.comparison is not None:
        if found.comparison.mrsa is not None:
            console.print(f"MRSA {found.comparison.mrsa:.2f} (0 to 100, lower is better)", highlight=False)
        if found.comparison.accuracy is not None:
            console.print(f"accuracy {found.comparison.accuracy:.1%}", highlight=False)
    for note in found.notes:
        console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)


def _folder(out: Path | None) -> Path | None:
    """The folder of ``--out``, made before any work is done."""
    if out is None:
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        _fail(f"--out {out}: nothing can be written there ({error.strerror}). Name another folder.")
    return out


def _show(table: Any) -> None:
    """A table of results on the terminal, at its own width: a number is never cut."""
    shown = RichTable(title=table.title, title_justify="left", box=None, pad_edge=False)
    for i, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if i else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console = Console()
    natural = console.measure(shown, options=console.options.update(max_width=1000)).maximum
    console = Console(width=max(console.width, natural))
    console.print(shown)
    for note in table.notes:
        console.print(note, style="dim", highlight=False)
    console.print()


def _exit(*agree: bool) -> None:
    """End with status 1 where a number that can be compared differs from the paper's."""
    if not all(agree):
        Console(stderr=True).print("Some numbers differ from the paper's: see the cells marked ✗.")
        raise typer.Exit(1)


def _fail(message: str) -> None:
    _say(message)
    raise typer.Exit(2)


def _say(message: str) -> None:
    Console(stderr=True).print(f"onmf: {message}", highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Run the command line; errors that a user can mend are sentences, not tracebacks."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        _say(str(error))
        raise SystemExit(2) from None
