"""``onmf image``: from a hyperspectral image to a folder with maps, spectra, a model and a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

import onmf
from onmf.image import ImageClustering, cluster_image, predict_image, read_cube
from onmf.image.write import OURS, summary, write_files
from onmf.io.files import whole_folder

from .common import (
    FIT,
    Divergence,
    Force,
    Init,
    Json,
    MaxIter,
    NInit,
    Quiet,
    Seed,
    Smoothing,
    Threads,
    Tol,
    app,
    fail,
    tell,
    tell_json,
    visible,
    warnings_as_sentences,
)
from .documents import _clusters, _divergence

IN, OUT = "Reading", "Output"


@app.command("image")
def image_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="ENVI (header or data), GeoTIFF, MATLAB, npy or npz file.")
    ],
    k: Annotated[str, typer.Option("-k", "--clusters", metavar="NUMBER|auto", help="Number of clusters, or auto.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write maps, spectra, model and report into this folder.", rich_help_panel=OUT
        ),
    ] = None,
    force: Force = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Whether to write report.html.", rich_help_panel=OUT)
    ] = True,
    title: Annotated[str | None, typer.Option("--title", help="Title of the report.", rich_help_panel=OUT)] = None,
    truth: Annotated[
        Path | None,
        typer.Option("--truth", metavar="FILE", help="Compare with endmembers or a label map.", rich_help_panel=IN),
    ] = None,
    negatives: Annotated[
        str,
        typer.Option(
            "--negatives",
            metavar="refuse|clip",
            help="What to do with negative values: refuse the image, or set them to zero.",
            rich_help_panel=IN,
        ),
    ] = "refuse",
    variable: Annotated[
        str | None,
        typer.Option(
            "--variable", metavar="NAME", help="Which variable of a MATLAB or npz file is the cube.", rich_help_panel=IN
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            "--mask", metavar="FILE", help="An image of one band: pixels to use are not 0.", rich_help_panel=IN
        ),
    ] = None,
    ignore: Annotated[
        float | None,
        typer.Option("--ignore", metavar="VALUE", help="Value that marks pixels without data.", rich_help_panel=IN),
    ] = None,
    drop_bands: Annotated[
        str | None,
        typer.Option(
            "--drop-bands",
            metavar="BANDS",
            help="Bands to leave out, counted from 1: 1-3,104-110.",
            rich_help_panel=IN,
        ),
    ] = None,
    keep_bad_bands: Annotated[
        bool, typer.Option("--keep-bad-bands", help="Use the bands that the file marks as bad.", rich_help_panel=IN)
    ] = False,
    blocks: Annotated[
        bool | None,
        typer.Option(
            "--blocks/--in-memory",
            help="Read pixels by blocks, or at once; by default blocks above 512 MB.",
            rich_help_panel=IN,
        ),
    ] = None,
    divergence: Divergence = "kullback-leibler",
    init: Init = "snpa",
    n_init: NInit = 1,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine",
            metavar="local-search",
            help="Move single pixels afterwards, for better clusters (in memory).",
            rich_help_panel=FIT,
        ),
    ] = None,
    max_iter: MaxIter = 100,
    tol: Tol = 1e-6,
    smoothing: Smoothing = 1e-3,
    seed: Seed = None,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cluster the pixels of a hyperspectral image by their spectra.

    Prints the clusters; with --out it also writes the map (GeoTIFF, ENVI), spectra, maps of brightness, residuals and
    margins, figures, model.onmf and report.html, all or none.

    For example:

    onmf image scene.hdr -k 4 --negatives clip --out materials

    onmf image scene.mat --variable Y -k auto --truth endmembers.mat --out materials

    onmf image scene.tif -k 6 --mask land.tif --drop-bands 1-3,104-110 --out materials
    """
    began = perf_counter()
    number = _clusters(k)
    parameters: dict[str, Any] = {
        "beta_loss": _divergence(divergence),
        "init": init,
        "n_init": n_init,
        "refine": refine,
        "max_iter": max_iter,
        "tol": tol,
        "smoothing": smoothing,
        "random_state": seed,
        "n_threads": threads,
    }
    with ExitStack() as stack:
        folder = _new_folder(stack, out, force, report)
        stack.enter_context(warnings_as_sentences(quiet))
        progress = stack.enter_context(passes(quiet))
        cube = read_cube(
            file,
            variable=variable,
            mask=mask,
            drop_bands=None if drop_bands is None else _bands(drop_bands),
            keep_bad_bands=keep_bad_bands,
            ignore_value=ignore,
        )
        found = cluster_image(
            cube,
            number,
            negatives=negatives,  # type: ignore[arg-type]
            truth=truth,
            in_memory=None if blocks is None else not blocks,
            progress=progress,
            **parameters,
        )
        _write(folder, found, report, title, progress)
    _tell(found, out, perf_counter() - began, quiet, as_json)


