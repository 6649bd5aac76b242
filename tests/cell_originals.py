"""Small files in the layouts of the public files of the cell sets, with what has to be left out of each."""

import csv
import gzip
import io
import zipfile

import numpy as np
import pytest
from benchmarks.cells import fetch
from scipy.sparse import csr_array

from onmf.datasets import CellSet
from r_files import S4, Environment, data_frame, dense, factor, frame, save_rda, save_rds, sparse


def small_set(name, seed=0):
    """A set of 60 cells with the classes of the set of this name, and its facts."""
    rng = np.random.default_rng(seed)
    classes = list(fetch.SOURCES[name]["classes"])
    X = rng.poisson(0.7, size=(60, 25))
    X[0] += X.sum(axis=0) == 0
    y = np.concatenate([np.arange(len(classes)), rng.integers(len(classes), size=60 - len(classes))])
    genes = None if name in ("worm_neuron", "pbmc4k_top2000") else np.array([f"gene{j}" for j in range(25)])
    X = csr_array(X.astype(np.uint8))
    facts = {
        **fetch.SOURCES[name],
        **{"rows": 60, "columns": 25, "entries": X.nnz, "total": int(X.sum())},
        "classes": dict(zip(classes, np.bincount(y).tolist(), strict=True)),
    }
    return CellSet(X=X, y=y, classes=np.array(classes), name=name, source="", genes=genes), facts


def with_waste(cells):
    """A matrix with three cells and a gene more, the labels, where the last three have none, and the genes."""
    X = np.zeros((63, 26), dtype=np.int64)
    X[:60, :25] = cells.X.toarray()
    X[60:, :25] = 1
    labels = [str(cells.classes[i]) for i in cells.y] + [None, "", "another"]
    return csr_array(X), labels, [*cells.genes, "nothing"] if cells.genes is not None else None


def write_originals(cells, folder):
    """Write the public files of a set into a folder, and return their paths in the order of the catalogue.

    Skips the test if the package that converts them is not installed.
    """
    _, package = fetch.READERS[cells.name]
    if package is not None:
        pytest.importorskip(package, reason=f"{package} is not installed")
    paths = [folder / file.name for file in fetch.remote_files(cells.name)]
    WRITERS[cells.name](cells, *paths)
    return paths


def write_facs(cells, path):
    X, labels, genes = with_waste(cells)
    samples = frame(
        {"barcode": [f"c{i}" for i in range(63)], "celltype": factor(labels, [*cells.classes, "another", ""])}
    )
    both = frame({"ensembl": [f"E{j}" for j in range(26)], "symbol": genes})
    counts = sparse(X, [f"c{i}" for i in range(63)], [f"E{j}" for j in range(26)])
    save_rda(path, {"pbmc_facs": {"counts": counts, "counts_test": sparse(X[:2]), "samples": samples, "genes": both}})


def write_hashed(cells, path):
    """An old SingleCellExperiment: its assays are in an environment."""
    X, labels, genes = with_waste(cells)
    kinds = ["Singlet"] * 60 + ["Negative", "Doublet", "Doublet"]
    tags = [f"{label}_A" for label in labels[:60]] + ["Negative", "HEK_A_K562_B", "KG1_B_THP1_C"]
    columns = {
        "hto_classification": tags,
        "hto_classification_global": factor(kinds, ["Doublet", "Negative", "Singlet"]),
    }
    assays = S4("SimpleList", {"listData": {"counts": sparse(X.T, genes), "logcounts": sparse(X.T * 2)}})
    experiment = {
        "int_colData": data_frame({"size": np.ones(63)}),
        "colData": data_frame(columns),
        "assays": S4("ShallowSimpleListAssays", {".xData": Environment({"other": None, "data": assays})}),
    }
    save_rda(path, {"sce_chcl": S4("SingleCellExperiment", experiment)})


def write_oligodendrocytes(cells, path):
    """A new SingleCellExperiment, with dense counts whose names are apart."""
    X, labels, genes = with_waste(cells)
    ranges = S4("CompressedGRangesList", {"partitioning": S4("PartitioningByEnd", {"NAMES": genes})})
    assays = S4("SimpleAssays", {"data": S4("SimpleList", {"listData": {"counts": dense(X.T)}})})
    experiment = {
        "rowRanges": ranges,
        "colData": data_frame({"title": labels, "inferred_cell_type": labels, "pseudotime": np.ones(63)}),
        "assays": assays,
    }
    save_rda(path, {"scXample": S4("SingleCellExperiment", experiment)}, "gzip")


def write_embryo(cells, matrix, table):
    X, labels, genes = with_waste(cells)
    save_rds(matrix, sparse(X.T, genes, [f"c{i}" for i in range(63)]))
    save_rds(table, data_frame({"cell": [f"c{i}" for i in range(63)], "cell.type": labels}))


def write_mixture(cells, counts, table, corner=()):
    """CSV files of R: the header lacks the corner, or has an empty one. The table is in another order."""
    X, labels, genes = with_waste(cells)
    X, labels, genes = X[:60, :25], labels[:60], genes[:25]
    with gzip.open(counts, "wt", newline="") as file:
        lines = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        lines.writerow([*corner, *(f"c{i}" for i in range(60))])
        lines.writerows([gene, *row] for gene, row in zip(genes, X.T.toarray().tolist(), strict=True))
    with gzip.open(table, "wt", newline="") as file:
        lines = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        lines.writerow([*corner, "mapped", "cell_line_demuxlet", "demuxlet_cls"])
        lines.writerows([f"c{i}", 3, labels[i], "SNG"] for i in reversed(range(60)))


def write_arrays(cells, path):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=cells.X.toarray().astype(np.float64), chunks=(7, 10), compression="gzip")
        file["Y"] = np.array([float(cells.classes[i]) for i in cells.y])


def write_body_sites(cells, table, sites):
    X, labels, genes = with_waste(cells)
    names = [f"SRS{i:06}.57{i}" for i in range(63)]
    text = io.StringIO()
    text.write("# Constructed from biom file\n#OTU ID\t" + "\t".join(names) + "\ttaxonomy\n")
    for gene, row in zip(genes, X.T.toarray(), strict=True):
        text.write("\t".join([gene, *(f"{count:.1f}" for count in row), "k__Bacteria; p__"]) + "\n")
    with zipfile.ZipFile(table, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._otutable.txt", b"\0")
        archive.writestr("otutable.txt", text.getvalue())
    before, after = ["."] * 7, ["Region", "Barcode", "Primer", "Sex", "SubsiteSite", "VisitNo"]
    fields = [*before, "SRS_SampleID", *after]
    lines = ["\t".join(fields)]
    for i, label in enumerate(labels[:61]):
        line = ["."] * 15
        line[7], line[12], line[13] = f"SRS{i:06}", label or "unknown", "Oral"
        lines += ["\t".join(line)] * 2
    sites.write_text("\n".join(lines) + "\n")


WRITERS = {
    "zheng_facs10": write_facs,
    "hash_4lines": write_hashed,
    "sc_celseq2": write_mixture,
    "sc_dropseq": lambda *rest: write_mixture(*rest, corner=("",)),
    "worm_neuron": write_arrays,
    "worm_embryo": write_embryo,
    "marques_oligo": write_oligodendrocytes,
    "pbmc4k_top2000": write_arrays,
    "hmp_site18": write_body_sites,
}
