"""Reports: each is one self-contained HTML file that works offline."""

from __future__ import annotations

from .cells import cells_report, write_cells_report
from .documents import documents_report, write_documents_report
from .image import image_report, write_image_report
from .page import embed, render_page

__all__ = [
    "cells_report",
    "documents_report",
    "embed",
    "image_report",
    "render_page",
    "write_cells_report",
    "write_documents_report",
    "write_image_report",
]
