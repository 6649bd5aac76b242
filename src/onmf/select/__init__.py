"""How many clusters: numbers that are tried, criteria that need no labels, and the choice."""

from .counts import HALVES, ROWS, select_n_clusters
from .grow import check_range, largest_number, try_numbers
from .information import reproduced
from .selection import CRITERIA, Selection

__all__ = [
    "CRITERIA",
    "HALVES",
    "ROWS",
    "Selection",
    "check_range",
    "largest_number",
    "reproduced",
    "select_n_clusters",
    "try_numbers",
]
