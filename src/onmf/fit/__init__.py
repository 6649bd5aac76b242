"""Everything between data and a clustering."""

from .describe import Agreement, Assigned, Clustering
from .loop import Iteration
from .restarts import Listener, Plan, Settings
from .solve import STARTS, fit
from .starts import snpa

__all__ = ["STARTS", "Agreement", "Assigned", "Clustering", "Iteration", "Listener", "Plan", "Settings", "fit", "snpa"]