def map_image(
    model: onmf.ONMF, path: str, out: Path | None, *, force: bool = False, quiet: bool = False, as_json: bool = False
) -> None:
    """``onmf predict`` for an image: its pixels in the clusters of a model, into a folder."""
    began = perf_counter()
    with ExitStack() as stack:
        folder = _new_folder(stack, out, force, True)
        stack.enter_context(warnings_as_sentences(quiet))
        progress = stack.enter_context(passes(quiet))
        found = predict_image(model, Path(path), progress=progress)
        _write(folder, found, True, None, progress)
    _tell(found, out, perf_counter() - began, quiet, as_json)


def _new_folder(stack: ExitStack, out: Path | None, force: bool, report: bool) -> Path | None:
    """The folder to write into, if there shall be one; what is missing is said before the work, not after it."""
    if out is None:
        return None
    if report:
        from onmf.report.page import plotly_script

        plotly_script()
    return stack.enter_context(whole_folder(out, force=force, ours=OURS))


def _write(
    folder: Path | None,
    found: ImageClustering,
    report: bool,
    title: str | None,
    progress: Callable[[str, float], None],
) -> None:
    if folder is None:
        return
    progress("writing", 0.0)
    write_files(found, folder)
    if report:
        from onmf.report import write_image_report

        write_image_report(folder / "report.html", found, title=title)


def _tell(found: ImageClustering, out: Path | None, seconds: float, quiet: bool, as_json: bool) -> None:
    if as_json:
        tell_json(summary(found) | {"out": None if out is None else str(out), "seconds": seconds})
    elif not quiet:
        print_image(found)
        if out is not None:
            tell()
            tell(f"Written to {out}: {', '.join(sorted(file.name for file in out.iterdir() if file.name in OURS))}")


def print_image(found: ImageClustering) -> None:
    """What was found, for people."""
    lines, samples, _ = found.cube.shape
    model, comparison = found.model, found.comparison
    tell(
        f"{lines:,} × {samples:,} pixels, {found.spectra.shape[1]} bands, {len(found.spectra)} clusters; "
        f"{model.n_iter_} iterations, {model.stop_reason_}"
    )
    for note in found.notes:
        tell(note)
    angles: dict[int, float] = {}
    if comparison is not None and comparison.spectra is not None:
        angles = dict(zip(comparison.spectra.permutation.tolist(), comparison.spectra.angles.tolist(), strict=True))
    sizes = found.sizes
    names = list(map(visible, found.names))
    width = max(map(len, [*names, "name"]))
    tell()
    tell(f"value  {'name':{width}}      pixels   share{'   MRSA' if angles else ''}")
    for cluster, (name, size) in enumerate(zip(names, sizes, strict=True)):
        angle = f"  {angles[cluster]:5.2f}" if cluster in angles else ""
        tell(f"{cluster + 1:5}  {name:{width}}  {size:10,}  {size / max(sizes.sum(), 1):6.1%}{angle}")
    if comparison is not None:
        parts = [] if comparison.mrsa is None else [f"MRSA {comparison.mrsa:.2f}"]
        parts += [] if comparison.accuracy is None else [f"accuracy {comparison.accuracy:.1%}"]
        tell()
        tell(f"Beside the truth: {', '.join(parts)}")


@contextmanager
def passes(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """A progress bar for each pass over the pixels, on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<20}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("opening", total=1.0)
        # The clock of a bar stops where it is full.
        yield lambda what, share: bar.update(task, description=what, completed=min(share, 0.999))


def _bands(text: str) -> list[int]:
    """Bands counted from 1, as in ``1-3,104-110``, counted from 0."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal() and 1 <= int(first) <= int(last or first)):
            fail(f"--drop-bands {text}: {part.strip()!r} is no band or range of bands. Write for instance 1-3,104-110.")
        numbers += range(int(first) - 1, int(last or first))
    return numbers
