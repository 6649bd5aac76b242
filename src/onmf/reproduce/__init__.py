"""Reproduces the paper's tables and figures, and adds one more figure (see :mod:`onmf.reproduce.figures`)."""

from .tables import Fit, Table, paper_tables, reproduce_documents, reproduce_family, reproduce_images

__all__ = ["Fit", "Table", "paper_tables", "reproduce_documents", "reproduce_family", "reproduce_images"]
