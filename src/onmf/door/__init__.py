"""What every kind of data shares: tables of counts, the pipeline from a table to clusters, and the clusters."""

from __future__ import annotations

from .table import Progress, Table

__all__ = ["Progress", "Table"]
