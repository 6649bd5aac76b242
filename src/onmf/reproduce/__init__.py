"""Reproduces the paper's tables and figures, and adds one more figure."""

from __future__ import annotations

from .compare import Cell, Table, paper_tables
from .documents import DocumentsReport, DocumentsRow, reproduce_documents
from .family import FamilyPoint, FamilyReport, plot_family, reproduce_family
from .images import ImageRow, ImagesReport, plot_maps, plot_spectra, reproduce_images
from .write import write_figure, write_table

__all__ = [
    "Cell",
    "DocumentsReport",
    "DocumentsRow",
    "FamilyPoint",
    "FamilyReport",
    "ImageRow",
    "ImagesReport",
    "Table",
    "paper_tables",
    "plot_family",
    "plot_maps",
    "plot_spectra",
    "reproduce_documents",
    "reproduce_family",
    "reproduce_images",
    "write_figure",
    "write_table",
]
