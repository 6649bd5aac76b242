"""Cells as a kind of data, and how they are clustered: genes, views, trials, runs, and the choice between them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from onmf.backend import to_host
from onmf.confidence import TEMPERATURES, every_run
from onmf.divergence import Array, FloatArray, NegativeBinomial, divide, get_divergence
from onmf.door import Clusters, Kind, Option, Progress, Table, cluster_table, predict_table
from onmf.door.groups import check_groups_of
from onmf.door.kind import CLUSTERING, GROUPS, KNOWN, OUTPUT, SEEDS, Fit, Rows, match_features, part_parameters
from onmf.door.known import columns_of_seeds
from onmf.door.settle import Standards, standards_rules, take_rows
from onmf.estimator import ONMF, fit_model
from onmf.fit import Clustering
from onmf.fit.restarts import check_moves
from onmf.io.rules import Rule, number, one_of, optional, require, strings
from onmf.naming import CANDIDATES, number_by_size, order_by_size

from .anndata import PSEUDOBULK, cells_of, groups_in, write_h5ad, write_markers, write_pseudobulk, write_results
from .counts import check_counts
from .files import Cells, read, setting
from .genes import (
    BY_CLUSTER,
    N_MARKERS,
    N_TOP_GENES,
    NAMES,
    Markers,
    Profiles,
    check_numbers,
    deviance,
    deviances,
    log_likelihood,
    markers_of,
    members_of,
    names_of,
    profiles_of,
    top_genes,
    transform,
)
from .groups import ByGroup
from .matrix import as_csr, canonical, columns_of

EXACT = 1e-6
"""Smoothing of the model. With the default for documents, the model would put a quarter of the cells into other
clusters than the local search by the exact objective does."""

STARTS = 4  # runs in each view
STARTS_OF_MANY = 2  # the same with a local search, which takes long, on more cells than the views are tried on
BEFORE_SEARCH = 20  # iterations of a run before its local search, which goes on from there faster than the loop does
AFTER_BISECTION = 1  # the same for a run that starts from a bisection, in which rows were moved one by one already
MOST_CELLS = 50_000  # number of cells, chosen at random, on which runs start if there are more
TRIED, TRIED_PER_CLUSTER = 5_000, 30  # cells, chosen at random, on which the views are tried; more for many clusters
CLEARLY, CLEARLY_FROM_SAME_RUN = 0.5, 0.1
"""Nats by which a cell's counts must be more likely for the logarithms to replace the counts, and for the negative
binomial to replace Kullback–Leibler. Other seeds lead to other runs, and change the first difference by up to 0.4; they
hardly change the second, since both divergences go on from the same run."""
Share = Callable[[float], None]  # called with the share of a step that is done


def parse_genes(value: str) -> int | None:
    """Parse ``--genes``: a number, or ``"all"``."""
    if value == "all":
        return None
    require(value.isdecimal() and int(value) >= 1, "is not a number of genes: use a whole number, at least 1, or all.")
    return int(value)


OPTIONS = (
    Option("layer", "Layer that holds the counts, or raw.", metavar="NAME", reading=True),
    Option("labels", "Compare with known classes: a column, or FILE.csv:COLUMN.", metavar="COLUMN", reading=True),
    replace(GROUPS, help="The sample or batch of each cell: a column, or FILE.csv:COLUMN. Clusters do not follow it."),
    KNOWN,
    replace(
        SEEDS,
        help='A file with marker genes of cell types: {"B cells": ["MS4A1", "CD79A"]}, or their weights by gene. They '
        "are clustered by, whatever their deviance.",
        flags=("--markers",),
    ),
    Option("orientation", "Rows of a table; guessed by default.", metavar="cells-in-rows|genes-in-rows", reading=True),
    Option(
        "n_top_genes",
        "Number of genes to cluster by, those of the highest deviance.",
        str,
        str(N_TOP_GENES),
        "NUMBER|all",
        CLUSTERING,
        ("--genes",),
        parse_genes,
    ),
    Option("min_cells", "Ignore genes that fewer cells have.", int, 1, "NUMBER", CLUSTERING, least=1),
    Option("min_genes", "Leave cells that have fewer genes unassigned.", int, 1, "NUMBER", CLUSTERING, least=1),
    Option(
        "view",
        "Cluster the counts or their normalised logarithms; auto tries both, and the negative binomial, or takes the "
        "counts if --divergence is not kullback-leibler.",
        str,
        "auto",
        "auto|counts|logs",
        CLUSTERING,
    ),
    Option(
        "corrected",
        "Write the counts without the factors of the groups, too: layer onmf_corrected of cells.h5ad.",
        bool,
        False,
        group=OUTPUT,
    ),
)


@dataclass(frozen=True, eq=False)
class Trial:
    """A view that was clustered to the end with a divergence."""

    view: str
    runs: list[Clustering]
    model: ONMF
    likelihood: float  # mean log-likelihood of a cell's counts

    @property
    def how(self) -> str:
        """The divergence, in a sentence, if it is the negative binomial."""
        return " with the negative binomial" if isinstance(self.model.divergence_, NegativeBinomial) else ""

    def compared(self, other: "Trial") -> str:
        """How likely the counts are, compared with another trial, in words."""
        ahead = self.likelihood - other.likelihood
        if ahead > 0:
            return f"more likely by {ahead:.2g} nats than under those of the {other.view}{other.how}"
        less = f" (less by {-ahead:.2g} nats)" if ahead else ""
        return f"about as likely as under those of the {other.view}{other.how}{less}"


@dataclass
class CellRows(Rows):
    """The cells that are clustered, with their counts of the genes of all views."""

    columns: Array = field(kw_only=True)  # these genes, as columns of the table
    views: dict[str, Array] = field(kw_only=True)  # the views to try, each with its genes, as columns of the table
    deviance: FloatArray = field(kw_only=True)  # of the counts of each gene of the table
    rng: np.random.Generator = field(kw_only=True)  # draws samples of the cells
    n_markers: int = field(kw_only=True)  # marker genes to find for each cluster
    corrected: bool = False  # whether counts without the factors of the groups are to be written
    chosen: str = ""  # the view that was clustered, after the fit

    def values(self, view: str, counts: csr_array) -> csr_array:
        """A view of the counts of some or all of the cells."""
        return transform(view, csr_array(counts[:, np.searchsorted(self.columns, self.views[view])]))


@dataclass(repr=False, eq=False)
class CellClusters(Clusters):
    """Clusters of cells; see :class:`onmf.door.Clusters`. Its rows are cells, its features genes.

    New cells that were assigned to the clusters of a model get their markers, profiles, deviance and depths when they
    are saved or reported.

    Attributes
    ----------
    genes : (used genes,) array of int
        Columns of the table that the cells were clustered by.
    view : {"counts", "logs"}
        What was clustered: the counts, or their normalised logarithms.
    markers : Markers
        Marker genes of each cluster.
    profiles : (numbers, genes) array
        Share of each gene in the counts of each cluster.
    deviance : (genes,) array
        Deviance of the counts of each gene.
    depths, genes_per_cell : (cells,) arrays
        Sum of the counts of each cell, and number of its genes.
    sums : Profiles or None
        Sums over the cells of each cluster, by gene: of counts, of normalised logarithms, and of cells with the gene.
    embedding : (cells, 2) array or None
        A map of the cells, once it was drawn; NaN for cells that are unassigned.
    map_method : str
        How the map was made, for people to read.
    corrected : bool
        Whether files and AnnData objects get counts without the factors of the groups, too.
    """

    table: Cells
    genes: Array = field(default_factory=lambda: np.empty(0, np.int64))
    view: str = "counts"
    markers: Markers = None  # type: ignore[assignment]  # of new cells that were not saved yet
    profiles: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    deviance: FloatArray = field(default_factory=lambda: np.empty(0))
    depths: FloatArray = field(default_factory=lambda: np.empty(0))
    genes_per_cell: Array = field(default_factory=lambda: np.empty(0, np.int64))
    sums: Profiles = None  # type: ignore[assignment]  # of clusters that were fitted
    embedding: FloatArray | None = None
    map_method: str = ""
    corrected: bool = False

    @property
    def features(self) -> Sequence[str]:
        """Names of the genes that the cells were clustered by."""
        if len(self.genes) < self.model.n_features_in_:  # new cells, which may lack some of the genes
            return self.kind.feature_names(self.model.extra_) or []
        return [self.table.symbols_or_genes[j] for j in self.genes]

    def predict(self, cells: Any, /, **options: Any) -> "CellClusters":
        """Assign other cells to these clusters; see :func:`onmf.cells.predict`."""
        return predict(self, cells, **options)

    @cached_property
    def by_group(self) -> ByGroup:
        """Sums by cluster and group, and the multipliers of all genes."""
        require(self.composition.any(), "These clusters have no groups: cluster the cells with groups= first.")
        return ByGroup(self)

    def pseudobulk(self) -> Any:
        """The sums of the counts of each cluster in each group, for tests between groups such as those of DESeq2.

        Returns
        -------
        AnnData
            A row for each cluster and group that have cells together: ``obs`` has ``cluster``, ``name``, ``group``,
            ``cells`` and ``counts``.
        """
        import pandas as pd
        from anndata import AnnData

        sums, about = self.by_group.pseudobulk()
        obs = pd.DataFrame({name: list(values) for name, values in about.items()}).set_index("column")
        obs.index.name = None
        return AnnData(sums, obs=obs, var=pd.DataFrame(index=list(self.table.genes)))

    def find_markers(self, n_markers: int = N_MARKERS) -> None:
        """Find the marker genes and the profiles of the clusters, and the depths of the cells."""
        self.sums = profiles_of(self.table.X, self.labels, self.n_numbers)
        self.depths, self.genes_per_cell = self.sums.depths, self.sums.genes_per_cell
        self.markers = markers_of(self.sums, n_markers)
        self.profiles = divide(self.sums.counts, self.sums.counts.sum(axis=1, keepdims=True))

    def _take(self, numbers: Array) -> dict[str, Any]:
        if self.markers is None:
            return {}
        markers = {name: values[numbers] for name, values in vars(self.markers).items()}
        sums = {name: getattr(self.sums, name)[numbers] for name in BY_CLUSTER}
        return {
            "markers": Markers(**markers),
            "sums": replace(self.sums, **sums),
            "profiles": self.profiles[numbers],
        }

    def complete(self) -> None:
        """Find what only files and the report need of new cells."""
        if self.markers is None:
            columns = self.kind.match(self.model, self.table)[0].columns
            self.genes, self.deviance = columns[columns >= 0], deviance(self.table.X)
            self.find_markers()


class CellKind(Kind):
    """Cells: rows of counts of molecules, by gene."""

    name = command = "cells"
    about = "Cluster cells by their counts of molecules."
    examples = (
        "onmf cells pbmc.h5ad -k 10 --out clusters",
        "onmf cells filtered_feature_bc_matrix/ -k auto --out clusters",
        "onmf cells counts.csv.gz -k 8 --labels annotation.csv:cell_type --out clusters",
        "onmf cells pbmc.h5ad -k 12 --markers markers.json --out clusters",
    )
    argument_help = (
        "Counts of cells: .h5ad, 10x Genomics .h5 or folder, .loom, csv, tsv, mtx, npz or .zarr. Several files are "
        "groups, such as samples."
    )
    several = True
    row, feature = "cell", "gene"
    first = 0  # as scanpy and Seurat count, whose clusters stand beside ours in the same file
    rows_to_choose = 2_400
    options = OPTIONS
    files = ("markers.csv", "cells.h5ad", *PSEUDOBULK)
    listed = ("markers.csv", "cells.h5ad")
    packages: Mapping[str, str] = {"anndata": "cells"}
    map_packages: Mapping[str, str] = {"openTSNE": "cells"}
    shown = ("markers",)
    smoothing = EXACT
    page = "onmf.cells.page:cells_page"

    result = CellClusters

    def rules(self, k: int, p: int) -> dict[str, Rule]:
        return {
            "genes": strings(p, distinct=True),
            "symbols": optional(strings(p)),
            "names": strings(),
            "view": one_of(*NAMES),
            **standards_rules(k, p),
            "temperature": number(*TEMPERATURES),
        }

    def feature_names(self, extra: Mapping[str, Any]) -> list[str]:
        return extra.get("symbols") or extra["genes"]

    def namings_of(self, extra: Mapping[str, Any]) -> list[Sequence[str]]:
        return [extra.get("symbols") or extra["genes"], extra["genes"]]

    def entries(self, clusters: Any) -> dict[str, Any]:
        known = getattr(clusters.model, "extra_", {})
        if known:  # the genes of new cells are others
            return {name: known[name] for name in ("genes", "symbols", "view") if name in known}
        cells = clusters.table
        names = {"genes": cells.genes, "symbols": cells.symbols or cells.ids}
        found = {name: [some[j] for j in clusters.genes] for name, some in names.items() if some is not None}
        return found | {"view": clusters.view}

    def read(self, path: str | Path, progress: Progress, *, force: bool = False, **options: Any) -> Table:
        cells = read(path, **options)
        cells.notes += check_counts(cells)
        return cells

    def prepare(  # type: ignore[override]  # the options are those of the command
        self,
        table: Table,
        parameters: dict[str, Any],
        progress: Progress,
        *,
        n_top_genes: int | None = N_TOP_GENES,
        min_genes: int = 1,
        min_cells: int = 1,
        view: str = "auto",
        n_markers: int = N_MARKERS,
        corrected: bool = False,
        seeds: Mapping[str, Any] | None = None,
    ) -> CellRows:
        """Choose the cells that take part, and the genes to cluster them by. Only these are read into memory."""
        X = canonical(table.X) if issparse(table.X) else table.X
        p = X.shape[1]
        most = p if n_top_genes is None else n_top_genes
        names = _views(view, parameters)
        check_numbers(min_genes=min_genes, min_cells=min_cells, n_top_genes=most)
        _model(2, X.shape[0], **parameters)  # refuses parameters before the genes are chosen
        progress("Choosing genes", None)
        genes_per_cell = np.concatenate([np.diff(batch.indptr) for batch in as_csr(X)])
        inside = genes_per_cell >= min_genes
        if not inside.any():
            fewer = f"no cell has more than {genes_per_cell.max()} genes"
            raise ValueError(f"min_genes={min_genes} leaves no cells: {fewer}. Lower min_genes.")
        lacking = "any counts" if min_genes == 1 else f"at least {min_genes} genes"
        notes = self.unassigned(table, np.flatnonzero(~inside), lacking)
        keep = None if inside.all() else inside
        groups, _ = check_groups_of(table, np.flatnonzero(inside), self.row, parameters)
        if groups is not None or seeds is not None or table.known is not None:
            names = names[:1]  # views are compared by fits without groups that know nothing
        require(
            groups is not None or not corrected,
            "corrected=True (--corrected) needs several groups: name their column, or read several files.",
        )
        rng = np.random.default_rng(check_random_state(parameters.setdefault("random_state", 0)).randint(2**31 - 1))
        codes = None if groups is None else np.unique(groups, return_inverse=True)[1]
        deviance = deviances(X, {"counts", *names}, keep, groups=codes)
        usable = np.ones(p, dtype=bool)
        if min_cells > 1:
            usable = min_cells <= np.sum([np.bincount(part.indices, minlength=p) for part in as_csr(X, keep)], axis=0)
        places = _places(table)
        seeded = {places[gene] for genes in (seeds or {}).values() for gene in genes if gene in places}
        seeded &= set(np.flatnonzero(usable & (deviance["counts"] > 0)).tolist())
        views = {name: top_genes(np.where(usable, deviance[name], 0.0), most) for name in names}
        if seeded:
            views = {name: np.union1d(genes, sorted(seeded)) for name, genes in views.items()}
        columns = np.unique(np.concatenate(list(views.values())))
        if not len(columns):
            where = "" if usable.all() else f" that is in {min_cells} cells"
            raise ValueError(f"No gene{where} differs between the cells: there is nothing to cluster by.")
        return CellRows(
            columns_of(X, columns, keep),
            np.flatnonzero(inside),
            notes,
            columns=columns,
            views=views,
            deviance=deviance["counts"],
            rng=rng,
            n_markers=n_markers,
            corrected=corrected,
        )

    def seeds_in(
        self, table: Table, rows: Any, seeds: Mapping[str, Any]
    ) -> tuple[dict[str, dict[Any, float]], list[str]]:
        places, columns = _places(table), {column: j for j, column in enumerate(rows.columns.tolist())}
        return columns_of_seeds(self, rows, seeds, lambda gene: columns.get(places.get(gene, -1)))

    def rows_to_cluster(self, rows: Any, some: Array) -> Any:
        return rows.values(next(iter(rows.views)), csr_array(take_rows(rows.X, some)))

    def fit(self, rows: Any, n_clusters: int, parameters: dict[str, Any], progress: Share, announce: Any) -> Fit:
        """Try the views, on some of the cells if there are many, and cluster all cells in the one that was chosen."""
        n = rows.X.shape[0]
        if rows.groups is not None or rows.given is not None:
            rows.chosen = next(iter(rows.views))
            values = rows.values(rows.chosen, rows.X)
            if rows.groups is None:
                parameters = {"smoothing": EXACT} | parameters
            return super().fit(replace(rows, X=values), n_clusters, parameters, progress, announce)
        sample = _some(n, MOST_CELLS, rows.rng)
        tried = sample[_some(len(sample), max(TRIED, TRIED_PER_CLUSTER * n_clusters), rows.rng)]
        trials = _try(rows, csr_array(rows.X[tried]), n_clusters, parameters) if len(rows.views) > 1 else []
        rows.chosen, beta_loss = next(iter(rows.views)), parameters.get("beta_loss", "kullback-leibler")
        notes = [f"The {rows.chosen} of {len(rows.views[rows.chosen]):,} genes were clustered."]
        if trials:
            best, *others = trials
            rows.chosen, beta_loss = best.view, best.model.beta_loss
            compared = ", and ".join(best.compared(trial) for trial in others)
            notes = [
                f"The {best.view} of {len(rows.views[best.view]):,} genes were clustered{best.how}: under their "
                f"clusters, the counts of a cell are {compared}."
            ]
        progress(0.6 if trials else 0.0)
        values = rows.values(rows.chosen, rows.X)
        by_view = {trial.view: trial.runs for trial in trials}
        voted = [to_host(run.labels) for runs in by_view.values() for run in runs]
        if trials and len(tried) == n:
            runs, model = trials[0].runs, trials[0].model
        else:
            start = _model(n_clusters, len(sample), **parameters)
            runs = every_run(start, take_rows(values, sample), thorough=True)
            model = _finish(start, values, runs, beta_loss, parameters)
            voted += [to_host(run.labels)[np.searchsorted(sample, tried)] for run in runs]
        progress(1.0)
        if len(sample) < n:
            notes.append(
                f"The runs started on {MOST_CELLS:,} cells, chosen at random; the best one ended on all cells."
            )
        if empty := int(np.count_nonzero(values.sum(axis=1) == 0)):
            notes.append(f"{self.so_many(empty)} without a count of the chosen genes: the cluster means nothing.")
        how = f"the {'better' if len(runs) == 2 else 'best'} of {len(runs)} runs" if len(runs) > 1 else ""
        return Fit(model, values, how, trials=(tried, voted), notes=notes)

    def fit_part(self, fit: Fit, X: Any, groups: Array | None, n_clusters: int, progress: Share) -> Fit:
        parameters = part_parameters(fit)
        if groups is not None:
            return super().fit_part(fit, X, groups, n_clusters, progress)
        start = _model(n_clusters, X.shape[0], **parameters)
        runs = every_run(start, X, thorough=True)
        model = _finish(start, X, runs, parameters.get("beta_loss", "kullback-leibler"), parameters)
        return Fit(model, X, trials=(np.arange(X.shape[0]), [to_host(run.labels) for run in runs]))

    def describe(self, clusters: Any, rows: Any, fit: Fit, progress: Progress) -> None:
        progress("Finding markers", None)
        clusters.genes, clusters.view, clusters.deviance = rows.views[rows.chosen], rows.chosen, rows.deviance
        clusters.corrected = rows.corrected
        clusters.find_markers(rows.n_markers)

    def own_names(self, clusters: Any) -> list[str]:
        return names_of(clusters.markers, clusters.table.symbols_or_genes)

    def telling(self, clusters: Any) -> list[list[str]]:
        return cast(list[list[str]], clusters.markers.above_zero(clusters.table.symbols_or_genes, CANDIDATES))

    def match(self, model: ONMF, table: Any) -> tuple[Any, list[str]]:
        extra = model.extra_
        ours = [extra["genes"], extra.get("symbols") or extra["genes"]]
        return match_features(table, ours, self, partial(transform, extra["view"]))

    def assigned(
        self, model: ONMF, table: Any, standards: Standards, progress: Progress
    ) -> tuple[dict[str, Any], list[str]]:
        found, notes = super().assigned(model, table, standards, progress)
        return found | {"view": model.extra_["view"]}, notes

    def row_columns(self, clusters: Any, part: slice) -> dict[str, Any]:
        if clusters.markers is None:
            return {}
        depths = [float(f"{depth:.10g}") for depth in clusters.depths[part]]
        return {"counts": depths, "genes": clusters.genes_per_cell[part].tolist()}

    def cluster_columns(self, clusters: Any) -> dict[str, Any]:
        if clusters.markers is None:
            return {}
        best = clusters.markers.above_zero(clusters.table.symbols_or_genes, 10)
        return {"markers": [", ".join(names) for names in best]}

    def summary(self, clusters: Any) -> dict[str, Any]:
        used = {"n_genes": len(clusters.table.genes), "n_genes_used": len(clusters.features)}
        return used | {"view": clusters.view, "divergence": clusters.model.divergence_.name}

    def headline(self, clusters: Any) -> str:
        used = f"{len(clusters.table.genes):,} genes ({len(clusters.features):,} used)"
        return f"{self.so_many(clusters.labels.size)}, {used}"

    def write(self, clusters: Any, folder: Path) -> None:
        write_markers(clusters, folder / "markers.csv")
        if clusters.composition.any():
            write_pseudobulk(clusters, folder)
        write_h5ad(clusters, folder / "cells.h5ad")


CELLS = CellKind()


def cluster(
    cells: Any,
    n_clusters: int | str,
    *,
    k_min: int | None = None,
    k_max: int | None = None,
    layer: str | None = None,
    groups: Any = None,
    known: Any = None,
    n_top_genes: int | None = N_TOP_GENES,
    key_added: str = "onmf",
    min_genes: int = 1,
    min_cells: int = 1,
    view: str = "auto",
    n_markers: int = N_MARKERS,
    corrected: bool = False,
    quick: bool = False,
    progress: Progress | None = None,
    **parameters: Any,
) -> CellClusters:
    """Cluster cells by their counts: those of an AnnData object, in place, or those that :func:`read` read.

    Use raw counts, neither normalised nor log-transformed. The cells are clustered by the 2,000 genes that
    deviate most: by their counts, by their counts with the negative binomial, or by normalised logarithms of them. The
    counts and Kullback–Leibler are used unless another choice makes the counts clearly more likely. The best of several
    runs with local search is kept. Of backed objects and Dask arrays, only the columns of these genes are read into
    memory.

    Parameters
    ----------
    cells : AnnData or Cells
        Cells × genes. The results are written into an AnnData object where scanpy looks for them:

        - ``obs[key_added]``: the cluster, a category, "0" being the largest; missing for cells that are unassigned.
          ``obs[key_added + "_confidence"]``: how often independent fits put this cell with the rest of its
          cluster, which is not the chance of being right; ``obs[key_added + "_surprise"]``: how unusual the cell is,
          from 0 (most) to 1; ``obs[key_added + "_runner_up"]``: the best other cluster;
          ``obs[key_added + "_margin"]``: how much worse that is, per count; ``obs[key_added + "_scale"]``: the scale of
          the cell.
        - ``var["deviance"]`` and ``var[key_added + "_gene"]``: deviance of each gene, and whether it was used.
        - ``varm[key_added]``: the share of each gene in the counts of each cluster, genes × clusters.
        - ``uns[key_added]``: parameters, view, objective, and with ``n_clusters="auto"`` the agreement for each number
          that was tried (``pandas.DataFrame(adata.uns["onmf"]["selection"])``). With groups, their names and the number
          of cells of each in each cluster (``adata.uns["onmf"]["groups"]``).
          ``varm[key_added + "_group_effects"]``: the multiplier of each gene in each group, genes × groups.
          ``uns[key_added + "_markers"]``: marker genes, as ``scanpy.get.rank_genes_groups_df`` reads them.
    n_clusters : int, "auto", "coarse" or "fine"
        Number of clusters. :func:`onmf.select_n_clusters` finds up to three levels: ``"auto"`` takes the medium one.
    k_min, k_max
        As in :func:`onmf.select_n_clusters`.
    layer : str, optional
        Layer of an AnnData object with the counts; by default ``adata.X``.
    groups : str or sequence, optional
        The batch, sample or donor of each cell: a column of ``adata.obs``, or a label for each cell. Each group
        multiplies every gene by a factor of its own, which is fitted, too, so that clusters do not follow the groups.
        Genes are then chosen by their deviance within the groups, and the counts are clustered.
    known : str or sequence, optional
        The name of the cluster of each cell that is known, missing or None for a free cell: a column of ``adata.obs``,
        or a name for each cell. With it, or with ``seeds={"B cells": ["MS4A1", "CD79A"]}``, ``"auto"`` takes the view
        of the counts.
    n_top_genes : int or None, default=2000
        Number of genes to cluster by, those of the highest deviance; None for all genes.
    key_added : str, default="onmf"
        Name under which the result is written into an AnnData object.
    min_genes : int, default=1
        Cells with fewer genes are unassigned.
    min_cells : int, default=1
        Genes in fewer cells are not clustered by.
    view : {"auto", "counts", "logs"}, default="auto"
        What is clustered: counts, or normalised logarithms. ``"auto"`` tries both with Kullback–Leibler, and the counts
        with the negative binomial; ``model.beta_loss`` says which divergence it chose. If ``beta_loss`` is another
        divergence, it takes the counts. The negative binomial refuses ``"logs"``: it describes counts.
    n_markers : int, default=100
        Number of marker genes of each cluster.
    corrected : bool, default=False
        Whether ``layers[key_added + "_corrected"]`` gets the counts divided by the multipliers of their groups.
    quick : bool, default=False
        Whether to start once in each view instead of four times.
    progress : callable, optional
        Called with the name of a step and the share of it that is done (None if unknown).
    **parameters
        Parameters of :class:`onmf.ONMF`, such as ``random_state`` (0 by default), ``n_init`` (4 by default, 2 if there
        are more than 5,000 cells) or ``n_threads``, and of :func:`onmf.door.cluster_table`, such as ``namer``.

    Returns
    -------
    CellClusters

    Examples
    --------
    >>> import anndata, onmf.cells
    >>> from onmf.datasets import make_counts
    >>> adata = anndata.AnnData(make_counts(200, 50, 3, random_state=0).X)
    >>> result = onmf.cells.cluster(adata, 3)
    >>> adata.obs["onmf"].cat.categories.tolist()
    ['0', '1', '2']
    """
    check_numbers(n_markers=n_markers)
    adata = None if isinstance(cells, Cells) else cells
    if adata is not None:
        require(
            isinstance(key_added, str) and key_added,
            f"key_added={key_added!r} is not allowed: give the name under which the result is written.",
        )
        cells = cells_of(adata, layer)
        cells.groups = None if groups is None else groups_in(adata, groups)
        known = groups_in(adata, known, "known clusters") if isinstance(known, str) else known
    elif layer is not None or groups is not None:
        name, value = ("layer", layer) if layer is not None else ("groups", groups)
        raise ValueError(f"{name}={value!r} is about an AnnData object: pass it to read(…, {name}=) for a file.")
    options = {"n_top_genes": n_top_genes, "min_genes": min_genes, "min_cells": min_cells, "corrected": corrected}
    result: Any = cluster_table(
        CELLS,
        cells,
        n_clusters,
        k_min=k_min,
        k_max=k_max,
        options=options | {"view": view, "n_markers": n_markers},
        progress=progress,
        known=known,
        quick=quick,
        **parameters,
    )
    if adata is not None:
        chosen = options | {"n_top_genes": n_top_genes or "all", "groups": groups} | parameters
        chosen = {name: value for name, value in chosen.items() if name not in ("corrected", "namer")}
        write_results(adata, result, key_added, layer=layer, parameters=chosen, corrected=corrected)
    return cast(CellClusters, result)


def predict(
    model: ONMF | CellClusters,
    cells: Any,
    *,
    layer: str | None = None,
    groups: Any = None,
    **options: Any,
) -> CellClusters:
    """Assign new cells to the clusters of a model of cells.

    Parameters
    ----------
    model : ONMF or CellClusters
        The result of :func:`cluster`, or the model that it saved, as :func:`onmf.load` reads it.
    cells : Cells or AnnData
        New cells, from :func:`read`. Genes are matched by name; those that are missing count as 0.
    layer : str, optional
        Layer of an AnnData object with the counts.
    groups : str or sequence, optional
        The groups of cells in an AnnData object, as in :func:`cluster`.
    **options
        Of :func:`onmf.door.predict_table`, such as ``unassigned``, ``estimate_groups`` or ``progress``.

    Returns
    -------
    CellClusters
        Cells without a count of the model's genes are unassigned.
    """
    fitted = model.model if isinstance(model, CellClusters) else model
    table = cells if isinstance(cells, Cells) else cells_of(cells, layer)
    if groups is not None:
        table = replace(table, groups=groups_in(cells, groups))
    found = predict_table(fitted, table, kind=CELLS, **options)
    return cast(CellClusters, found)


def _views(view: str, parameters: dict[str, Any]) -> tuple[str, ...]:
    """The views to try. Other divergences than Kullback–Leibler are not compared by a likelihood of counts."""
    if view not in (*NAMES, "auto"):
        raise ValueError(f"view={view!r} is not allowed: use 'auto', {' or '.join(map(repr, NAMES))}.")
    divergence = get_divergence(parameters.get("beta_loss", "kullback-leibler"))
    if view == "logs" and isinstance(divergence, NegativeBinomial):
        raise ValueError(
            "view='logs' is not allowed with the negative binomial, which describes counts, and logarithms are no "
            f"counts: use {setting('view', 'counts')}, or another divergence."
        )
    if view != "auto":
        return (view,)
    return NAMES if divergence == get_divergence("kullback-leibler") else ("counts",)


def _places(table: Table) -> dict[str, int]:
    """The column of each gene, by its name, its symbol or its identifier."""
    return {gene: j for names in table.namings[::-1] for j, gene in reversed(list(enumerate(names)))}


def _model(n_clusters: Any, n: int, /, *, quick: bool = False, **given: Any) -> ONMF:
    """The estimator of the runs on n cells, with the defaults for cells.

    The runs of the negative binomial are those of Kullback–Leibler, whose local search moves single rows. It goes on
    from the best one.
    """
    beta_loss = given.get("beta_loss", "kullback-leibler")
    divergence = get_divergence(beta_loss)
    if divergence.warm_start is not None:
        divergence = beta_loss = divergence.warm_start
    refine = given.get("refine", None if divergence.moves is None else "local-search")
    init = given.get("init", "random-partition" if divergence.moves is None else "bisection")
    check_moves(refine, init, divergence)
    name = init if isinstance(init, str) else None
    before_search = AFTER_BISECTION if name == "bisection" else BEFORE_SEARCH
    defaults: dict[str, Any] = {"max_iter": 100 if refine is None else before_search}
    if quick or name == "consensus":
        defaults["n_init"] = 1
    elif name not in (None, "snpa"):
        defaults["n_init"] = STARTS if refine is None or n <= TRIED else STARTS_OF_MANY
    return ONMF(n_clusters, **defaults | given | {"beta_loss": beta_loss, "init": init, "refine": refine})


def _try(rows: CellRows, counts: csr_array, n_clusters: int, parameters: dict[str, Any]) -> list[Trial]:
    """Cluster counts in both views, and with the negative binomial. → the trials, the one to use first

    It is the one that makes the counts most likely; counts with Kullback–Leibler unless another one does so clearly.
    """
    model = _model(n_clusters, counts.shape[0], **parameters)
    values = {view: rows.values(view, counts) for view in rows.views}
    runs = {view: every_run(model, values[view], thorough=True) for view in values}
    # A run in one view that goes on from the best one in the other finds what all runs in that view may have missed.
    ends = {view: members_of(to_host(_best(runs[view]).labels), n_clusters) for view in values}
    for view, other in () if "init" in parameters else (NAMES, NAMES[::-1]):  # a start that is given is the only one
        further = clone(model).set_params(init=(ends[other] @ values[view]).toarray(), n_init=1)
        runs[view] += every_run(further, values[view], thorough=True)

    def trial(view: str, beta_loss: Any) -> Trial:
        final = _finish(model, values[view], runs[view], beta_loss, parameters)
        return Trial(view, runs[view], final, log_likelihood(counts, to_host(final.labels_), n_clusters))

    plain, logs = (trial(view, model.beta_loss) for view in NAMES)
    binomial = trial("counts", "negative-binomial")
    margins = ((logs, CLEARLY), (binomial, CLEARLY_FROM_SAME_RUN))
    clear = [other for other, margin in margins if other.likelihood > plain.likelihood + margin]
    best = max(clear, key=lambda other: other.likelihood, default=plain)
    return [best, *(other for other in (plain, binomial, logs) if other is not best)]


def _some(n: int, most: int, rng: np.random.Generator) -> Array:
    """At most this number of n rows, in their order."""
    return np.sort(rng.permutation(n)[:most])


def _best(runs: Sequence[Clustering]) -> Clustering:
    """The run of the lowest objective."""
    return min(runs, key=lambda run: run.objective)


def _finish(
    model: ONMF, values: csr_array, runs: Sequence[Clustering], beta_loss: Any, parameters: dict[str, Any]
) -> ONMF:
    """The model from the best run, with clusters by falling size and exact templates.

    It ends with the loop, not with a search, so that :meth:`onmf.ONMF.predict` gives the same labels.
    """
    exact = {name: parameters.get(name, default) for name, default in (("smoothing", EXACT), ("max_iter", 100))}
    final = ONMF(**model.get_params() | exact | {"beta_loss": beta_loss, "refine": None, "n_init": 1})
    best = _best(runs)
    first = to_host(best.centroids)[order_by_size(to_host(best.labels), model.n_clusters)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rows of X are zero everywhere")  # said in a note
        fit_model(final, values, init=first)
        number_by_size(final, values)
    return final
