"""Everything between data and a clustering."""

from .loop import Iteration
from .result import Agreement, Assigned, Clustering
from .settings import Listener, Plan, Settings
from .solve import fit
from .start import STARTS
from .starts import snpa

__all__ = [
    "STARTS",
    "Agreement",
    "Assigned",
    "Clustering",
    "Iteration",
    "Listener",
    "Plan",
    "Settings",
    "fit",
    "snpa",
]
