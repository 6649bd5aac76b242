"""How many clusters there are, at which levels, and whether there are any: :func:`select_n_clusters`."""

from .choose import select_n_clusters
from .selection import AUTO, Level, Range, Selection

__all__ = ["AUTO", "Level", "Range", "Selection", "select_n_clusters"]
