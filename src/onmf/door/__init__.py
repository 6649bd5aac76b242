"""What every kind of data shares: tables of counts, the pipeline from a table to clusters, and the clusters."""

from .clusters import Clusters
from .kind import Kind, Option
from .run import check_request, cluster_table, predict_table
from .table import Progress, Table

__all__ = ["Clusters", "Kind", "Option", "Progress", "Table", "check_request", "cluster_table", "predict_table"]
