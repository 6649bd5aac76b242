"""Loads the data sets."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from scipy.sparse import csr_array

from onmf.divergence import Array, FloatArray

from .catalogue import DatasetInfo, info_of, remote_files
from .cells import CellSet, read_cell_set
from .documents import Documents
from .download import fetch
from .readers import read_documents
from .scene import Scene
from .stored import open_npz

SAMSON_NANOMETRES = (400.938721, 899.074585)
"""First and last of Samson's 156 equally spaced bands, from the header of its ENVI file."""

DAMAGED = "Delete the file if it is damaged, and download it again."


@overload
def load_documents(name: str, *, return_X_y: Literal[False] = False, download_if_missing: bool = True) -> Documents: ...
@overload
def load_documents(
    name: str, *, return_X_y: Literal[True], download_if_missing: bool = True
) -> tuple[csr_array, Array]: ...
def load_documents(
    name: str, *, return_X_y: bool = False, download_if_missing: bool = True
) -> Documents | tuple[csr_array, Array]:
    """Load one of the paper's 15 document collections.

    Parameters
    ----------
    name : str
        NG20, ng3sim, classic, ohscal, k1b, hitech, reviews, sports, la1, la12, la2, tr11, tr23, tr41 or tr45.
    return_X_y : bool, default=False
        Whether to return ``(X, y)`` instead, as scikit-learn's loaders do.
    download_if_missing : bool, default=True
        Whether to download the data set if it is not on this machine.

    Returns
    -------
    Documents, or tuple (X, y)
    """
    info = _find(name, "documents", download_if_missing)
    try:
        documents = read_documents(info.path)
    except ValueError as error:
        raise ValueError(f"{error} {DAMAGED}") from error
    if documents.y is None:
        raise ValueError(f"{info.path} has no classes. {DAMAGED}")
    if return_X_y:
        return documents.X, documents.y
    return Documents(X=documents.X, y=documents.y, name=info.name, source=documents.source)


def load_hyperspectral(name: str, *, download_if_missing: bool = True) -> Scene:
    """Load one of the paper's three hyperspectral scenes.

    The ground truth of Moffett, if the file has one, was transferred from another release of the same scene. Its
    spectra can be compared, but not with the paper's MRSA.

    Parameters
    ----------
    name : str
        samson, jasper or moffett.
    download_if_missing : bool, default=True
        Whether to download the data set if it is not on this machine.

    Returns
    -------
    Scene
    """
    info = _find(name, "hyperspectral", download_if_missing)
    try:
        return _scene(info)
    except Exception as error:  # NumPy raises many kinds of errors for damaged files
        raise ValueError(f"{info.path} cannot be read as npz: {error}. {DAMAGED}") from error


@overload
def load_cells(name: str, *, return_X_y: Literal[False] = False, download_if_missing: bool = True) -> CellSet: ...
@overload
def load_cells(
    name: str, *, return_X_y: Literal[True], download_if_missing: bool = True
) -> tuple[csr_array, Array]: ...
def load_cells(
    name: str, *, return_X_y: bool = False, download_if_missing: bool = True
) -> CellSet | tuple[csr_array, Array]:
    """Load one of nine sets of counts whose classes are known: eight of cells, and one of a microbiome.

    ========================  ===============  ==================================================================
    Name                      Cells × genes    Classes
    ========================  ===============  ==================================================================
    zheng_facs10              3,774 × 16,791   10 kinds of blood cells, sorted before sequencing
    hash_4lines               1,701 × 1,668    4 cell lines, by hashtag; a random 2,000 genes
    sc_celseq2                274 × 28,204     3 cell lines, by genotype
    sc_dropseq                225 × 15,127     3 cell lines, by genotype
    worm_neuron               4,186 × 13,488   10 kinds of neurons, annotated by the authors
    worm_embryo               1,796 × 9,999    8 kinds of neurons and their ancestors, annotated by the authors
    marques_oligo             2,128 × 2,000    10 stages of oligodendrocytes, clusters of the authors
    pbmc4k_top2000            4,271 × 2,000    8 clusters of the vendor's software
    hmp_site18                5,684 × 9,342    18 body sites; left and right hardly differ
    ========================  ===============  ==================================================================

    Classes that were found by clustering the same counts (the last four sets of cells) favour methods like the one
    that found them. Those of the other sets were measured in another way.

    Parameters
    ----------
    name : str
        Name of the set.
    return_X_y : bool, default=False
        Whether to return ``(X, y)`` instead, as scikit-learn's loaders do.
    download_if_missing : bool, default=True
        Whether to download the data set if it is not on this machine. See :func:`fetch`.

    Returns
    -------
    CellSet, or tuple (X, y)

    Notes
    -----
    The sets were made from public repositories of these studies: Zheng et al. 2017 (zheng_facs10), Stoeckius et al.
    2018 (hash_4lines), Tian et al. 2019 (sc_celseq2 and sc_dropseq), Cao et al. 2017 (worm_neuron), Packer et al. 2019
    (worm_embryo), Marques et al. 2016 (marques_oligo), 10x Genomics (pbmc4k_top2000), and the Human Microbiome Project
    Consortium 2012 (hmp_site18). ``source`` names the files. Cells without a class, and genes without a count, were
    removed; sc_celseq2 still has 131 such genes.

    Examples
    --------
    >>> from onmf.datasets import load_cells
    >>> load_cells("sc_dropseq")  # doctest: +SKIP
    <CellSet sc_dropseq: 225 × 15127 counts, 1290921 nonzeros, 3 classes>
    """
    info = _find(name, "cells", download_if_missing)
    source = ", ".join(f"{file.repository}@{file.commit[:12]}: {file.path}" for file in remote_files(info))
    try:
        cells = read_cell_set(info.path, info.name, source)
    except Exception as error:  # NumPy raises many kinds of errors for damaged files
        raise ValueError(f"{info.path} cannot be read as npz: {error}. {DAMAGED}") from error
    return (cells.X, cells.y) if return_X_y else cells


def _scene(info: DatasetInfo) -> Scene:
    with open_npz(info.path) as file:
        X: FloatArray = np.asarray(file["X"] * file["scale_num"] / file["scale_den"], dtype=np.float64)
        truth: dict[str, Any] = {key: file[key] for key in ("endmembers", "abundances", "names") if key in file}
        if "abundances_partial" in file:
            truth["abundances"] = file["abundances_partial"]
        if info.name == "samson":
            truth["wavelengths"] = np.linspace(*SAMSON_NANOMETRES, X.shape[1])
        height, width, order = int(file["height"]), int(file["width"]), str(file["order"])
        if X.ndim != 2 or min(height, width) < 1 or height * width != len(X) or order not in ("C", "F"):
            raise ValueError(f"it is not an image of {height} × {width} pixels in order C or F")
        return Scene(
            X=X,
            height=height,
            width=width,
            order=order,  # type: ignore[arg-type]
            name=info.name,
            source=str(file["source"]),
            **truth,
        )


def _find(name: str, kind: str, download: bool) -> DatasetInfo:
    """Return the data set, and download it if necessary."""
    info = info_of(name)
    if info.kind != kind:
        raise ValueError(f"{info.name} is a {info.kind} data set: load it with load_{info.kind}.")
    if not info.available:
        if not download:
            raise FileNotFoundError(
                f"{info.path} does not exist: download it with onmf.datasets.fetch({info.name!r}), or set ONMF_DATA to "
                "the folder that has it."
            )
        fetch(info.name)
    return info
