"""How many clusters: numbers that are tried, criteria that need no labels, and the choice."""

from .counts import select_n_clusters
from .grow import Range, Work, check_range, largest_number, try_numbers
from .selection import COLUMNS, CRITERIA, IMAGE_CRITERIA, Selection, reproduced

__all__ = [
    "COLUMNS",
    "CRITERIA",
    "IMAGE_CRITERIA",
    "Range",
    "Selection",
    "Work",
    "check_range",
    "largest_number",
    "reproduced",
    "select_n_clusters",
    "try_numbers",
]
