"""``onmf cells``: cluster cells by their molecules, and write tables, markers, the model and a report into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import typer
from scipy.sparse import diags_array

import onmf
from onmf.cells import CellClustering, Cells, check_counts, cluster_cells, read_cells
from onmf.cells.genes import N_TOP_GENES, columns_of
from onmf.cells.predict import CellAssignment, predict_cells
from onmf.cells.write import OURS, summary, write_files
from onmf.io.files import whole_folder

from .common import (
    check_installed,
    command,
    fail,
    print_selection,
    steps,
    tell,
    tell_json,
    tell_that_it_compiles,
    tell_written,
    visible,
    warnings_as_sentences,
)
from .models import Table, predict_table
from .options import (
    FIT,
    OUTPUT,
    READING,
    SMOOTHING,
    Clusters,
    Divergence,
    Force,
    Json,
    Orientation,
    Quiet,
    Report,
    Request,
    Seed,
    Threads,
    Title,
    Tol,
    parse_clusters,
    parse_divergence,
)


@command("cells")
def cells_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Counts of cells: .h5ad, 10x Genomics .h5 or folder, .loom, csv, tsv, mtx, npz or .zarr.",
        ),
    ],
    k: Clusters,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write assignments, markers, the model, cells.h5ad and report into this folder.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Force = False,
    report: Report = True,
    title: Title = None,
    layer: Annotated[
        str | None,
        typer.Option("--layer", metavar="NAME", help="Layer that holds the counts, or raw.", rich_help_panel=READING),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="COLUMN",
            help="Compare the clusters with known classes: a column of the cells, or FILE.csv:COLUMN.",
            rich_help_panel=READING,
        ),
    ] = None,
    orientation: Orientation = None,
    genes: Annotated[
        str,
        typer.Option(
            "--genes",
            metavar="NUMBER|all",
            help="Number of genes to cluster by, those of the highest deviance.",
            rich_help_panel=FIT,
        ),
    ] = str(N_TOP_GENES),
    min_cells: Annotated[
        int,
        typer.Option(
            "--min-cells", metavar="NUMBER", min=1, help="Ignore genes that fewer cells have.", rich_help_panel=FIT
        ),
    ] = 1,
    min_genes: Annotated[
        int,
        typer.Option(
            "--min-genes", metavar="NUMBER", min=1, help="Leave out cells that have fewer genes.", rich_help_panel=FIT
        ),
    ] = 1,
    view: Annotated[
        str,
        typer.Option(
            "--view",
            metavar="auto|counts|logs",
            help="Cluster the counts or their normalised logarithms; auto tries both, or takes the counts "
            "if --divergence is not kullback-leibler.",
            rich_help_panel=FIT,
        ),
    ] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="One start instead of two.", rich_help_panel=FIT)] = False,
    divergence: Divergence = "kullback-leibler",
    init: Annotated[
        str | None,
        typer.Option(
            "--init",
            metavar="NAME",
            help="How the first clusters are found: snpa, ++, random, random-partition, bisection (the default) or "
            "consensus.",
            rich_help_panel=FIT,
        ),
    ] = None,
    n_init: Annotated[
        int | None,
        typer.Option(
            "--n-init",
            metavar="NUMBER",
            min=1,
            help="Number of random starts, 2 by default. The run with the lowest objective is kept.",
            rich_help_panel=FIT,
        ),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(
            "--max-iter", metavar="NUMBER", min=1, help="Stop a run after this many iterations.", rich_help_panel=FIT
        ),
    ] = None,
    tol: Tol = 1e-6,
    smoothing: Annotated[float | None, SMOOTHING] = None,
    seed: Seed = 0,
    threads: Threads = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Cluster cells by their counts of molecules.

    Prints the clusters and their marker genes. With --out it also writes assignments.csv, markers.csv, model.onmf,
    cells.h5ad (the input with the results, for scanpy), summary.json and report.html: all of these files, or none.

    For example:

    onmf cells pbmc.h5ad -k 10 --out clusters

    onmf cells filtered_feature_bc_matrix/ -k auto --out clusters

    onmf cells counts.csv.gz -k 8 --labels annotation.csv:cell_type --out clusters
    """
    began = perf_counter()
    if quick and n_init is not None:
        fail("--quick means one start: leave out --n-init, or --quick.")
    given = {"init": init, "n_init": 1 if quick else n_init, "max_iter": max_iter, "smoothing": smoothing}
    parameters: dict[str, Any] = {
        "beta_loss": parse_divergence(divergence),
        "tol": tol,
        "random_state": seed,
        "n_threads": threads,
    } | {name: value for name, value in given.items() if value is not None}
    n_clusters, n_top_genes = parse_clusters(k), _parse_genes(genes)
    with ExitStack() as stack:
        folder = _new_folder(stack, out, force, report)
        stack.enter_context(warnings_as_sentences(quiet))
        step = stack.enter_context(steps(quiet))
        tell_that_it_compiles(quiet)
        step("Reading")
        cells = read_cells(path, layer=layer, labels=labels, orientation=orientation)
        cells.notes += check_counts(cells)
        result = cluster_cells(
            cells,
            n_clusters,
            n_top_genes=n_top_genes,
            min_genes=min_genes,
            min_cells=min_cells,
            view=view,
            progress=lambda name, share: step(name.capitalize(), share),
            **parameters,
        )
        if folder is not None:
            _write(folder, result, cells, report, title, threads, step)
    _tell(result, out, perf_counter() - began, quiet, as_json)


