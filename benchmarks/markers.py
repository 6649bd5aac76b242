"""Cell types by published markers: seeds of clusters against the scores of scanpy, on two sets.

The lists are from the literature. They were written down before anything was computed, and nothing was chosen by the
classes. Both methods leave out genes that a set lacks.

- zheng_facs10: the ten markers of each type of the reference of PBMC in Azimuth (Hao et al. 2021, Cell 184:3573); for
  helper cells of type 2 the master regulator, surface markers and cytokines (Zhu, Yamane and Paul 2010, Annu. Rev.
  Immunol. 28:445).
- hash_4lines: what describes the lines. HEK: neurofilaments, keratins, N-cadherin, and factors of the embryonic kidney
  (Shaw et al. 2002, FASEB J. 16:869; Lin et al. 2014, Nat. Commun. 5:4767). K562: genes of red blood cells, and PRAME
  (Lozzio and Lozzio 1975, Blood 45:321). KG1: markers of blasts (Koeffler and Golde 1978, Science 200:1153). THP1:
  genes of monocytes and their precursors (Tsuchiya et al. 1980, Int. J. Cancer 26:171). The set has 1,668 genes, a
  random choice, so that most markers are missing.
"""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import onmf.cells
from onmf.datasets import load_cells
from onmf.metrics import clustering_accuracy

from .results import Grid, Record, Store, publish

MARKERS = {
    "zheng_facs10": {
        "CD14+ Monocyte": "S100A9 CTSS S100A8 LYZ VCAN S100A12 IL1B CD14 G0S2 FCN1",
        "CD19+ B": "CD79A RALGPS2 CD79B MS4A1 BANK1 CD74 TNFRSF13C HLA-DQA1 IGHM MEF2C",
        "CD34+": "SPINK2 PRSS57 CYTL1 EGFL7 GATA2 CD34 SMIM24 AVP MYB LAPTM4B",
        "CD56+ NK": "GNLY TYROBP NKG7 FCER1G GZMB TRDC PRF1 FGFBP2 SPON2 KLRF1",
        "CD8+ Cytotoxic T": "CCL5 GZMH CD8A TRAC KLRD1 NKG7 GZMK CST7 CD8B TRGC2",
        "CD8+/CD45RA+ Naive Cytotoxic": "CD8B S100B CCR7 RGS10 NOSIP LINC02446 LEF1 CRTAM CD8A OXNAD1",
        "CD4+/CD45RA+/CD25- Naive T": "TCF7 CD4 CCR7 IL7R FHIT LEF1 MAL NOSIP LDHB PIK3IP1",
        "CD4+/CD45RO+ Memory": "IL7R TMSB10 CD4 ITGB1 LTB TRAC AQP3 LDHB IL32 MAL",
        "CD4+/CD25 T Reg": "RTKN2 FOXP3 AC133644.2 CD4 IL2RA TIGIT CTLA4 FCRL3 LAIR2 IKZF2",
        "CD4+ T Helper2": "GATA3 CCR4 PTGDR2 IL4 IL5 IL13",
    },
    "hash_4lines": {
        "HEK": "NEFL NEFM CDH2 PAX2 SALL1 KRT8 KRT18",
        "K562": "HBG1 HBG2 HBZ HBE1 GYPA GATA1 KLF1 ALAS2 AHSP SLC25A37 PRAME",
        "KG1": "CD34 CD33 HLA-DRA SPINK2 BAALC MN1 FLT3 PROM1",
        "THP1": "CD14 LYZ MPO AZU1 ELANE CTSG CSF1R FCN1 LST1 CYBB S100A8 S100A9 CD4",
    },
}
"""Published markers of the classes of each set."""

TITLES = {"score": "scanpy's score_genes", "seeds": "onmf with markers", "none": "onmf without"}


def run(sets: tuple[str, ...] = (), out: Path = Path("docs/cells")) -> None:
    """Measure, print, and write JSON and Markdown."""
    store = Store(out / "results.json", ("set", "method"), "markers")
    for name in sets or tuple(MARKERS):
        store.add(*measure(name))
    publish(out / "markers.md", summary(store.records))


def measure(name: str) -> list[Record]:
    """Return how far the types that each method gives agree with the classes."""
    cells = load_cells(name)
    adata, y = cells.to_anndata(), np.asarray(cells.y)
    adata.var_names = list(cells.genes)
    adata.var_names_make_unique()
    classes = np.array(cells.classes)[y]
    markers = {kind: genes.split() for kind, genes in MARKERS[name].items()}
    seeded = onmf.cells.cluster(adata.copy(), len(markers), seeds=markers)
    plain = onmf.cells.cluster(adata.copy(), len(markers))
    types = {"score": types_by_score(adata, markers), "seeds": np.array(seeded.names)[seeded.labels]}
    found = [
        {"accuracy": float(np.mean(given == classes)), "ari": float(adjusted_rand_score(classes, given))}
        for given in types.values()
    ]
    found.append({"accuracy": clustering_accuracy(y, plain.labels), "ari": float(adjusted_rand_score(y, plain.labels))})
    return [{"set": name, "method": method} | scores for method, scores in zip(TITLES, found, strict=True)]


def types_by_score(adata: Any, markers: dict[str, list[str]]) -> Any:
    """Return the type of each cell whose markers score best, as the tutorials of scanpy have it."""
    import scanpy

    logs = adata.copy()
    logs.X = logs.X.astype(np.float32)
    scanpy.pp.normalize_total(logs, target_sum=1e4)
    scanpy.pp.log1p(logs)
    scores = []
    for genes in markers.values():
        scanpy.tl.score_genes(logs, [gene for gene in genes if gene in logs.var_names], random_state=0)
        scores.append(logs.obs["score"].to_numpy())
    return np.array(list(markers))[np.argmax(scores, axis=0)]


def summary(records: list[Record]) -> list[str]:
    """Return the table."""
    grid = Grid(records, TITLES)
    return grid.by_set(lambda *place: f"{grid.mean(*place, 'accuracy'):.1%}, {grid.mean(*place, 'ari'):.2f}")
