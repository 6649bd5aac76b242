"""``onmf image``: cluster a hyperspectral image, and write maps, spectra, the model and a report into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

import onmf
from onmf.image import ImageClustering, cluster_image, predict_image, read_cube
from onmf.image.kind import IMAGE
from onmf.image.write import OURS, summary, write_files
from onmf.io.files import whole_folder
from onmf.select import IMAGE_CRITERIA

from .common import (
    check_installed,
    command,
    print_selection,
    progress_bar,
    tell,
    tell_json,
    tell_that_it_compiles,
    tell_written,
    visible,
    warnings_as_sentences,
)
from .options import (
    FIT,
    OUTPUT,
    READING,
    Clusters,
    Criterion,
    Divergence,
    Force,
    Init,
    Json,
    KMax,
    KMin,
    MaxIter,
    NInit,
    Quiet,
    Report,
    Request,
    Seed,
    Smoothing,
    Threads,
    Title,
    Tol,
    parse_bands,
    parse_choice,
    parse_clusters,
    parse_divergence,
)


@command("image")
def image_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="ENVI (header or data), GeoTIFF, MATLAB, npy or npz file.")
    ],
    k: Clusters,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write maps, spectra, model and report into this folder.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    report: Report = True,
    title: Title = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth", metavar="FILE", help="Compare with known endmembers or a label map.", rich_help_panel=READING
        ),
    ] = None,
    negatives: Annotated[
        str,
        typer.Option(
            "--negatives",
            metavar="refuse|clip",
            help="Refuse an image with negative values, or set them to zero.",
            rich_help_panel=READING,
        ),
    ] = "refuse",
    variable: Annotated[
        str | None,
        typer.Option(
            "--variable",
            metavar="NAME",
            help="Variable of a MATLAB or npz file that holds the cube.",
            rich_help_panel=READING,
        ),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            "--mask",
            metavar="FILE",
            help="An image with one band: its nonzero pixels are used.",
            rich_help_panel=READING,
        ),
    ] = None,
    ignore: Annotated[
        float | None,
        typer.Option(
            "--ignore", metavar="VALUE", help="Value that marks pixels without data.", rich_help_panel=READING
        ),
    ] = None,
    drop_bands: Annotated[
        str | None,
        typer.Option(
            "--drop-bands",
            metavar="BANDS",
            help="Bands to leave out, counted from 1, such as 1-3,104-110.",
            rich_help_panel=READING,
        ),
    ] = None,
    keep_bad_bands: Annotated[
        bool,
        typer.Option("--keep-bad-bands", help="Use the bands that the file marks as bad.", rich_help_panel=READING),
    ] = False,
    blocks: Annotated[
        bool | None,
        typer.Option(
            "--blocks/--in-memory",
            help="Read the pixels in blocks, or all at once; by default in blocks above 512 MB.",
            rich_help_panel=READING,
        ),
    ] = None,
    k_min: KMin = None,
    k_max: KMax = None,
    criterion: Criterion = None,
    divergence: Divergence = "kullback-leibler",
    init: Init = "snpa",
    n_init: NInit = 1,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine",
            metavar="local-search",
            help="Improve the clusters afterwards by moving single pixels; not with blocks.",
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

    Prints the clusters. With --out it also writes the map (GeoTIFF, ENVI), spectra, maps of brightness, residuals and
    margins, figures, model.onmf and report.html: all of these files, or none.

    For example:

    onmf image scene.hdr -k 4 --negatives clip --out materials

    onmf image scene.mat --variable Y -k auto --truth endmembers.mat --out materials

    onmf image scene.tif -k 6 --mask land.tif --drop-bands 1-3,104-110 --out materials
    """
    began = perf_counter()
    n_clusters = parse_clusters(k)
    choice = parse_choice(n_clusters, k_min, k_max, criterion, IMAGE_CRITERIA)
    parameters: dict[str, Any] = {
        "beta_loss": parse_divergence(divergence),
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
        tell_that_it_compiles(quiet)
        cube = read_cube(
            file,
            variable=variable,
            mask=mask,
            drop_bands=None if drop_bands is None else parse_bands(drop_bands),
            keep_bad_bands=keep_bad_bands,
            ignore_value=ignore,
        )
        result = cluster_image(
            cube,
            n_clusters,
            negatives=negatives,  # type: ignore[arg-type]
            truth=truth,
            in_memory=None if blocks is None else not blocks,
            progress=progress,
            **choice,
            **parameters,
        )
        _write(folder, result, report, title, progress)
    _tell(result, out, perf_counter() - began, quiet, as_json)


def map_image(model: onmf.ONMF, request: Request) -> None:
    """Run ``onmf predict`` for an image: map its pixels with the clusters of a model, into a folder."""
    began = perf_counter()
    with ExitStack() as stack:
        folder = _new_folder(stack, request.out, request.force, True)
        stack.enter_context(warnings_as_sentences(request.quiet))
        progress = stack.enter_context(passes(request.quiet))
        result = predict_image(model, Path(request.path), progress=progress)
        _write(folder, result, True, None, progress)
    _tell(result, request.out, perf_counter() - began, request.quiet, request.as_json)


def _new_folder(stack: ExitStack, out: Path | None, force: bool, report: bool) -> Path | None:
    """Open the folder of ``--out``, if there is one."""
    if out is None:
        return None
    check_installed("Writing the maps", "rasterio", extras="image")
    if report:
        from onmf.report.image import check_packages

        check_packages()  # fails now, not after the fit
    return stack.enter_context(whole_folder(out, force=force, ours=OURS))


def _write(
    folder: Path | None,
    result: ImageClustering,
    report: bool,
    title: str | None,
    progress: Callable[[str, float], None],
) -> None:
    if folder is None:
        return
    progress("writing", 0.0)
    write_files(result, folder)
    if report:
        from onmf.report import write_image_report

        write_image_report(folder / "report.html", result, title=title)


def _tell(result: ImageClustering, out: Path | None, seconds: float, quiet: bool, as_json: bool) -> None:
    if as_json:
        tell_json(summary(result) | {"out": None if out is None else str(out), "seconds": seconds})
    elif not quiet:
        print_image(result)
        tell_written(out, OURS)


def print_image(result: ImageClustering) -> None:
    """Print the result for people."""
    lines, samples, _ = result.cube.shape
    model, comparison = result.model, result.comparison
    tell(
        f"{lines:,} × {samples:,} pixels, {result.spectra.shape[1]} bands, {len(result.spectra)} clusters; "
        f"{model.n_iter_} iterations, {model.stop_reason_}"
    )
    for note in result.notes:
        tell(note)
    print_selection(result.selection)
    angles: dict[int, float] = {}
    if comparison is not None and comparison.spectra is not None:
        angles = dict(zip(comparison.spectra.permutation.tolist(), comparison.spectra.angles.tolist(), strict=True))
    sizes = result.sizes
    names = list(map(visible, result.names))
    width = max(map(len, [*names, "name"]))
    tell()
    tell(f"cluster  {'name':{width}}      pixels   share{'   MRSA' if angles else ''}")
    for cluster, (name, size) in enumerate(zip(names, sizes, strict=True)):
        angle = f"  {angles[cluster]:5.2f}" if cluster in angles else ""
        tell(f"{cluster + IMAGE.first:7}  {name:{width}}  {size:10,}  {size / max(sizes.sum(), 1):6.1%}{angle}")
    if comparison is not None:
        parts = [] if comparison.mrsa is None else [f"MRSA {comparison.mrsa:.2f}"]
        parts += [] if comparison.scores is None else [comparison.scores.sentence()]
        tell()
        tell(f"Compared with the truth: {', '.join(parts)}")


@contextmanager
def passes(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Show a progress bar for each pass over the pixels; only on a terminal."""
    columns = (TextColumn("{task.description:<20}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with progress_bar(*columns, quiet=quiet) as bar:
        if bar is None:
            yield lambda name, share: None
            return
        task = bar.add_task("opening", total=1.0)
        # A full bar stops its clock, so it never gets quite full.
        yield lambda name, share: bar.update(task, description=name, completed=min(share, 0.999))