def predict_new_cells(model: onmf.ONMF, request: Request) -> None:
    """Run ``onmf predict`` for cells: assign them to the clusters of a model. Genes are matched by name."""

    def assign() -> Table:
        with steps(request.quiet) as step:
            step("Reading")
            cells = read_cells(
                request.path, layer=request.layer, labels=request.labels, orientation=request.orientation
            )
            cells.notes += check_counts(cells)
            step("Assigning")
            result = predict_cells(model, cells)
        columns = ["cell", "cluster", "name", "confidence", "runner_up", "margin"]
        if cells.classes is not None:
            columns.append("label")
        return Table(_rows(cells, result), columns, [*cells.notes, *result.notes])

    predict_table(request, assign)


def _rows(cells: Cells, result: CellAssignment) -> Iterator[dict[str, Any]]:
    for i, barcode in enumerate(cells.barcodes):
        own, following = int(result.labels[i]), int(result.runners_up[i])
        row: dict[str, Any] = {"cell": barcode, "cluster": None}
        if own >= 0:
            row |= {
                "cluster": own,
                "name": result.names[own],
                "confidence": round(float(result.confidence[i]), 4),
                "runner_up": following if following >= 0 else None,
                "margin": float(f"{result.margins[i]:.4g}"),
            }
        yield row | {"label": cells.classes[i]} if cells.classes is not None else row


def _parse_genes(value: str) -> int | None:
    """Parse ``--genes``: a number, or ``"all"``."""
    if value == "all":
        return None
    if not value.isdecimal() or int(value) < 1:
        fail(f"--genes {value} is not a number of genes: use a whole number, at least 1, or all.")
    return int(value)


def _new_folder(stack: ExitStack, out: Path | None, force: bool, report: bool) -> Path | None:
    if out is None:
        return None
    check_installed("Writing cells.h5ad", "anndata", extras="cells", otherwise=", or leave out --out")
    if report:
        check_installed("The report", "jinja2", "openTSNE", extras="cells,report", otherwise=", or use --no-report")
    return stack.enter_context(whole_folder(out, force=force, ours=OURS))


def _write(
    folder: Path,
    result: CellClustering,
    cells: Cells,
    report: bool,
    title: str | None,
    threads: int | None,
    step: Callable[..., None],
) -> None:
    if report:
        from onmf.cells.embed import map_of_cells
        from onmf.report import write_cells_report

        inside = diags_array(result.labels >= 0, dtype=np.int32)  # cells that were left out are not on the map
        counts = inside @ columns_of(cells.X, result.genes)
        result.embedding, result.map_method = map_of_cells(
            counts, n_threads=threads, progress=lambda name, share: step(f"Drawing: {name}", share)
        )
        step("Writing the report")
        write_cells_report(folder / "report.html", result, title=title)
    step("Writing")
    write_files(result, cells, folder)


def _tell(result: CellClustering, out: Path | None, seconds: float, quiet: bool, as_json: bool) -> None:
    if as_json:
        tell_json(summary(result) | {"out": None if out is None else str(out), "seconds": seconds})
    elif not quiet:
        print_cells(result)
        tell_written(out, OURS)


def print_cells(result: CellClustering, genes: int = 6) -> None:
    """Print the result for people."""
    n, p = len(result.labels), len(result.gene_names)
    tell(f"{n:,} cells, {p:,} genes ({len(result.genes):,} used), {len(result.names)} clusters")
    for note in result.notes:
        tell(note)
    print_selection(result.selection)
    tell()
    width = max(map(len, [*map(visible, result.names), "name"]))
    tell(f"cluster   cells   share   sure   {'name':{width}}   markers")
    for k, size in enumerate(result.sizes):
        own = result.labels == k
        sure = float(np.median(result.confidence[own])) if own.any() else 0.0
        found = result.markers
        names = [
            visible(result.gene_names[j])
            for j, score in zip(found.genes[k, :genes], found.scores[k, :genes], strict=True)
            if score > 0
        ]
        name = f"{visible(result.names[k]):{width}}"
        tell(f"{k:7}  {size:6,}  {size / max(n, 1):6.1%}  {sure:5.2f}   {name}   {', '.join(names)}")
    if result.comparison is not None:
        known = result.comparison
        tell()
        tell(f"Compared with the {len(known.classes)} classes: {known.sentence()}")
